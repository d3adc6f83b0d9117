"""Ctrl-C and SIGTERM, which end a command at its next good moment: what it has begun to write is written, and committed as written.

Who does not want to wait for that moment, because nobody takes the output for instance, sends a second one.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruptions:
    """As a context manager: both signals raise KeyboardInterrupt, at once or, while they are `held`, at the end of that."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """The first signal raises behind this block, a second one within it."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._held and not self._pending:
            self._pending = True
        else:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
