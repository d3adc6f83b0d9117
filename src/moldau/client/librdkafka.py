"""Words of librdkafka for ours, and questions that producers and consumers ask alike.

It is news (a topic that is not there yet, a broker that is away), which is logged, or ends reading: ConsumeError with topic, partition
and offset.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moldau.client.failures import ConsumeError
from moldau.client.message import ConsumedMessage
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from confluent_kafka import TopicPartition as ForeignPartition

NEW_TOPIC_WAIT_S = 1.0


def foreign(partitions: Iterable[TopicPartition]) -> "list[ForeignPartition]":
    """Partitions for librdkafka."""
    from confluent_kafka import TopicPartition as ForeignPartition

    return [ForeignPartition(topic, partition) for topic, partition in partitions]


def foreign_offsets(offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str] | None = None) -> "list[ForeignPartition]":
    """Offsets for librdkafka, with the text that is to be kept with some of them; also times, where it asks for those."""
    from confluent_kafka import TopicPartition as ForeignPartition

    if notes is None:
        return [ForeignPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    return [ForeignPartition(*where, offset, metadata=notes.get(where)) for where, offset in offsets.items()]


def ours(partitions: "Iterable[ForeignPartition]") -> list[TopicPartition]:
    """Partitions from librdkafka."""
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def our_offsets(partitions: "Iterable[ForeignPartition]") -> dict[TopicPartition, Offset]:
    """Those that have an offset, out of librdkafka's."""
    return {TopicPartition(each.topic, each.partition): Offset(each.offset) for each in partitions if each.offset >= 0}


def our_message(found: "Message") -> ConsumedMessage:
    """A message of librdkafka that is no error."""
    timestamp = found.timestamp()[1]
    headers: Sequence[tuple[str, bytes | None]] = found.headers() or ()  # type: ignore[assignment]
    return ConsumedMessage(
        found.value(),
        found.key(),
        headers,
        None if timestamp < 0 else timestamp,
        found.topic() or "",
        found.partition() or 0,
        found.offset() or 0,
    )


def timed_out(reason: str) -> "KafkaError":
    """The error of a wait of our own that was too long."""
    from confluent_kafka import KafkaError

    return KafkaError(KafkaError._TIMED_OUT, reason)


def partition_count(client: Any, topic: str, timeout_s: float) -> int:
    """How many partitions a topic has, asked for now; one that was just created is waited for a moment. SendError if it cannot be had."""
    import time

    from confluent_kafka import KafkaError, KafkaException

    from moldau.client.failures import SendError

    deadline = time.monotonic() + NEW_TOPIC_WAIT_S
    while True:
        try:
            found = client.list_topics(topic, timeout_s).topics[topic]
        except KafkaException as error:
            raise SendError(topic, None, error.args[0]) from error
        if found.error is None:
            return len(found.partitions)
        passing = found.error.code() in (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
        if not passing or time.monotonic() > deadline:
            raise SendError(topic, None, found.error)
        time.sleep(NEW_TOPIC_WAIT_S / 20)


log = logging.getLogger("moldau.client")


class ErrorMessages:
    """For one consumer, a member of `group` if there is one."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._missing: set[str] = set()

    def read(self, message: "Message", error: "KafkaError") -> ConsumeError | None:
        """Log it, or say what ends reading."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
            if topic not in self._missing:
                self._missing.add(topic or "")
                log.warning("consumer: topic %s does not exist yet; retrying", topic)
        elif error.code() == error._MAX_POLL_EXCEEDED:
            log.warning(
                "consumer: group %s continued without this member, which did not poll within max.poll.interval.ms; it rejoins", self._group
            )
        elif error.retriable() or error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN, error._RESOLVE, error._PARTITION_EOF):
            log.info("consumer: %s", error)
        else:
            known = None if partition is None or partition < 0 else partition
            return ConsumeError(topic, known, None if offset is None or offset < 0 else offset, error)
        return None
