"""Encoded bytes in few pieces: a long response is written in hundreds of thousands of parts of a few bytes."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

SHORT_PART = 1024
"""Bytes of a part that is joined with its neighbours. Longer ones may be in memory once for many elements, and stay as they are."""


def joined(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts in their order, those that are short joined with their neighbours."""
    for is_short, some in groupby(parts, lambda part: len(part) <= SHORT_PART):
        if is_short:
            yield b"".join(some)
        else:
            yield from some
