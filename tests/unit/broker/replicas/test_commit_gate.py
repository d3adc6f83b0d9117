"""Every append that waits is resolved once: when its level has reached it, by a failure of what it waits for, or at its deadline.

This broker is number 1 and leads; broker 2 is in sync with it. `Append` keeps what it was resolved with, per batch.
"""

from math import inf

import pytest

from moldau.broker.replicas.commit_gate import CommitGate
from moldau.broker.replicas.partition import Partition
from moldau.broker.replicas.partition_events import BecomeLeader, Level, OpenedLogOffsets
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition

T0 = TopicPartition("t", 0)
WRITTEN, FLUSHED, REPLICATED = Level.WRITTEN, Level.FLUSHED, Level.REPLICATED
BOTH = FLUSHED | REPLICATED
BROKEN = StorageError("input/output error", path="/data/t-0")
MOVED = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")


class Append:
    def __init__(self, deadline_s: float = inf) -> None:
        self.deadline_s = deadline_s
        self.is_abandoned = False
        self.resolved: list[tuple[int, str]] = []

    def resolve(self, place: int, error: PeerError | StorageError | None) -> None:
        what = "open" if error is None else error.code.name if isinstance(error, PeerError) else "KAFKA_STORAGE_ERROR"
        self.resolved.append((place, what))


@pytest.fixture
def partition() -> Partition:
    """Its log ends at 10, of which nothing is on disk or committed."""
    partition = Partition(T0, 1, 1, shows_flushed=False)
    partition.step(BecomeLeader(5, 50, (1, 2), (1, 2), OpenedLogOffsets(10, 0, 0)))
    return partition


@pytest.fixture
def gate() -> CommitGate:
    return CommitGate(T0)


def replicate(partition: Partition, offset: int) -> None:
    partition.follower_fetched(2, offset, 5, 1.0)


def test_an_append_opens_when_its_last_record_has_reached_its_level_and_not_before(gate: CommitGate, partition: Partition) -> None:
    append = Append()
    gate.wait(REPLICATED, 4, append, 0)
    for offset, resolved in ((0, []), (4, []), (5, [(0, "open")]), (9, [(0, "open")])):
        replicate(partition, offset)
        gate.open(partition)
        assert append.resolved == resolved
    assert len(gate) == 0


def test_one_that_waits_for_disk_and_replicas_waits_for_the_later(gate: CommitGate, partition: Partition) -> None:
    first, second = Append(), Append()
    gate.wait(BOTH, 2, first, 0)
    gate.wait(BOTH, 5, second, 0)
    replicate(partition, 6)
    gate.open(partition)
    assert first.resolved == []
    partition.flushed(3)
    gate.open(partition)
    assert (first.resolved, second.resolved) == ([(0, "open")], [])
    partition.flushed(10)
    gate.open(partition)
    assert second.resolved == [(0, "open")]


def test_levels_do_not_wait_for_each_other(gate: CommitGate, partition: Partition) -> None:
    flushed, replicated = Append(), Append()
    gate.wait(FLUSHED, 2, flushed, 0)
    gate.wait(REPLICATED, 5, replicated, 0)
    replicate(partition, 10)
    gate.open(partition)
    assert (flushed.resolved, replicated.resolved) == ([], [(0, "open")])


def test_a_repeated_batch_opens_with_the_offset_that_is_stored(gate: CommitGate, partition: Partition) -> None:
    later, repeated, again = Append(), Append(), Append()
    gate.wait(REPLICATED, 8, later, 0)
    gate.wait(REPLICATED, 3, repeated, 0)
    gate.wait(REPLICATED, 3, again, 1)
    replicate(partition, 4)
    gate.open(partition)
    assert (later.resolved, repeated.resolved, again.resolved) == ([], [(0, "open")], [(1, "open")])


def test_batches_of_one_append_are_resolved_one_by_one(gate: CommitGate, partition: Partition) -> None:
    append = Append()
    gate.wait(REPLICATED, 2, append, 0)
    gate.wait(REPLICATED, 6, append, 3)
    replicate(partition, 3)
    gate.open(partition)
    gate.fail(MOVED, WRITTEN)
    assert append.resolved == [(0, "open"), (3, "NOT_LEADER_OR_FOLLOWER")]


@pytest.mark.parametrize(
    ("level", "failed"),
    [
        (FLUSHED, [FLUSHED, BOTH]),
        (REPLICATED, [REPLICATED, BOTH]),
        (WRITTEN, [FLUSHED, REPLICATED, BOTH]),
    ],
)
def test_a_failure_concerns_those_that_wait_for_its_level(
    gate: CommitGate, partition: Partition, level: Level, failed: list[Level]
) -> None:
    appends = {each: Append() for each in (FLUSHED, REPLICATED, BOTH)}
    for each, append in appends.items():
        gate.wait(each, 4, append, 0)
    gate.fail(BROKEN, level)
    assert [each for each, append in appends.items() if append.resolved == [(0, "KAFKA_STORAGE_ERROR")]] == failed
    replicate(partition, 10)
    partition.flushed(10)
    gate.open(partition)
    assert all(len(append.resolved) == 1 for append in appends.values())


def test_an_append_that_waits_too_long_times_out_and_the_others_wait_on(gate: CommitGate, partition: Partition) -> None:
    short, long, endless = Append(2.0), Append(5.0), Append()
    for place, append in enumerate((long, short, endless)):
        gate.wait(REPLICATED, 2 + place, append, place)
    assert gate.deadline_s == 2.0
    gate.expire(1.9)
    assert short.resolved == []
    gate.expire(2.0)
    assert (short.resolved, long.resolved) == ([(1, "REQUEST_TIMED_OUT")], [])
    assert gate.deadline_s == 5.0
    replicate(partition, 10)
    gate.open(partition)
    assert (short.resolved, long.resolved, endless.resolved) == ([(1, "REQUEST_TIMED_OUT")], [(0, "open")], [(2, "open")])
    assert gate.deadline_s == inf
    gate.expire(9.0)
    assert long.resolved == [(0, "open")]


def test_a_sync_has_no_deadline_but_a_wait_for_replicas_and_a_sync_has(gate: CommitGate, partition: Partition) -> None:
    append = Append(2.0)
    gate.wait(FLUSHED, 2, append, 0)
    assert gate.deadline_s == inf
    gate.wait(BOTH, 2, append, 1)
    assert gate.deadline_s == 2.0
    gate.expire(3.0)
    assert append.resolved == [(1, "REQUEST_TIMED_OUT")]
    partition.flushed(10)
    gate.open(partition)
    assert append.resolved == [(1, "REQUEST_TIMED_OUT"), (0, "open")]


def test_a_time_out_says_what_was_not_reached(gate: CommitGate) -> None:
    said: list[str] = []

    class Listener(Append):
        def resolve(self, place: int, error: PeerError | StorageError | None) -> None:
            said.append(str(error))

    gate.wait(BOTH, 7, Listener(1.0), 0)
    gate.expire(1.0)
    assert said == ["t-0: offset 7 is written, but was not flushed and replicated within the request's timeout"]


def test_a_sync_is_wanted_by_what_waits_for_the_disk_and_is_not_there(gate: CommitGate, partition: Partition) -> None:
    assert not gate.waits_for_disk(0)
    gate.wait(REPLICATED, 5, Append(), 0)
    assert not gate.waits_for_disk(0)
    gate.wait(BOTH, 3, Append(), 0)
    assert gate.waits_for_disk(0)
    assert gate.waits_for_disk(3)
    assert not gate.waits_for_disk(4), "it waits for the replicas alone"
    assert len(gate) == 2
    replicate(partition, 10)
    partition.flushed(10)
    gate.open(partition)
    assert not gate.waits_for_disk(0)
    assert not gate


def test_an_append_that_waits_again_while_it_is_resolved_is_resolved_later(gate: CommitGate, partition: Partition) -> None:
    class Stubborn(Append):
        def resolve(self, place: int, error: PeerError | StorageError | None) -> None:
            super().resolve(place, error)
            if len(self.resolved) < 3:
                gate.wait(FLUSHED, 4, self, place)

    append = Stubborn()
    gate.wait(FLUSHED, 4, append, 0)
    gate.fail(BROKEN, FLUSHED)
    assert append.resolved == [(0, "KAFKA_STORAGE_ERROR")]
    gate.fail(BROKEN, FLUSHED)
    partition.flushed(10)
    gate.open(partition)
    assert append.resolved == [(0, "KAFKA_STORAGE_ERROR"), (0, "KAFKA_STORAGE_ERROR"), (0, "open")]


def test_abandoned_appends_leave_when_they_are_half_of_the_gate(gate: CommitGate, partition: Partition) -> None:
    appends = [Append(7.0) for _ in range(8)]
    for offset, append in enumerate(appends):
        gate.wait(REPLICATED, offset, append, 0)
    sizes = []
    for append in appends[::-1]:
        append.is_abandoned = True
        gate.abandoned()
        sizes.append(len(gate))
    assert sizes == [8, 8, 8, 4, 4, 2, 1, 0]
    assert gate.deadline_s == inf
    replicate(partition, 10)
    gate.open(partition)
    assert all(not append.resolved for append in appends)
