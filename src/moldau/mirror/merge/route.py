"""Where the records of a merge go in the target."""

from collections.abc import Callable

from moldau.client.partitioning import partition_of
from moldau.mirror.partitions import SourcePartition
from moldau.mirror.plan.values import Partitioning
from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Record


class Route:
    """By the file's naming and partitioning.

    With round robin what a transaction has of a partition goes to one partition, and the next to the next; so do the records without a key
    where keys choose.
    """

    def __init__(self, partitioning: Partitioning, topic_of: Callable[[SourcePartition], str], count_of: Callable[[str], int]) -> None:
        """`topic_of`: the target's topic; `count_of`: how many partitions that has."""
        self._partitioning = partitioning
        self.topic = topic_of
        self._count_of = count_of
        self._next = 0

    def whole(self, partition: SourcePartition) -> TopicPartition | None:
        """The partition that a batch goes to as it is; None where each record is asked for."""
        topic = self.topic(partition)
        if self._partitioning is Partitioning.SAME:
            return TopicPartition(topic, partition.number)
        self._next += 1
        return None if self._partitioning is Partitioning.KEY else TopicPartition(topic, self._next % self._count_of(topic))

    def of(self, partition: SourcePartition, record: Record) -> TopicPartition:
        """The partition of a record, where keys choose."""
        topic = self.topic(partition)
        number = self._next % self._count_of(topic) if record.key is None else partition_of(record.key, self._count_of(topic))
        return TopicPartition(topic, number)

    def may_go(self, partition: SourcePartition, target: TopicPartition) -> bool:
        """Whether records of a source's partition may go to a partition of the target."""
        return self.topic(partition) == target.topic and (
            self._partitioning is not Partitioning.SAME or partition.number == target.partition
        )
