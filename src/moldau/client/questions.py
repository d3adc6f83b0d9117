"""What a consumer asks the brokers: where partitions begin and end, what its group has committed, what stood where at a time."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from moldau.client.failures import ConsumeError
from moldau.client.librdkafka import foreign, foreign_offsets, our_offsets
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaException

R = TypeVar("R")

ASK_TIMEOUT_S = 30.0


class ConsumerQueries:
    """Put to `inner`, a consumer of librdkafka. Each is waited for, and a failure is a ConsumeError."""

    def __init__(self, inner: "Consumer") -> None:
        self._inner = inner

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed; partitions without are left out."""
        wanted = foreign(partitions)
        return our_offsets(self._call(lambda: self._inner.committed(wanted, ASK_TIMEOUT_S))) if wanted else {}

    def bounds(self, where: TopicPartition) -> tuple[Offset, Offset]:
        """First offset and end of a partition; the end is that of what this consumer may see."""
        first, end = self._call(lambda: self._inner.get_watermark_offsets(foreign([where])[0], ASK_TIMEOUT_S), where)
        return Offset(first), Offset(end)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """The first offset of each partition that is not older than a time in ms; left out where there is none."""
        wanted = foreign_offsets(times)
        if not wanted:
            return {}
        found = self._call(lambda: self._inner.offsets_for_times(wanted, ASK_TIMEOUT_S))
        for each in found:
            if each.error is not None:
                raise ConsumeError(each.topic, each.partition, None, each.error)
        return our_offsets(found)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, asked for now. ConsumeError."""
        from moldau.client.failures import SendError
        from moldau.client.librdkafka import partition_count

        try:
            return partition_count(self._inner, topic, ASK_TIMEOUT_S)
        except SendError as error:
            raise ConsumeError(topic, None, None, error.error) from error

    def _call(self, call: Callable[[], R], where: TopicPartition | None = None) -> R:
        from confluent_kafka import KafkaException

        try:
            return call()
        except KafkaException as error:
            raise self._failure(error, where) from error

    def _failure(self, error: "KafkaException", where: TopicPartition | None = None, offset: int | None = None) -> ConsumeError:
        topic, partition = where or (None, None)
        return ConsumeError(topic, partition, offset, error.args[0])
