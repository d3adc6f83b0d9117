"""What a group has committed is what its log says, in memory, after any restart and after compaction (faults A11, T3). What is counted of
its memory is what a recount gives, and nothing once the coordinator has resigned.

Any sequence of commits, commits in transactions, ends of transactions, deletions, restarts and compactions is played on a coordinator and
on a list of what happened, from which the offset of a partition is found in an obvious way.
"""

from random import Random
from typing import NamedTuple
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import given, settings

from moldau.broker.coordinators.state_log import LoadedBatch, TransactionalProducer
from moldau.broker.groups import offsets as offsets_module
from moldau.broker.groups.offsets import NO_TOPIC_ID, Commit
from moldau.model.errors import ErrorCode
from moldau.model.steps import Steps, drain
from moldau.protocol.records.control import ControlType
from support.budgets import check_group_budgets
from support.coordinated_groups import Coordinated
from support.sizes import sized
from support.state_logs import ListStateLog

GROUPS = ("g", "h")
PARTITIONS = range(2)
PRODUCERS = (7, 8)


class Put(NamedTuple):
    """A commit, in a transaction of a producer or (-1) in none."""

    group: str
    partition: int
    producer: int


class End(NamedTuple):
    producer: int
    committed: bool


class Forget(NamedTuple):
    group: str
    partition: int


class Restart(NamedTuple):
    compacts: bool


Step = Put | End | Forget | Restart
groups, partitions, producers = st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), st.sampled_from(PRODUCERS)
PUTS = st.builds(Put, groups, partitions, st.sampled_from([-1, *PRODUCERS]))
STEPS = st.lists(
    PUTS
    | PUTS.map(lambda put: put._replace(group="g", partition=0))  # so that some meet
    | PUTS.map(lambda put: put._replace(group="g", partition=0))
    | st.builds(End, producers, st.booleans())
    | st.builds(Forget, groups, partitions)
    | st.builds(Restart, st.booleans()),
    min_size=10,
    max_size=40,
)
EXAMPLES = sized(50, 5000)


def obvious(history: list[tuple[Step, int]], group: str, partition: int) -> int | None:
    """Of all commits since the last deletion that are in no transaction, or in one that has committed, the one that came last."""
    best: int | None = None
    for number, (step, _) in enumerate(history):
        if step == Forget(group, partition):
            best = None
        elif isinstance(step, Put) and (step.group, step.partition) == (group, partition):
            later = [end for end, _ in history[number:] if isinstance(end, End) and end.producer == step.producer]
            deleted = Forget(group, partition) in [each for each, _ in history[number:]]
            if not deleted and (step.producer < 0 or (later and later[0].committed)):
                best = number
    return best


def compact(log: ListStateLog) -> None:
    """Keep of every key the newest record, as the cleaner does: nothing from the first open transaction on, nothing that was aborted."""
    for index, batches in log.batches.items():
        log.batches[index] = _compacted(batches)


def _compacted(batches: list[LoadedBatch]) -> list[LoadedBatch]:
    ends: dict[int, list[tuple[int, bool]]] = {}
    for batch in batches:
        if batch.marker is not None:
            ends.setdefault(batch.producer_id, []).append((batch.base_offset, batch.marker.type is ControlType.COMMIT))

    def end_of(batch: LoadedBatch) -> bool | None:
        """Whether the batch's transaction has committed; None while it is open."""
        return next((committed for offset, committed in ends.get(batch.producer_id, []) if offset > batch.base_offset), None)

    data = [batch for batch in batches if batch.marker is None]
    first_open = min((batch.base_offset for batch in data if batch.producer_id >= 0 and end_of(batch) is None), default=1 << 62)
    newest = {
        record.key: record.offset
        for batch in data
        if batch.base_offset < first_open and (batch.producer_id < 0 or end_of(batch))
        for record in batch.records
    }
    kept = []
    for batch in batches:
        if batch.marker is None and batch.base_offset < first_open:
            records = [record for record in batch.records if newest.get(record.key) == record.offset]
            batch = batch._replace(records=records)
        if batch.records or batch.marker is not None:
            kept.append(batch)
    return kept


def play(one: Coordinated, number: int, step: Step, ends: list[Steps] | None = None) -> Coordinated:
    """Do a step; the coordinator that continues. Ends of transactions are begun and left in `ends` if that is given."""
    match step:
        case Put(group, partition, producer):
            transactional = TransactionalProducer(producer, 0) if producer >= 0 else None
            metadata = "é" * (number % 3)
            assert one.commit(group, number, transactional, partition=partition, metadata=metadata) is ErrorCode.NONE
        case End(producer, committed):
            for index in range(one.log.partitions):
                one.log.mark(index, TransactionalProducer(producer, 0), committed=committed)
                end = one.groups.transaction_ended(index, producer, committed=committed)
                if ends is None:
                    drain(end)
                else:
                    ends.append(end)
        case Forget(group, partition):
            found = one.groups.group_for(group, create=True)
            assert found is not None
            one.groups.delete_offsets(found, [("t", partition)], lambda _: None)
        case Restart(compacts):
            if compacts:
                compact(one.log)
            one.groups.close()
            assert one.groups.memory.offsets.held == one.groups.memory.groups.held == 0
            for end in ends or ():
                drain(end)
            return Coordinated(one.log).lead()
    return one


@given(STEPS)
@settings(max_examples=EXAMPLES)
def test_memory_log_and_history_agree(steps: list[Step]) -> None:
    one = Coordinated().lead()
    history: list[tuple[Step, int]] = []
    for number, step in enumerate(steps):
        one = play(one, number, step)
        history.append((step, number))
        check_group_budgets(one.groups)
        for group in GROUPS:
            for partition in PARTITIONS:
                assert one.offset(group, partition) == obvious(history, group, partition)


@given(STEPS, st.randoms(use_true_random=False))
@settings(max_examples=EXAMPLES)
def test_so_they_do_whatever_comes_while_a_transaction_is_being_ended(steps: list[Step], chance: Random) -> None:
    """The end is worked off offset by offset. Until it is done, none of those that counted is stable."""
    one = Coordinated().lead()
    history: list[tuple[Step, int]] = []
    ends: list[Steps] = []
    with patch.object(offsets_module, "OFFSETS_PER_STEP", 1):
        for number, step in enumerate(steps):
            one = play(one, number, step, ends)
            history.append((step, number))
            while ends and chance.random() < 0.5:
                end = chance.choice(ends)
                if next(end, None) is None:
                    ends.remove(end)
            check_group_budgets(one.groups)
            for group in GROUPS:
                for partition in PARTITIONS:
                    is_stable = not one.is_pending(group, partition)
                    assert not is_stable or one.offset(group, partition) == obvious(history, group, partition)
        for end in ends:
            drain(end)
    for group in GROUPS:
        for partition in PARTITIONS:
            assert one.offset(group, partition) == obvious(history, group, partition)
    check_group_budgets(one.groups)


class Delete(NamedTuple):
    """Delete a group with all of its offsets."""

    group: str


class Release(NamedTuple):
    """Answer the oldest appends that wait."""

    most: int


ONE = (0,)
"""The partitions of the log."""
WAITING_STEPS = st.lists(
    PUTS
    | PUTS.map(lambda put: put._replace(group="g", partition=0))
    | st.builds(End, producers, st.booleans())
    | st.builds(Forget, groups, partitions)
    | st.builds(Delete, groups)
    | st.builds(Release, st.integers(1, 4)),
    min_size=10,
    max_size=40,
)


def ask(one: Coordinated, number: int, step: Put | End | Forget | Delete | Release) -> None:
    """Do a step while the log holds its answers."""
    runtime = one.groups.runtime
    match step:
        case Put(group, partition, producer):
            transactional = TransactionalProducer(producer, 0) if producer >= 0 else None
            if one.refusal(group) is ErrorCode.NONE:
                found = one.groups.group_for(group, create=True)
                assert found is not None
                one.groups.commit(found, [Commit("t", partition, number, -1, "", NO_TOPIC_ID)], lambda _: None, producer=transactional)
        case End(producer, committed):
            one.log.mark(0, TransactionalProducer(producer, 0), committed=committed)
            marker = one.groups.transaction_ended(0, producer, committed=committed)
            runtime.run_steps(marker, lambda _: None, droppable=False)
        case Forget(group, partition):
            found = None if one.refusal(group) is not ErrorCode.NONE else one.groups.group_for(group)
            if found is not None:
                one.groups.delete_offsets(found, [("t", partition)], lambda _: None)
        case Delete(group):
            found = None if one.refusal(group) is not ErrorCode.NONE else one.groups.group_for(group)
            if found is not None:
                runtime.run_steps(one.groups.delete(found, lambda _: None), lambda _: None, droppable=False)
        case Release(most):
            one.log.release(min(most, one.log.waiting))


def committed_part(log: ListStateLog) -> ListStateLog:
    """The log up to the first append, or the first marker, that waits."""
    part = ListStateLog(1)
    part.batches[0] = log.committed(0)
    return part


@given(WAITING_STEPS)
@settings(max_examples=EXAMPLES)
def test_while_appends_wait_memory_is_what_a_replay_of_the_committed_records_gives(
    steps: list[Put | End | Forget | Delete | Release],
) -> None:
    one = Coordinated(ListStateLog(1)).lead(ONE)
    one.log.hold()
    for number, step in enumerate([*steps, Release(1 << 30), Release(1 << 30), Release(1 << 30)]):
        ask(one, number, step)
        one.clock.settle()
        replayed = Coordinated(committed_part(one.log)).lead(ONE)
        for group in GROUPS:
            if one.refusal(group) is ErrorCode.NONE:
                for partition in PARTITIONS:
                    assert one.offset(group, partition) == replayed.offset(group, partition)
                    assert one.is_pending(group, partition) is replayed.is_pending(group, partition)
    assert one.log.waiting == 0
    check_group_budgets(one.groups)
    one.groups.close()
    assert one.groups.memory.offsets.held == one.groups.memory.groups.held == 0
