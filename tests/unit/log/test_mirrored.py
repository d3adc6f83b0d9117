"""Of the batches that a mirror sends, those after the end of the log are written; what neither fits nor is there already is refused."""

import pytest

from moldau.log.mirrored import new_batches
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.batch import RecordBatchBuilder


def batch(base_offset: int, count: int) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, leader_epoch=3)
    for number in range(count):
        builder.append(1000, None, b"value", (), base_offset + number)
    return builder.build()


TWO, THREE, ONE = batch(10, 2), batch(12, 3), batch(20, 1)
ALL = TWO + THREE + ONE


@pytest.mark.parametrize(
    ("log_end_offset", "left"),
    [(0, ALL), (10, ALL), (12, THREE + ONE), (15, ONE), (17, ONE), (20, ONE), (21, b""), (99, b"")],
)
def test_what_lies_wholly_before_the_end_of_the_log_is_left_out(log_end_offset: int, left: bytes) -> None:
    assert bytes(new_batches(memoryview(ALL), "t-0", log_end_offset)) == left


@pytest.mark.parametrize("log_end_offset", [11, 13, 14])
def test_a_batch_that_begins_before_the_end_and_does_not_end_there_is_refused(log_end_offset: int) -> None:
    with pytest.raises(PeerError, match="the log ends at") as error:
        new_batches(memoryview(ALL), "t-0", log_end_offset)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_are_whole() -> None:
    for cut in range(1, len(ALL)):
        if cut not in (len(TWO), len(TWO + THREE)):
            with pytest.raises(CorruptBatchError):
                new_batches(memoryview(ALL)[:cut], "t-0", 99)


def test_the_checksum_of_what_is_left_out_counts_too() -> None:
    damaged = bytearray(ALL)
    damaged[len(TWO) - 1] ^= 1
    with pytest.raises(CorruptBatchError, match="offset 10"):
        new_batches(memoryview(damaged), "t-0", 99)
