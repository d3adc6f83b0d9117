"""Where an auditor goes on in partitions that go, come back, or are made anew under the same name."""

import re
import time
from typing import Any

import pytest

from moldau.audit.reading import ReadPosition, TopicReader, missing, notes
from moldau.client.errors import RequestFailedError, TruncationError
from moldau.client.groups import GroupOffset
from moldau.client.metadata import NO_TOPIC_ID, ClusterMetadata, PartitionMetadata, TopicMetadata
from moldau.model.errors import ErrorCode
from moldau.model.identity import Offset, TopicPartition
from moldau.tracking.audit_record import Gap
from support.audit_cluster import FIRST, LAST, ME, NOBODY, T0, Cluster


def reading(cluster: Cluster, places: dict[TopicPartition, ReadPosition] | None = None) -> TopicReader:
    made: Any = cluster
    found = TopicReader(made, None, places or {})
    found.discover()
    return found


@pytest.mark.parametrize("how", ["not listed", "listed with an error", "not known to the leader"])
def test_a_topic_that_brokers_do_not_know_for_a_moment_is_not_counted_again(how: str) -> None:
    """By its id it is the same topic: from its beginning, everything counted would be counted twice."""
    cluster = Cluster(b"1" * 16)
    found = reading(cluster)
    assert found.positions == {T0: FIRST}
    found.positions[T0] = 50
    if how == "not listed":
        cluster.topic_id = None
        found.discover()
    elif how == "listed with an error":
        cluster.error = ErrorCode.LEADER_NOT_AVAILABLE
        found.discover()
    else:
        assert found.fetch(wait=False) == {}
    assert found.positions == {}
    cluster.topic_id, cluster.error = b"1" * 16, ErrorCode.NONE
    found.discover()
    assert found.positions == {T0: 50}


def test_a_topic_that_is_made_anew_is_counted_from_its_beginning() -> None:
    cluster = Cluster(b"1" * 16)
    found = reading(cluster, {T0: ReadPosition(40)})
    assert found.positions == {T0: 40}
    cluster.topic_id = None
    found.discover()
    cluster.topic_id = b"2" * 16
    found.discover()
    assert found.positions == {T0: FIRST}


def test_without_ids_nobody_can_know() -> None:
    """Brokers older than topic ids: as if it were made anew."""
    cluster = Cluster(NO_TOPIC_ID)
    found = reading(cluster, {T0: ReadPosition(40)})
    cluster.topic_id = None
    found.discover()
    cluster.topic_id = NO_TOPIC_ID
    found.discover()
    assert found.positions == {T0: FIRST}


def test_everything_is_counted_only_up_to_when_partitions_were_looked_for() -> None:
    """A topic that is made behind that may have events; and of one that was let go of nobody knows."""
    cluster = Cluster(b"1" * 16)
    before_ms = int(time.time() * 1000)
    found = reading(cluster)
    after_ms = int(time.time() * 1000)
    cluster.is_known = True
    assert found.fetch(wait=False)
    assert found.caught_up_at(after_ms) is None
    found.positions[T0] = 50
    told_ms = found.caught_up_at(after_ms + 60_000)
    assert told_ms is not None
    assert before_ms <= told_ms <= after_ms
    assert found.caught_up_at(before_ms - 1) == before_ms - 1
    cluster.is_known = False
    found.fetch(wait=False)
    assert found.caught_up_at(after_ms) is None
    found.discover()
    cluster.is_known = True
    found.fetch(wait=False)
    assert found.positions == {T0: 50}
    assert found.caught_up_at(after_ms + 60_000) is not None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for."""
    monkeypatch.setattr("moldau.audit.reading.LATE_S", 0.0)


@pytest.mark.parametrize(
    ("position", "gap", "goes_on"),
    [(1, Gap(0, 1, FIRST, "gone"), FIRST), (70, Gap(0, LAST, 70, "cut"), LAST)],
    ids=["the log begins behind it", "the log ends before it"],
)
def test_what_the_log_has_lost_is_told_and_nothing_is_counted_again(position: int, gap: Gap, goes_on: int) -> None:
    """Retention took records before they were counted; or a leader that did not have all of them was elected after a crash."""
    cluster = Cluster(b"1" * 16)
    cluster.fetch_error = ErrorCode.OFFSET_OUT_OF_RANGE
    found = reading(cluster, {T0: ReadPosition(position, b"1" * 16)})
    assert found.fetch(wait=False) == {}
    assert (found.positions, found.gaps) == ({T0: goes_on}, [("t", gap)])
    with pytest.raises(RequestFailedError):
        found.fetch(wait=False)
    assert found.gaps == [("t", gap)]


def test_what_was_counted_and_truncated_is_a_gap_though_the_log_is_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(b"1" * 16)
    found = reading(cluster, {T0: ReadPosition(LAST, b"1" * 16)})

    def truncated(*_: object) -> None:
        raise TruncationError(T0, LAST, LAST - 3)

    monkeypatch.setattr(cluster, "fetch_many", truncated)
    assert found.fetch(wait=False) == {}
    assert (found.positions, found.gaps) == ({T0: LAST - 3}, [("t", Gap(0, LAST - 3, LAST, "cut"))])


def test_an_offset_of_another_topic_of_that_name_is_no_place_to_go_on() -> None:
    """It was deleted and recreated while no auditor was there, or just before the offset of the former one was committed."""
    assert reading(Cluster(b"1" * 16), {T0: ReadPosition(40, b"1" * 16)}).positions == {T0: 40}
    assert reading(Cluster(b"2" * 16), {T0: ReadPosition(40, b"1" * 16)}).positions == {T0: FIRST}
    assert reading(Cluster(b"2" * 16), {T0: ReadPosition(40)}).positions == {T0: 40}, "set by hand"
    cluster = Cluster(b"1" * 16)
    found = reading(cluster, {T0: ReadPosition(40, b"1" * 16)})
    cluster.topic_id = b"2" * 16
    found.discover()
    assert found.positions == {T0: FIRST}, "and that nobody had seen it go makes no difference"


@pytest.mark.usefixtures("impatient")
def test_a_partition_that_is_gone_is_told_from_one_that_is_not_known_for_a_moment() -> None:
    cluster = Cluster(b"1" * 16)
    found = reading(cluster)
    found.positions[T0] = 50
    found.fetch(wait=False)
    assert (found.positions, found.left()) == ({}, {T0: 50})
    assert found.gone([T0]) == set()
    cluster.topic_id = b"2" * 16
    assert found.gone([T0]) == {T0}
    cluster.topic_id = None
    assert found.gone([T0]) == {T0}
    cluster.topic_id, cluster.error = b"1" * 16, ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(RequestFailedError):
        found.gone([T0])


class Several(Cluster):
    """Five topics of two partitions each, while there are any."""

    leaders = (ME, ME)

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(topic_id)
        self.asked: list[list[str]] = []

    def topics(self, *, internal: bool = False) -> list[TopicMetadata]:
        made = tuple(PartitionMetadata(number, leader, 0, (ME,), (ME,), (), ErrorCode.NONE) for number, leader in enumerate(self.leaders))
        names = [] if self.topic_id is None else [f"t{number}" for number in range(5)]
        return [TopicMetadata(name, self.topic_id or b"", False, made, ErrorCode.NONE) for name in names]

    def metadata(self, names: list[str]) -> ClusterMetadata:
        self.asked.append(names)
        return super().metadata(names)


def test_many_topics_that_go_together_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, an auditor of a cluster where a hundred topics are deleted would publish nothing for minutes."""
    monkeypatch.setattr("moldau.audit.reading.LATE_S", 0.05)
    cluster = Several(b"1" * 16)
    found = reading(cluster)
    cluster.topic_id = None
    found.discover()
    assert found.gone(found.left()) == found.left().keys()
    assert len(cluster.asked) > 1
    assert all(names == ["t0", "t1", "t2", "t3", "t4"] for names in cluster.asked)


def test_a_partition_of_the_former_topic_is_not_taken_for_one_of_the_new_one() -> None:
    """The new topic's other partition has a leader already, and is read: that says nothing of the one that was read before."""
    cluster = Several(b"1" * 16)
    found = reading(cluster)
    cluster.topic_id, cluster.leaders = b"2" * 16, (ME, NOBODY)
    found.discover()
    where = TopicPartition("t3", 1)
    assert where in found.left()
    assert where in found.gone(found.left())
    ids = found.topic_ids
    assert (ids[where], ids[TopicPartition("t3", 0)]) == (b"1" * 16, b"2" * 16)
    assert notes([TopicPartition("t3", 0), where], ids) == {TopicPartition("t3", 0): f"{'32' * 16}/1", where: f"{'31' * 16}/0"}


def test_after_records_are_gone_nobody_says_that_all_is_counted() -> None:
    """Where the log ended at the fetch before is no end to go by: what is behind the records that are gone is not counted yet."""
    cluster = Cluster(b"1" * 16)
    cluster.is_known = True
    found = reading(cluster, {T0: ReadPosition(LAST, b"1" * 16)})
    found.fetch(wait=False)
    assert found.caught_up_at(0) is not None
    cluster.first, cluster.end = 60, 90
    assert found.fetch(wait=False) == {}
    assert found.positions == {T0: 60}
    assert found.caught_up_at(0) is None


def test_a_partition_without_a_leader_keeps_nobody_else_waiting() -> None:
    """It is not asked, and while it is there nobody says that everything is counted; who reads once fails, by its name."""
    cluster = Cluster(b"1" * 16)
    cluster.is_known = True
    found = reading(cluster)
    found.positions[T0] = 50
    cluster.leader = NOBODY
    found.discover()
    assert (found.positions, found.fetch(wait=False), found.unreadable) == ({T0: 50}, {}, {"partition t-0": ErrorCode.LEADER_NOT_AVAILABLE})
    assert found.caught_up_at(0) is None
    with pytest.raises(RequestFailedError, match="partition t-0"):
        found.wait_until_readable()
    assert reading(cluster).positions == {}
    cluster.leader = ME
    found.wait_until_readable()
    assert found.fetch(wait=False)
    cluster.error = ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(RequestFailedError, match="topic t"):
        found.wait_until_readable()
    assert (found.positions, found.caught_up_at(0)) == ({}, None)


def test_a_topic_that_brokers_hear_of_late_is_waited_for_by_who_reads_once() -> None:
    cluster = Cluster(b"1" * 16)
    cluster.late, cluster.patience_s = 4, 5.0
    made: Any = cluster
    found = TopicReader(made, re.compile("t"), {})
    found.wait_until_readable()
    assert found.positions == {T0: FIRST}


def test_offsets_say_which_of_them_should_be_there() -> None:
    """A partition that is new has none, one whose offset was forgotten had one: the notes of the others tell."""
    topic_id = bytes(range(16))
    offsets = [TopicPartition("t", number) for number in (0, 1, 2, 4)]
    made = notes(offsets, dict.fromkeys(offsets, topic_id))
    assert made == dict.fromkeys(offsets, f"{topic_id.hex()}/3")
    places = {where: ReadPosition.of(GroupOffset(Offset(7), 0, note + "\0")) for where, note in made.items()}
    assert places[T0] == ReadPosition(7, topic_id, 3)
    partitions = tuple(PartitionMetadata(number, ME, 0, (ME,), (ME,), (), ErrorCode.NONE) for number in range(6))
    topic = TopicMetadata("t", topic_id, False, partitions, ErrorCode.NONE)
    assert missing(places, topic) == []
    del places[TopicPartition("t", 1)]
    assert missing(places, topic) == [TopicPartition("t", 1)]
    assert len(missing(places, TopicMetadata("t", b"2" * 16, False, partitions, ErrorCode.NONE))) == 6
    assert missing({T0: ReadPosition.of(GroupOffset(Offset(7)))}, topic) == []
    assert len(missing({}, topic)) == 6
