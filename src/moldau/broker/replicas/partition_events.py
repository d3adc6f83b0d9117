"""What happens to the replica of a partition, and what the machine (`partition.py`) has others do."""

from enum import Enum, IntFlag
from typing import Protocol

from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.value import Value


class ReplicaRole(Enum):
    """What a replica is to its partition."""

    OFFLINE = "offline"
    """Its log is not open: not yet, or its directory has failed."""
    FOLLOWER = "follower"
    LEADER = "leader"
    REMOVED = "removed"
    """Stopped for ever; a replica of the partition that is created later is another machine."""


class PartitionView(Protocol):
    """What of a replica's machine its rules and errors look at; see `Partition`."""

    broker_id: int
    committed_offset: int
    in_doubt: bool
    isr: tuple[int, ...]
    leader_epoch: int
    log_end_offset: int
    min_insync_replicas: int
    proposed_isr: tuple[int, ...] | None
    replicas: tuple[int, ...]
    role: ReplicaRole
    state_version: int
    term_offset: int
    term_s: float
    topic_partition: TopicPartition


class Level(IntFlag):
    """What an acknowledgement waits for beyond being written."""

    WRITTEN = 0
    FLUSHED = 1
    """On this broker's disk."""
    REPLICATED = 2
    """In the log of every in-sync replica."""


class StaleEpochError(PeerError):
    """A controller sent a state of a partition that is not newer than the one known here."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.STALE_CONTROLLER_EPOCH, message)


class OpenedLogOffsets(Value):
    """Offsets of a log that has just been opened."""

    log_end_offset: int
    flushed_offset: int
    high_watermark: int


class BecomeLeader(Value):
    """The controller's decision that this broker leads, or which replicas its leader has. `version`: of the state in the tree."""

    epoch: int
    version: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    opened: OpenedLogOffsets | None = None
    """With an OFFLINE replica, and only there."""
    now_s: float = 0.0
    """Monotonic time."""
    is_mirror: bool = False


class BecomeFollower(Value):
    """The controller's decision that `leader_id` leads; -1: no leader."""

    epoch: int
    version: int
    replicas: tuple[int, ...]
    leader_id: int
    opened: OpenedLogOffsets | None = None
    """With an OFFLINE replica, and only there."""
    is_mirror: bool = False


class ProposeIsr(Value):
    """This leader is about to write another in-sync set to the tree."""

    isr: tuple[int, ...]


class IsrSettled(Value):
    """The tree has `isr` at `version`, in the leader epoch given: what was proposed, what it had before, or what another broker wrote."""

    leader_epoch: int
    isr: tuple[int, ...]
    version: int


class SessionDoubted(Value):
    """Whether the session with the tree may have expired, so that there may be another leader."""

    in_doubt: bool


class LeadershipLost(Value):
    """There is, or may be, another leader, and the controller's word has not come yet."""

    error: PeerError


class RulesChanged(Value):
    """The topic's `min.insync.replicas`, and whether its `visibility` is ``flushed``."""

    min_insync_replicas: int
    shows_flushed: bool


class LeaderHighWatermark(Value):
    """The high watermark that the leader sent with records, after these were appended."""

    offset: int


class LogTruncated(Value):
    """The log was cut to `log_end_offset`, or emptied to begin there (`log_start_offset` is the same then)."""

    log_end_offset: int
    log_start_offset: int


class DirectoryFailed(Value):
    """The directory of the log is offline."""

    error: StorageError


class ReplicaStopped(Value):
    """The replica is stopped or deleted. `error`: for the appends that wait."""

    error: PeerError | StorageError


PartitionEvent = (
    BecomeLeader
    | BecomeFollower
    | ProposeIsr
    | IsrSettled
    | SessionDoubted
    | LeadershipLost
    | RulesChanged
    | LeaderHighWatermark
    | LogTruncated
    | DirectoryFailed
    | ReplicaStopped
)


class LeadEpoch(Value):
    """Begin a term in the log: what is appended from here on belongs to `epoch`."""

    epoch: int


class KeepEpochs(Value):
    """Begin no term in the log, and end one that has no record: it is a mirror's, and its batches bring their epochs."""


class FailAppends(Value):
    """Fail the appends that wait for `level`, alone or with others; all that wait if it is WRITTEN."""

    error: PeerError | StorageError
    level: Level


class ShowUpTo(Value):
    """The committed offset or the high watermark moved: open what waits for either. Records before `high_watermark` are visible."""

    high_watermark: int


class WakeFetches(Value):
    """Attempt all fetches that wait: they find the new state."""


class EndPermits(Value):
    """Permissions to append without asking `check_acks` end."""


PartitionEffect = LeadEpoch | KeepEpochs | FailAppends | ShowUpTo | WakeFetches | EndPermits
