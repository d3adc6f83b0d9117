"""Which partition a key belongs to: the same one for every Kafka client."""

from collections.abc import Callable

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF

Partitioner = Callable[[str, bytes | None, int], int | None]
"""A function of topic, key and number of partitions; None leaves the choice to Kafka's rule."""


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with the seed of Kafka's Java client, as an unsigned number."""
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        part = (part ^ part >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ part
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


def partition_of(key: bytes, count: int) -> int:
    """The partition of a key among `count`, by the rule that all Kafka clients agree on."""
    return (murmur2(key) & 0x7FFFFFFF) % count
