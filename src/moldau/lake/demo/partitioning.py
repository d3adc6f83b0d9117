"""Which partition an event goes to: the same one in every run, so that a resumed run knows what is there already.

Keyed events go where every Kafka client's murmur2 partitioner sends them. Events without a key are dealt out by the number of their
line; a client would choose at random.
"""

from moldau.client.partitioning import partition_of

_CACHED_MAX = 1 << 18


class Partitioner:
    """Partitions for a topic of `count`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def partition(self, key: str | None, line: int) -> int:
        """Partition of the event with this key, at this line."""
        if key is None:
            return line % self._count
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHED_MAX:
                self._known.clear()
            known = self._known[key] = partition_of(key.encode(), self._count)
        return known
