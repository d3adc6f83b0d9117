"""A produced batch is taken or refused by its header and checksum alone, with Kafka's error code and a sentence that says why."""

import pytest

from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.batch import CREATE_TIME, Compression, Record, encode_batch, iterate
from moldau.protocol.records.header import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    BatchHeader,
    check_batch,
    pack_header,
    read_header,
    stamp,
    stamp_crc,
    stamp_log_append_time,
    verify_crc,
)

RECORDS = [Record(offset, 1000 + offset, CREATE_TIME, b"k", b"v" * 20, []) for offset in range(3)]


def produced(**changes: int) -> memoryview:
    """A good batch with some fields of its header changed and the checksum made right again."""
    batch = bytearray(encode_batch(RECORDS))
    batch[:HEADER_SIZE] = pack_header(read_header(batch)._replace(**changes))
    stamp_crc(batch)
    return memoryview(batch)


def refusal(view: memoryview) -> PeerError:
    with pytest.raises(PeerError) as caught:
        check_batch(view)
    return caught.value


def test_a_good_batch_is_taken() -> None:
    header = check_batch(produced())
    assert header.record_count == 3
    assert header == read_header(produced())


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"magic": 0}, ErrorCode.INVALID_RECORD, "old format 0"),
        ({"magic": 1}, ErrorCode.INVALID_RECORD, "old format 1"),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE, "unknown format 3"),
        ({"batch_length": 48}, ErrorCode.CORRUPT_MESSAGE, "shorter than its header"),
        ({"batch_length": -1}, ErrorCode.CORRUPT_MESSAGE, "shorter than its header"),
        ({"batch_length": 1 << 30}, ErrorCode.CORRUPT_MESSAGE, "was cut to"),
        ({"batch_length": 49}, ErrorCode.INVALID_RECORD, "bytes follow the record batch"),
        ({"base_offset": 7}, ErrorCode.INVALID_RECORD, "base offset 7"),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD, "holds 0 records"),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD, "holds 0 records"),
        ({"record_count": -1}, ErrorCode.INVALID_RECORD, "holds -1 records"),
        ({"record_count": 4}, ErrorCode.INVALID_RECORD, "last offset delta is 2"),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.INVALID_RECORD, "bytes of them"),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD, "control"),
        ({"attributes": 0x40}, ErrorCode.INVALID_RECORD, "delete horizon"),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 5"),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 7"),
        ({"producer_id": 5}, ErrorCode.INVALID_RECORD, "producer 5 has the sequence -1"),
        ({"attributes": 0x10}, ErrorCode.INVALID_RECORD, "without a producer id"),
    ],
)
def test_a_wrong_header_is_refused(changes: dict[str, int], code: ErrorCode, text: str) -> None:
    error = refusal(produced(**changes))
    assert error.code == code
    assert text in error.message
    assert isinstance(error, CorruptBatchError) == (code == ErrorCode.CORRUPT_MESSAGE)


@pytest.mark.parametrize(
    "changes",
    [{"attributes": 0x08}, {"producer_id": 5, "base_sequence": 0, "attributes": 0x10}, {"attributes": -0x80}, {"max_timestamp": -1}],
    ids=["log-append-time", "transactional", "bits-of-the-future", "no-timestamp"],
)
def test_what_is_uncommon_is_taken(changes: dict[str, int]) -> None:
    check_batch(produced(**changes))


def test_every_changed_byte_is_noticed_unless_the_broker_sets_it() -> None:
    """Leader epoch and the timestamp type of a producer say nothing to the broker; only the former is outside the checksum."""
    for where in range(len(produced())):
        batch = produced()
        batch[where] ^= 0x01
        if 12 <= where < 16:
            check_batch(batch)
        else:
            refusal(batch)


def test_every_cut_is_noticed() -> None:
    for size in range(len(produced())):
        error = refusal(produced()[:size])
        assert error.code == (ErrorCode.CORRUPT_MESSAGE if size else ErrorCode.INVALID_RECORD)


def test_two_batches_are_refused() -> None:
    assert "bytes follow" in refusal(memoryview(bytes(produced()) * 2)).message


def test_a_damaged_batch_names_both_checksums() -> None:
    batch = produced()
    batch[-1] ^= 1
    header = read_header(batch)
    assert f"{header.crc:#010x}" in refusal(batch).message
    assert not verify_crc(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_their_own_code_where_a_log_is_read(magic: int) -> None:
    for view in (produced(magic=magic), produced(magic=magic)[:20]):
        with pytest.raises(CorruptBatchError) as caught:
            read_header(view)
        assert caught.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_header_is_read_at_a_position() -> None:
    two = bytes(produced()) + bytes(produced(base_offset=3))
    assert read_header(two, len(produced())).base_offset == 3
    with pytest.raises(CorruptBatchError, match="60 bytes are left"):
        read_header(memoryview(two)[: len(produced()) + 60], len(produced()))


def test_a_stamp_leaves_the_checksum_right() -> None:
    batch = produced()
    stamp(batch, 1 << 40, 9)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.last_offset) == (1 << 40, 9, (1 << 40) + 2)
    assert verify_crc(batch)


def test_log_append_time_is_stamped_without_a_walk() -> None:
    batch = produced()
    before = bytes(batch)
    stamp_log_append_time(batch, 123456)
    assert verify_crc(batch)
    assert {record.timestamp for record in iterate(batch, max_decompressed_bytes=0)} == {123456}
    assert bytes(batch[HEADER_SIZE:]) == before[HEADER_SIZE:]
    assert bytes(batch[ATTRIBUTES_OFFSET : ATTRIBUTES_OFFSET + 2]) == b"\0\x08"


@pytest.mark.parametrize(("base", "delta", "last"), [(0, 0, 0), (5, 4, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 2, 3, 1), (-1, 4, -1)])
def test_sequences_wrap(base: int, delta: int, last: int) -> None:
    header = BatchHeader(0, 49, 0, 2, 0, 0, delta, 0, 0, 1, 0, base, delta + 1)
    assert header.last_sequence == last


@pytest.mark.parametrize("codec", list(Compression))
def test_attributes(codec: Compression) -> None:
    header = check_batch(memoryview(encode_batch(RECORDS, compression=codec)))
    assert header.compression == codec
    assert (header.timestamp_type_is_log_append, header.is_transactional, header.is_control, header.has_delete_horizon) == (False,) * 4
