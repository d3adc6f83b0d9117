"""A few bytes that stand for millions of headers cost a reader nothing: they are refused by number, or passed over by the record's size."""

import tracemalloc
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import BeyondBoundError, ErrorCode, PeerError
from moldau.protocol.records.batch import Columns, Record, decompressed_records, encode_batch, iterate, read_columns
from moldau.protocol.records.header import check_batch, read_header
from moldau.protocol.records.skim import first_at_least, skim
from moldau.protocol.records.walk import BATCH_HEADERS_MAX, RECORD_HEADERS_MAX
from support.bombs import batch_of, record
from support.validation import validated

MAX_BYTES = 64 << 20
MILLIONS = 2_000_000


def columns(batch: memoryview) -> object:
    read_columns(batch, into := Columns(), max_decompressed_bytes=MAX_BYTES)
    return into


READERS: dict[str, Callable[[memoryview], object]] = {
    "iterate": lambda batch: list(iterate(batch, max_decompressed_bytes=MAX_BYTES)),
    "columns": columns,
    "validate": lambda batch: validated(batch, MAX_BYTES),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_record_of_millions_of_headers_is_refused_without_an_object_for_any(reader: str) -> None:
    bomb = batch_of(0, MILLIONS)
    assert len(bomb) < 1000
    tracemalloc.start()
    try:
        with pytest.raises(BeyondBoundError, match=f"{MILLIONS} headers, at most {RECORD_HEADERS_MAX}") as caught:
            READERS[reader](bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "record 1 of the batch" in caught.value.message or "record at offset 1 " in caught.value.message
    assert peak < 40 * MILLIONS, "the decompressed bytes and the buffers for them, nothing else"


@pytest.mark.parametrize("reader", READERS)
def test_the_headers_of_a_batch_are_bounded_too_and_those_at_the_bound_are_read(reader: str) -> None:
    full = [RECORD_HEADERS_MAX] * (BATCH_HEADERS_MAX // RECORD_HEADERS_MAX)
    READERS[reader](batch_of(*full))
    with pytest.raises(BeyondBoundError, match=f"more than {BATCH_HEADERS_MAX} headers"):
        READERS[reader](batch_of(*full, 1))


def test_every_batch_of_a_stretch_has_the_whole_bound() -> None:
    full = [RECORD_HEADERS_MAX] * (BATCH_HEADERS_MAX // RECORD_HEADERS_MAX)
    columns(memoryview(bytes(batch_of(*full)) + bytes(batch_of(*full, base_offset=len(full)))))


def test_readers_without_headers_pass_over_them() -> None:
    read = list(iterate(batch_of(MILLIONS, 3, 0), max_decompressed_bytes=MAX_BYTES, with_headers=False))
    assert [(each.offset, each.key, each.value, each.headers) for each in read] == [(n, b"k", b"v", []) for n in range(3)]


def test_a_skim_looks_at_no_more_than_the_first_numbers() -> None:
    data = decompressed_records(bomb := batch_of(MILLIONS, 1, 0), check_batch(bomb), MAX_BYTES)
    assert list(skim(data, 3)) == [(0, 0, False), (0, 1, False), (0, 2, False)]
    assert first_at_least(data, 3, 0, 1) == (0, 1)


@pytest.mark.parametrize("data", [b"", b"\x0e", b"\x0e\0\0\0\1\1", b"\x0f" + bytes(20), b"\x0e\0\0\1\1\1\0\0", b"\0\0\0\0", b"\xff" * 20])
def test_a_skim_refuses_what_is_no_record(data: bytes) -> None:
    for walk in (lambda: list(skim(data, 1)), lambda: first_at_least(data, 1, 1, 0)):
        with pytest.raises(PeerError) as caught:
            walk()
        assert caught.value.code == ErrorCode.INVALID_RECORD


@given(
    st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(1, 2**15)), max_size=20),
    st.integers(-(2**40), 2**40),
    st.integers(0, 2**18),
)
def test_a_search_gives_the_first_record_of_a_skim_that_fits(rows: list[tuple[int, int]], timestamp: int, offset: int) -> None:
    offsets = list(accumulate(step for _, step in rows))
    records = [Record(at, time, 0, None, None, []) for at, (time, _) in zip(offsets, rows, strict=True)]
    if not records:
        assert first_at_least(b"", 0, timestamp, offset) is None
        return
    batch = memoryview(encode_batch(records))
    data = decompressed_records(batch, header := read_header(batch), MAX_BYTES)
    found = [row[:2] for row in skim(data, len(records)) if row[0] >= timestamp - header.base_timestamp and row[1] >= offset]
    assert first_at_least(data, len(records), timestamp - header.base_timestamp, offset) == (found[0] if found else None)


def test_a_skim_refuses_offsets_that_do_not_ascend() -> None:
    with pytest.raises(PeerError, match="record 1 of the batch"):
        list(skim(record(3, 0) + record(3, MILLIONS), 2))


def test_a_bound_on_decompressed_bytes_names_the_offset() -> None:
    with pytest.raises(BeyondBoundError, match=r"record batch at offset 17: \d+ bytes of zstd decompress to more than 1000 bytes"):
        list(iterate(batch_of(MILLIONS, base_offset=17), max_decompressed_bytes=1000))
