"""As many pairs as can be made of things that go together, each thing in one pair at most (augmenting paths)."""

from collections.abc import Mapping, Sequence


def most_pairs(partners: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """For each left side its possible right sides; gives a largest set of pairs, left to right.

    Worked example: {0: [0], 1: [0, 1]} gives {0: 0, 1: 1}, where taking 0 for 1 first would have left 0 alone.
    """
    left_of: dict[int, int] = {}

    def place(left: int, tried: set[int]) -> bool:
        for right in partners[left]:
            if right in tried:
                continue
            tried.add(right)
            if right not in left_of or place(left_of[right], tried):
                left_of[right] = left
                return True
        return False

    for left in partners:
        place(left, set())
    return {left: right for right, left in sorted(left_of.items(), key=lambda pair: pair[1])}
