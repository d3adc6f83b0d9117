"""What is to be said of a message that is too large: its size, the setting that is the limit, and what helps."""

from typing import TYPE_CHECKING

from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Message as Report

PRODUCER_BYTES_MAX = 1_000_000
"""librdkafka's `message.max.bytes` where it is not set."""

LIMITS = {
    ErrorCode.MESSAGE_TOO_LARGE: ("max.message.bytes", "message.max.bytes"),
    ErrorCode.RECORD_LIST_TOO_LARGE: ("segment.bytes", "log.segment.bytes"),
}
"""For each answer of a broker to a batch that is too large: the topic's setting, and the brokers' where the topic has none."""


def size_of(value: bytes | str | None, key: bytes | str | None) -> int:
    """Bytes of key and value."""
    return sum(len(part.encode() if isinstance(part, str) else part) for part in (value, key) if part is not None)


def refused_by_producer(code: int, value: bytes | str | None, key: bytes | str | None, limit: object) -> str:
    """For an error of librdkafka, which has sent nothing; empty for one that has nothing to do with sizes."""
    if code != ErrorCode.MESSAGE_TOO_LARGE:
        return ""
    return (
        f"; key and value have {size_of(value, key)} bytes, and with headers and framing a message may have {limit}, by the producer's"
        " setting message.max.bytes: raise it, with max.message.bytes of the topic, or send less in one message"
    )


def refused_by_broker(code: int, message: "Report") -> str:
    """For a broker's answer to the batch in which the message was; empty for one that has nothing to do with sizes."""
    if code not in LIMITS:
        return ""
    of_topic, of_brokers = LIMITS[ErrorCode(code)]
    size = size_of(message.value(), message.key())
    return (
        f"; key and value have {size} bytes, and their batch is larger than {of_topic} of the topic allows ({of_brokers} of the brokers"
        " where the topic has none): raise it, or send less in one message, or in one batch (batch.size of the producer)"
    )
