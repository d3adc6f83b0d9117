"""Which batches of an idempotent producer are taken, repeated or refused: the table of the module, row by row, and its undoing."""

import pytest

from moldau.log.producer_bound import ProducerBound
from moldau.log.producer_entry import ProducerEntry, StoredBatch
from moldau.log.producer_states import ProducerStates
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.header import read_header
from support.one_log import make_batch

LAST_SEQUENCE = 2**31 - 1


def stage(producers: ProducerStates, epoch: int, sequence: int, *, count: int = 1, offset: int = 0, now_ms: int = 0) -> StoredBatch | None:
    return producers.stage(7, epoch, sequence, count - 1, offset, 1000, now_ms)


def refusal(producers: ProducerStates, epoch: int, sequence: int, *, count: int = 1) -> ErrorCode:
    with pytest.raises(PeerError) as caught:
        stage(producers, epoch, sequence, count=count)
    return caught.value.code


@pytest.mark.parametrize("sequence", [0, 1, 500, LAST_SEQUENCE])
def test_a_producer_without_state_may_start_anywhere(sequence: int) -> None:
    assert stage(ProducerStates("t-0"), 3, sequence) is None


def test_each_of_the_last_five_batches_is_recognised_and_older_ones_are_out_of_order() -> None:
    producers = ProducerStates("t-0")
    for number in range(7):
        assert stage(producers, 0, number * 10, count=10, offset=100 + number * 10) is None
    for number in (2, 3, 4, 5, 6):
        stored = stage(producers, 0, number * 10, count=10)
        assert stored is not None
        assert (stored.first_offset, stored.last_offset) == (100 + number * 10, 109 + number * 10)
    assert refusal(producers, 0, 10, count=10) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_has_the_same_first_and_last_sequence() -> None:
    producers = ProducerStates("t-0")
    stage(producers, 0, 0, count=10)
    assert refusal(producers, 0, 0, count=9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(producers, 0, 1, count=9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 9, 11, LAST_SEQUENCE])
def test_any_other_gap_is_out_of_order(sequence: int) -> None:
    producers = ProducerStates("t-0")
    stage(producers, 0, 5, count=5)
    assert refusal(producers, 0, sequence) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_0() -> None:
    producers = ProducerStates("t-0")
    stage(producers, 4, 0)
    assert refusal(producers, 3, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(producers, 3, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(producers, 5, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stage(producers, 5, 0) is None
    assert producers.entries[7].epoch == 5
    assert len(producers.entries[7].batches) == 1
    assert refusal(producers, 4, 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_after_the_largest_sequence_follows_0_within_a_batch_and_between_two() -> None:
    producers = ProducerStates("t-0")
    assert stage(producers, 0, LAST_SEQUENCE - 1, count=2) is None
    assert stage(producers, 0, 0, count=1, offset=2) is None
    producers = ProducerStates("t-0")
    assert stage(producers, 0, LAST_SEQUENCE, count=3) is None
    assert producers.entries[7].last_sequence == 1
    assert stage(producers, 0, 2, offset=3) is None
    stored = stage(producers, 0, LAST_SEQUENCE, count=3)
    assert stored is not None
    assert stored.first_offset == 0


def test_undo_goes_back_to_what_was_written() -> None:
    producers = ProducerStates("t-0")
    stage(producers, 0, 0)
    producers.commit()
    stage(producers, 0, 1, offset=1)
    stage(producers, 1, 0, offset=2)
    producers.stage(8, 0, 0, 0, 3, 1000, 0)
    producers.undo()
    assert list(producers.entries) == [7]
    assert refusal(producers, 1, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stage(producers, 0, 1, offset=1) is None


def test_producers_expire_by_the_time_of_their_last_append_not_by_their_records_time() -> None:
    producers = ProducerStates("t-0")
    stage(producers, 0, 0, now_ms=5_000_000)
    producers.stage(8, 0, 0, 0, 1, 1000, 4_000_000)
    assert producers.expire(5_000_999, 1000) == 1
    assert list(producers.entries) == [7]
    producers.entries[7].transaction_start = 5
    assert producers.expire(9_000_000, 1000) == 0


def test_replaying_takes_what_is_in_the_log_as_it_is() -> None:
    producers = ProducerStates("t-0")
    producers.replay(read_header(make_batch(b"a", b"b", producer=(7, 2, 40))), 0)
    producers.replay(read_header(make_batch(b"c", producer=(7, 3, 0))), 0)
    entry = producers.entries[7]
    assert (entry.epoch, entry.last_sequence, entry.next_sequence, len(entry.batches)) == (3, 0, 1, 1)


def test_before_a_batch_is_refused_the_log_before_the_snapshot_is_asked_once() -> None:
    producers = ProducerStates("t-0")
    entry = producers.entries[7] = ProducerEntry(0, 0)
    entry.batches = (StoredBatch(20, 29, 120, 129, 1000),)
    entry.next_sequence = 30
    earlier = ProducerEntry(0, 0)
    earlier.batches = (StoredBatch(0, 9, 100, 109, 1000), StoredBatch(10, 19, 110, 119, 1000), StoredBatch(20, 29, 120, 129, 1000))
    asked: list[int] = []

    def look_back() -> dict[int, ProducerEntry]:
        asked.append(1)
        return {7: earlier}

    producers.look_back = look_back
    stored = stage(producers, 0, 0, count=10)
    assert stored is not None
    assert stored.first_offset == 100
    assert refusal(producers, 0, 50) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert asked == [1]
    assert [batch.first_sequence for batch in producers.entries[7].batches] == [0, 10, 20]


def test_what_was_found_in_the_log_is_looked_up_again_after_a_write_that_failed() -> None:
    """The batch before it was staged when the log was asked: taking that one back takes what was found along."""
    producers = ProducerStates("t-0")
    entry = producers.entries[7] = ProducerEntry(0, 0)
    entry.batches = (StoredBatch(10, 19, 110, 119, 1000),)
    entry.next_sequence = 20
    earlier = ProducerEntry(0, 0)
    earlier.batches = (StoredBatch(0, 9, 100, 109, 1000), StoredBatch(10, 19, 110, 119, 1000))
    producers.look_back = lambda: {7: earlier}
    assert stage(producers, 0, 20, count=10, offset=120) is None
    assert stage(producers, 0, 0, count=10) is not None
    producers.undo()
    stored = stage(producers, 0, 0, count=10)
    assert stored is not None
    assert stored.first_offset == 100
    producers.commit()
    assert producers.look_back is None


def test_where_there_is_nothing_to_compare_with_the_epoch_must_be_the_one_that_the_coordinator_gave_last() -> None:
    """An evicted producer that was fenced would write again; a made-up epoch would fence who has the id."""
    given = {7: 4}
    producers = ProducerStates("t-0", ProducerBound(epoch_given=given.get))
    assert refusal(producers, 3, 17) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(producers, 5, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.entries == {}
    assert stage(producers, 4, 17) is None
    assert refusal(producers, 5, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stage(producers, 4, 18) is None
    given[7] = 5
    assert stage(producers, 4, 19) is None, "until the new one writes"
    assert stage(producers, 5, 0) is None
    assert producers.stage(8, 3, 17, 0, 0, 1000, 0) is None, "one without a transactional id"


def test_no_batch_overtakes_one_that_was_refused_while_the_coordinator_could_not_say_its_epoch() -> None:
    """The one after it was taken, being of an unknown producer: librdkafka believes then that the refused one was stored, too."""
    loading = [PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "__transaction_state is still being read")]

    def epoch_given(_producer_id: int) -> None:
        for error in loading:
            raise error

    bound = ProducerBound(epoch_given=epoch_given)
    producers = ProducerStates("t-0", bound)
    assert refusal(producers, 0, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(producers, 0, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    loading.clear()
    assert refusal(producers, 0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(producers, 0, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [stage(producers, 0, sequence) for sequence in (0, 1, 2)] == [None, None, None]
    assert bound.held == 1


def test_a_producer_that_gave_up_a_refused_batch_goes_on_with_the_next_epoch() -> None:
    loading = [PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "__transaction_state is still being read")]

    def epoch_given(_producer_id: int) -> None:
        for error in loading:
            raise error

    producers = ProducerStates("t-0", ProducerBound(epoch_given=epoch_given))
    assert refusal(producers, 0, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    loading.clear()
    assert stage(producers, 1, 0) is None


def test_a_refused_batch_leaves_the_verification_of_its_transaction_as_it_was() -> None:
    """Under version 2 the marker of the transaction before may have the epoch that is asked about, and does not end the verification."""

    def epoch_given(_producer_id: int) -> None:
        raise PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "__transaction_state is still being read")

    producers = ProducerStates("t-0", ProducerBound(epoch_given=epoch_given))
    standing = producers.verifications.begin(7, 1, 0, 0, bumps_epoch=True)
    assert refusal(producers, 1, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    producers.verifications.marked(7, 1)
    assert producers.verifications.get(7) is standing
    producers.verifications.marked(7, 2)
    assert producers.verifications.get(7) is None


def test_no_batch_of_a_new_producer_overtakes_one_that_could_not_be_written() -> None:
    """On a full disk: the first is refused, and there is room again for the second, which is on its way."""
    bound = ProducerBound()
    producers = ProducerStates("t-0", bound)
    stage(producers, 0, 0)
    stage(producers, 0, 1)
    producers.undo()
    assert refusal(producers, 0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [stage(producers, 0, sequence) for sequence in (0, 1, 2)] == [None, None, None]
    producers.commit()
    assert bound.held == 1
