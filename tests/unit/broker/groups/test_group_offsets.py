"""Committed and pending offsets: the later commit in the log wins, a tombstone takes what waits, another topic's offsets do not count."""

from moldau.broker.groups.offsets import NO_TOPIC_ID, OFFSETS_PER_STEP, CommittedOffset, GroupOffsets
from moldau.model.steps import UNFINISHED, drain

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
