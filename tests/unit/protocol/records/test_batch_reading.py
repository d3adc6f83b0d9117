"""Records come out of batches lazily, in columns or one by one, and a malformed one is named by its number in the batch."""

import pytest

from moldau.model.errors import BeyondBoundError, CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.batch import (
    CREATE_TIME,
    Columns,
    Compression,
    Record,
    RecordBatchBuilder,
    batches,
    decompressed_records,
    encode_batch,
    iterate,
    iterate_log,
    read_columns,
    recompress,
)
from moldau.protocol.records.control import ControlType, EndTxnMarker, decode_end_txn_marker, encode_end_txn_marker
from moldau.protocol.records.header import HEADER_SIZE, check_batch, pack_header, read_header, stamp_crc, verify_crc
from moldau.protocol.varint import varint, varlong
from support.validation import validated

MAX_BYTES = 1 << 20


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int = 1000) -> Record:
    return Record(offset, timestamp + offset, CREATE_TIME, key, value, [])


def log_of(*batches: bytes) -> memoryview:
    return memoryview(b"".join(batches))


def read(batch: bytes | memoryview) -> list[Record]:
    return list(iterate(memoryview(batch), max_decompressed_bytes=MAX_BYTES))


def with_payload(payload: bytes, count: int) -> memoryview:
    """A batch with any bytes for its records; header and checksum are right."""
    header = read_header(encode_batch([record(0)]))
    batch = bytearray(
        pack_header(header._replace(batch_length=HEADER_SIZE - 12 + len(payload), record_count=count, last_offset_delta=count - 1))
    )
    batch += payload
    stamp_crc(batch)
    return memoryview(batch)


def raw(body: bytes, size: int | None = None) -> bytes:
    """A record of any bytes after its size."""
    return varint(len(body) if size is None else size) + body


GOOD = [raw(b"\0\0" + varint(delta) + varint(1) + b"k" + varint(1) + b"v\0") for delta in range(3)]


class TestReading:
    def test_one_by_one_and_lazily(self) -> None:
        """The damage at the end is not met before the first records are out."""
        batch = bytearray(encode_batch([record(offset) for offset in range(1000)]))
        batch[-1] = 7
        records = iterate(memoryview(batch), max_decompressed_bytes=0)
        assert next(records) == record(0)
        with pytest.raises(PeerError, match="record 999 of the batch"):
            list(records)

    def test_offsets_may_have_gaps_as_compaction_leaves_them(self) -> None:
        records = [record(100), record(105), record(5_000_000)]
        assert read(encode_batch(records, base_offset=100)) == records

    def test_a_batch_that_compaction_emptied(self) -> None:
        assert read(with_payload(b"", 0)) == []

    def test_long_and_short_numbers(self) -> None:
        """Values around the sizes at which varints grow; timestamps that go back."""
        sizes = [0, 1, 63, 64, 8191, 8192, 100_000]
        records = [record(index, bytes(size), bytes(size), timestamp=-(index * 10**11)) for index, size in enumerate(sizes)]
        assert read(encode_batch(records)) == records

    def test_many_headers(self) -> None:
        headers: list[tuple[str, bytes | None]] = [(f"h{number}" * number, bytes(number) or None) for number in range(200)]
        records = [record(0)._replace(headers=headers), record(1)]
        assert read(encode_batch(records)) == records

    def test_a_header_key_that_is_no_text_is_still_read(self) -> None:
        body = b"\0\0\0" + varint(-1) + varint(-1) + varint(1) + varint(2) + b"\xff\xfe" + varint(-1)
        assert read(with_payload(raw(body), 1))[0].headers == [("\ufffd\ufffd", None)]

    def test_the_view_holds_just_the_batch(self) -> None:
        batch = encode_batch([record(0)])
        for wrong in (batch + b"\0", batch[:-1]):
            with pytest.raises(CorruptBatchError, match=f"{len(wrong)} are here"):
                read(wrong)


class TestLog:
    first = encode_batch([record(0), record(1)])
    second = encode_batch([record(2), record(3)], base_offset=2, compression=Compression.ZSTD)
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, 3), producer_id=1, producer_epoch=0, timestamp=5, base_offset=4, leader_epoch=0
    )
    third = encode_batch([record(5), record(9)], base_offset=5, log_append_time_ms=77)

    def test_all_batches_without_the_markers(self) -> None:
        log = log_of(self.first, self.second, self.marker, self.third)
        offsets = [record.offset for record in iterate_log(log, max_decompressed_bytes=MAX_BYTES)]
        assert offsets == [0, 1, 2, 3, 5, 9]
        assert [header.base_offset for header, _ in batches(log)] == [0, 2, 4, 5]

    def test_a_last_batch_cut_anywhere_is_left_out(self) -> None:
        for size in range(len(self.second)):
            log = log_of(self.first, self.second[:size])
            assert [record.offset for record in iterate_log(log, max_decompressed_bytes=MAX_BYTES)] == [0, 1]

    def test_what_is_no_batch_is_an_error(self) -> None:
        with pytest.raises(CorruptBatchError):
            list(batches(log_of(self.first, bytes(100))))

    @pytest.mark.parametrize(
        ("first", "end", "expected"),
        [
            (0, 100, [0, 1, 2, 3, 5, 9]),
            (1, 9, [1, 2, 3, 5]),
            (2, 4, [2, 3]),
            (3, 3, []),
            (4, 5, []),
            (6, 9, []),
            (6, 10, [9]),
            (50, 60, []),
        ],
    )
    def test_columns_of_a_range(self, first: int, end: int, expected: list[int]) -> None:
        columns = Columns()
        log = log_of(self.first, self.second, self.marker, self.third)
        read_columns(log, columns, max_decompressed_bytes=MAX_BYTES, first_offset=first, end_offset=end)
        assert columns.offsets == expected
        whole = [record for record in iterate_log(log, max_decompressed_bytes=MAX_BYTES) if record.offset in expected]
        rows = zip(columns.offsets, columns.timestamps, columns.timestamp_types, columns.keys, columns.values, columns.headers, strict=True)
        assert list(rows) == whole
        assert len(columns) == len(expected)

    def test_batches_outside_the_range_are_not_decompressed(self) -> None:
        broken = bytearray(self.second)
        broken[-3:] = b"\xff\xff\xff"
        columns = Columns()
        read_columns(log_of(self.first, bytes(broken)), columns, max_decompressed_bytes=MAX_BYTES, end_offset=2)
        read_columns(log_of(bytes(broken), self.third), columns, max_decompressed_bytes=MAX_BYTES, first_offset=4)
        assert columns.offsets == [0, 1, 5, 9]


MALFORMED = {
    "cut in the size": (b"\x80", 0, "cut off"),
    "nothing": (b"", 0, "cut off"),
    "a negative size": (raw(b"", -1) + bytes(9), 0, "size -1"),
    "a size beyond the end": (raw(GOOD[0][1:], 100), 0, "size 100"),
    "a size too small": (raw(GOOD[0][1:], len(GOOD[0]) - 2), 0, "is cut off"),
    "a size too large": (raw(GOOD[0][1:] + b"\0"), 0, "left over"),
    "a size without an end": (b"\xff" * 30, 0, "longer than 5 bytes"),
    "a timestamp without an end": (raw(b"\0" + b"\xff" * 11 + bytes(9)), 0, "longer than 10 bytes"),
    "a timestamp of 65 bits": (raw(b"\0" + b"\xff" * 9 + b"\x02" + b"\0\1\1\0"), 0, "more than 64 bits"),
    "an offset before the batch": (raw(b"\0\0" + varint(-1) + b"\1\1\0"), 0, "offset delta is -1"),
    "an offset twice": (GOOD[0] + GOOD[0], 1, "offset delta 0"),
    "a key of length -2": (raw(b"\0\0\0" + varint(-2) + b"\1\0"), 0, "key has length -2"),
    "a key beyond the record": (raw(b"\0\0\0" + varint(9) + b"k\1\0"), 0, "key has length 9"),
    "a value of length -2": (raw(b"\0\0\0\1" + varint(-2) + b"\0"), 0, "value has length -2"),
    "a value beyond the record": (raw(b"\0\0\0\1" + varint(2**31 - 1) + b"v\0"), 0, f"value has length {2**31 - 1}"),
    "a null in two bytes": (raw(b"\0\0\0\x81\0\1\0"), 0, "length -1 of its key"),
    "-1 headers": (raw(b"\0\0\0\1\1" + varint(-1)), 0, "-1 headers"),
    "more headers than bytes": (raw(b"\0\0\0\1\1" + varint(1 << 28)), 0, f"{1 << 28} headers"),
    "a header without a key": (raw(b"\0\0\0\1\1" + varint(1) + varint(-1) + varint(0) + b"\0"), 0, "key of header 0 has length -1"),
    "a header's value beyond the record": (raw(b"\0\0\0\1\1" + varint(1) + varint(0) + varint(5)), 0, "value of header 0 has length 5"),
    "a header's value of length -2": (raw(b"\0\0\0\1\1" + varint(1) + varint(0) + varint(-2)), 0, "value of header 0 has length -2"),
    "a header's value beyond the batch": (raw(b"\0\0\0\1\1" + varint(1) + varint(0) + varint(5), 13), 0, "size 13, but 8 bytes are left"),
    "the second cut off": (GOOD[0] + GOOD[1][:-1], 1, "size 8, but 7 bytes are left"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_record_is_named(case: str) -> None:
    payload, index, text = MALFORMED[case]
    batch = with_payload(payload, index + 1)
    for walk in (
        lambda: read(batch),
        lambda: read_columns(batch, Columns(), max_decompressed_bytes=MAX_BYTES),
        lambda: validated(batch, MAX_BYTES),
    ):
        with pytest.raises(PeerError, match=f"record {index} of the batch") as caught:
            walk()
        assert caught.value.code == ErrorCode.INVALID_RECORD
        assert text in caught.value.message


@pytest.mark.parametrize("tail", [b"\0", GOOD[2]])
def test_bytes_after_the_records(tail: bytes) -> None:
    batch = with_payload(GOOD[0] + GOOD[1] + tail, 2)
    for walk in (
        lambda: read(batch),
        lambda: validated(batch, MAX_BYTES),
    ):
        with pytest.raises(PeerError, match=f"{len(tail)} bytes follow"):
            walk()


def test_an_offset_beyond_the_last_of_the_batch() -> None:
    far = raw(b"\0\0" + varint(9) + b"\1\1\0")
    with pytest.raises(PeerError, match="offset 9, the last of its batch is 0"):
        read(with_payload(far, 1))


class TestValidation:
    def test_offsets_of_a_produced_batch_have_no_gaps(self) -> None:
        batch = memoryview(encode_batch([record(0), record(2)]))
        with pytest.raises(PeerError, match=r"record 1 of the batch.*offset delta 2"):
            validated(batch, MAX_BYTES)

    @pytest.mark.parametrize("codec", Compression)
    def test_keys_and_timestamps(self, codec: Compression) -> None:
        records = [record(0), record(1, None, timestamp=-5000), record(2, None, timestamp=10**12)]
        batch = memoryview(encode_batch(records, compression=codec))
        assert validated(batch, MAX_BYTES) == (-4999, 10**12 + 2, 1)

    def test_empty_keys_are_keys(self) -> None:
        batch = memoryview(encode_batch([record(0, b""), record(1, b"x" * 200)]))
        assert validated(batch, MAX_BYTES).first_null_key == -1

    def test_a_timestamp_of_ten_bytes(self) -> None:
        batch = with_payload(raw(b"\0" + varlong(-(1 << 63)) + b"\0\1\1\0"), 1)
        assert validated(batch, MAX_BYTES).timestamp_min == 1000 - (1 << 63)

    def test_records_that_cannot_be_decompressed(self) -> None:
        batch = bytearray(with_payload(b"\xff" * 30, 1))
        batch[22] = Compression.ZSTD
        with pytest.raises(CorruptBatchError, match="30 bytes of zstd"):
            validated(memoryview(batch), MAX_BYTES)


class TestRecompression:
    records = [record(offset, value=b"moldau " * 30) for offset in range(50)]

    @pytest.mark.parametrize("target", Compression)
    @pytest.mark.parametrize("source", Compression)
    def test_all_but_the_codec_stays(self, source: Compression, target: Compression) -> None:
        batch = memoryview(encode_batch(self.records, compression=source, producer_id=7, producer_epoch=1, base_sequence=5))
        header = check_batch(batch)
        changed = recompress(decompressed_records(batch, header, MAX_BYTES), header, target)
        assert verify_crc(changed)
        after = check_batch(memoryview(changed))
        assert after.compression == target
        assert after == header._replace(batch_length=after.batch_length, crc=after.crc, attributes=after.attributes)
        assert read(bytes(changed)) == self.records

    def test_a_bomb_is_refused(self) -> None:
        batch = memoryview(encode_batch(self.records, compression=Compression.ZSTD))
        with pytest.raises(BeyondBoundError, match=r"offset 0: .* of zstd decompress to more than 100 bytes"):
            decompressed_records(batch, read_header(batch), 100)


class TestBuilding:
    def test_the_builder_knows_its_size(self) -> None:
        builder = RecordBatchBuilder()
        sizes = []
        for number in range(3):
            builder.append(1000, b"k", b"v" * number)
            sizes.append(builder.size)
        assert len(builder) == 3
        assert sizes[-1] == len(builder.build())
        assert sizes == sorted(sizes)

    def test_offsets_ascend(self) -> None:
        builder = RecordBatchBuilder(base_offset=10)
        builder.append(0, None, None, offset=12)
        with pytest.raises(AssertionError, match="does not ascend"):
            builder.append(0, None, None, offset=12)

    def test_an_empty_batch_is_a_mistake(self) -> None:
        with pytest.raises(AssertionError, match="without records"):
            RecordBatchBuilder().build()


class TestMarkers:
    @pytest.mark.parametrize(
        ("key", "value"), [(None, b"\0\0\0\0\0\1"), (b"\0\0\0", b"\0\0\0\0\0\1"), (b"\0\0\0\1", None), (b"\0\0\0\0", b"\0\0\0\0\0")]
    )
    def test_a_malformed_one_is_refused(self, key: bytes | None, value: bytes | None) -> None:
        with pytest.raises(PeerError, match="at offset 9"):
            decode_end_txn_marker(record(9, key, value))

    def test_another_control_record_is_none(self) -> None:
        assert decode_end_txn_marker(record(9, b"\0\0\0\2", b"\0\0")) is None

    def test_a_later_version_may_say_more(self) -> None:
        marker = decode_end_txn_marker(record(9, b"\0\1\0\1more", b"\0\1\0\0\0\5more"))
        assert marker == EndTxnMarker(ControlType.COMMIT, 5)
