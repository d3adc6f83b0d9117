"""The errors of a replica's machine, in the words that operators and other brokers read."""

from moldau.broker.replicas.partition_events import BecomeFollower, BecomeLeader, FailAppends, Level, PartitionView, StaleEpochError
from moldau.model.errors import ErrorCode, PeerError


def stale(partition: PartitionView, event: BecomeLeader | BecomeFollower) -> StaleEpochError:
    """For a state that is not newer than the one known."""
    return StaleEpochError(
        f"{partition.topic_partition}: state of epoch {event.epoch}, version {event.version} is not newer than that of epoch"
        f" {partition.leader_epoch}, version {partition.state_version}, in which broker {partition.broker_id} is {partition.role.value}"
    )


def wrong_epoch(partition: PartitionView, epoch: int) -> PeerError:
    """For a request of another leader epoch."""
    if epoch < partition.leader_epoch:
        return PeerError(
            ErrorCode.FENCED_LEADER_EPOCH, f"{partition.topic_partition}: epoch {epoch} is over, {partition.leader_epoch} is the leader's"
        )
    return PeerError(
        ErrorCode.UNKNOWN_LEADER_EPOCH, f"{partition.topic_partition}: epoch {epoch} is not known, {partition.leader_epoch} is the leader's"
    )


def beyond(partition: PartitionView, broker_id: int, offset: int) -> PeerError:
    """For a follower's fetch outside the log."""
    return PeerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{partition.topic_partition}: broker {broker_id} fetches from {offset}, the log ends at {partition.log_end_offset}",
    )


def earlier_incarnation(partition: PartitionView, broker_id: int) -> PeerError:
    """For a fetch that a follower sent before it was registered again."""
    return PeerError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition}: broker {broker_id} was registered again since its fetch"
    )


def not_enough(partition: PartitionView, code: ErrorCode) -> PeerError:
    """For an append that the in-sync set is too small for."""
    count, among = len(partition.isr), len(partition.replicas)
    return PeerError(
        code, f"{partition.topic_partition}: {count} of {among} replicas in sync, min.insync.replicas is {partition.min_insync_replicas}"
    )


def fail_replicated(partition: PartitionView) -> FailAppends:
    """For the appends that wait for an in-sync set that has become too small."""
    return FailAppends(not_enough(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), Level.REPLICATED)
