"""Work that would hold up the broker's thread: syncing a file, walking a log."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Background(Protocol):
    """A small pool of threads. Work given to it touches no state of the broker but what it was handed."""

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work` elsewhere, then ``done(result, None)`` or ``done(None, error)`` on the broker's thread."""
