"""Nothing of a batch is used before it is known to be whole, and damage is named by the offset that is due."""

import pytest

from moldau.client.fetched_batches import UnreadableBatchError, checked_batches
from moldau.client.partition_requests import FetchedBatches
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.protocol.records.header import HEADER_SIZE, LENGTH_OFFSET

WHERE = TopicPartition("orders", 3)


def log(*bases: int, records: int = 2) -> list[bytearray]:
    """A batch of two records at each offset."""
    found = []
    for base in bases:
        builder = RecordBatchBuilder(base_offset=base)
        for number in range(records):
            builder.append(0, None, b"%d" % (base + number))
        found.append(bytearray(builder.build()))
    return found


def read(batches: list[bytearray], position: int = 0, end: int = 100) -> tuple[list[int], UnreadableBatchError | None]:
    """Base offsets of what was given out of a log with this end, and what ended it."""
    found: list[int] = []
    fetched = FetchedBatches(memoryview(b"".join(batches)), Offset(end), Offset(end), Offset(0))
    try:
        for header, _ in checked_batches(WHERE, fetched, position):
            found.append(header.base_offset)
    except UnreadableBatchError as error:
        return found, error
    return found, None


def ends(batches: list[bytearray], position: int = 0) -> tuple[int, int | None]:
    """At which offset damage was found, and where the next batch begins."""
    _, error = read(batches, position)
    assert error is not None
    return error.offset, error.next_offset


def test_whole_batches_come_as_they_lie_gaps_included() -> None:
    assert read(log(0, 2, 10), 0) == ([0, 2, 10], None)
    assert read(log(0, 2, 10), 3) == ([2, 10], None), "what lies before the position is passed over"
    assert read([]) == ([], None)


def test_a_changed_byte_is_named_by_topic_partition_and_offset() -> None:
    batches = log(0, 2, 4)
    batches[1][-1] ^= 1
    (error,) = [found for _, found in [read(batches)] if found]
    assert str(error.message) == "partition orders-3: the batch at offset 2 is damaged: its checksum does not match"
    assert (error.offset, error.next_offset) == (2, 4)


@pytest.mark.parametrize("at", range(HEADER_SIZE + 5))
def test_every_byte_of_a_batch_counts_but_its_leader_epoch(at: int) -> None:
    batches = log(0, 2, 4)
    batches[1][at] ^= 0x40
    found, error = read(batches)
    if error is None:  # a batch that says it is longer looks cut off, until it is the first one of a fetch
        _, error = read(batches[1:], 2)
    assert set(found) <= {0, 2, 4}
    assert (error is not None) == (at < 12 or at >= 16)


def test_what_a_damaged_batch_says_of_its_offsets_is_not_believed() -> None:
    batches = log(0, 2, 4)
    batches[1][23:27] = (1000).to_bytes(4, "big")  # the last offset's delta
    assert ends(batches) == (2, 4)


def test_after_a_gap_a_damaged_batch_is_named_by_its_own_offset_where_that_can_be_true() -> None:
    batches = log(0, 10, 20)
    batches[1][-1] ^= 1
    assert ends(batches) == (10, 20)
    batches[1][6] ^= 0x40  # it says 16,394
    assert ends(batches) == (2, 20)


@pytest.mark.parametrize("byte", [0, 3, 6, 7])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_an_offset_that_was_changed_hides_no_batch(damaged: int, byte: int) -> None:
    """It lies before the checksum. A batch that seems to lie far ahead would make a reader believe that it is through."""
    batches = log(0, 2, 4)
    batches[damaged][byte] ^= 0x40
    found, error = read(batches, end=6)
    assert found == [0, 2, 4][:damaged]
    assert error is not None
    assert error.offset == 2 * damaged
    assert error.next_offset in (2 * damaged + 2, None)


def test_a_damaged_batch_that_was_skipped_is_not_met_again_for_saying_that_it_is_longer() -> None:
    batches = log(0, 2, 4)
    batches[1][26] ^= 9  # the last offset's delta, by which brokers find batches
    assert ends(batches) == (2, 4)
    assert read(batches[1:], 4) == ([4], None)


def test_without_a_good_batch_after_it_the_end_of_damage_is_not_known() -> None:
    batches = log(0, 2, 4)
    batches[1][-1] ^= 1
    batches[2][-1] ^= 1
    assert ends(batches) == (2, None)
    assert ends(batches[:2]) == (2, None)


def test_a_length_that_leads_nowhere_is_damage_and_not_an_end() -> None:
    batches = log(0)
    batches[0][LENGTH_OFFSET : LENGTH_OFFSET + 4] = (2**30).to_bytes(4, "big")
    assert ends(batches) == (0, None)


def test_a_last_batch_that_is_cut_off_is_none() -> None:
    first, second = log(0, 2)
    assert read([first, second[:-1]]) == ([0], None)
