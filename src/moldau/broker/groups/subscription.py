"""The topics in a consumer's subscription: what a member of a group of protocol type ``consumer`` sends with its protocol.

It begins with a version and the list of topics in every version; what follows is the business of the consumers. Kafka reads it so too.
"""

from collections.abc import Iterable
from struct import Struct, error

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = Struct(">hi")
_LENGTH = Struct(">H")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that somebody subscribes to; None if one of the subscriptions cannot be read."""
    found: set[str] = set()
    try:
        for subscription in subscriptions:
            found |= _topics(subscription)
    except (error, ValueError):
        return None
    return frozenset(found)


def _topics(subscription: bytes) -> set[str]:
    version, count = _HEAD.unpack_from(subscription)
    if version < 0 or not 0 <= count <= len(subscription) // _LENGTH.size:
        raise ValueError("not a consumer's subscription")
    found = set()
    position = _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size
        if position + length > len(subscription):
            raise ValueError("a topic is cut off")
        found.add(subscription[position : position + length].decode())
        position += length
    return found
