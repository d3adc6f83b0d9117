"""Background work that happens when the test says so."""

from collections.abc import Callable
from typing import Any

from moldau.ports.background import HereAndNow


class FakeBackground:
    """A :class:`moldau.ports.background.Background` whose jobs wait for `run_next` or `run_all`; `immediate` runs each at once."""

    def __init__(self, *, immediate: bool = False) -> None:
        self.immediate = immediate
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], object]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], object]) -> None:
        """Keep the job, or run it."""
        self.jobs.append((work, done))
        if self.immediate:
            self.run_all()

    def run_next(self, place: int = 0) -> None:
        """Do the oldest job, or the one at `place`, and answer it."""
        HereAndNow().run(*self.jobs.pop(place))

    def run_all(self) -> None:
        """Do every job, those that follow from answers too."""
        while self.jobs:
            self.run_next()
