"""Which id, or version, is given next: one more than the highest, and when there is none above that, one inside the widest gap.

A single record may say 2,147,483,647, the last number there is. Between it and those before it none was given, so ids continue
there: of 1, 2, 3 and 2,147,483,647 the next is 4. Smaller gaps are left alone: they were given once, and messages may carry them.
"""

from collections.abc import Collection
from itertools import pairwise

from moldau.registry.records import NUMBER_MAX


def next_number(used: Collection[int]) -> int | None:
    """The next number; None if every one is taken."""
    highest = max(used, default=0)
    if highest < NUMBER_MAX:
        return highest + 1
    start, end = max(pairwise(sorted({0, *used})), key=lambda gap: gap[1] - gap[0])
    return start + 1 if start + 1 < end else None
