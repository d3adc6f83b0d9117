"""Which partition a message goes to: that of its key, the same one for every Kafka client, or that which a function of the caller
returns."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.client.delivery import ANY_PARTITION, MessageDefaults

if TYPE_CHECKING:
    from confluent_kafka import Producer as Inner

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


_KNOWN_S = 60.0
"""How long a number of partitions is believed before it is asked for again."""
_METADATA_TIMEOUT_S = 30.0


class PartitionChooser:
    """By `partitioner`; None leaves it to librdkafka."""

    def __init__(self, inner: "Inner", partitioner: "Partitioner | None") -> None:
        self._inner = inner
        self._partitioner = partitioner
        self._counts: dict[str, tuple[int, float]] = {}

    def applies(self, defaults: MessageDefaults) -> bool:
        """Whether `choose` is to be asked for messages of this call."""
        return self._partitioner is not None and defaults.partition is None

    def asks(self, topic: str) -> bool:
        """Whether `choose` would ask the brokers for the topic's partitions."""
        return time.monotonic() >= self._counts.get(topic, (0, 0.0))[1]

    def choose(self, topic: str, key: bytes | str | None) -> int:
        """A partition. ValueError if the partitioner chooses one that does not exist, SendError if there is no such topic."""
        assert self._partitioner is not None
        count = self.count(topic)
        chosen = self._partitioner(topic, key.encode() if isinstance(key, str) else key, count)
        if chosen is None:
            return ANY_PARTITION
        if not 0 <= chosen < count:
            raise ValueError(f"topic {topic} has partitions 0 to {count - 1}; the partitioner chose {chosen}")
        return chosen

    def count(self, topic: str) -> int:
        """How many partitions a topic has; asked of the brokers once a minute. SendError if there is no such topic."""
        count, until = self._counts.get(topic, (0, 0.0))
        if time.monotonic() >= until:
            from moldau.client.librdkafka import partition_count

            count = partition_count(self._inner, topic, _METADATA_TIMEOUT_S)
            self._counts[topic] = (count, time.monotonic() + _KNOWN_S)
        return count
