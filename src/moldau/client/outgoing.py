"""Messages in librdkafka's terms, ready to be queued."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from moldau.client.delivery import Delivery
from moldau.client.message import Headers, Message

ANY_PARTITION = -1


class Rest(NamedTuple):
    """What goes with the messages of one call that do not say it themselves."""

    key: bytes | str | None
    headers: Headers | None
    partition: int | None
    timestamp: int | None


class Outgoing(NamedTuple):
    """One message to be queued, and what will become of it."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    partition: int
    more: dict[str, Any]
    delivery: Delivery


def outgoing(topic: str, message: Message, rest: Rest, delivery: Delivery) -> Outgoing:
    """The message with what goes with it. ValueError for a timestamp that librdkafka would take for "now"."""
    more: dict[str, Any] = {"on_delivery": delivery.report}
    headers = message.headers or rest.headers
    if headers:
        more["headers"] = list(headers.items() if isinstance(headers, Mapping) else headers)
    timestamp = rest.timestamp if message.timestamp is None else message.timestamp
    if timestamp is not None:
        if timestamp < 1:
            raise ValueError(f"topic {topic}: a timestamp is at least 1 ms, not {timestamp}")
        more["timestamp"] = timestamp
    key = rest.key if message.key is None else message.key
    return Outgoing(topic, message.value, key, ANY_PARTITION if rest.partition is None else rest.partition, more, delivery)
