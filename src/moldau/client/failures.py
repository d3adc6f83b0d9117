"""Failures of librdkafka, as exceptions of our own that name topic, partition and offset, group, or transactional id.

A failure has a `name` ("MSG_TIMED_OUT", "TOPIC_AUTHORIZATION_FAILED") and a number `code`, librdkafka's or the broker's; `retriable`:
the same call may succeed later; `fatal`: this producer or consumer cannot be used any more.
"""

import re
from typing import TYPE_CHECKING, Protocol

from moldau.model.errors import ErrorCode, MoldauError

if TYPE_CHECKING:
    from confluent_kafka import Message as Report

_WHOSE = re.compile(r"(?:^|: )(?:Local|Broker): ")
"""Before librdkafka's own words for an error; the text before it repeats what was tried."""


class Reason(Protocol):
    """The interface of librdkafka's `KafkaError`; simulated clients have a class of their own."""

    def name(self) -> str:
        """As the protocol or librdkafka calls it."""

    def code(self) -> int:
        """Its number there."""

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""

    def fatal(self) -> bool:
        """Whether the client cannot be used any more."""

    def str(self) -> str:
        """For a person."""


class ClientError(MoldauError):
    """Root of what producers and consumers raise."""

    def __init__(self, subject: str, error: Reason, hint: str = "") -> None:
        self.error = error
        self.name = error.name().strip("_")
        self.code = error.code()
        self.retriable = error.retriable()
        self.fatal = error.fatal()
        self.reason = _WHOSE.split(error.str())[-1].strip()
        super().__init__(f"{subject}: {self.name}: {self.reason}{hint}")


class SendError(ClientError):
    """A message was not delivered. `partition` is None where none was chosen yet."""

    def __init__(self, topic: str, partition: int | None, error: Reason, hint: str = "") -> None:
        super().__init__(f"topic {topic}" if partition is None else f"partition {topic}-{partition}", error, hint)
        self.topic = topic
        self.partition = partition


class ConsumeError(ClientError):
    """Messages cannot be read, or be asked for. What is not known is None; `offset` is where reading would continue."""

    def __init__(self, topic: str | None, partition: int | None, offset: int | None, error: Reason) -> None:
        subject = "consumer" if topic is None else f"topic {topic}" if partition is None else f"partition {topic}-{partition}"
        super().__init__(subject if offset is None else f"{subject} at offset {offset}", error)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class CommitError(ClientError):
    """A group's offsets were not committed; topic, partition and offset are those of the first one, where the error is about one."""

    def __init__(self, group: str, topic: str | None, partition: int | None, offset: int | None, error: Reason) -> None:
        where = "" if topic is None else f", partition {topic}-{partition} at offset {offset}"
        super().__init__(f"group {group}{where}", error)
        self.group = group
        self.topic = topic
        self.partition = partition
        self.offset = offset


class TransactionError(ClientError):
    """A transaction cannot continue, and whether it was committed is unknown; the next producer with its id completes or aborts it."""

    def __init__(self, transactional_id: str, error: Reason, hint: str = "") -> None:
        super().__init__(f"transactional id {transactional_id}", error, hint)
        self.transactional_id = transactional_id


class TransactionAbortedError(TransactionError):
    """The transaction was aborted: nothing of it is visible, its consumers are back where it began. It can be repeated."""


class FencedError(TransactionError):
    """Another producer with this transactional id has started, and this one may do nothing any more."""


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
