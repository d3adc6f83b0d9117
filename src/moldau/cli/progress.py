"""A line of progress at a terminal: how many, how fast, how far. Silent when standard error is not a terminal."""

import sys
import time

INTERVAL_S = 0.2


class Progress:
    """Shown on standard error at most five times a second. `total_bytes` 0 means that the size of the input is not known."""

    def __init__(self, verb: str, total_bytes: int = 0) -> None:
        self._verb = verb
        self._total_bytes = total_bytes
        self._terminal = sys.stderr.isatty()
        self._start = time.monotonic()
        self._next = self._start + INTERVAL_S
        self._shown = False

    def update(self, count: int, bytes_done: int = 0) -> None:
        """`count` so far, after `bytes_done` of the input."""
        if not self._terminal:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + INTERVAL_S
        part = f"  {100 * bytes_done // self._total_bytes} %" if self._total_bytes else ""
        rate = count / (now - self._start)
        print(f"\r{self._verb} {count:,}  {rate:,.0f}/s{part}\033[K", end="", file=sys.stderr, flush=True)
        self._shown = True

    def clear(self) -> None:
        """Take the line away again."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False
