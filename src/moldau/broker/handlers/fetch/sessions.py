"""Incremental fetch sessions (KIP-227): the partitions that a client asked for before, so that it names what has changed only.

A full request with epoch 0 opens a session when it is answered, if there is room; its answer has the id. The next request has epoch 1 and
names partitions that are new or asked for from elsewhere, and those to forget; all others are read as before. Its answer has the partitions
with records, an error, a diverging epoch, a preferred replica, another high watermark or log start offset than the client is known to know.

    request                                       session
    epoch -1, id 0                                none
    epoch -1, or 0, of a session                  is closed; 0 opens another one
    epoch as expected                             is updated; one that is left without partitions is closed
    another epoch                                 INVALID_FETCH_SESSION_EPOCH
    by id in a session by name, or the reverse    FETCH_SESSION_TOPIC_ID_ERROR
    no such session, or no room for it to grow    FETCH_SESSION_ID_NOT_FOUND; the client sends a full request

Partitions are read in the order of the session. Those that had records move to its end, so that none starves where limits are small.

One request of a session is worked on at a time. When the next one arrives, the one before stops waiting and is answered first: so a
follower that begins to fetch a partition need not wait for the end of its long poll.

Bounds: sessions by `max.incremental.fetch.session.cache.slots`, their partitions, of all sessions together, by
`fetch.session.partitions.max`. At a bound a session is evicted that has not been used for `EVICTION_S`; else the one with the fewest
partitions, if it is older than that and has fewer than the new one. One of a follower evicts any of a client, and is evicted by those of
followers only. Where nothing may be evicted the client gets no session and sends full requests.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from moldau.broker.admission.state import RESERVED, Account
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Pause
from moldau.protocol.fast.fetch import EPOCH_MAX, NO_EPOCH, NO_SESSION, FetchFrame, FetchFramePartition, FetchPartitionResult, next_epoch

if TYPE_CHECKING:
    from moldau.broker.admission.state import Budget
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.isr import FollowerProgress
    from moldau.model.config.store import BrokerConfig

SLOTS = "max.incremental.fetch.session.cache.slots"
PARTITIONS = "fetch.session.partitions.max"

EVICTION_S = 120.0
SEARCH_S = 1.0
"""Time between two searches for a session that a client's may evict: where all clients open sessions that they do not use, each of their
requests would search."""
AT_ONCE = 500
"""Partitions that are looked through in one step."""

Results = tuple[bytes, list[FetchPartitionResult]]


class PendingFetch(Protocol):
    """A request of a session that is not answered yet."""

    def finish(self) -> None:
        """Answer it with what there is, now or soon."""


class SessionPartition:
    """What a client asks for of a partition, and what it knows of it."""

    __slots__ = ("_had_records", "_partition", "_progress", "high_watermark", "log_start_offset", "topic", "wanted")

    def __init__(self, topic: bytes, wanted: FetchFramePartition) -> None:
        self.topic = topic
        self.wanted = wanted
        self._partition: HostedPartition | None = None
        self._progress: FollowerProgress | None = None
        """What the leader had noted of the follower when it last read the partition for it, if that was in sync then."""
        self.high_watermark = -1
        """As it was answered last; -1 where the client may not have taken it, so that it is sent once more: after an error or a diverging
        epoch, if the client names the partition without having read on, and in a second answer for an offset whose first had records, of
        which it takes one only."""
        self.log_start_offset = -1
        self._had_records = False
        """Whether the client was sent records since it named the partition."""

    def ask(self, wanted: FetchFramePartition) -> None:
        """The client names the partition."""
        if wanted.fetch_offset <= self.wanted.fetch_offset:
            self.high_watermark = -1
        self.wanted = wanted
        self._progress = None
        self._had_records = False

    def was_read(self, partition: "HostedPartition", replica_id: int) -> None:
        """It was read for a follower, without an error."""
        machine = partition.machine
        self._partition = partition
        self._progress = machine.followers.get(replica_id) if replica_id in machine.isr else None

    def has_all(self) -> bool:
        """Whether a follower has the whole log of the partition that was read for it."""
        return self._partition is not None and self._partition.log.log_end_offset == self.wanted.fetch_offset

    def rests(self, replica_id: int, replica_epoch: int, now_s: float | None) -> "HostedPartition | None":
        """The partition, if a follower's fetch would find nothing new in it and no error: the follower has the whole log, knows its high
        watermark and start, and its progress is that of the last read. Another leader epoch, and leaving the in-sync set, drop progress.
        `now_s`: when it has fetched, if that is to be noted.
        """
        partition, progress = self._partition, self._progress
        if partition is None or progress is None:
            return None
        log = partition.log
        end_offset = log.log_end_offset
        if (
            end_offset != self.wanted.fetch_offset
            or log.high_watermark != self.high_watermark
            or log.start_offset != self.log_start_offset
            or partition.machine.followers.get(replica_id) is not progress
            or progress.broker_epoch != replica_epoch
            or not (partition.is_led and partition.is_open)
        ):
            return None
        if now_s is not None:
            progress.has_all(end_offset, now_s)
        return partition

    def learns(self, result: FetchPartitionResult) -> bool:
        """Note what is answered; whether any of it is news."""
        if result.error_code or result.diverging_epoch is not None:
            self.high_watermark = -1
            return True
        has_news = (
            result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or bool(result.records)
            or result.preferred_read_replica >= 0
        )
        self.high_watermark = -1 if self._had_records else result.high_watermark
        self.log_start_offset = result.log_start_offset
        self._had_records = self._had_records or bool(result.records)
        return has_news


class FetchSession:
    """See the module. Invariant: `epoch` is that of the request that is expected next."""

    __slots__ = ("_released", "by_id", "epoch", "id", "is_privileged", "opened_s", "partitions", "pending", "used_s")

    def __init__(self, session_id: int, *, by_id: bool, is_privileged: bool, now_s: float) -> None:
        """`by_id`: topics are named by their ids. `is_privileged`: it is a follower's."""
        self.id = session_id
        self.by_id = by_id
        self.is_privileged = is_privileged
        self.opened_s = self.used_s = now_s
        self.epoch = 1
        self.partitions: dict[tuple[bytes, int], SessionPartition] = {}
        """In the order in which they are read."""
        self.pending: PendingFetch | None = None
        """The request that is worked on."""
        self._released: list[Callable[[], object]] = []

    def release(self) -> None:
        """The request that was worked on is answered or given up."""
        self.pending = None
        released, self._released = self._released, []
        for resume in released:
            resume()

    def when_released(self, resume: Callable[[], object]) -> None:
        """Call back once no request of the session is worked on."""
        if self.pending is None:
            resume()
        else:
            self._released.append(resume)

    def topics(self) -> Generator[Pause, None, list[tuple[bytes, list[FetchFramePartition]]]]:
        """What the client asks for, in steps; a topic comes again where others are read in between."""
        topics: list[tuple[bytes, list[FetchFramePartition]]] = []
        topic, wanted = b"", list[FetchFramePartition]()
        for number, each in enumerate(list(self.partitions.values()), 1):
            if each.topic != topic:
                topic, wanted = each.topic, []
                topics.append((topic, wanted))
            wanted.append(each.wanted)
            if number % AT_ONCE == 0:
                yield None
        return topics

    def news(self, topics: Sequence[Results]) -> Generator[Pause, None, list[Results]]:
        """The results that the client does not know yet, in steps. `topics`: one for each partition, in the order of the session."""
        news: list[Results] = []
        partitions = iter(list(self.partitions.values()))
        filled: list[SessionPartition] = []
        number = 0
        for topic, results in topics:
            kept = []
            for result in results:
                partition = next(partitions)
                if partition.learns(result):
                    kept.append(result)
                    if result.records:
                        filled.append(partition)
                number += 1
                if number % AT_ONCE == 0:
                    yield UNFINISHED
            if kept:
                news.append((topic, kept))
        self.move_to_end(filled)
        return news

    def move_to_end(self, filled: Sequence[SessionPartition]) -> None:
        """Read those that had records after all others the next time."""
        for partition in filled:
            key = partition.topic, partition.wanted.partition
            self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """The sessions of a broker. Invariant: `_account.held` is the number of their partitions together."""

    def __init__(
        self, config: "BrokerConfig", budget: "Budget", monotonic: Callable[[], float], random_bytes: Callable[[int], bytes]
    ) -> None:
        """`budget`: that of `PARTITIONS`."""
        self.evictions = 0
        self._config = config
        self._budget = budget
        self._account = Account(budget)
        self._monotonic = monotonic
        self._random_bytes = random_bytes
        self._sessions: dict[int, FetchSession] = {}
        """The one that was used last is the last."""
        self._search_s = 0.0
        """When a session may be searched for again that a client's evicts."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Of all sessions."""
        return self._account.held

    def get(self, session_id: int) -> FetchSession | None:
        """The session of this id."""
        return self._sessions.get(session_id)

    def enter(self, request: FetchFrame, *, by_id: bool) -> Generator[Pause, None, tuple[FetchFrame, FetchSession | None]]:
        """The request, and its session, which has all that it asks for, in steps; None without one so far. PeerError.

        No other request of the session is worked on.
        """
        session = self._sessions.get(request.session_id)
        if request.session_epoch in (0, NO_EPOCH):
            if session is not None:
                self._close(session)
            return request, None
        if session is None:
            raise PeerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise PeerError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} expects epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.by_id != by_id:
            raise PeerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, f"fetch session {session.id} names topics in the other way")
        session.epoch, session.used_s = next_epoch(session.epoch), self._monotonic()
        self._sessions[session.id] = self._sessions.pop(session.id)
        yield from self._update(session, request)
        if not session.partitions:
            self._close(session)
            return request._replace(topics=[], forgotten=[]), None
        return request, session

    def _update(self, session: FetchSession, request: FetchFrame) -> Generator[Pause, None, None]:
        """Change the session by what the request names. PeerError, and the session is closed, if there is no room."""
        partitions, number = session.partitions, 0
        for topic, wanted in request.topics:
            for each in wanted:
                known = partitions.get((topic, each.partition))
                if known is not None:
                    known.ask(each)
                elif self._sessions.get(session.id) is session and self._makes_room(session, 1):
                    partitions[topic, each.partition] = SessionPartition(topic, each)
                    self._account.add(1)
                else:
                    self._close(session)
                    raise PeerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no room for more partitions: fetch session {session.id}")
                number += 1
                if number % AT_ONCE == 0:
                    yield UNFINISHED
        for topic, indexes in request.forgotten:
            for index in indexes:
                if partitions.pop((topic, index), None) is not None and self._sessions.get(session.id) is session:
                    self._account.add(-1)
                number += 1
                if number % AT_ONCE == 0:
                    yield UNFINISHED

    def open(self, request: FetchFrame, topics: Sequence[Results], *, by_id: bool) -> Generator[Pause, None, int]:
        """Open a session for a full request that is answered with `topics`, in steps; its id, or `NO_SESSION` if there is no room."""
        session = FetchSession(self._new_id(), by_id=by_id, is_privileged=request.replica_id >= 0, now_s=self._monotonic())
        count = sum(len(wanted) for _, wanted in request.topics)
        if not count:
            return NO_SESSION
        if self._lacks_room(session, count) and self._evictable(session, count) is None:  # before the work below
            self._budget.has_room(count, "a new fetch session", new=True)  # which counts and logs that it has none
            return NO_SESSION
        filled: list[SessionPartition] = []
        number = 0
        for (topic, wanted), (_, results) in zip(request.topics, topics, strict=True):
            for each, result in zip(wanted, results, strict=True):
                partition = SessionPartition(topic, each)
                partition.learns(result)
                session.partitions[topic, each.partition] = partition
                if result.records:
                    filled.append(partition)
                number += 1
                if number % AT_ONCE == 0:
                    yield None
        session.move_to_end(filled)
        count = len(session.partitions)
        if not self._makes_room(session, count):
            return NO_SESSION
        self._sessions[session.id] = session
        self._account.add(count)
        return session.id

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._random_bytes(4), "big") & EPOCH_MAX
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _close(self, session: FetchSession) -> None:
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            self._account.add(-len(session.partitions))

    def _lacks_room(self, session: FetchSession, count: int) -> bool:
        """Whether others have to be evicted for so many more partitions of `session`."""
        is_new, limit = session.id not in self._sessions, self._budget.limit
        if is_new:
            limit -= limit // RESERVED
        return self._budget.held + count > limit or (is_new and len(self._sessions) >= self._config.int(SLOTS))

    def _makes_room(self, session: FetchSession, count: int) -> bool:
        """Whether `session` may have so many more partitions, after others are evicted where that is needed."""
        is_new = session.id not in self._sessions
        while count <= self._budget.limit and self._lacks_room(session, count):
            evicted = self._evictable(session, count if is_new else len(session.partitions))
            if evicted is None:
                break
            self._close(evicted)
            self.evictions += 1
        has_slot = not is_new or len(self._sessions) < self._config.int(SLOTS)
        return has_slot and self._budget.has_room(count, f"fetch session {session.id}", new=is_new)

    def _evictable(self, wanted: FetchSession, count: int) -> FetchSession | None:
        """A session that may be evicted for `wanted`, which has so many partitions."""
        now_s = self._monotonic()
        oldest = next((each for each in self._sessions.values() if each is not wanted), None)
        if oldest is None or now_s - oldest.used_s > EVICTION_S:
            return oldest
        return self._lesser(wanted, count, now_s)

    def _lesser(self, wanted: FetchSession, count: int, now_s: float) -> FetchSession | None:
        """The session of the least value, if it is worth less than `wanted`."""
        if not wanted.is_privileged and now_s < self._search_s:
            return None
        least: FetchSession | None = None
        key = wanted.is_privileged, count
        for each in self._sessions.values():
            is_evictable = now_s - each.opened_s > EVICTION_S or (wanted.is_privileged and not each.is_privileged)
            if is_evictable and each is not wanted and (each.is_privileged, len(each.partitions)) < key:
                least, key = each, (each.is_privileged, len(each.partitions))
        if least is None and not wanted.is_privileged:
            self._search_s = now_s + SEARCH_S
        return least
