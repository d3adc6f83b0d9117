"""The events and effects of `Fetcher`."""

from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.model.value import Value


class LogEnd(Value):
    """What a log is, as far as a fetch says so."""

    end_offset: int
    last_epoch: int
    """Leader epoch of the last record; -1 without any, or if it is not known."""
    start_offset: int


class Follow(Value):
    """Fetch a partition in a new term, from the end of its log."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    log: LogEnd


class Unfollow(Value):
    """Fetch a partition no more."""

    topic_partition: TopicPartition


class ResponseArrived(Value):
    """Fetch number `number` is answered, which is applied next."""

    number: int
    session_id: int
    filled: tuple[tuple[bytes, int], ...]
    """Topic id and index of the partitions with records, if they are so many that others should not wait for them."""


class PartitionAnswered(Value):
    """What the answer to Fetch number `number` has of one partition."""

    number: int
    topic_id: bytes
    partition: int
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    """Epoch and end offset."""


class RequestEnded(Value):
    """All that was answered to Fetch number `number` is applied."""

    number: int


class RequestFailed(Value):
    """Fetch number `number` has no answer, or was refused as a whole."""

    number: int


class SessionLost(Value):
    """Fetch number `number` was refused because the leader does not have its session, or not at this epoch."""

    number: int


class EndFound(Value):
    """Lookup number `number` is answered: the leader's log ends at `end_offset`; None if it has failed."""

    number: int
    topic_partition: TopicPartition
    end_offset: int | None


class Moved(Value):
    """An effect is carried out, and the log is this now."""

    topic_partition: TopicPartition
    log: LogEnd
    is_throttled: bool = False
    """Whether it is not to be fetched before `Resumed`."""


class Resumed(Value):
    """The throttle has room for a partition."""

    topic_partition: TopicPartition


class Failed(Value):
    """An effect could not be carried out; the log is as it was before, or offline."""

    topic_partition: TopicPartition


class TimePassed(Value):
    """The time of `WakeAt` has come."""


FetcherEvent = (
    Follow
    | Unfollow
    | ResponseArrived
    | PartitionAnswered
    | RequestEnded
    | RequestFailed
    | SessionLost
    | EndFound
    | Moved
    | Resumed
    | Failed
    | TimePassed
)


class WantedPartition(Value):
    """One partition in a Fetch."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    log: LogEnd


class SendFetch(Value):
    """Send Fetch number `number`; epoch 0 is a full request, which closes the session that it names.

    `waits`: until there are records, rather than be answered at once.
    """

    number: int
    session_id: int
    epoch: int
    waits: bool
    partitions: tuple[WantedPartition, ...]
    forgotten: tuple[tuple[bytes, int], ...] = ()
    """Topic ids and indexes."""


class Apply(Value):
    """Append the records of the answer, if it has any; then take the leader's high watermark and log start offset."""

    topic_partition: TopicPartition
    high_watermark: int
    log_start_offset: int


class Truncate(Value):
    """Truncate the log to where it agrees with the leader's, in which the newest epoch up to the one asked for ends there."""

    topic_partition: TopicPartition
    epoch: int
    end_offset: int


class TruncateTo(Value):
    """Truncate the log to the end of the leader's."""

    topic_partition: TopicPartition
    offset: int


class StartAt(Value):
    """Empty the log, to begin at `offset`."""

    topic_partition: TopicPartition
    offset: int


class LookUpEnd(Value):
    """Ask the leader where its log ends."""

    number: int
    topic_partition: TopicPartition
    leader_epoch: int


class WakeAt(Value):
    """Report `TimePassed` at this time; it replaces an earlier request."""

    time_s: float


FetcherEffect = SendFetch | Apply | Truncate | TruncateTo | StartAt | LookUpEnd | WakeAt
