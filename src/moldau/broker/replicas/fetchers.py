"""Runs the fetchers of this broker's followers: one per source broker, each with a connection of its own.

`Fetcher` decides; here its effects are carried out, and its events made. An answer is applied partition by partition, in turns with other
work. The records are appended from the memory that they were received in.

`num.replica.fetchers` threads fetch in Kafka; here one thread serves all, and a second connection would divide the same work.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from moldau.broker.replicas.appends import AppendBugError
from moldau.broker.replicas.follower_log import FollowerLogs, end_of
from moldau.broker.replicas.silence import SilenceWatch
from moldau.fetching.events import (
    Apply,
    EndFound,
    Failed,
    FetcherEffect,
    FetcherEvent,
    Follow,
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
)
from moldau.fetching.fetcher import Fetcher
from moldau.fetching.messages import SESSION_ERRORS, filled_partitions, forgotten_topics, wanted_topics
from moldau.model.errors import CorruptBatchError, ErrorCode, StorageError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.model.log_throttle import LogThrottle
from moldau.model.steps import UNFINISHED, Steps, drain
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.fetch import FetchRequest, PartitionData, ReplicaState
from moldau.protocol.messages.offset_lookups import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.replicas.throttles import FollowerThrottle
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

FETCH_VERSIONS = VersionRange(15, 17)
"""With topic ids, the follower's incarnation and the diverging epoch."""
LOOKUP_VERSIONS = VersionRange(4, 4)
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 20
_NOTHING = memoryview(b"")
SHORT_MAX = 4
"""Partitions of an answer that is applied in one go, if it is not large."""


class SourceConnection(Protocol):
    """A connection to the source broker, as :class:`moldau.broker.peers.connection.PeerConnection`."""

    received: int
    """Bytes that have come."""

    def request(
        self, api_key: ApiKey, message: Any, done: Callable[[Any], object], *, timeout_s: float, version: VersionRange | None = None
    ) -> None:
        """Send a request; `done` with its response or a WorldError, once, and never before this returns."""

    def close(self) -> None:
        """Disconnect; requests that are out fail."""


Connect = Callable[[int], SourceConnection | None]
"""A new connection to a broker; None while its address is not known."""


class ReplicaFetchers:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        replicas: "ReplicaManager",
        config: "BrokerConfig",
        clock: "Clock",
        slices: "SliceScheduler",
        connect: Connect,
        broker_epoch: Callable[[], int],
        throttle: "FollowerThrottle",
        report: Callable[[int], object],
    ) -> None:
        """`broker_epoch`: this broker's incarnation. `report` is called again and again while a source does not answer."""
        self.broker_id = broker_id
        self.replicas = replicas
        self.config = config
        self.clock = clock
        self.slices = slices
        self.connect = connect
        self.broker_epoch = broker_epoch
        self.throttle = throttle
        self.report = report
        self.logs = FollowerLogs(replicas, clock)
        self.log_throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)
        self._sources: dict[int, SourceFetcher] = {}
        self._source_of: dict[TopicPartition, int] = {}

    def follow(self, hosted: "HostedPartition") -> None:
        """Fetch a partition from the leader that its machine names, in this term."""
        topic_partition, leader_id = hosted.topic_partition, hosted.machine.leader_id
        if self._source_of.get(topic_partition, leader_id) != leader_id:
            self.unfollow(topic_partition)
        self._source_of[topic_partition] = leader_id
        source = self._sources.get(leader_id)
        if source is None:
            source = self._sources[leader_id] = SourceFetcher(self, leader_id)
        source.step(Follow(topic_partition, hosted.topic_id, hosted.machine.leader_epoch, end_of(hosted.log)))

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more; nothing without effect."""
        leader_id = self._source_of.pop(topic_partition, None)
        if leader_id is not None:
            self.throttle.forget(topic_partition)
            source = self._sources[leader_id]
            source.step(Unfollow(topic_partition))
            if not source.fetcher.partitions:
                del self._sources[leader_id]
                source.close()

    def close(self) -> None:
        """Fetch nothing any more."""
        self.throttle.close()
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        self._source_of.clear()

    def statistics(self) -> dict[str, int]:
        """How many of what there are."""
        return {"fetchers": len(self._sources), "partitions_followed": len(self._source_of)}


LATEST_EPOCH = 2**31 - 1
"""The leader of a mirror's partition answers where its log ends: see `HostedPartition.end_offset_for_epoch`."""


class SourceFetcher:
    """Fetches from one broker."""

    def __init__(self, owner: ReplicaFetchers, source_id: int) -> None:
        self.fetcher = Fetcher(owner.config.int("replica.fetch.backoff.ms") / 1000)
        self._owner = owner
        self._source_id = source_id
        self._connection: SourceConnection | None = None
        self._timer: Timer | None = None
        self._lookups: dict[TopicPartition, LookUpEnd] = {}
        """Those that wait for the answer to the request that is out."""
        self._is_looking_up = False
        self._silence = SilenceWatch(owner, source_id, lambda: self._connection)
        self._is_closed = False

    def close(self) -> None:
        """Fetch nothing any more: what is out is ignored."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._silence.close()
        self._disconnect()

    def step(self, event: FetcherEvent, answer: PartitionData | None = None) -> None:
        """Have the machine decide, and carry it out. `answer`: what the event is about."""
        if self._is_closed:
            return
        effects = self.fetcher.step(event, self._owner.clock.monotonic())
        for effect in effects:
            self._carry_out(effect, answer)

    def _carry_out(self, effect: FetcherEffect, answer: PartitionData | None) -> None:
        logs = self._owner.logs
        match effect:
            case SendFetch():
                self._send(effect)
            case Apply(topic_partition, high_watermark, log_start_offset):
                assert answer is not None
                records = _NOTHING if answer.records is None else memoryview(answer.records)
                self._move(
                    topic_partition,
                    lambda hosted: logs.apply(hosted, records, high_watermark, log_start_offset),
                    len(records),
                    high_watermark,
                )
            case Truncate(topic_partition, epoch, end_offset):
                self._move(topic_partition, lambda hosted: logs.truncate(hosted, epoch, end_offset))
            case TruncateTo(topic_partition, offset):
                self._move(topic_partition, lambda hosted: logs.truncate_to(hosted, offset))
            case StartAt(topic_partition, offset):
                self._move(topic_partition, lambda hosted: logs.start_at(hosted, offset))
            case LookUpEnd():
                self._look_up(effect)
            case WakeAt(time_s):
                if self._timer is not None:
                    self._timer.cancel()
                delay_s = max(time_s - self._owner.clock.monotonic(), 0.0)
                self._timer = self._owner.clock.call_later(delay_s, lambda: self.step(TimePassed()))
            case _:
                assert_never(effect)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition again that the throttle has held back."""
        self.step(Resumed(topic_partition))

    def _move(
        self, topic_partition: TopicPartition, change: "Callable[[HostedPartition], None]", fetched: int = 0, high_watermark: int = 0
    ) -> None:
        """Change the log of a partition, by so many bytes that were fetched, and report what it is then. A bug takes this log offline,
        as one of an append: others do not wait for it, and what it is may not be known.
        """
        hosted = self._owner.replicas.hosted[topic_partition]
        try:
            change(hosted)
        except (CorruptBatchError, StorageError) as error:
            self._warn(topic_partition, error)
            self.step(Failed(topic_partition))
        except Exception as bug:
            _LOG.error(
                "fetched batches not applied because of a bug: partition=%s leader=%d", topic_partition, self._source_id, exc_info=bug
            )
            self._owner.replicas.storage_failed(hosted, AppendBugError("a bug, see the log of the broker", path=str(topic_partition)))
            self.step(Failed(topic_partition))
        else:
            end = end_of(hosted.log)
            lags = end.end_offset < high_watermark
            is_throttled = self._owner.throttle.holds_back(topic_partition, fetched, lags=lags, source=self)
            self.step(Moved(topic_partition, end, is_throttled))

    def _warn(self, topic_partition: TopicPartition, reason: object) -> None:
        if self._owner.log_throttle.due((topic_partition, str(reason)), self._owner.clock.monotonic()):
            _LOG.warning(
                "fetched batches not applied, fetching again: partition=%s leader=%d reason=%s", topic_partition, self._source_id, reason
            )

    # Fetches

    def _send(self, fetch: SendFetch) -> None:
        config = self._owner.config
        message = FetchRequest(
            replica_state=ReplicaState(self._owner.broker_id, self._owner.broker_epoch()),
            max_wait_ms=config.int("replica.fetch.wait.max.ms") if fetch.waits else 0,
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            min_bytes=config.int("replica.fetch.min.bytes"),
            max_bytes=config.int("replica.fetch.response.max.bytes"),
            topics=wanted_topics(fetch, config.int("replica.fetch.max.bytes")),
            forgotten_topics_data=forgotten_topics(fetch),
        )
        self._request(ApiKey.FETCH, message, partial(self._fetched, fetch.number), FETCH_VERSIONS)

    def _request(self, api_key: ApiKey, message: Any, done: Callable[[Any], object], versions: VersionRange) -> None:
        """Send a request. `done` with its response; or None if there is none, once this has returned."""

        if self._connection is None:
            self._connection = self._owner.connect(self._source_id)
        connection = self._connection
        self._silence.asked()
        if connection is None:
            self._silence.failed()
            self._owner.clock.call_later(0.0, lambda: done(None))
            return

        def answered(outcome: Any) -> None:
            if isinstance(outcome, WorldError):
                if self._connection is connection:  # not the one made since
                    self._disconnect()
                self._silence.failed()
                done(None)
            else:
                self._silence.answered()
                done(outcome)

        timeout_s = self._owner.config.int("replica.socket.timeout.ms") / 1000
        connection.request(api_key, message, answered, timeout_s=timeout_s, version=versions)

    def _disconnect(self) -> None:
        """The next request makes a new connection, to the address that the broker has then."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _fetched(self, number: int, response: Any) -> None:
        if response is None or response.error_code != ErrorCode.NONE:
            is_lost = response is not None and response.error_code in SESSION_ERRORS
            self.step(SessionLost(number) if is_lost else RequestFailed(number))
        elif not self._is_closed:
            filled = filled_partitions(response)
            self.step(ResponseArrived(number, response.session_id, filled))

            def ended(is_applied: bool) -> None:
                self.step(RequestEnded(number) if is_applied else RequestFailed(number))

            is_short = not filled and sum(len(topic.partitions) for topic in response.responses) <= SHORT_MAX
            self._in_turns(self._apply(number, response), ended, is_short=is_short)

    def _in_turns(self, steps: Steps, ended: "Callable[[bool], object]", *, is_short: bool = False) -> None:
        """Apply an answer in turns with other work, a short one at once; `ended` with False if a bug has ended that."""

        def done(error: Exception | None) -> None:
            if error is not None:
                _LOG.error("fetched batches not applied because of a bug: leader=%d", self._source_id, exc_info=error)
            ended(error is None)

        try:
            if is_short:
                drain(steps)
                done(None)
            elif self._owner.slices.run(steps, done, droppable=False) is None:
                done(None)
        except Exception as error:
            done(error)

    def _apply(self, number: int, response: Any) -> Steps:
        for topic in response.responses:
            for each in topic.partitions:
                found = each.diverging_epoch
                diverging = None if found is None or (found.epoch < 0 and found.end_offset < 0) else (found.epoch, found.end_offset)
                error = known_error(each.error_code)
                answered = PartitionAnswered(
                    number, topic.topic_id, each.partition_index, error, each.high_watermark, each.log_start_offset, diverging
                )
                self.step(answered, each)
                yield UNFINISHED

    # Where the leader's log ends

    def _look_up(self, lookup: LookUpEnd) -> None:
        self._lookups[lookup.topic_partition] = lookup
        if not self._is_looking_up:
            self._send_lookups()

    def _send_lookups(self) -> None:
        """Look up all that wait, with one request: one answer of a fetch may ask for as many as there are partitions."""
        asked, self._lookups = self._lookups, {}
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (topic, index), lookup in asked.items():
            hosted = self._owner.replicas.hosted.get(TopicPartition(topic, index))
            is_mirror = hosted is not None and hosted.machine.is_mirror  # then its leader's epoch is none of the log
            wanted = OffsetForLeaderPartition(index, lookup.leader_epoch, LATEST_EPOCH if is_mirror else lookup.leader_epoch)
            topics.setdefault(topic, OffsetForLeaderTopic(topic, [])).partitions.append(wanted)
        self._is_looking_up = True
        message = OffsetForLeaderEpochRequest(self._owner.broker_id, list(topics.values()))
        self._request(ApiKey.OFFSET_FOR_LEADER_EPOCH, message, partial(self._looked_up, asked), LOOKUP_VERSIONS)

    def _looked_up(self, asked: "dict[TopicPartition, LookUpEnd]", response: Any) -> None:
        ends: dict[TopicPartition, int] = {}
        for topic in () if response is None else response.topics:
            for found in topic.partitions:
                if found.error_code == ErrorCode.NONE and found.end_offset >= 0:
                    ends[TopicPartition(topic.topic, found.partition)] = found.end_offset

        def ended(_is_applied: bool) -> None:
            for topic_partition, lookup in asked.items():  # without effect where it is applied
                self.step(EndFound(lookup.number, topic_partition, None))
            self._is_looking_up = False
            if self._lookups and not self._is_closed:
                self._send_lookups()

        self._in_turns(self._apply_ends(asked, ends), ended)

    def _apply_ends(self, asked: "dict[TopicPartition, LookUpEnd]", ends: "dict[TopicPartition, int]") -> Steps:
        for topic_partition, lookup in asked.items():
            self.step(EndFound(lookup.number, topic_partition, ends.get(topic_partition)))
            yield UNFINISHED
