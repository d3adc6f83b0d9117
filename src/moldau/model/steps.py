"""Long work in steps: a generator that yields between pieces, so that whoever runs it can do something else in between."""

from collections.abc import Generator
from typing import Literal, TypeVar

R = TypeVar("R")

UNFINISHED: Literal["unfinished"] = "unfinished"
"""Yielded where the work must go on, whether anyone waits for its outcome or not: what it has done so far is not consistent."""

Pause = Literal["unfinished"] | None
"""What a step yields: None where the work may be given up."""

Steps = Generator[Pause, None, None]


def drain(steps: Generator[Pause, None, R]) -> R:
    """Do all of it at once; its outcome."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: R = end.value
            return outcome
