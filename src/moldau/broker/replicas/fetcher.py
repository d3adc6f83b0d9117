"""What a follower fetches from one source broker: the partitions that this broker follows there, as a state machine.

Events come in with the time, effects come out in the order in which they are carried out. The machine has no log and no connection.

    partition        next Fetch    leaves that state by
    fetching         is in it      an answer, see below
    truncating       no            `Moved`; one that changed nothing backs off
    looking up       no            the leader's log end offset (`EndFound`)
    backing off      no            time

    answer for a partition             effect                                                    partition then
    diverging epoch                    Truncate, and nothing else of the answer is used          truncating
    records, or none                   Apply: append, then the high watermark, the log start     fetching
    OFFSET_OUT_OF_RANGE, below start   StartAt: empty the log, to begin at the leader's start    truncating
    OFFSET_OUT_OF_RANGE otherwise      LookUpEnd: where does the leader's log end?               looking up
    any other error                    -                                                         backing off
    a failure to apply it (`Failed`)   -                                                         backing off, alone

Rules:

* One Fetch is out at a time, with all partitions that are fetching; the next is sent when the answer is applied.
* An answer counts for a partition only if it is still followed in the term in which the request was made: `Follow` begins another term
  (KAFKA-13207). Nothing but `Unfollow` ends the following: FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH are retried, for the controller's
  statement may reach the leader or this broker later.
* Offset and last fetched epoch are those of the log, which `Moved` reports after each effect. An answer without records changes neither
  (KAFKA-15510).
* A log is truncated by epochs, never to its high watermark.
* The time to back off doubles with each failure in a row up to the maximum, for most states of partitions last only until the
  controller has informed the other broker.
"""

from enum import Enum
from typing import assert_never

from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.model.value import Value

FIRST_BACK_OFF_PART = 16
"""The first time to back off is this part of the maximum."""


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


class EndFound(Value):
    """Lookup number `number` is answered: the leader's log ends at `end_offset`; None if it has failed."""

    number: int
    topic_partition: TopicPartition
    end_offset: int | None


class Moved(Value):
    """An effect is carried out, and the log is this now."""

    topic_partition: TopicPartition
    log: LogEnd


class Failed(Value):
    """An effect could not be carried out; the log is as it was before, or offline."""

    topic_partition: TopicPartition


class TimePassed(Value):
    """The time of `WakeAt` has come."""


FetcherEvent = Follow | Unfollow | PartitionAnswered | RequestEnded | RequestFailed | EndFound | Moved | Failed | TimePassed


class WantedPartition(Value):
    """One partition in a Fetch."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    log: LogEnd


class SendFetch(Value):
    """Send Fetch number `number`."""

    number: int
    partitions: tuple[WantedPartition, ...]


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


class FetchState(Enum):
    """What is done about a partition."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    LOOKING_UP = "looking up"
    BACKING_OFF = "backing off"


class PartitionFetch:
    """One partition in one term."""

    __slots__ = ("failures", "leader_epoch", "log", "number", "state", "topic_id", "topic_partition", "until_s")

    def __init__(self, event: Follow) -> None:
        self.topic_partition = event.topic_partition
        self.topic_id = event.topic_id
        self.leader_epoch = event.leader_epoch
        self.log = event.log
        self.state = FetchState.FETCHING
        self.number = 0
        """Of the lookup, while LOOKING_UP."""
        self.failures = 0
        """In a row."""
        self.until_s = 0.0
        """While BACKING_OFF."""


class Fetcher:
    """See the module.

    Invariant: `_asked` has the partitions of the Fetch that is out, and is empty without one.
    """

    def __init__(self, back_off_s: float) -> None:
        """`back_off_s`: the longest time to back off."""
        self.partitions: dict[TopicPartition, PartitionFetch] = {}
        """Those that had records last are the last, so that they take their turn in answers of limited size."""
        self._back_off_s = back_off_s
        self._number = 0
        self._out: int | None = None
        """Number of the Fetch that is out."""
        self._asked: dict[tuple[bytes, int], PartitionFetch] = {}

    def step(self, event: FetcherEvent, now_s: float) -> list[FetcherEffect]:
        """What is to be done after `event`, in this order."""
        match event:
            case Follow(topic_partition):
                self.partitions[topic_partition] = PartitionFetch(event)
                return self._next(now_s)
            case Unfollow(topic_partition):
                self.partitions.pop(topic_partition, None)
                return []
            case PartitionAnswered():
                return self._answered(event, now_s)
            case RequestEnded(number):
                return self._ended(number, now_s)
            case RequestFailed(number):
                if number == self._out:
                    for each in self._asked.values():
                        if self.partitions.get(each.topic_partition) is each:
                            self._back_off(each, now_s)
                return self._ended(number, now_s)
            case EndFound():
                return self._end_found(event, now_s)
            case Moved(topic_partition, log):
                return self._moved(topic_partition, log, now_s)
            case Failed(topic_partition):
                failed = self.partitions.get(topic_partition)
                if failed is not None:
                    self._back_off(failed, now_s)
                return []
            case TimePassed():
                return self._next(now_s)
            case _:
                assert_never(event)

    def _answered(self, event: PartitionAnswered, now_s: float) -> list[FetcherEffect]:
        asked = self._asked.get((event.topic_id, event.partition)) if event.number == self._out else None
        if asked is None or self.partitions.get(asked.topic_partition) is not asked:
            return []
        topic_partition = asked.topic_partition
        if event.error is ErrorCode.NONE:
            if event.diverging is not None:
                asked.state = FetchState.TRUNCATING
                return [Truncate(topic_partition, *event.diverging)]
            return [Apply(topic_partition, event.high_watermark, event.log_start_offset)]
        if event.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if event.log_start_offset > asked.log.end_offset:
                asked.state = FetchState.TRUNCATING
                return [StartAt(topic_partition, event.log_start_offset)]
            self._number += 1
            asked.state, asked.number = FetchState.LOOKING_UP, self._number
            return [LookUpEnd(self._number, topic_partition, asked.leader_epoch)]
        self._back_off(asked, now_s)
        return []

    def _ended(self, number: int, now_s: float) -> list[FetcherEffect]:
        if number != self._out:
            return []
        self._out = None
        self._asked.clear()
        return self._next(now_s)

    def _end_found(self, event: EndFound, now_s: float) -> list[FetcherEffect]:
        found = self.partitions.get(event.topic_partition)
        if found is None or found.state is not FetchState.LOOKING_UP or found.number != event.number:
            return []
        if event.end_offset is not None and event.end_offset < found.log.end_offset:
            found.state = FetchState.TRUNCATING
            return [TruncateTo(event.topic_partition, event.end_offset)]
        self._back_off(found, now_s)  # the leader's log has grown, or is not known
        return self._next(now_s)

    def _moved(self, topic_partition: TopicPartition, log: LogEnd, now_s: float) -> list[FetcherEffect]:
        moved = self.partitions.get(topic_partition)
        if moved is None:
            return []
        if log.end_offset > moved.log.end_offset:
            self.partitions[topic_partition] = self.partitions.pop(topic_partition)
        if moved.state is FetchState.TRUNCATING and log == moved.log:
            self._back_off(moved, now_s)
        else:
            moved.log, moved.state, moved.failures = log, FetchState.FETCHING, 0
        return self._next(now_s)

    def _back_off(self, failed: PartitionFetch, now_s: float) -> None:
        wait_s = self._back_off_s * min(2.0**failed.failures / FIRST_BACK_OFF_PART, 1.0)
        failed.failures = min(failed.failures + 1, FIRST_BACK_OFF_PART)
        failed.state, failed.until_s = FetchState.BACKING_OFF, now_s + wait_s

    def _next(self, now_s: float) -> list[FetcherEffect]:
        """The next Fetch, if none is out, and when to look again."""
        if self._out is not None:
            return []
        wake_s: float | None = None
        for each in self.partitions.values():
            if each.state is FetchState.BACKING_OFF and each.until_s <= now_s:
                each.state = FetchState.FETCHING
            if each.state is FetchState.FETCHING:
                self._asked[each.topic_id, each.topic_partition.partition] = each
            elif each.state is FetchState.BACKING_OFF:
                wake_s = each.until_s if wake_s is None else min(wake_s, each.until_s)
        effects: list[FetcherEffect] = []
        if self._asked:
            self._number += 1
            self._out = self._number
            wanted = (WantedPartition(id_, index, each.leader_epoch, each.log) for (id_, index), each in self._asked.items())
            effects.append(SendFetch(self._number, tuple(wanted)))
        elif wake_s is not None:
            effects.append(WakeAt(wake_s))
        return effects
