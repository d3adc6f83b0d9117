"""Which partition an event goes to: the same one in every run, so that a resumed run knows what is there already.

Keyed events go where every Kafka client's murmur2 partitioner sends them. Events without a key are dealt out by the number of their
line; a client would choose at random.
"""

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_CACHED_MAX = 1 << 18


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
            known = self._known[key] = (murmur2(key.encode()) & 0x7FFFFFFF) % self._count
        return known
