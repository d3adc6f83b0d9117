"""A key belongs to the same partition whichever Kafka client sends it (mission B1)."""

import pytest

from moldau.client.partitioning import murmur2, partition_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_partitions_are_those_of_other_clients() -> None:
    """Against aiokafka's hash, for keys of every length."""
    from aiokafka.partitioner import murmur2 as theirs

    for size in range(40):
        key = bytes((7 * size + at) % 256 for at in range(size))
        assert partition_of(key, 11) == (theirs(key) & 0x7FFFFFFF) % 11
