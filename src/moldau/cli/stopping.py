"""SIGINT and SIGTERM for a command that has processes of its own and threads at work: the first one ends it, the second one at once."""

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from moldau.cli.exit_codes import INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """As a context manager. The first signal calls `on_stop`, which may raise KeyboardInterrupt; without one it raises that.

    The second one calls `at_once`, and ends the process with exit code 130.
    """

    def __init__(self) -> None:
        self.requested = False
        """Whether a signal came."""
        self.on_stop: Callable[[], object] | None = None
        self.at_once: Callable[[], object] = lambda: None
        self._before: dict[signal.Signals, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            self.at_once()
            os._exit(INTERRUPTED)
        self.requested = True
        if self.on_stop is None:
            raise KeyboardInterrupt
        self.on_stop()

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
