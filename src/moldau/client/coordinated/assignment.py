"""Algorithm 1 of the paper: the range of a topic's partitions that each thread of a group gets. Every member computes the same."""

from collections.abc import Sequence


def range_assignment(partitions: int, threads: Sequence[str]) -> dict[str, range]:
    """Ranges of equal size, in the order of `threads`; the first ones get one more where it does not come out even.

    ``range_assignment(7, ["a-0", "a-1", "b-0"])`` is 0 to 2, 3 and 4, 5 and 6.
    """
    if not threads:
        return {}
    size, rest = divmod(partitions, len(threads))
    found = {}
    for index, thread in enumerate(threads):
        start = size * index + min(index, rest)
        found[thread] = range(start, start + size + (index < rest))
    return found
