"""Long work in steps: a generator that yields between pieces, so that its runner can do other work in between."""

from collections.abc import Callable, Generator
from typing import Literal, TypeVar

R = TypeVar("R")

UNFINISHED: Literal["unfinished"] = "unfinished"
"""Yielded where the work must continue, also if no request waits for its outcome: its state so far is not consistent."""


class Suspension:
    """Yielded where something has to happen elsewhere before the next step; as after UNFINISHED, the work must continue."""

    __slots__ = ("begin",)

    def __init__(self, begin: Callable[[Callable[[], object]], object]) -> None:
        """`begin` is called with what resumes the work, on its thread, now or later."""
        self.begin = begin


Pause = Literal["unfinished"] | Suspension | None
"""What a step yields: None where the work may be given up."""

Steps = Generator[Pause, None, None]


FEW = 100
"""Elements of a request that are worked off at once: a few milliseconds."""


def drain(steps: Generator[Pause, None, R]) -> R:
    """Do all of it at once; its outcome. RuntimeError if it has to wait for something elsewhere."""
    while True:
        try:
            pause = next(steps)
            if pause is not None and isinstance(pause, Suspension):
                resumed: list[bool] = []
                pause.begin(lambda resumed=resumed: resumed.append(True))  # type: ignore[misc]
                if not resumed:
                    raise RuntimeError("steps that are drained wait for what happens elsewhere")
        except StopIteration as end:
            outcome: R = end.value
            return outcome


def no_steps() -> Steps:
    """Nothing to do."""
    yield from ()


def unless_few(steps: Steps, count: int) -> Steps | None:
    """Steps for `count` elements, to be run by the caller's caller; None if they are few: then all is done."""
    if count > FEW:
        return steps
    drain(steps)
    return None
