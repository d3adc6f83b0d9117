"""What the replicas of a broker use of its other parts. For annotations only."""

from typing import Protocol

from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.throttles import FollowerThrottle, LeaderThrottle
from moldau.cluster.snapshot import MetadataSnapshot
from moldau.model.identity import TopicPartition


class MetadataSource(Protocol):
    """The cluster as this broker knows it."""

    @property
    def snapshot(self) -> MetadataSnapshot:
        """All of it, at this moment."""

    def learn(self, topic_id: bytes, index: int, leader: int, leader_epoch: int, isr: tuple[int, ...], state_version: int) -> None:
        """Take a later state of a partition that this broker has read in the tree."""


class PartitionListener(Protocol):
    """Serves the state that partitions of internal topics hold."""

    def elected(self, topic_partition: TopicPartition) -> None:
        """This broker leads a partition now, and did not just before."""

    def epoch_raised(self, topic_partition: TopicPartition) -> None:
        """It still leads it, in a later epoch, with the log that it has written: as when a follower has left."""

    def resigned(self, topic_partition: TopicPartition) -> None:
        """It leads it no more."""


class Replication(Protocol):
    """What there is for partitions with other replicas."""

    def follow(self, hosted: HostedPartition) -> None:
        """Fetch a partition from the leader that its machine names, in this term."""

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more."""

    def look(self, hosted: HostedPartition) -> None:
        """A replica of a partition that is led may have to join its in-sync set, or to leave it."""

    @property
    def leader_throttle(self) -> LeaderThrottle:
        """What is sent to followers that are not in sync."""

    @property
    def follower_throttle(self) -> FollowerThrottle:
        """What is fetched of partitions that lag."""

    def report_offline(self) -> None:
        """Replicas of this broker are offline, or are not any more: have the controller know."""

    def close(self) -> None:
        """Do nothing any more."""
