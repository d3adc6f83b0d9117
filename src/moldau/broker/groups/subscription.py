"""The topics in a consumer's subscription: what a member of a group of protocol type ``consumer`` sends with its protocol.

It begins with a version and the list of topics in every version; what follows is the business of the consumers. Kafka reads it so too.
"""

from collections.abc import Iterable
from struct import Struct, error

CONSUMER_PROTOCOL_TYPE = "consumer"
NAMES_MAX = 20_000
"""Names that are read of the subscriptions of one generation, which takes about 10 ms."""

_HEAD = Struct(">hi")
_LENGTH = Struct(">H")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in the subscriptions; None if one of the subscriptions cannot be read, or if there are more than `NAMES_MAX`."""
    found: set[str] = set()
    try:
        left = NAMES_MAX
        for subscription in subscriptions:
            left = _add_topics(subscription, found, left)
    except (error, ValueError):
        return None
    return frozenset(found)


def _add_topics(subscription: bytes, found: set[str], most: int) -> int:
    """Add the topics to those `found`; how many of `most` names are left."""
    version: int
    count: int
    version, count = _HEAD.unpack_from(subscription)
    if version < 0 or not 0 <= count <= len(subscription) // _LENGTH.size:
        raise ValueError("not a consumer's subscription")
    if count > most:
        raise ValueError("more names than are read")
    position = _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size
        if position + length > len(subscription):
            raise ValueError("a topic is cut off")
        found.add(subscription[position : position + length].decode())
        position += length
    return most - count
