"""Long work in steps: a generator that yields between pieces, so that whoever runs it can do something else in between."""

from collections.abc import Generator
from typing import Literal, TypeVar

R = TypeVar("R")

UNFINISHED: Literal["unfinished"] = "unfinished"
"""Yielded where the work must go on, whether anyone waits for its outcome or not: what it has done so far is not consistent."""

Pause = Literal["unfinished"] | None
"""What a step yields: None where the work may be given up."""

Steps = Generator[Pause, None, None]


FEW = 100
"""Elements of a request that are worked off at once: a few milliseconds."""


def drain(steps: Generator[Pause, None, R]) -> R:
    """Do all of it at once; its outcome."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: R = end.value
            return outcome


def unless_few(steps: Steps, count: int) -> Steps | None:
    """Steps for so many elements, to be run by the caller's caller; None if they are few: then all is done."""
    if count > FEW:
        return steps
    for _ in steps:
        pass
    return None
