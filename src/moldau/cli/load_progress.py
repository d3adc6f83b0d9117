"""A line at the terminal while a load runs: what it does, and for how long. Nothing where standard error is no terminal."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 0.2
SHOWN_AFTER_S = 0.5


class LoadProgress:
    """Shows what `doing` says until it is ended. It has a copy of standard error: that of Spark goes elsewhere while it starts."""

    def __init__(self, doing: Callable[[], str]) -> None:
        self._doing = doing
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._terminal = os.dup(sys.stderr.fileno()) if sys.stderr.isatty() else None

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            passed = time.monotonic() - self._begun
            if passed >= SHOWN_AFTER_S and (what := self._doing()):
                with self._lock:
                    self._write(f"\r{what}, {passed:.0f} s\033[K")

    def _write(self, text: str) -> None:
        if self._terminal is not None:
            os.write(self._terminal, text.encode())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While this lasts."""
        if self._terminal is None:
            yield
            return
        thread = threading.Thread(target=self._run, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._write("\r\033[K")
            os.close(self._terminal)
            self._terminal = None

    @contextmanager
    def away(self) -> Iterator[None]:
        """The line is away while this lasts: something else is printed."""
        with self._lock:
            self._write("\r\033[K")
            yield
