"""Work that would hold up the broker's thread. In another thread: syncing a file, walking a log. In another process, at the lowest
priority: what burns a processor for seconds.

A worker's task is named by ``module:function``, and the function is a generator: what it yields goes to `on_message` on the broker's
thread while it continues. Task and messages are bytes, for they cross from process to process. The broker's state does not.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from moldau.model.errors import WorldError
from moldau.model.steps import Pause, Suspension
from moldau.ports.filesystem import FileSystem

T = TypeVar("T")


class Background(Protocol):
    """A small pool of threads. Work given to it touches no state of the broker but what it was handed."""

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work` elsewhere, then ``done(result, None)`` or ``done(None, error)`` on the broker's thread."""


class InlineBackground:
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
        yield Suspension(begin)
    for error in errors:
        if error is not None:
            raise error


class WorkerError(WorldError):
    """A job did not come to its end: its process died or could not be started, the work raised, or the job was cancelled."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retriable=True)


class WorkerLimitError(WorkerError):
    """The work took more time or memory than it may, or ends any process that does it: another try would do no better."""


class WorkerTools(NamedTuple):
    """What work may use of the outside."""

    files: FileSystem
    monotonic: Callable[[], float]
    sleep: Callable[[float], object]


Work = Callable[[bytes, WorkerTools], Iterator[bytes]]


class Job(Protocol):
    """Work under way."""

    def cancel(self) -> None:
        """Cancel it: `on_message` is not called any more, and `done` gets a WorkerError once the work has really ended."""


class Workers(Protocol):
    """Runs jobs, as many at the same time as it is given."""

    def run(self, work: str, task: bytes, on_message: Callable[[bytes], object], done: Callable[[WorkerError | None], object]) -> Job:
        """Begin; then ``on_message(message)`` for each message in its order and once, at last, ``done(None)`` or ``done(error)``.

        Both are called on the broker's thread, and not before this has returned.
        """
