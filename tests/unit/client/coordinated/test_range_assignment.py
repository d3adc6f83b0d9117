"""Ranges are contiguous, in order, and as equal as they can be (P 3.2, Algorithm 1)."""

from moldau.client.coordinated.assignment import range_assignment


def test_examples() -> None:
    assert range_assignment(7, ["a-0", "a-1", "b-0"]) == {"a-0": range(3), "a-1": range(3, 5), "b-0": range(5, 7)}
    assert range_assignment(2, ["a", "b", "c"]) == {"a": range(1), "b": range(1, 2), "c": range(2, 2)}
    assert range_assignment(0, ["a"]) == {"a": range(0)}
    assert range_assignment(3, []) == {}


def test_every_partition_once_and_sizes_differ_by_one() -> None:
    for partitions in range(30):
        for count in range(1, 12):
            threads = [f"t{number}" for number in range(count)]
            found = range_assignment(partitions, threads)
            assert [partition for thread in threads for partition in found[thread]] == list(range(partitions))
            sizes = [len(found[thread]) for thread in threads]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
