"""Committed and pending offsets: the later commit in the log wins, a tombstone takes what waits, another topic's offsets do not count."""

from itertools import product
from random import Random

import pytest

from moldau.broker.groups import offsets as offsets_module
from moldau.broker.groups.offsets import INDEXED_PER_STEP, NO_TOPIC_ID, OFFSETS_PER_STEP, CommittedOffset, GroupOffsets
from moldau.model.steps import UNFINISHED, Steps, drain

A, B = bytes([1] * 16), bytes([2] * 16)


def at(offset: int, order: int, topic_id: bytes = NO_TOPIC_ID) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0, -1, topic_id, order)


def offset_of(offsets: GroupOffsets, partition: int = 0) -> int | None:
    found = offsets.get("t", partition)
    return None if found is None else found.offset


def test_a_commit_replaces_the_one_before() -> None:
    offsets = GroupOffsets()
    assert offsets.is_empty
    for order, value in enumerate((5, 3)):
        offsets.put("t", 0, at(value, order))
    offsets.put("t", 1, at(8, 2))
    assert (offset_of(offsets), offset_of(offsets, 1), offset_of(offsets, 2), len(offsets)) == (3, 8, None, 2)
    assert set(offsets.each_place()) == {("t", 0), ("t", 1)}


def test_pending_offsets_count_once_their_transaction_commits() -> None:
    offsets = GroupOffsets()
    offsets.put("t", 0, at(1, 0))
    offsets.put_pending(7, [("t", 0, at(2, 1))])
    offsets.put_pending(8, [("t", 1, at(3, 2))])
    assert (offset_of(offsets), offset_of(offsets, 1)) == (1, None)
    assert (offsets.is_pending("t", 0), offsets.is_pending("t", 1), offsets.is_pending("t", 2)) == (True, True, False)
    assert set(offsets.each_place()) == {("t", 0), ("t", 1)}
    drain(offsets.end_transaction(7, committed=True))
    drain(offsets.end_transaction(8, committed=False))
    drain(offsets.end_transaction(9, committed=True))
    assert (offset_of(offsets), offset_of(offsets, 1), offsets.pending) == (2, None, {})


def test_none_is_stable_until_all_of_a_transaction_count() -> None:
    offsets = GroupOffsets()
    for partition in range(3 * OFFSETS_PER_STEP):
        offsets.put_pending(7, [("t", partition, at(partition, 0))])
    end = offsets.end_transaction(7, committed=True)
    counted = []
    while next(end, None) is UNFINISHED:
        counted.append(len(offsets))
        assert all(offsets.is_pending("t", partition) for partition in range(3 * OFFSETS_PER_STEP))
    assert counted == [OFFSETS_PER_STEP, 2 * OFFSETS_PER_STEP, 3 * OFFSETS_PER_STEP]
    assert not any(offsets.is_pending("t", partition) for partition in range(3 * OFFSETS_PER_STEP))


def test_what_comes_while_a_transaction_is_ended_counts_as_after_it() -> None:
    offsets = GroupOffsets()
    for partition in range(2 * OFFSETS_PER_STEP):
        offsets.put_pending(7, [("t", partition, at(1, 0))])
    last = 2 * OFFSETS_PER_STEP - 1
    end = offsets.end_transaction(7, committed=True)
    next(end)
    offsets.put("t", 0, at(2, 1))
    offsets.put("t", last, at(2, 1))
    offsets.remove("t", 1)
    offsets.remove("t", last - 1)
    drain(end)
    assert [offset_of(offsets, partition) for partition in (0, 1, 2, last - 2, last - 1, last)] == [2, None, 1, 1, None, 2]
    assert offsets.pending == {}


def test_the_later_in_the_log_wins_among_commits_and_transactions() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(7, [("t", 0, at(1, 0))])
    offsets.put_pending(8, [("t", 0, at(2, 1))])
    offsets.put("t", 0, at(3, 2))
    offsets.put_pending(9, [("t", 0, at(4, 3))])
    drain(offsets.end_transaction(9, committed=True))
    drain(offsets.end_transaction(7, committed=True))
    drain(offsets.end_transaction(8, committed=True))
    assert offset_of(offsets) == 4


def test_a_tombstone_takes_what_waits() -> None:
    offsets = GroupOffsets()
    offsets.put("t", 0, at(1, 0))
    offsets.put_pending(7, [("t", 0, at(2, 1))])
    offsets.put_pending(7, [("t", 1, at(3, 2))])
    offsets.remove("t", 0)
    offsets.remove("t", 0)
    offsets.remove("u", 0)
    drain(offsets.end_transaction(7, committed=True))
    assert (offset_of(offsets), offset_of(offsets, 1)) == (None, 3)
    offsets.remove("t", 1)
    assert offsets.is_empty


def test_offsets_of_another_topic_of_that_name_do_not_count() -> None:
    offsets = GroupOffsets()
    offsets.put("t", 0, at(1, 0, A))
    assert offsets.get("t", 0, A) == offsets.get("t", 0) != None  # noqa: E711 - all three
    assert offsets.get("t", 0, B) is None
    offsets.put("t", 0, at(1, 0))
    assert offsets.get("t", 0, B) is not None


def test_what_a_transaction_is_about_to_change_does_not_expire() -> None:
    offsets = GroupOffsets()
    for partition in range(3):
        offsets.put("t", partition, at(partition, partition))
    offsets.put_pending(7, [("t", 1, at(9, 4))])
    assert [place for place in offsets.each_place() if offsets.is_expired(*place, lambda topic, offset: offset.offset < 2)] == [("t", 0)]


class CountedTransactions(dict[int, dict[tuple[str, int], CommittedOffset | None]]):
    """Pending offsets by transaction: counts the transactions that are looked up, and refuses a walk over all of them."""

    looked_up = 0

    def get(self, transaction: int, default: object = None) -> object:  # type: ignore[override]
        self.looked_up += 1
        return super().get(transaction, default)

    def __contains__(self, transaction: object) -> bool:
        self.looked_up += 1
        return super().__contains__(transaction)

    def __iter__(self) -> None:  # type: ignore[override]
        raise AssertionError("a walk over all transactions")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_a_place_is_removed_and_looked_up_without_a_walk_over_the_transactions_of_other_places() -> None:
    """8,300 transactional ids with pending offsets of one group: a step that deletes 100 offsets took 126 ms."""
    offsets = GroupOffsets()
    pending = offsets.pending = CountedTransactions()
    for transaction in range(8300):
        offsets.put_pending(transaction, [("t", transaction % 4150, at(1, transaction))])
        offsets.put("t", transaction % 4150, at(1, transaction))
    pending.looked_up = 0
    for partition in range(100):
        assert offsets.is_pending("t", partition)
        assert not offsets.is_expired("t", partition, lambda _topic, _offset: True)
        assert offsets.pending_at("t", partition) == 2
        offsets.remove("t", partition)
        assert not offsets.has("t", partition)
    offsets.growth([], 7)
    assert pending.looked_up <= 5 * 100
    assert len(pending) == 8100


def test_an_ended_transaction_leaves_the_index_in_steps_and_is_not_pending_meanwhile() -> None:
    offsets = GroupOffsets()
    partitions = range(3 * INDEXED_PER_STEP + 1)
    offsets.put_pending(7, [("t", partition, at(partition, 0)) for partition in partitions])
    offsets.put_pending(8, [("t", 1, at(5, 1))])
    left = []
    for _ in offsets.end_transaction(7, committed=False):
        pending = sum(offsets.is_pending("t", partition) for partition in partitions)
        assert pending in (len(partitions), 1), "all of it ends at once"
        if pending == 1:
            left.append(len(set(offsets.each_pending_place())))
    assert left == [len(partitions) - INDEXED_PER_STEP * steps + 1 for steps in (1, 2, 3)]
    assert list(offsets.each_pending_place()) == [("t", 1)]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_pending_is_what_a_search_of_all_transactions_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "OFFSETS_PER_STEP", 2)
    monkeypatch.setattr(offsets_module, "INDEXED_PER_STEP", 1)
    random = Random(seed)
    offsets = GroupOffsets()
    places = list(product("tu", range(4)))
    ending: list[Steps] = []
    open_transactions: list[int] = []
    for order in range(300):
        match random.randrange(6):
            case 0 | 1:
                if not open_transactions or random.random() < 0.3:
                    open_transactions.append(order)
                some = random.sample(places, random.randrange(1, 6))
                offsets.put_pending(random.choice(open_transactions), [(*place, at(order, order)) for place in some])
            case 2:
                offsets.put(*random.choice(places), at(order, order))
            case 3:
                offsets.remove(*random.choice(places))
            case 4 if open_transactions:
                transaction = open_transactions.pop(random.randrange(len(open_transactions)))
                ending.append(offsets.end_transaction(transaction, committed=random.random() < 0.5))
            case _ if ending:
                steps = random.choice(ending)
                if next(steps, None) is None:
                    ending.remove(steps)
        for place in places:
            holders = {transaction for transaction, waiting in offsets.pending.items() if place in waiting}
            assert offsets.is_pending(*place) == bool(holders)
            assert offsets.has(*place) == (bool(holders) or offsets.get(*place) is not None)
            assert offsets.pending_at(*place) >= len(holders)
        found = list(offsets.each_pending_place())
        assert len(found) == len(set(found))
        assert set(found) >= {place for waiting in offsets.pending.values() for place in waiting}
    for steps in ending:
        drain(steps)
    for transaction in open_transactions:
        drain(offsets.end_transaction(transaction, committed=False))
    assert list(offsets.each_pending_place()) == []
    for place in places:
        offsets.remove(*place)
    assert (offsets.is_empty, offsets.account.held) == (True, 0)
