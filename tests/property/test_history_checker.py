"""The checker accuses no honest log, and finds one planted falsehood in a long history (A1-A14).

A model of a log with clients at random makes histories with everything that is legal: unknown outcomes, aborted transactions, rebalances,
seeks, duplicates without idempotence, offset resets, fenced producers. None of them may be called an anomaly. Then one entry is falsified.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.testing.history.checker import check
from moldau.testing.history.history import NONE, History, Outcome, Reader
from moldau.testing.history.kinds import Kind
from moldau.testing.history.saving import load, save
from support.model_history import Model
from support.sizes import TORTURE, sized

SEEDS = st.integers(0, 1 << 32)


@settings(max_examples=sized(25, 600))
@given(SEEDS, st.integers(1, 1000))
def test_an_honest_log_is_not_accused(seed: int, steps: int) -> None:
    counts, shown = check(Model(seed).run(steps))
    assert not counts, shown


@settings(max_examples=sized(25, 600))
@given(SEEDS, st.integers(1, 1000))
def test_a_log_that_power_cuts_shorten_is_not_accused(seed: int, steps: int) -> None:
    """Neither of what it lost, nor of what it then stored in the same places, whatever of the lost log is polled or answered afterwards."""
    counts, shown = check(Model(seed).run(steps, losses=True))
    assert not counts, shown


def test_the_model_does_all_that_is_legal() -> None:
    """What the claim above rests on: the oddities do occur."""
    history = Model(1).run(20_000, losses=True)
    assert {Outcome(outcome) for outcome in history.sends.outcome} == set(Outcome)
    assert {entry.outcome for entry in history.transactions} == set(Outcome)
    assert {entry.reported for entry in history.offset_commits} == set(Outcome)
    assert len(history.producers) > 20
    assert len(history.outages) > 20
    assert sum(reader.poll.count(NONE) for reader in history.readers) > 100
    assert len(history.offsets_seen) > 100
    assert len(history.ends_seen) > 100
    assert len(history.losses) > 20
    assert len(history.state_losses) > 20
    assert len(history.out_of_range) > 5


# One falsehood


def records(reader: Reader) -> list[int]:
    return [row for row, poll in enumerate(reader.poll) if poll != NONE]


def remove(reader: Reader, row: int) -> None:
    for column in (reader.partition, reader.offset, reader.value, reader.epoch, reader.poll):
        del column[row]


def committed_value(history: History, pick: random.Random, *, behind: int = 2) -> int:
    """A value that was acknowledged by the idempotent producer, not among the last of its partition."""
    sends = history.sends
    values = [value for value, outcome in enumerate(sends.outcome) if outcome == Outcome.OK and sends.producer[value] == 0]
    return pick.choice(
        [value for value in values if sum(sends.partition[each] == sends.partition[value] for each in values if each > value) > behind]
    )


def lose_a_write(history: History, pick: random.Random) -> None:
    value = committed_value(history, pick)
    for reader in history.readers:
        for row in reversed(records(reader)):
            if reader.value[row] == value:
                remove(reader, row)


def change_a_value(history: History, pick: random.Random) -> None:
    drain = history.readers[-1]
    row = pick.choice([row for row in records(drain) if drain.partition[row] == 0])
    others = [value for value, partition in enumerate(history.sends.partition) if partition == 0 and value != drain.value[row]]
    drain.value[row] = pick.choice(others)


def double_a_record(history: History, pick: random.Random) -> None:
    drain = history.readers[-1]
    row = pick.choice(records(drain))
    for column in (drain.partition, drain.offset, drain.value, drain.epoch, drain.poll):
        column.insert(row, column[row])


def skip_a_record(history: History, pick: random.Random) -> None:
    """By the reader that reads on after the drain has seen everything, so that all that it may see is known.

    One that was acknowledged there: what nobody was told of, and nobody else has seen, might as well not be there. So might the double of
    a value whose producer is not idempotent.
    """
    drain, sends = history.readers[-1], history.sends
    inner = [row for row in records(drain)[1:-1] if drain.partition[row - 1] == drain.partition[row] == drain.partition[row + 1]]
    told = [row for row in inner if drain.value[row] >= 0 and sends.outcome[drain.value[row]] == Outcome.OK]
    remove(drain, pick.choice([row for row in told if sends.offset[drain.value[row]] == drain.offset[row]]))


def abort_a_transaction(history: History, pick: random.Random) -> None:
    sent_in = {history.sends.transaction[value] for reader in history.readers if reader.committed for value in reader.value if value >= 0}
    number = pick.choice(sorted(sent_in - {NONE}))
    history.transactions[number].commit_asked = 0.0
    history.transactions[number].reported = Outcome.FAILED


def show_too_early(history: History, pick: random.Random) -> None:
    drain = history.readers[-1]
    numbers = {history.sends.transaction[value] for value in drain.value} - {NONE}
    history.transactions[pick.choice(sorted(numbers))].commit_asked = history.ended + 1


def forget_an_offset(history: History, pick: random.Random) -> None:
    commits = enumerate(history.offset_commits)
    number, _ = next((n, entry) for n, entry in commits if entry.reported == Outcome.OK and entry.transaction == NONE)
    commit = history.offset_commits[number]
    history.saw_offset(commit.group, commit.partition, NONE, history.now())


def answer_zero(history: History, pick: random.Random) -> None:
    value = committed_value(history, pick)
    history.saw_end(history.sends.partition[value], 0, history.now(), committed=pick.random() < 0.5)


def reuse_an_epoch(history: History, pick: random.Random) -> None:
    """What was sent after a power cut stands at a lost offset with an epoch of the lost log."""
    drain, loss = history.readers[-1], history.losses[0]
    rows = [row for row in records(drain) if drain.partition[row] == loss.partition and drain.offset[row] >= loss.from_offset]
    drain.epoch[pick.choice([row for row in rows if history.sends.begun[drain.value[row]] >= loss.at])] = loss.epoch


def lose_too_much(history: History, pick: random.Random) -> None:
    """A value that stands before everything that power cuts took."""
    sends = history.sends
    first = {
        partition: min([1 << 60, *(loss.from_offset for loss in history.losses if loss.partition == partition)]) for partition in range(3)
    }
    values = [
        value
        for value, outcome in enumerate(sends.outcome)
        if outcome == Outcome.OK and sends.producer[value] == 0 and sends.offset[value] < first[sends.partition[value]]
    ]
    value = pick.choice(values)
    for reader in history.readers:
        for row in reversed(records(reader)):
            if reader.value[row] == value:
                remove(reader, row)


LOSS_FALSEHOODS: dict[Callable[[History, random.Random], None], set[Kind]] = {
    reuse_an_epoch: {Kind.REUSED_EPOCH},
    lose_too_much: {Kind.LOST_WRITE},
    double_a_record: {Kind.NONMONOTONIC_POLL_INTERNAL},
    change_a_value: {Kind.INCONSISTENT_OFFSET, Kind.DUPLICATE, Kind.REUSED_EPOCH, Kind.LOST_WRITE, Kind.NONMONOTONIC_SEND},
}
"""What a history with power cuts must still show."""

FALSEHOODS: dict[Callable[[History, random.Random], None], set[Kind]] = {
    lose_a_write: {Kind.LOST_WRITE},
    change_a_value: {Kind.INCONSISTENT_OFFSET, Kind.DUPLICATE},  # nobody else may have seen the one that was there
    double_a_record: {Kind.NONMONOTONIC_POLL_INTERNAL},
    skip_a_record: {Kind.POLL_SKIP_INTERNAL, Kind.LOST_WRITE, Kind.TORN_TRANSACTION},
    abort_a_transaction: {Kind.ABORTED_READ},
    show_too_early: {Kind.PRECOMMITTED_READ},
    forget_an_offset: {Kind.OFFSET_VANISHED},
    answer_zero: {Kind.SPURIOUS_OFFSET},
}


@pytest.mark.parametrize("falsify", FALSEHOODS)
@settings(max_examples=sized(4, 100))
@given(SEEDS)
def test_one_falsehood_is_found(falsify: Callable[[History, random.Random], None], seed: int) -> None:
    history = Model(seed).run(1000)
    falsify(history, random.Random(seed))
    counts, _ = check(history)
    assert FALSEHOODS[falsify] & set(counts), counts


@pytest.mark.parametrize("falsify", LOSS_FALSEHOODS)
@settings(max_examples=sized(4, 100))
@given(SEEDS)
def test_one_falsehood_is_found_beside_legal_losses(falsify: Callable[[History, random.Random], None], seed: int) -> None:
    history = Model(seed).run(4000, losses=True)
    falsify(history, random.Random(seed))
    counts, _ = check(history)
    assert LOSS_FALSEHOODS[falsify] & set(counts), counts


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    history = Model(4711).run(1000)
    abort_a_transaction(history, random.Random(4711))
    again = load(save(history, tmp_path / "history.jsonl"))
    assert check(again) == check(history)
    assert len(again.sends) == len(history.sends)


@pytest.mark.torture
def test_a_history_of_ten_minutes_is_checked_within_a_minute() -> None:
    """1.2 million sends, read four times, 100,000 transactions (a tenth of all that unless MOLDAU_TORTURE=1)."""
    scale = 1.0 if TORTURE else 0.1
    history = Model(1, partitions=6).run(int(2_000_000 * scale))
    begun = time.process_time()
    assert not check(history)[0]
    taken = time.process_time() - begun
    print(f"{len(history.sends)} sends checked in {taken:.1f} s of processor time")
    assert taken < 60 * scale
