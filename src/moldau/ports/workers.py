"""Work that burns a processor for seconds and must not hold up the broker: it runs in another process, at the lowest priority.

Work is named by ``module:function``, and the function is a generator: what it yields is told on the broker's thread while it goes on.
Task and messages are bytes, for they cross from process to process. The broker's state does not.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from moldau.model.errors import WorldError
from moldau.ports.filesystem import FileSystem


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
        """Have no more of it: nothing is told any more, and `done` gets a WorkerError once the work has really ended."""


class Workers(Protocol):
    """Runs jobs, as many at the same time as it is given."""

    def run(self, work: str, task: bytes, told: Callable[[bytes], object], done: Callable[[WorkerError | None], object]) -> Job:
        """Begin; then ``told(message)`` for each message in its order and once, at last, ``done(None)`` or ``done(error)``.

        Both are called on the broker's thread, and not before this has returned.
        """
