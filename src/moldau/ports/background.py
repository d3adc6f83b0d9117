"""Work that would hold up the broker's thread: syncing a file, walking a log."""

from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

from moldau.model.steps import Elsewhere, Pause

T = TypeVar("T")


class Background(Protocol):
    """A small pool of threads. Work given to it touches no state of the broker but what it was handed."""

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work` elsewhere, then ``done(result, None)`` or ``done(None, error)`` on the broker's thread."""


class HereAndNow:
    """A :class:`Background` without threads: work is done, and answered, before `run` returns."""

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work`, then `done`."""
        try:
            result = work()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)


def run_all(background: Background, works: Sequence[Callable[[], object]]) -> Generator[Pause, None, None]:
    """Steps that run works elsewhere and continue when all have ended. Raises the error of the first that failed."""
    errors: list[BaseException | None] = [None] * len(works)
    left = len(works)

    def begin(resume: Callable[[], object]) -> None:
        def done(place: int, error: BaseException | None) -> None:
            nonlocal left
            errors[place] = error
            left -= 1
            if not left:
                resume()

        for place, work in enumerate(works):
            background.run(work, lambda _result, error, place=place: done(place, error))  # type: ignore[misc]

    if works:
        yield Elsewhere(begin)
    for error in errors:
        if error is not None:
            raise error
