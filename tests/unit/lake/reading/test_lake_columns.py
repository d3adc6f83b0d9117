"""The columns made with numpy are the records that the plain reader gives, and damaged records end in our own error."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.lake.reading.columns import BatchRecords, decode_sections
from moldau.model.errors import BeyondBoundError, CorruptBatchError
from moldau.protocol.records.batch import CREATE_TIME, Record, encode_batch, iterate
from moldau.protocol.records.header import HEADER_SIZE, read_header
from moldau.protocol.records.walk import BATCH_HEADERS_MAX, RECORD_HEADERS_MAX
from support.sizes import sized

ALL = ("key", "value", "headers")

optional_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=4)
records = st.lists(
    st.tuples(st.integers(0, 1 << 45), optional_bytes, optional_bytes, headers, st.integers(1, 1 << 20)), min_size=1, max_size=12
)
batches = st.lists(st.tuples(records, st.none() | st.integers(0, 1 << 45)), min_size=1, max_size=5)


def build(drawn: Any) -> list[bytes]:
    """Batches of the drawn records, with gaps between offsets as compaction leaves them."""
    made, offset = [], 0
    for fields, append_time in drawn:
        base, batch = offset, []
        for timestamp, key, value, own_headers, gap in fields:
            batch.append(Record(offset, timestamp, CREATE_TIME, key, value, own_headers))
            offset += gap
        made.append(encode_batch(batch, base_offset=base, log_append_time_ms=append_time))
    return made


def section(batch: bytes) -> BatchRecords:
    """A whole batch as the reader hands it on."""
    header = read_header(memoryview(batch))
    appended = header.max_timestamp if header.timestamp_type_is_log_append else None
    return BatchRecords(batch[HEADER_SIZE:], header.record_count, header.base_offset, header.base_timestamp, appended)


@settings(max_examples=sized(50, 1500))
@given(batches)
def test_columns_are_what_the_plain_reader_reads(drawn: Any) -> None:
    made = build(drawn)
    expected = [record for batch in made for record in iterate(memoryview(batch), max_decompressed_bytes=1 << 20)]
    columns = decode_sections([section(batch) for batch in made], ALL)
    assert columns.key is not None
    assert columns.value is not None
    assert columns.headers is not None
    columns.headers.validate(full=True)
    got_headers = [None if row is None else [(h["key"], h["value"]) for h in row] for row in columns.headers.to_pylist()]
    assert columns.offset.tolist() == [record.offset for record in expected]
    assert columns.timestamp_ms.tolist() == [record.timestamp for record in expected]
    assert columns.timestamp_type.tolist() == [record.timestamp_type for record in expected]
    assert columns.key.to_pylist() == [record.key for record in expected]
    assert columns.value.to_pylist() == [record.value for record in expected]
    assert got_headers == [record.headers or None for record in expected]


def test_only_what_is_wanted_is_made_and_slices_are_rows() -> None:
    batch = encode_batch([Record(number, 0, 0, b"k", b"%d" % number, [("h", b"x")]) for number in range(5)])
    columns = decode_sections([section(batch)], ("value",))
    assert columns.key is None
    assert columns.headers is None
    part = columns.slice(1, 3)
    assert part.offset.tolist() == [1, 2]
    assert part.value is not None
    assert part.value.to_pylist() == [b"1", b"2"]


def test_damaged_records_end_in_our_own_error_or_as_records() -> None:
    """Bytes are flipped behind the checksum's back; whatever comes of it, it is columns of one length or a CorruptBatchError."""
    draw = random.Random(20130101)
    batch = encode_batch([Record(n, n, 0, b"key" * n, b"value" * n, [("a", b"b"), ("c", None)] * (n % 3)) for n in range(20)])
    outcomes = set()
    for _ in range(1_500):
        damaged = bytearray(batch)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(HEADER_SIZE, len(damaged))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        try:
            columns = decode_sections([section(bytes(damaged))], ALL)
        except CorruptBatchError:
            outcomes.add("refused")
        else:
            assert columns.value is not None
            assert len(columns) == len(columns.value) == 20
            outcomes.add("read")
    assert outcomes == {"refused", "read"}


@pytest.mark.parametrize("count", [19, 21])
def test_a_wrong_count_is_refused(count: int) -> None:
    batch = encode_batch([Record(n, n, 0, None, b"v", []) for n in range(20)])
    with pytest.raises(CorruptBatchError):
        decode_sections([BatchRecords(batch[HEADER_SIZE:], count, 0, 0, None)], ALL)


@pytest.mark.parametrize("headers", [[0, RECORD_HEADERS_MAX + 1], [RECORD_HEADERS_MAX] * (BATCH_HEADERS_MAX // RECORD_HEADERS_MAX) + [1]])
def test_more_headers_than_are_read_are_refused_by_offset(headers: list[int]) -> None:
    records = [Record(7 + number, 0, CREATE_TIME, None, None, [("", b"")] * count) for number, count in enumerate(headers)]
    bomb = section(encode_batch(records, base_offset=7))
    with pytest.raises(BeyondBoundError, match=f"offset {6 + len(headers)} "):
        decode_sections([bomb], {"headers"})
    assert len(decode_sections([bomb], {"value"})) == len(headers)
