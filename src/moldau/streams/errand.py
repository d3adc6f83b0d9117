"""What a run of a job does beside running its queries."""

from typing import Protocol


class Errand(Protocol):
    """Of a generation beside the current one: it follows that one, and takes its place. The run's main thread calls it."""

    def begin(self) -> None:
        """Under the claim, before the job's outputs and checkpoints are looked at."""

    def look(self) -> None:
        """Again and again while the queries run."""

    def switch(self) -> None:
        """An order to switch has come."""

    def end(self) -> None:
        """The queries have ended."""
