"""How kazoo calls back: everything in one queue, on the thread of a loop.

kazoo's own handler has a thread for answers and one for watches, which lose their order against each other.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_LOG = logging.getLogger(__name__)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """A handler for one client of kazoo."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._thread = threading.get_ident()
        self.is_over = False
        """Whether the client has ended, so that it must not connect any more."""
        self.granted_ms = 0
        """The session timeout, as of the last connection."""
        self.failure: str | None = None

    def start(self) -> None:
        """There are no threads for calls back."""

    def stop(self) -> None:
        """See `start`."""

    def async_result(self) -> "LoopAnswer":
        """A result whose callbacks run on the loop's thread, in the order in which results come."""
        return LoopAnswer(self)

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watcher."""
        self.post(partial(callback.func, *callback.args))

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Connect, unless the client has ended."""
        if self.is_over:
            raise OSError("client has ended")
        try:
            connection = super().create_connection(*arguments, **options)
        except OSError as error:
            self.failure = error.strerror or str(error)
            raise
        self.failure = None
        return connection

    def post(self, call: Callable[[], object]) -> None:
        """Call on the loop's thread, after all that was posted before."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed
            _LOG.debug("call of kazoo dropped: loop closed")

    def settle(self, call: Callable[[], object]) -> None:
        """Call on the loop's thread: at once, when this is it."""
        if threading.get_ident() == self._thread:
            call()
        else:
            self.post(call)


class LoopAnswer:
    """The result of a request, which changes on the loop's thread only."""

    def __init__(self, handler: LoopHandler) -> None:
        self._handler = handler
        self._callbacks: list[Callable[[LoopAnswer], object]] = []
        self._is_ready = False
        self.value: Any = None
        self.exception: Exception | None = None

    def set(self, value: Any = None) -> None:
        """The result is there."""
        self._handler.settle(partial(self._settle, value, None))

    def set_exception(self, exception: Exception) -> None:
        """The request failed."""
        self._handler.settle(partial(self._settle, None, exception))

    def get(self) -> Any:
        """The result, which is there."""
        if self.exception is not None:
            raise self.exception
        return self.value

    def rawlink(self, callback: Callable[["LoopAnswer"], object]) -> None:
        """Call back when the result is there."""
        if self._is_ready:
            callback(self)
        else:
            self._callbacks.append(callback)

    def _settle(self, value: Any, exception: Exception | None) -> None:
        if self._is_ready:
            return
        self._is_ready = True
        self.value, self.exception = value, exception
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
