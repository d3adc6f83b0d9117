"""What librdkafka hands out as a message that is an error.

It is news (a topic that is not there yet, a broker that is away), which is logged, or ends reading: ConsumeError with topic, partition
and offset.
"""

import logging
from typing import TYPE_CHECKING

from moldau.client.failures import ConsumeError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

log = logging.getLogger("moldau.client")


class News:
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
