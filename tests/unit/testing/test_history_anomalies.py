"""The checker finds each anomaly of the fault list where it is planted (A1-A14), and names only that.

Each test tells a short history: what was sent and acknowledged at which offset, what was polled. That honest histories, with every
oddity that is legal, are not accused is in `tests/property/test_history_checker.py`.
"""

from math import inf
from pathlib import Path

import pytest

from moldau.testing.history.checker import assert_clean, check
from moldau.testing.history.history import NONE, Outcome
from moldau.testing.history.kinds import Kind
from moldau.testing.history.offset_checks import LEARNS_S
from moldau.testing.history.progress_check import STUCK_S
from support.told_history import Told


@pytest.fixture
def told() -> Told:
    return Told()


# A1, A2: acknowledged and not there


def test_lost_write(told: Told) -> None:
    first, _, third = (told.stored(offset) for offset in range(3))
    told.polled((0, first))
    told.positioned(NONE)
    told.polled((2, third))
    assert told.anomalies() == {Kind.LOST_WRITE}


def test_lost_write_of_a_transaction_that_was_proved_by_another_value(told: Told) -> None:
    """The commit's answer never came; that one value was seen says that the other must be there too."""
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    lost = told.sent(by=producer, transaction=transaction)
    seen = told.sent(by=producer, transaction=transaction)
    told.history.ask_commit(transaction)
    told.polled((1, seen))
    assert lost == 0
    assert told.anomalies() == {Kind.UNSEEN, Kind.TORN_TRANSACTION}


def test_unseen(told: Told) -> None:
    told.polled((0, told.stored(0)))
    told.stored(1)
    assert told.anomalies() == {Kind.UNSEEN}


def test_unseen_without_any_poll(told: Told) -> None:
    told.stored(0)
    assert told.anomalies() == {Kind.UNSEEN}


# A3, A4, A5: the wrong thing at an offset


def test_inconsistent_offset_between_acknowledgements(told: Told) -> None:
    told.polled((0, told.stored(0)), (1, told.stored(1)))
    other = told.stored(1)
    told.polled((2, other))
    assert Kind.INCONSISTENT_OFFSET in told.anomalies()


def test_inconsistent_offset_between_consumers(told: Told) -> None:
    """Two readers, one offset, two values: as after a divergence of replicas."""
    one, two = told.sent(), told.sent()
    other = told.history.add_reader("r2")
    told.polled((0, one))
    told.polled((0, two), by=other)
    assert told.anomalies() == {Kind.INCONSISTENT_OFFSET}


def test_inconsistent_offset_over_time(told: Told) -> None:
    one, two = told.sent(), told.sent()
    told.polled((0, one))
    told.positioned(0)
    told.polled((0, two))
    assert told.anomalies() == {Kind.INCONSISTENT_OFFSET}


def test_duplicate(told: Told) -> None:
    value = told.stored(0)
    told.polled((0, value), (1, value))
    assert told.anomalies() == {Kind.DUPLICATE}


def test_a_value_whose_producer_may_have_been_forgotten_while_it_was_sent_is_no_duplicate(told: Told) -> None:
    told.history.evicted()
    early = told.sent()
    told.history.send_ended(early, Outcome.OK, 0)
    value = told.sent()
    told.history.evicted()
    told.history.send_ended(value, Outcome.OK, 2)
    told.polled((0, early), (1, value), (2, value))
    assert told.anomalies() == set()
    told.polled((3, early))
    assert told.anomalies() == {Kind.DUPLICATE}


def test_aborted_read_of_a_failed_send(told: Told) -> None:
    told.polled((0, told.failed()))
    assert told.anomalies() == {Kind.ABORTED_READ}


def test_aborted_read_of_an_aborted_transaction(told: Told) -> None:
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    value = told.stored(0, by=producer, transaction=transaction)
    told.abort(transaction)
    told.polled((0, value))
    assert told.anomalies() == {Kind.ABORTED_READ}


def test_aborted_read_of_a_transaction_that_nobody_asked_to_commit(told: Told) -> None:
    producer = told.transactional("tp", "id")
    value = told.stored(0, by=producer, transaction=told.history.begin(producer))
    told.polled((0, value))
    assert told.anomalies() == {Kind.ABORTED_READ}


def test_phantom(told: Told) -> None:
    told.polled(foreign=0)
    assert told.anomalies() == {Kind.PHANTOM}


def test_phantom_of_another_partition(told: Told) -> None:
    value = told.stored(0)
    told.polled((0, value))
    told.polled((0, value), of=told.right)
    assert told.anomalies() == {Kind.PHANTOM}


# A6, A7: what a consumer is given


def test_poll_skip_within_a_poll(told: Told) -> None:
    values = [told.stored(offset) for offset in range(3)]
    told.polled(*enumerate(values), by=told.history.add_reader("whole"))
    told.polled((0, values[0]), (2, values[2]))
    assert told.anomalies() == {Kind.POLL_SKIP_INTERNAL}


def test_poll_skip_between_polls(told: Told) -> None:
    values = [told.stored(offset) for offset in range(3)]
    told.polled(*enumerate(values), by=told.history.add_reader("whole"))
    told.polled((0, values[0]))
    told.polled((2, values[2]))
    assert told.anomalies() == {Kind.POLL_SKIP}


def test_poll_skip_after_an_assignment(told: Told) -> None:
    """The group's offset said 1, the first record given is that of 2."""
    values = [told.stored(offset) for offset in range(3)]
    told.polled(*enumerate(values), by=told.history.add_reader("whole"))
    told.positioned(1)
    told.polled((2, values[2]))
    assert told.anomalies() == {Kind.POLL_SKIP}


def test_poll_skip_by_read_uncommitted_of_what_was_aborted(told: Told) -> None:
    """A reader of everything must be given what others must not."""
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    told.stored(0, by=producer, transaction=transaction)
    told.abort(transaction)
    value = told.stored(2)
    told.polled((2, value))
    everything = told.history.add_reader("everything", committed=False)
    told.positioned(0, by=everything)
    told.polled((2, value), by=everything)
    assert told.anomalies() == {Kind.POLL_SKIP}


def test_nonmonotonic_poll_within_a_poll(told: Told) -> None:
    one, two = told.stored(0), told.stored(1)
    told.polled((0, one), (1, two), (0, one))
    assert told.anomalies() == {Kind.NONMONOTONIC_POLL_INTERNAL}


def test_nonmonotonic_poll_between_polls(told: Told) -> None:
    one = told.stored(0)
    told.polled((0, one))
    told.polled((0, one))
    assert told.anomalies() == {Kind.NONMONOTONIC_POLL}


# A8: sends out of order


def test_nonmonotonic_send(told: Told) -> None:
    late, early = told.stored(1), told.stored(0)
    told.polled((0, early), (1, late))
    assert told.anomalies() == {Kind.NONMONOTONIC_SEND}


@pytest.mark.parametrize("since", [True, False])
def test_a_send_of_a_producer_that_was_forgotten_since_it_stood_there_may_be_overtaken(told: Told, since: bool) -> None:
    """Seed 9669: it was on its way to a broker that led no more, and the new leader took the next one as that of an unknown producer."""
    if not since:
        told.history.evicted()
    first = told.stored(0)
    if since:
        told.history.evicted()
    late, early = told.stored(2), told.stored(1)
    told.polled((0, first), (1, early), (2, late))
    assert told.anomalies() == (set() if since else {Kind.NONMONOTONIC_SEND})


def test_nonmonotonic_send_that_only_a_poll_reveals(told: Told) -> None:
    late, early = told.sent(), told.sent()
    told.polled((0, early), (1, late))
    assert told.anomalies() == {Kind.NONMONOTONIC_SEND}


def test_nonmonotonic_send_within_a_transaction(told: Told) -> None:
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    late = told.stored(1, by=producer, transaction=transaction)
    early = told.stored(0, by=producer, transaction=transaction)
    told.commit(transaction)
    told.polled((0, early), (1, late))
    assert told.anomalies() == {Kind.NONMONOTONIC_SEND_INTERNAL}


# A9: reads before their time


def test_precommitted_read_of_its_own(told: Told) -> None:
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    value = told.stored(0, by=producer, transaction=transaction)
    told.history.ask_commit(transaction)
    told.polled((0, value), transaction=transaction)
    told.history.transaction_ended(transaction, Outcome.OK)
    assert told.anomalies() == {Kind.PRECOMMITTED_READ}


def test_precommitted_read_of_anothers(told: Told) -> None:
    """It was committed in the end, but not when it was polled."""
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    value = told.stored(0, by=producer, transaction=transaction)
    told.polled((0, value))
    told.commit(transaction)
    assert told.anomalies() == {Kind.PRECOMMITTED_READ}


@pytest.mark.parametrize("length", [2, 3, 8])
def test_circular_flow(told: Told, length: int) -> None:
    """Each transaction read what the one before it wrote, the first what the last wrote: none of them can have been first."""
    readers = [told.history.add_reader(f"r{number}") for number in range(length)]
    producers = [told.transactional(f"tp{number}", f"id{number}") for number in range(length)]
    transactions = [told.history.begin(producer) for producer in producers]
    values = [told.stored(n, by=producers[n], transaction=transactions[n]) for n in range(length)]
    for transaction in transactions:
        told.history.ask_commit(transaction)
    for number in range(length):
        before = (number - 1) % length
        told.polled((before, values[before]), by=readers[number], transaction=transactions[number])
    for transaction in transactions:
        told.history.transaction_ended(transaction, Outcome.OK)
    counts, shown = check(told.history)
    assert counts == {Kind.CIRCULAR_FLOW: 1}
    assert shown[0].text.count("read by") == length


def test_two_circles_are_told_apart(told: Told) -> None:
    for first in (0, 10):
        producers = [told.transactional(f"tp{first}{n}", f"id{first}{n}") for n in range(2)]
        transactions = [told.history.begin(producer) for producer in producers]
        values = [told.stored(first + n, by=producers[n], transaction=transactions[n]) for n in range(2)]
        for transaction in transactions:
            told.history.ask_commit(transaction)
        for number in range(2):
            reader = told.history.add_reader(f"r{first}{number}")
            told.polled((first + 1 - number, values[1 - number]), by=reader, transaction=transactions[number])
        for transaction in transactions:
            told.history.transaction_ended(transaction, Outcome.OK)
    assert check(told.history)[0] == {Kind.CIRCULAR_FLOW: 2}


# A10: half a transaction


def test_torn_transaction(told: Told) -> None:
    """Both partitions were read to their ends by the drain, one has the transaction's record, the other has not."""
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    here = told.sent(by=producer, to=told.left, transaction=transaction)
    told.sent(by=producer, to=told.right, transaction=transaction)
    told.history.ask_commit(transaction)
    told.polled((0, here))
    assert Kind.TORN_TRANSACTION in told.anomalies()


def test_torn_between_the_groups_offset_and_the_records(told: Told) -> None:
    """The offset is committed, what was to be written with it is not there."""
    told.polled((0, told.stored(0)))
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    told.sent(by=producer, transaction=transaction)
    told.offset_committed(1, transaction=transaction)
    told.history.ask_commit(transaction)
    told.offset_seen(1)
    assert told.anomalies() == {Kind.UNSEEN, Kind.TORN_TRANSACTION}


def test_zombie_commit(told: Told) -> None:
    """A producer that was taken over commits what it had begun before (T1's like)."""
    older = told.transactional("older", "id")
    transaction = told.history.begin(older)
    value = told.stored(0, by=older, transaction=transaction)
    told.transactional("newer", "id")
    told.commit(transaction)
    told.polled((0, value))
    assert told.anomalies() == {Kind.ZOMBIE}


def test_zombie_send(told: Told) -> None:
    older = told.transactional("older", "id")
    told.transactional("newer", "id")
    told.stored(0, by=older, transaction=told.history.begin(older))
    assert told.anomalies() == {Kind.ZOMBIE}


# A11: a group's offset


def test_committed_offset_goes_back(told: Told) -> None:
    told.offset_committed(5)
    told.offset_committed(9)
    told.offset_seen(9)
    told.offset_seen(5)
    assert told.anomalies() == {Kind.OFFSET_WENT_BACK}


def test_committed_offset_vanishes(told: Told) -> None:
    told.offset_committed(5)
    told.offset_seen(NONE)
    assert told.anomalies() == {Kind.OFFSET_VANISHED}


def test_committed_offset_that_nobody_committed(told: Told) -> None:
    told.offset_committed(5)
    told.offset_seen(7)
    assert told.anomalies() == {Kind.OFFSET_FROM_NOWHERE}


def test_committed_offset_of_an_aborted_transaction(told: Told) -> None:
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    told.offset_committed(7, transaction=transaction)
    told.abort(transaction)
    told.offset_seen(7)
    assert told.anomalies() == {Kind.OFFSET_FROM_NOWHERE}


def test_committed_offset_goes_back_behind_a_transaction_that_was_proved(told: Told) -> None:
    """The commit's answer never came, but its record was polled: from then on its offset counts."""
    told.offset_committed(3)
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    value = told.sent(by=producer, transaction=transaction)
    told.offset_committed(8, transaction=transaction)
    told.history.ask_commit(transaction)
    told.polled((0, value))
    told.offset_seen(3)
    assert told.anomalies() == {Kind.OFFSET_WENT_BACK}


def test_stale_commit_of_a_member_that_was_replaced(told: Told) -> None:
    told.history.forward_groups.add("g")
    told.offset_committed(8)
    told.offset_committed(5)
    told.offset_seen(5)
    assert told.anomalies() == {Kind.STALE_COMMIT}


# A12: no progress


def test_stuck_send(told: Told) -> None:
    told.sent()
    for _ in range(int(STUCK_S) + 3):
        told.history.now()
    assert told.anomalies() == {Kind.STUCK}


def test_stuck_commit_after_the_fault_was_healed(told: Told) -> None:
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    value = told.stored(0, by=producer, transaction=transaction)
    told.history.ask_commit(transaction)
    told.history.healed(told.history.outage("killed"))
    for _ in range(int(STUCK_S) + 3):
        told.history.now()
    told.history.transaction_ended(transaction, Outcome.OK)
    told.polled((0, value))
    assert told.anomalies() == {Kind.STUCK}


def test_stuck_offset_commit(told: Told) -> None:
    told.offset_committed(3, Outcome.UNKNOWN)
    for _ in range(int(STUCK_S) + 3):
        told.history.now()
    assert told.anomalies() == {Kind.STUCK}


def test_stuck_reader(told: Told) -> None:
    told.polled((0, told.stored(0)))
    value = told.stored(1)
    for _ in range(int(STUCK_S) + 3):
        told.history.now()
    told.polled((1, value))
    assert told.anomalies() == {Kind.STUCK}


def test_a_reader_that_has_much_to_read_is_not_stuck(told: Told) -> None:
    """Seed 7742: thousands of records from segments of one record each."""
    values = [told.stored(offset) for offset in range(int(STUCK_S) + 3)]
    for offset, value in enumerate(values):
        told.polled((offset, value))
    assert told.anomalies() == set()


# A13: offsets of 0 and -1


def test_spurious_offset_in_an_acknowledgement(told: Told) -> None:
    told.polled((0, told.stored(0)))
    told.polled((1, told.stored(NONE)))
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


def test_spurious_zero_in_an_acknowledgement(told: Told) -> None:
    told.polled((0, told.stored(0)))
    told.polled((1, told.stored(0)))
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


def test_spurious_zero_as_a_groups_offset(told: Told) -> None:
    told.offset_committed(5)
    told.offset_seen(0)
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


@pytest.mark.parametrize("end", [0, -1, 1])
def test_spurious_end(told: Told, end: int) -> None:
    told.polled((0, told.stored(0)), (1, told.stored(1)))
    told.end_seen(end)
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


def test_spurious_committed_end(told: Told) -> None:
    told.polled((0, told.stored(0)), (1, told.stored(1)))
    told.end_seen(1, committed=True)
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


def test_end_of_a_deposed_leader_while_brokers_are_cut_off(told: Told) -> None:
    """It has what it had when that began; what was acknowledged by the next leader it does not know."""
    told.polled((0, told.stored(0)))
    outage = told.history.outage("isolated", cut=True)
    told.polled((1, told.stored(1)))
    told.end_seen(1)
    assert not told.anomalies()
    told.end_seen(0)
    told.history.healed(outage)
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


def test_spurious_end_once_a_deposed_leader_has_learnt_of_it(told: Told) -> None:
    told.polled((0, told.stored(0)))
    outage = told.history.outage("isolated", cut=True)
    told.polled((1, told.stored(1)))
    told.history.healed(outage)
    for _ in range(int(LEARNS_S) + 1):
        told.history.now()
    told.end_seen(1)
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


def test_nonsense_offsets_are_reported_and_not_believed(told: Told) -> None:
    """An offset of 2^60 must not make the checker ask for that much memory."""
    told.polled((0, told.stored(1 << 60)))
    told.polled((1 << 60, told.stored(1)))
    assert Kind.SPURIOUS_OFFSET in told.anomalies()


# A14


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_out_of_range_though_it_is_not(told: Told, offset: int) -> None:
    told.polled((0, told.stored(0)), (1, told.stored(1)))
    told.history.told_out_of_range(told.reader, told.left, offset)
    assert told.anomalies() == {Kind.OUT_OF_RANGE}


# Copies


def copying(told: Told) -> tuple[int, list[int]]:
    """A producer that copies for g, and two originals that were polled."""
    originals = [told.stored(0), told.stored(1)]
    told.polled(*enumerate(originals))
    return told.transactional("copier", "id", copies_for="g"), originals


def copy(told: Told, producer: int, original: int, offset: int, upto: int) -> int:
    """A transaction that copies one record and commits the group's offset."""
    transaction = told.history.begin(producer)
    value = told.stored(offset, by=producer, to=told.right, transaction=transaction, source=original)
    told.offset_committed(upto, transaction=transaction)
    told.commit(transaction)
    return value


def test_copy_doubled(told: Told) -> None:
    """T3: the commit succeeded, its answer was lost, the next owner began at the old offset."""
    producer, (original, _) = copying(told)
    copies = [copy(told, producer, original, offset, 1) for offset in range(2)]
    told.polled(*enumerate(copies), of=told.right)
    assert told.anomalies() == {Kind.COPY_DOUBLED}


@pytest.mark.parametrize("times", [1, 2])
def test_a_record_that_a_careless_producer_has_stored_twice_is_copied_twice_and_not_more_often(told: Told, times: int) -> None:
    careless = told.history.add_producer("careless", idempotent=False)
    twice, later = told.stored(0, by=careless), told.stored(1)
    told.polled((0, twice), (1, later), *([(2, twice)] if times == 2 else []))
    producer = told.transactional("copier", "id", copies_for="g")
    copies = [copy(told, producer, original, offset, offset + 1) for offset, original in enumerate((twice, later, twice))]
    told.polled(*enumerate(copies), of=told.right)
    assert told.anomalies() == (set() if times == 2 else {Kind.COPY_DOUBLED, Kind.COPY_REORDERED})


@pytest.mark.parametrize("doubled", [False, True])
def test_copies_of_records_that_are_stored_twice_may_stand_in_any_order_that_the_log_has(told: Told, doubled: bool) -> None:
    """Two records stand there in one order and then in the other, in which they were acknowledged; the group has copied two or all four."""
    careless = told.history.add_producer("careless", idempotent=False)
    first, second = told.stored(3, by=careless), told.stored(2, by=careless)
    told.polled((0, first), (1, second), (2, second), (3, first))
    producer = told.transactional("copier", "id", copies_for="g")
    originals = (first, second, second, first) if doubled else (first, second)
    copies = [copy(told, producer, original, offset, offset + 1) for offset, original in enumerate(originals)]
    told.polled(*enumerate(copies), of=told.right)
    assert told.anomalies() == set()


def test_copy_reordered_though_the_original_is_stored_twice(told: Told) -> None:
    careless = told.history.add_producer("careless", idempotent=False)
    twice, later, last = told.stored(1, by=careless), told.stored(2), told.stored(3)
    told.polled((0, twice), (1, twice), (2, later), (3, last))
    producer = told.transactional("copier", "id", copies_for="g")
    copies = [copy(told, producer, original, offset, 4) for offset, original in enumerate((later, twice, last))]
    told.polled(*enumerate(copies), of=told.right)
    assert told.anomalies() == {Kind.COPY_REORDERED}


def test_copy_reordered_though_the_original_is_stored_twice_around_another(told: Told) -> None:
    """Claim: two copies of it are of two of its offsets, and one of those comes after the other record."""
    careless = told.history.add_producer("careless", idempotent=False)
    twice, between = told.stored(2, by=careless), told.stored(1, by=careless)
    told.polled((0, twice), (1, between), (2, twice))
    producer = told.transactional("copier", "id", copies_for="g")
    copies = [copy(told, producer, original, offset, 3) for offset, original in enumerate((twice, twice, between))]
    told.polled(*enumerate(copies), of=told.right)
    assert told.anomalies() == {Kind.COPY_REORDERED}


def test_copy_lost(told: Told) -> None:
    """T2: the group's offset went past a record of which there is no copy."""
    producer, (_, second) = copying(told)
    told.polled((0, copy(told, producer, second, 0, 2)), of=told.right)
    told.offset_seen(2)
    assert told.anomalies() == {Kind.COPY_LOST}


def test_copy_reordered(told: Told) -> None:
    producer, (first, second) = copying(told)
    copies = [copy(told, producer, second, 0, 2), copy(told, producer, first, 1, 2)]
    told.polled(*enumerate(copies), of=told.right)
    assert told.anomalies() == {Kind.COPY_REORDERED}


# Power cuts that legally lost something


def test_what_was_acknowledged_may_be_gone_from_where_the_log_was_cut(told: Told) -> None:
    told.polled((0, told.stored(0)))
    told.stored(1)
    told.lost(1)
    assert told.anomalies() == set()


def test_what_was_acknowledged_before_the_cut_offset_may_not(told: Told) -> None:
    told.stored(0)
    told.lost(1)
    assert told.anomalies() == {Kind.UNSEEN}


def test_what_was_acknowledged_after_the_cut_may_not(told: Told) -> None:
    told.lost(1)
    told.stored(1)
    assert told.anomalies() == {Kind.UNSEEN}


def test_an_answer_on_its_way_during_the_cut_may_be_of_either_log(told: Told) -> None:
    value = told.sent()
    told.lost(0)
    told.history.send_ended(value, Outcome.OK, 0)
    other = told.stored(0)
    told.polled((0, other), epoch=1)
    assert told.anomalies() == set()


def test_a_lost_record_that_was_fetched_before_the_cut_may_be_polled_after_it(told: Told) -> None:
    lost = told.stored(0)
    told.lost(0)
    other = told.stored(0)
    told.polled((0, other), epoch=1)
    told.positioned(0)
    told.polled((0, lost), epoch=0)
    assert told.anomalies() == set()


def test_a_lost_offset_is_written_again_with_a_higher_leader_epoch(told: Told) -> None:
    told.lost(0, epoch=3)
    told.polled((0, told.stored(0)), epoch=3)
    assert told.anomalies() == {Kind.REUSED_EPOCH}


def test_the_lost_log_too_has_one_record_at_an_offset(told: Told) -> None:
    one, two = told.sent(), told.sent()
    told.polled((0, one), epoch=0)
    told.positioned(0)
    told.polled((0, two), epoch=0)
    told.lost(0)
    assert told.anomalies() == {Kind.INCONSISTENT_OFFSET}


def test_a_send_that_was_lost_and_made_again_is_no_duplicate(told: Told) -> None:
    """The answer did not come, the record was polled and lost; the producer sends it again."""
    value = told.sent()
    told.polled((5, value), epoch=0)
    told.lost(3)
    told.history.send_ended(value, Outcome.OK, 3)
    told.positioned(3)
    told.polled((3, value), epoch=1)
    assert told.anomalies() == set()


def test_an_end_may_be_lower_after_a_cut_and_not_lower_than_it(told: Told) -> None:
    told.polled(*((offset, told.stored(offset)) for offset in range(3)), epoch=0)
    told.lost(1)
    told.end_seen(1)
    assert told.anomalies() == set()
    told.end_seen(0)
    assert told.anomalies() == {Kind.SPURIOUS_OFFSET}


def test_a_position_may_be_out_of_range_after_a_cut(told: Told) -> None:
    told.polled(*((offset, told.stored(offset)) for offset in range(3)), epoch=0)
    told.history.told_out_of_range(told.reader, told.left, 3)
    assert told.anomalies() == {Kind.OUT_OF_RANGE}
    told.history.out_of_range.clear()
    told.lost(1)
    told.history.told_out_of_range(told.reader, told.left, 3)
    assert told.anomalies() == set()


def test_a_cut_may_tear_a_transaction_and_nobody_sees_one_that_was_never_asked_to_commit(told: Told) -> None:
    producer = told.transactional("tp", "id")
    transaction = told.history.begin(producer)
    kept = told.stored(0, by=producer, to=told.right, transaction=transaction)
    told.stored(0, by=producer, transaction=transaction)
    told.commit(transaction)
    told.lost(0)
    told.polled((0, kept), of=told.right, epoch=0)
    assert told.anomalies() == set()
    told.history.transactions[transaction].commit_asked = inf
    assert told.anomalies() == {Kind.ABORTED_READ}


def test_a_reader_that_begins_late_does_not_make_a_record_late(told: Told) -> None:
    value = told.stored(0)
    for _ in range(2 * int(STUCK_S)):
        told.history.now()
    told.polled((0, value))
    assert told.anomalies() == set()


def test_copies_are_not_judged_where_their_transactions_lost_state(told: Told) -> None:
    producer, (first, second) = copying(told)
    told.polled((0, copy(told, producer, second, 0, 2)), of=told.right)
    told.offset_seen(2)
    assert told.anomalies() == {Kind.COPY_LOST}
    told.history.lost_transactional_id("id", told.history.now())
    assert told.anomalies() == set()
    assert first == 0


def test_offsets_of_a_group_may_be_older_after_a_cut(told: Told) -> None:
    told.offset_committed(5)
    told.offset_committed(7)
    told.history.lost_group("g", told.history.now())
    told.offset_seen(5)
    told.offset_seen(NONE)
    assert told.anomalies() == set()
    told.offset_committed(9)
    told.offset_seen(7)
    assert told.anomalies() == {Kind.OFFSET_WENT_BACK}


def test_the_epoch_of_a_producer_may_be_lost(told: Told) -> None:
    older, _ = told.transactional("older", "id"), told.transactional("newer", "id")
    told.history.lost_transactional_id("id", told.history.now())
    told.polled((0, told.stored(0, by=older)))
    assert told.anomalies() == set()
    told.history.state_losses.clear()
    assert told.anomalies() == {Kind.ZOMBIE}


def test_the_next_producer_may_get_an_epoch_that_was_lost(told: Told) -> None:
    older = told.transactional("older", "id")
    told.history.lost_transactional_id("id", told.history.now())
    told.transactional("newer", "id")
    told.polled((0, told.stored(0, by=older)))
    assert told.anomalies() == set()


# The report


def test_the_report_names_values_offsets_and_times_and_leaves_the_history(told: Told, tmp_path: Path) -> None:
    value = told.stored(0)
    told.polled((0, value), (7, value))
    with pytest.raises(AssertionError) as failure:
        assert_clean(told.history, tmp_path, "(seed 4711)")
    report = str(failure.value)
    assert "1 × A4 duplicate" in report
    assert "(seed 4711)" in report
    assert "also at offset 7 of t-0 (polled by r at 4.000 s): value 0 sent to t-0 by p at 1.000 s, OK offset 0 at 2.000 s" in report
    assert str(tmp_path / "history.jsonl") in report
    assert (tmp_path / "history.jsonl").exists()
