"""Which broker leads which partition, as far as is known. No I/O."""

from typing import TYPE_CHECKING

from moldau.client.errors import RequestFailedError, failure
from moldau.client.metadata import ClusterMetadata
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId, TopicPartition

if TYPE_CHECKING:
    from moldau.client.address import Address

NO_LEADER = BrokerId(-1)


class Leaders:
    """Leaders and topic ids out of the metadata seen so far.

    A topic keeps the id with which it was first seen until `forget_topic`: if it is deleted and made again, fetching by that id fails
    (UNKNOWN_TOPIC_ID) instead of going on, at the old offset, in another topic.
    """

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, Address] = {}
        self.topic_ids: dict[str, bytes] = {}
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._errors: dict[str, ErrorCode] = {}

    def learn(self, metadata: ClusterMetadata) -> None:
        """Take over what a broker told."""
        self.brokers = dict(metadata.brokers)
        for topic in metadata.topics.values():
            self._errors[topic.name] = topic.error
            if topic.error:
                continue
            self.topic_ids.setdefault(topic.name, topic.id)
            for partition in topic.partitions:
                self._leaders[TopicPartition(topic.name, partition.partition)] = partition.leader

    def __contains__(self, where: TopicPartition) -> bool:
        return self._leaders.get(where, NO_LEADER) in self.brokers

    def leader(self, where: TopicPartition) -> BrokerId:
        """The leader of a partition; RequestFailedError says why there is none."""
        leader = self._leaders.get(where)
        if leader is not None and leader in self.brokers:
            return leader
        error: RequestFailedError
        if self._errors.get(where.topic, ErrorCode.NONE):
            error = failure(self._errors[where.topic], f"topic {where.topic}")
        elif leader is None:
            error = failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where)
        else:
            error = failure(ErrorCode.LEADER_NOT_AVAILABLE, where)
        raise error

    def forget(self, where: TopicPartition) -> None:
        """Ask again before the next request to this partition."""
        self._leaders.pop(where, None)

    def forget_topic(self, name: str) -> None:
        """Forget everything about a topic, its id too."""
        self.topic_ids.pop(name, None)
        self._errors.pop(name, None)
        for where in [where for where in self._leaders if where.topic == name]:
            del self._leaders[where]
