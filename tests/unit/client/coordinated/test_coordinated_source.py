"""The source of coordinated streams: it finds brokers in the tree, reads what its member owns, and drops what it fetched of the rest."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from moldau.adapters.event_loop import LoopClock
from moldau.client.coordinated.member import MemberTiming
from moldau.client.coordinated.source import CoordinatedSource, SourceOptions
from moldau.client.failures import CommitError, ConsumeError
from moldau.client.librdkafka import timed_out
from moldau.client.message import ConsumedMessage
from moldau.client.session import BEGINNING
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Coordination, Create
from support.coordinated_members import GROUP, Member, TreeOfTopics

if TYPE_CHECKING:
    from moldau.testing.coordination import FakeSession

P = [TopicPartition("t", number) for number in range(4)]
OPTIONS = SourceOptions(
    group=GROUP,
    consumer="a",
    streams={"t": 2},
    timing=MemberTiming(session_timeout_s=300.0, backoff_s=0.01, commit_interval_s=None),
    auto_commit=True,
    begins_at_end=False,
    in_tree=True,
    in_brokers=False,
    connection_timeout_s=0.05,
    close_timeout_s=5.0,
)


class Brokers:
    """In place of librdkafka: each partition has 100 messages; and in place of the streams: what they were called with."""

    def __init__(self) -> None:
        self.at: dict[TopicPartition, int] = {}
        self.addresses: Sequence[str] = ()
        self.group_store: dict[TopicPartition, int] = {}
        self.paused: list[TopicPartition] = []
        self.failure: ConsumeError | CommitError | None = None
        self.during_fetch: Any = lambda: None
        self.closed = False
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.finished: dict[TopicPartition, int] = {}
        self.source: CoordinatedSource

    # As a session

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.at = {where: 0 if offset == BEGINNING else offset for where, offset in offsets.items()}

    def fetch(self, count: int, timeout_s: float) -> list[ConsumedMessage]:
        found = []
        for where, offset in self.at.items():
            found.append(ConsumedMessage(b"", topic=where.topic, partition=where.partition, offset=offset))
            self.at[where] = offset + 1
        self.during_fetch()
        return found[:count]

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self.failure is not None:
            raise self.failure
        return dict.fromkeys(times, 100)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if isinstance(self.failure, ConsumeError):
            raise self.failure
        return {where: self.group_store[where] for where in partitions if where in self.group_store}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if isinstance(self.failure, CommitError):
            raise self.failure
        self.group_store.update(offsets)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused += partitions

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            self.paused.remove(where)

    def seek(self, where: TopicPartition, offset: int) -> None:
        self.at[where] = offset

    def bounds(self, where: TopicPartition) -> tuple[int, int]:
        return (0, 100)

    def close(self, timeout_s: float) -> None:
        self.closed = True

    # As streams

    def assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(partitions)))

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.source.store(self.finished)
        self.calls.append(("revoked", sorted(partitions)))

    def lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(partitions)))


class World(TreeOfTopics):
    """A tree with a broker, a topic, and one source in this thread."""

    def __init__(self, options: SourceOptions = OPTIONS, *, has_broker: bool = True) -> None:
        super().__init__({"t": 4})
        self.do(Create("/brokers/ids"))
        if has_broker:
            self.add_broker()
        self.sessions: list[FakeSession] = []
        self.brokers = Brokers()
        self.source = self.brokers.source = CoordinatedSource(self.open, self.session_with, options)
        self.source.subscribe(["t"], self.brokers)

    def add_broker(self) -> None:
        self.do(Create("/brokers/ids/3", b'{"version":1,"host":"kafka3","port":9092,"jmx_port":-1,"timestamp":"1"}'))

    def open(self, loop: asyncio.AbstractEventLoop) -> Coordination:
        self.tree.clock = LoopClock(loop)
        self.sessions.append(self.tree.session())
        return self.sessions[-1]

    def session_with(self, addresses: Sequence[str]) -> Any:
        self.brokers.addresses = addresses
        return self.brokers

    def fetch(self) -> list[tuple[int, int]]:
        return [(each.partition, each.offset) for each in self.source.fetch(500, 0.0)]


@contextmanager
def world(**options: Any) -> Iterator[World]:
    has_broker = options.pop("has_broker", True)
    made = World(OPTIONS._replace(**options), has_broker=has_broker)
    try:
        yield made
    finally:
        made.source.close()
        assert made.brokers.closed == bool(made.brokers.addresses)


def test_it_reads_its_partitions_of_the_registered_brokers_each_for_its_thread() -> None:
    with world() as w:
        assert w.fetch() == [], "it becomes a member"
        assert w.brokers.addresses == ["kafka3:9092"]
        assert w.source.assignment() == P
        assert [w.source.stream_of(where) for where in P] == [0, 0, 1, 1]
        assert w.fetch() == [(0, 0), (1, 0), (2, 0), (3, 0)]
        w.source.store({P[0]: 1})
        w.source.commit({P[1]: 1})
        assert [w.committed(where) for where in P[:3]] == [1, 1, None]
        w.brokers.finished = {P[2]: 1}
    assert w.brokers.calls == [("assigned", P), ("revoked", P)]
    assert w.committed(P[2]) == 1, "committed at the end"
    assert w.owner(P[0]) is None


def test_what_was_fetched_before_a_rebalance_is_dropped() -> None:
    with world() as w:
        w.fetch()
        w.brokers.during_fetch = lambda: Member(w, "b", {"t": 2})
        assert w.fetch() == []
        w.brokers.during_fetch = lambda: None
        assert w.brokers.calls == [("assigned", P), ("revoked", P), ("assigned", P[:2])]
        assert w.fetch() == [(0, 0), (1, 0)], "again, from what is committed"
        w.source.pause([P[0], P[3]])
        assert w.brokers.paused == [P[0]], "not what it has no more"
        w.source.resume([P[0], P[3]])
        w.source.seek(P[1], 50)
        assert w.fetch() == [(0, 1), (1, 50)]
        assert w.source.bounds(P[0]) == (0, 100)


def test_a_session_that_ends_takes_all_away() -> None:
    with world() as w:
        w.fetch()
        w.sessions[0].suspend()
        w.sessions[0].expire()
        assert w.fetch() == [(0, 0), (1, 0), (2, 0), (3, 0)], "it cannot know yet"
        w.sessions[0].resume()
        assert w.brokers.calls == [("assigned", P), ("lost", P), ("assigned", P)]
        assert w.fetch() == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_what_a_call_of_the_tree_raises_reaches_the_feeder() -> None:
    """asyncio would log it, and the member would do nothing any more."""
    with world() as w:
        w.fetch()
        loop = w.source._loop
        assert loop is not None
        loop.clock.call_later(0.0, lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            w.source.fetch(500, 1.0)
        assert w.fetch() != []


def test_after_a_pause_nothing_is_read_until_the_session_is_known_to_live() -> None:
    with world() as w:
        w.fetch()
        w.sessions[0].hold()
        w.source._turned_at -= OPTIONS.timing.session_timeout_s / 2
        assert (w.fetch(), w.source.assignment()) == ([], P)
        w.sessions[0].suspend()
        assert w.fetch() == []
        w.sessions[0].resume()
        w.sessions[0].release()
        assert w.fetch() == [(0, 0), (1, 0), (2, 0), (3, 0)]
        w.sessions[0].hold()
        w.source._turned_at -= OPTIONS.timing.session_timeout_s / 2
        w.sessions[0].suspend()
        w.sessions[0].expire()
        assert w.fetch() == []
        w.sessions[0].release()
        w.sessions[0].resume()
        assert w.brokers.calls[1:] == [("lost", P), ("assigned", P)]
        assert w.fetch() == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_it_waits_for_a_broker(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.client.coordinated.source.BROKERS_AGAIN_S", 0.01)
    with world(has_broker=False) as w:
        w.do(Create("/brokers/ids/1", b"nonsense"))
        assert w.source.fetch(500, 0.03) == []
        assert w.source.assignment() == []
        w.source.commit({})
        w.add_broker()
        for _ in range(100):
            if not w.source.assignment():
                w.source.fetch(500, 0.01)
        assert w.source.assignment() == P
    assert caplog.text.count("no broker is registered") == 1
    assert "/brokers/ids/1: cannot read b'nonsense'; this broker is not asked" in caplog.text


def test_without_a_session_in_time_it_fails() -> None:
    w = World(OPTIONS._replace(connection_timeout_s=0.0))
    w.source._is_connected = False
    with pytest.raises(ConsumeError, match=r"no session with the coordination tree within 0 s \(connection_timeout_ms\)"):
        w.fetch()
    w.source.close()


def test_where_a_new_group_begins_at_the_end_it_commits_that() -> None:
    with world(begins_at_end=True, auto_commit=False) as w:
        w.do(Create("/consumers"))
        w.fetch()
        assert w.brokers.at == dict.fromkeys(P, 100)
        assert [w.committed(where) for where in P] == [100] * 4


def test_brokers_that_do_not_say_where_the_end_is_are_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    w = World(OPTIONS._replace(begins_at_end=True))
    w.brokers.failure = ConsumeError("t", 0, None, timed_out("no answer"))
    w.fetch()
    assert (w.source.assignment(), w.brokers.calls) == ([], [])
    assert "rebalance failed: partition t-0: TIMED_OUT: no answer; trying again in 0.0 s" in caplog.text
    w.brokers.failure = None
    for _ in range(100):
        if not w.source.assignment():
            w.source.fetch(500, 0.01)
    assert w.brokers.calls == [("assigned", P)]
    w.source.close()


def test_offsets_in_the_brokers_or_in_both() -> None:
    with world(in_tree=False, in_brokers=True) as w:
        w.brokers.group_store[P[1]] = 7
        w.fetch()
        assert w.brokers.at[P[1]] == 7
        w.source.commit({P[0]: 5})
        assert (w.brokers.group_store[P[0]], w.committed(P[0])) == (5, None)
        w.brokers.failure = CommitError(GROUP, "t", 0, 6, timed_out("no answer"))
        with pytest.raises(CommitError, match="partition t-0 at offset 6: TIMED_OUT"):
            w.source.commit({P[0]: 6})
        w.brokers.failure = None
    with world(in_brokers=True) as w:
        w.fetch()
        w.source.commit({P[0]: 5})
        assert (w.brokers.group_store[P[0]], w.committed(P[0])) == (5, 5)


def test_a_commit_that_fails_or_is_not_answered_names_the_partition() -> None:
    w = World(OPTIONS._replace(timing=OPTIONS.timing._replace(session_timeout_s=0.1)))
    w.fetch()
    w.sessions[0].fail_next(CoordinationError("no room", retriable=True))
    with pytest.raises(CommitError, match=r"group g, partition t-0 at offset 5: COORDINATION: no room") as caught:
        w.source.commit({P[0]: 5})
    assert (caught.value.retriable, caught.value.fatal) == (True, False)
    w.sessions[0].suspend()
    with pytest.raises(CommitError, match="has not answered in time; the offset may not be committed"):
        w.source.commit({P[0]: 6})
    with pytest.raises(CommitError, match="partition t-0 at offset 6"):
        w.source.close()
    assert w.brokers.closed
