"""Reading from followers (KIP-392): which replica a leader names to a consumer, and what a follower gives one.

With `replica.selector.class` RackAwareReplicaSelector a leader names, to a consumer with a rack other than its own, the most caught-up
replica in that rack that is in sync, live, reached by the listener of the consumer, and has the records from the offset on that is asked
for. It gives no records then.

A follower serves consumers that name a rack: one without has old metadata, and is sent to the leader by NOT_LEADER_OR_FOLLOWER. It
gives records up to its own high watermark, or last stable offset, and waits for them to move. What the leader has shown it may not have
yet: an offset that its log does not have, or an epoch that its committed records do not contradict, is answered by OFFSET_NOT_AVAILABLE,
which sends the consumer back to the leader, never as out of range or as diverging.
"""

from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.services import ConfigServices, MetadataServices
from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.security import Channel

SELECTOR = "replica.selector.class"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NO_REPLICA = -1


class Services(ConfigServices, MetadataServices, Protocol):
    """What of the broker is asked for the choice of a replica."""

    @property
    def replicas(self) -> "ReplicaManager":
        """Its partitions."""


def preferred_replica(broker: Services, channel: "Channel", partition: "HostedPartition", rack: str, offset: int) -> int:
    """The replica from which a consumer in `rack` had better read from `offset` on; -1 for this leader."""
    machine, live = partition.machine, broker.metadata.brokers
    own = live.get(broker.broker_id)
    if broker.config.optional_string(SELECTOR) != RACK_AWARE or (own is not None and own.rack == rack):
        return NO_REPLICA
    found, end_offset = NO_REPLICA, offset - 1
    for broker_id in machine.isr:
        info, progress = live.get(broker_id), machine.followers.get(broker_id)
        if info is None or info.rack != rack or progress is None or info.endpoint(channel.listener) is None:
            continue
        if progress.log_start_offset <= offset and progress.log_end_offset > end_offset:
            found, end_offset = broker_id, progress.log_end_offset
    return found


def followed_partition(broker: Services, topic: bytes, index: int, *, by_id: bool) -> "HostedPartition | None":
    """The partition, if this broker follows its leader."""
    info = broker.metadata.find(topic, by_id=by_id)
    if info is None:
        return None
    hosted = broker.replicas.hosted.get(TopicPartition(info.name, index))
    if (
        hosted is None
        or hosted.topic_id != info.topic_id
        or hosted.machine.role is not ReplicaRole.FOLLOWER
        or hosted.machine.leader_id < 0
    ):
        return None
    return hosted
