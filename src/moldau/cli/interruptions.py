"""Ctrl-C and SIGTERM, which end a command at its next good moment: what it has begun to write is written, and committed as written.

A second signal does not wait for that moment. One that comes when the command has ended, while the process does, changes nothing:
Python would die of it, whatever the exit code was to be.

Python runs handlers on the main thread, and the kernel may deliver a signal to any other: a main thread that waits for a lock or a socket
then never runs them. A thread that the C handler wakes (`signal.set_wakeup_fd`) therefore interrupts the main thread's wait.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self

from moldau.cli.exit_codes import INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WAKES = signal.SIGURG
"""Sent to the main thread to end its wait. The default action for it is none, so a late one does no harm."""


class Interruptions:
    """As a context manager: both signals raise KeyboardInterrupt, at once or, while they are `held`, the first one at the end of that.

    A command that has processes and threads at work decides what they do instead: the first signal calls `on_stop`, which may raise
    KeyboardInterrupt; the second one prints `interrupted`, calls `at_once`, and ends the process with exit code 130.
    """

    process_ends: ClassVar[bool] = False
    """Whether the process ends with the command, as that of the console script does."""

    def __init__(self) -> None:
        self.requested = False
        """Whether a signal came."""
        self.done = False
        """Whether the command has done its work: set by one that takes long to end after that."""
        self.on_stop: Callable[[], object] | None = None
        self.at_once: Callable[[], object] | None = None
        self._held = False
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup = -1
        self._writer = -1
        self._errors = -1
        """Standard error as it was at first: it goes elsewhere while Spark starts."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """The first signal raises after this block, a second one within it."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.requested:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if again and self.at_once is not None:
            with suppress(OSError):
                os.write(self._errors, b"interrupted\n")  # sys.stderr may be in use by what was interrupted
            self.at_once()
            os._exit(INTERRUPTED)
        if not again and self._held:
            return
        if again or self.on_stop is None:
            raise KeyboardInterrupt
        self.on_stop()

    def __enter__(self) -> Self:
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._errors = os.dup(2)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=_wake_main_thread, args=(reader,), name="moldau-signals", daemon=True).start()
        self._before[_WAKES] = signal.signal(_WAKES, lambda _number, _frame: None)
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        over = self.process_ends and (self.requested or self.done)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if over and number in _SIGNALS else handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._writer)
        os.close(self._errors)


def _wake_main_thread(reader: int) -> None:
    """Until the other end of the pipe is closed. Each byte is the number of a signal."""
    main = threading.main_thread().ident
    assert main is not None
    while numbers := os.read(reader, 64):
        if set(numbers) != {_WAKES}:
            signal.pthread_kill(main, _WAKES)
    os.close(reader)
