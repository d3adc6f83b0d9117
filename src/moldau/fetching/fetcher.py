"""What a follower fetches from one source broker: the partitions that this broker follows there, as a state machine.

Events come in with the time, effects come out in the order in which they are carried out. The machine has no log and no connection.

    partition        next Fetch    leaves that state by
    fetching         is in it      an answer, see below
    applying         no            `Moved`, while others of a large answer are fetched already
    truncating       no            `Moved`; one that changed nothing backs off
    looking up       no            the leader's log end offset (`EndFound`)
    throttled        no            `Resumed`
    backing off      no            time

    answer for a partition             effect                                                    partition then
    diverging epoch                    Truncate, and nothing else of the answer is used          truncating
    records, or none                   Apply: append, then the high watermark, the log start     fetching, or throttled
    OFFSET_OUT_OF_RANGE, below start   StartAt: empty the log, to begin at the leader's start    truncating
    OFFSET_OUT_OF_RANGE otherwise      LookUpEnd: where does the leader's log end?               looking up
    any other error                    -                                                         backing off
    a failure to apply it (`Failed`)   -                                                         backing off, alone

Requests form a fetch session (KIP-227). The first is a full one and is answered at once, with the id of the session; those after it name
the partitions that are new to the session or whose logs have moved, and those to forget. Where the leader gives no session all are full.

    requests out       the next one is sent
    none               as soon as a partition is fetching
    one, waiting       when a partition begins to be fetched or is fetched again: the leader ends the wait, in its session only
    one, arrived       when its answer is applied; at once if it is large, for the partitions without records in it
    two                when one has been answered

Rules:

* An answer counts for a partition only if it is still followed in the term in which the request was made, and if its log is still what the
  leader was asked by: `Follow` begins another term (KAFKA-13207). Nothing but `Unfollow` ends the following: FENCED_LEADER_EPOCH and
  UNKNOWN_LEADER_EPOCH are retried, for the controller's statement may reach the leader or this broker later.
* Offset and last fetched epoch are those of the log, which `Moved` reports after each effect. An answer without records changes neither
  (KAFKA-15510). The leader takes the offset for what is in this log, so none is sent before its records are appended.
* A log is truncated by epochs, never to its high watermark.
* The time to back off doubles with each failure in a row up to the maximum, for most states of partitions last only until the
  controller has informed the other broker.
"""

from enum import Enum
from math import inf
from typing import assert_never

from moldau.fetching.events import (
    Apply,
    EndFound,
    Failed,
    FetcherEffect,
    FetcherEvent,
    Follow,
    LogEnd,
    LookUpEnd,
    Moved,
    PartitionAnswered,
    RequestEnded,
    RequestFailed,
    ResponseArrived,
    Resumed,
    SendFetch,
    SessionLost,
    StartAt,
    TimePassed,
    Truncate,
    TruncateTo,
    Unfollow,
    WakeAt,
    WantedPartition,
)
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.fast.fetch import NO_SESSION, next_epoch

FIRST_BACK_OFF_PART = 16
"""The first time to back off is this part of the maximum."""
OUT_MAX = 2
"""Fetches that are out and not answered."""


class FetchState(Enum):
    """What is done about a partition."""

    FETCHING = "fetching"
    APPLYING = "applying"
    TRUNCATING = "truncating"
    LOOKING_UP = "looking up"
    THROTTLED = "throttled"
    BACKING_OFF = "backing off"


class PartitionFetch:
    """One partition in one term."""

    __slots__ = ("failures", "in_session", "key", "leader_epoch", "log", "number", "since", "state", "topic_partition", "until_s")

    def __init__(self, event: Follow) -> None:
        self.topic_partition = event.topic_partition
        self.key = event.topic_id, event.topic_partition.partition
        self.leader_epoch = event.leader_epoch
        self.log = event.log
        self.state = FetchState.FETCHING
        self.in_session: LogEnd | None = None
        """The log as the leader's session has it; None if it is not in the session."""
        self.since = 0
        """Number of the Fetch by which it has that."""
        self.number = 0
        """Of the lookup, while LOOKING_UP; of the Fetch, while APPLYING."""
        self.failures = 0
        """In a row."""
        self.until_s = 0.0
        """While BACKING_OFF."""


class Fetcher:
    """See the module.

    Invariant: `_changed` has the partitions that are fetching with another log than the session has.
    Invariant: `_session` has what the leader has in the session, once all that is out has arrived there.
    """

    def __init__(self, back_off_s: float) -> None:
        """`back_off_s`: the longest time to back off."""
        self.partitions: dict[TopicPartition, PartitionFetch] = {}
        """Those that had records last are the last, so that they take their turn in full requests of limited size."""
        self._back_off_s = back_off_s
        self._number = 0
        self._waiting: dict[int, None] = {}
        """Numbers of the Fetches that are out and not answered."""
        self._applied: dict[int, None] = {}
        """Numbers of those whose answers are being applied."""
        self._session_id = NO_SESSION
        self._epoch = 0
        """Of the next Fetch; 0 for a full one."""
        self._opened = 0
        """Number of the last full Fetch."""
        self._waits = False
        """Whether a full Fetch waits: the leader gave no session for the last one."""
        self._session: dict[tuple[bytes, int], PartitionFetch] = {}
        self._changed: dict[PartitionFetch, None] = {}
        self._left: dict[PartitionFetch, None] = {}
        """Those that may have to be forgotten by the session: not fetching, or not followed any more."""
        self._applying: dict[tuple[bytes, int], PartitionFetch] = {}
        self._backing_off: dict[PartitionFetch, None] = {}
        self._wake_s = inf
        """When `TimePassed` comes."""

    def step(self, event: FetcherEvent, now_s: float) -> list[FetcherEffect]:
        """What is to be done after `event`, in this order."""
        match event:
            case ResponseArrived():
                return self._arrived(event, now_s)
            case PartitionAnswered():
                return self._answered(event, now_s)
            case RequestEnded(number):
                self._applied.pop(number, None)
                return self._next(now_s)
            case Moved():
                return self._moved(event, now_s)
            case Follow(topic_partition):
                self._drop(topic_partition)
                self.partitions[topic_partition] = followed = PartitionFetch(event)
                self._changed[followed] = None
                return self._next(now_s)
            case Unfollow(topic_partition):
                self._drop(topic_partition)
                return []
            case RequestFailed(number):
                return self._request_failed(number, now_s)
            case SessionLost(number):
                self._waiting.pop(number, None)
                if number >= self._opened:
                    self._end_session()
                return self._next(now_s)
            case EndFound():
                return self._end_found(event, now_s)
            case Resumed(topic_partition):
                resumed = self.partitions.get(topic_partition)
                if resumed is not None and resumed.state is FetchState.THROTTLED:
                    self._fetch(resumed)
                return self._next(now_s)
            case Failed(topic_partition):
                failed = self.partitions.get(topic_partition)
                if failed is not None:
                    self._back_off(failed, now_s)
                return self._next(now_s)
            case TimePassed():
                self._wake_s = inf
                return self._next(now_s)
            case _:
                assert_never(event)

    # Partitions

    def _drop(self, topic_partition: TopicPartition) -> None:
        """Its term has ended."""
        dropped = self.partitions.pop(topic_partition, None)
        if dropped is not None:
            self._leave(dropped)
            self._backing_off.pop(dropped, None)

    def _leave(self, left: PartitionFetch, state: FetchState | None = None) -> None:
        """Fetch it no more; it is in another state, or dropped."""
        if state is not None:
            left.state = state
        if self._applying.get(left.key) is left:
            del self._applying[left.key]
        self._changed.pop(left, None)
        self._left[left] = None

    def _fetch(self, resumed: PartitionFetch) -> None:
        """Fetch it, from where its log ends."""
        if resumed.state is not FetchState.FETCHING:  # answers that came meanwhile do not count: have the leader answer again
            resumed.in_session = None
        self._leave(resumed, FetchState.FETCHING)
        del self._left[resumed]
        if resumed.in_session != resumed.log:
            self._changed[resumed] = None

    def _back_off(self, failed: PartitionFetch, now_s: float) -> None:
        wait_s = self._back_off_s * min(2.0**failed.failures / FIRST_BACK_OFF_PART, 1.0)
        failed.failures = min(failed.failures + 1, FIRST_BACK_OFF_PART)
        failed.until_s = now_s + wait_s
        self._leave(failed, FetchState.BACKING_OFF)
        self._backing_off[failed] = None

    # Answers

    def _arrived(self, event: ResponseArrived, now_s: float) -> list[FetcherEffect]:
        if event.number not in self._waiting:
            return []
        del self._waiting[event.number]
        self._applied[event.number] = None
        if event.number == self._opened:
            self._session_id, self._waits = event.session_id, event.session_id == NO_SESSION
            self._epoch = 0 if event.session_id == NO_SESSION else 1
        for key in event.filled:
            filled = self._asked(event.number, key)
            if filled is not None:
                self._leave(filled, FetchState.APPLYING)
                filled.number = event.number
                self._applying[key] = filled
        others = (each.state is FetchState.FETCHING for each in self._session.values())
        if event.filled and self._epoch and not self._waiting and any(others):
            return self._send()
        return []

    def _asked(self, number: int, key: tuple[bytes, int]) -> PartitionFetch | None:
        """The partition that this Fetch asked for, if its answer counts for it."""
        applying = self._applying.get(key)
        if applying is not None:  # it may be forgotten by the session already
            return applying if applying.number == number else None
        asked = self._session.get(key)
        if asked is None or self.partitions.get(asked.topic_partition) is not asked or number < asked.since:
            return None
        return asked if asked.state is FetchState.FETCHING and asked.in_session == asked.log else None

    def _answered(self, event: PartitionAnswered, now_s: float) -> list[FetcherEffect]:
        asked = self._asked(event.number, (event.topic_id, event.partition)) if event.number in self._applied else None
        if asked is None:
            return []
        topic_partition = asked.topic_partition
        if event.error is ErrorCode.NONE:
            if event.diverging is not None:
                self._leave(asked, FetchState.TRUNCATING)
                return [Truncate(topic_partition, *event.diverging)]
            return [Apply(topic_partition, event.high_watermark, event.log_start_offset)]
        if event.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if event.log_start_offset > asked.log.end_offset:
                self._leave(asked, FetchState.TRUNCATING)
                return [StartAt(topic_partition, event.log_start_offset)]
            self._number += 1
            self._leave(asked, FetchState.LOOKING_UP)
            asked.number = self._number
            return [LookUpEnd(self._number, topic_partition, asked.leader_epoch)]
        self._back_off(asked, now_s)
        return []

    def _request_failed(self, number: int, now_s: float) -> list[FetcherEffect]:
        """Back off with all that the request asked for, and with what of its answer is not applied."""
        if number not in self._waiting and number not in self._applied:
            return []
        self._waiting.pop(number, None)
        self._applied.pop(number, None)
        for each in self.partitions.values():
            is_applied = each.state is FetchState.APPLYING and each.number == number
            if is_applied or (each.state is FetchState.FETCHING and 0 < each.since <= number):
                self._back_off(each, now_s)
        if number >= self._opened:
            self._end_session()
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

    def _moved(self, event: Moved, now_s: float) -> list[FetcherEffect]:
        topic_partition, log = event.topic_partition, event.log
        moved = self.partitions.get(topic_partition)
        if moved is None:
            return []
        if log.end_offset > moved.log.end_offset:
            self.partitions[topic_partition] = self.partitions.pop(topic_partition)
        if moved.state is FetchState.TRUNCATING and log == moved.log:
            self._back_off(moved, now_s)
        else:
            moved.log, moved.failures = log, 0
            if event.is_throttled:
                self._leave(moved, FetchState.THROTTLED)
            else:
                self._fetch(moved)
        return self._next(now_s)

    # Requests

    def _next(self, now_s: float) -> list[FetcherEffect]:
        """The next Fetch, if one may be sent, and when to look again."""
        if self._applied:
            return []
        for each in [each for each in self._backing_off if each.until_s <= now_s]:
            del self._backing_off[each]
            self._fetch(each)
        effects: list[FetcherEffect] = []
        if not self._waiting or (len(self._waiting) < OUT_MAX and self._epoch and self._changed):
            effects += self._send()
        wake_s = min((each.until_s for each in self._backing_off), default=inf)
        if wake_s < self._wake_s:
            self._wake_s = wake_s
            effects.append(WakeAt(wake_s))
        return effects

    def _send(self) -> list[FetcherEffect]:
        """A Fetch, unless nothing is to be fetched."""
        forgotten: dict[tuple[bytes, int], None] = {}
        for left in self._left:
            left.in_session = None
            if self._session.get(left.key) is left:
                del self._session[left.key]
                forgotten[left.key] = None
        self._left.clear()
        if self._epoch:
            wanted = list(self._changed)
        else:
            wanted = [each for each in self.partitions.values() if each.state is FetchState.FETCHING]
            self._session.clear()
        if not wanted and not self._session:
            self._end_session()
            return []
        self._number += 1
        for each in wanted:
            each.in_session, each.since = each.log, self._number
            self._session[each.key] = each
            forgotten.pop(each.key, None)
        self._changed.clear()
        self._waiting[self._number] = None
        epoch, waits = self._epoch, True
        if epoch:
            self._epoch = next_epoch(epoch)
        else:
            self._opened, waits = self._number, self._waits
            forgotten.clear()
        partitions = tuple(WantedPartition(*each.key, each.leader_epoch, each.log) for each in wanted)
        return [SendFetch(self._number, self._session_id, epoch, waits, partitions, tuple(forgotten))]

    def _end_session(self) -> None:
        """The leader does not have it any more, or may not."""
        self._epoch = 0
        self._session.clear()
        self._left.clear()
        self._changed.clear()
        for each in self.partitions.values():
            each.in_session = None
            if each.state is FetchState.FETCHING:
                self._changed[each] = None
