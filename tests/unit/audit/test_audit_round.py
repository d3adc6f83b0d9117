"""A round of an auditor: counts and the offsets that they reach up to stay together. And how it ends: nobody waits for brokers for long."""

import gc
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from moldau.audit import auditor as auditors
from moldau.audit.auditor import Auditor, AuditorOptions, AuditRound
from moldau.audit.publishing import Counted
from moldau.audit.reading import ReadPosition, TopicReader
from moldau.audit.walker import Walker
from moldau.client.errors import RequestFailedError, Retry
from moldau.client.failures import FencedError, TransactionAbortedError
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import Gap
from moldau.tracking.latencies import Latencies
from support.audit_cluster import FIRST, LAST, NOBODY, T0, Cluster
from support.audit_events import NOON, Host, batch

ID = b"1" * 16
EWR = Host()


class Published:
    """Takes what is published, unless it is told to abort."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, dict[TopicPartition, int], int | None, list[tuple[str, Gap]]]] = []
        self.aborts = 0

    def publish(
        self,
        counted: Counted,
        offsets: Mapping[TopicPartition, int],
        caught_up_ms: int | None,
        topic_ids: Mapping[TopicPartition, bytes],
        gaps: Sequence[tuple[str, Gap]],
    ) -> None:
        assert not offsets or topic_ids == {T0: ID}
        if self.aborts:
            self.aborts -= 1
            raise TransactionAbortedError("moldau-audit-local", KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        self.taken.append((sum(count.count for count in counted.counts.values()), dict(offsets), caught_up_ms, list(gaps)))


class Ended:
    """Tells a round when to end: after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.told: dict[str, int] = {}

    @property
    def stopping(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def add(self, **more: int) -> None:
        for name, number in more.items():
            self.told[name] = self.told.get(name, 0) + number

    def set_partitions(self, count: int) -> None:
        self.told["partitions"] = count

    def note_latencies(self, latencies: Mapping[tuple[str, int], Latencies]) -> None:
        self.told["latencies"] = self.told.get("latencies", 0) + sum(each.total for each in latencies.values())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """47 events of one host, in one batch."""
    monkeypatch.setattr("moldau.audit.reading.LATE_S", 0.0)
    cluster = Cluster(ID)
    cluster.is_known = True
    cluster.batch = batch([EWR.event(number, NOON) for number in range(LAST - FIRST)], base_offset=FIRST)
    return cluster


def begun(cluster: Cluster, looks: int, position: int = FIRST) -> tuple[AuditRound, Published, Ended]:
    made: Any = cluster
    published: Any = Published()
    ended = Ended(looks)
    reading = TopicReader(made, None, {T0: ReadPosition(position, ID, 1)})
    options = AuditorOptions("local", keys_max=1 << 30, interval_s=3600)
    return AuditRound(options, ended, published, reading, Walker(fast=False)), published, ended


def goes_away(cluster: Cluster, looks: Ended) -> None:
    """Behind the first fetch the broker does not know the partition any more."""
    count = looks.add

    def add(**more: int) -> None:
        count(**more)
        if more.get("records"):
            cluster.is_known = False

    looks.add = add  # type: ignore[method-assign]


@pytest.mark.parametrize("comes", ["again", "anew", "never"])
def test_counts_of_a_partition_that_was_let_go_are_published_with_its_offset(cluster: Cluster, comes: str) -> None:
    """A broker that does not know it for a moment: an auditor that dies behind this would have the same events counted again. Of one that
    was deleted there is nothing to be counted again, and its offset would be refused."""
    round_, published, ended = begun(cluster, looks=2)
    goes_away(cluster, ended)
    if comes == "never":
        published.aborts = 1
    told = cluster.forget_topic

    def forget(name: str) -> None:
        told(name)
        cluster.topic_id = {"again": ID, "anew": b"2" * 16, "never": None}[comes]

    cluster.forget_topic = forget  # type: ignore[method-assign]
    round_.run_round(once=False)
    ((count, offsets, _, _),) = published.taken
    assert count == LAST - FIRST
    assert offsets == ({T0: LAST} if comes == "again" else {})


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "deleted"])
def test_counts_are_published_by_who_is_told_to_end_while_a_topic_goes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Whether it was deleted is found out, for its offset would be refused, and all the counts with it; what is there for certain is not
    waited for."""
    round_, published, ended = begun(cluster, looks=2)
    goes_away(cluster, ended)

    monkeypatch.setattr("moldau.audit.reading.LATE_S", 0.02)

    def pause(_: float) -> None:
        raise AssertionError("nobody waits for brokers who is told to end")

    cluster.retry = lambda: Retry(5, sleep=pause)  # type: ignore[method-assign]
    told = cluster.forget_topic

    def forget(name: str) -> None:
        told(name)
        cluster.topic_id, cluster.error = (ID, ErrorCode.LEADER_NOT_AVAILABLE) if is_there else (None, ErrorCode.NONE)

    cluster.forget_topic = forget  # type: ignore[method-assign]
    round_.run_round(once=False)
    ((count, offsets, _, _),) = published.taken
    assert (count, offsets) == (LAST - FIRST, {T0: LAST} if is_there else {})


@pytest.mark.parametrize("position", [FIRST, 40], ids=["behind us", "before what is counted"])
def test_once_ends_where_a_log_was_cut_meanwhile(cluster: Cluster, position: int) -> None:
    """What it was to read up to is not there any more: it would look for it for ever."""
    round_, published, ended = begun(cluster, looks=20, position=position)
    fetch_many = cluster.fetch_many

    def fetch(positions: dict[TopicPartition, int], limits: Any) -> Any:
        cluster.end, cluster.batch = 20, batch([EWR.event(number, NOON) for number in range(20 - FIRST)], base_offset=FIRST)
        return fetch_many(positions, limits)

    cluster.fetch_many = fetch  # type: ignore[assignment]
    round_.run_round(once=True)
    assert ended.looks > 0
    ((_, offsets, caught_up_ms, gaps),) = published.taken
    assert (offsets, caught_up_ms is not None) == ({T0: 20}, True)
    assert gaps == ([] if position == FIRST else [("t", Gap(0, 20, 40, "cut"))])


def test_once_goes_on_in_a_partition_that_comes_back(cluster: Cluster) -> None:
    """It would end, and say that everything is counted, though nobody has read the rest."""
    round_, published, _ = begun(cluster, looks=20)
    cluster.is_known = False
    told = cluster.forget_topic

    def forget(name: str) -> None:
        told(name)
        cluster.is_known = True

    cluster.forget_topic = forget  # type: ignore[method-assign]
    round_.run_round(once=True)
    ((count, offsets, caught_up_ms, _),) = published.taken
    assert (count, offsets, caught_up_ms is not None) == (LAST - FIRST, {T0: LAST}, True)


def test_once_does_not_pass_over_what_has_no_leader(cluster: Cluster) -> None:
    round_, published, _ = begun(cluster, looks=20)
    cluster.leader = NOBODY
    with pytest.raises(RequestFailedError, match="partition t-0: leader not available"):
        round_.run_round(once=True)
    assert published.taken == []


def test_a_gap_is_published_once_with_the_offset_behind_it(cluster: Cluster) -> None:
    round_, published, _ = begun(cluster, looks=4, position=1)
    cluster.is_known = False
    cluster.fetch_error = ErrorCode.OFFSET_OUT_OF_RANGE
    listing = cluster.list_offsets

    def list_offsets(wanted: Any, **more: Any) -> Any:
        cluster.is_known = cluster.is_known or bool(wanted)
        return listing(wanted, **more)

    cluster.list_offsets = list_offsets  # type: ignore[method-assign]
    published.aborts = 1
    round_.run_round(once=False)
    ((count, offsets, _, gaps),) = published.taken
    assert (count, offsets, gaps) == (LAST - FIRST, {T0: LAST}, [("t", Gap(0, 1, FIRST, "gone"))])


def test_a_damaged_partition_is_left_alone_and_not_fetched(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be sent again and again, as fast as the broker can."""
    cluster.batch = cluster.batch[:-1] + bytes([cluster.batch[-1] ^ 1])
    fetches = []
    fetch_many = cluster.fetch_many

    def fetch(positions: dict[TopicPartition, int], limits: Any) -> Any:
        fetches.append(dict(positions))
        return fetch_many(positions, limits)

    cluster.fetch_many = fetch  # type: ignore[assignment]
    rests: list[float] = []
    monkeypatch.setattr("moldau.audit.auditor.time.sleep", rests.append)
    round_, published, _ = begun(cluster, looks=10)
    round_.run_round(once=False)
    assert fetches == [{T0: FIRST}] * 3
    assert published.taken == []
    assert len(rests) == 7, "and with nothing else to read it does not turn on the spot"


def test_once_does_not_wait_for_ever_for_a_leader_that_goes(cluster: Cluster) -> None:
    """The leader goes behind the first look: who counts once says so, by the partition's name."""
    round_, published, _ = begun(cluster, looks=20)
    cluster.is_known = False
    cluster.fetch_error = ErrorCode.LEADER_NOT_AVAILABLE
    fetch_many = cluster.fetch_many

    def fetch(positions: dict[TopicPartition, int], limits: Any) -> Any:
        cluster.leader = NOBODY
        return fetch_many(positions, limits)

    cluster.fetch_many = fetch  # type: ignore[assignment]
    with pytest.raises(RequestFailedError, match="partition t-0: leader not available"):
        round_.run_round(once=True)
    assert published.taken == []


class Stuck:
    """A publisher whose brokers do not answer."""

    def __init__(self, *_: Any) -> None:
        self.asked, self.answered, self.abandoned = threading.Event(), threading.Event(), False
        Stuck.made = self

    made: "Stuck"

    def take_over(self, _: object) -> dict[TopicPartition, ReadPosition]:
        self.asked.set()
        self.answered.wait(60)
        raise FencedError("moldau-audit-local", KafkaError(KafkaError._FENCED))

    def abandon(self) -> None:
        self.abandoned = True

    def close(self) -> None:
        pass


def test_an_auditor_that_is_told_to_end_does_not_wait_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that nobody answers may take a minute: it ends without. What was not published is counted by the next one."""
    monkeypatch.setattr(auditors, "Publisher", Stuck)
    auditor = Auditor("127.0.0.1:9", AuditorOptions("local", stop_s=0.05))
    thread = threading.Thread(target=auditor.run)
    thread.start()
    while not hasattr(Stuck, "made"):
        time.sleep(0.01)
    assert Stuck.made.asked.wait(60)
    auditor.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert Stuck.made.abandoned
    Stuck.made.answered.set()


def test_an_auditor_that_has_ended_keeps_no_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka's threads live as long as somebody holds it: they would look for brokers, and log that these are away."""
    made: list[weakref.ref[Any]] = []

    class Ending(Stuck):
        def __init__(self, *_: Any) -> None:
            made.append(weakref.ref(self))

        def take_over(self, _: object) -> dict[TopicPartition, ReadPosition]:
            return {}

    monkeypatch.setattr(auditors, "Publisher", Ending)
    monkeypatch.setattr(AuditRound, "run_round", lambda *_, **__: None)
    auditor = Auditor("127.0.0.1:9", AuditorOptions("local"))
    auditor.run(once=True)
    gc.collect()
    assert [each() for each in made] == [None]


def test_what_ends_the_work_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def answered(self: Stuck, _: object) -> None:
        raise FencedError("moldau-audit-local", KafkaError(KafkaError._FENCED))

    monkeypatch.setattr(Stuck, "take_over", answered)
    monkeypatch.setattr(auditors, "Publisher", Stuck)
    with pytest.raises(FencedError):
        Auditor("127.0.0.1:9", AuditorOptions("local")).run()
