"""Whatever the bytes of a batch are, reading it gives records or one of our errors, and takes memory in proportion to the bytes.

Two readers that share no loop, `iterate` and `validate_records`, agree on what is malformed, apart from what only a produced batch owes:
offsets without gaps.
"""

import tracemalloc
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from moldau.model.errors import PeerError
from moldau.protocol.records.batch import (
    CREATE_TIME,
    Columns,
    Compression,
    Record,
    batches,
    encode_batch,
    iterate,
    iterate_log,
    read_columns,
)
from moldau.protocol.records.header import HEADER_SIZE, check_batch, pack_header, read_header, stamp_crc
from support.sizes import sized
from support.validation import validated

MAX_BYTES = 1 << 16
BATCH = encode_batch(
    [Record(offset, 1000 + offset, CREATE_TIME, b"key", bytes(70 * offset), [("h", b"x"), ("i", None)]) for offset in range(4)]
)

thorough = settings(max_examples=sized(100, 5000), deadline=None)
noise = st.binary(max_size=200) | st.lists(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF)), max_size=200).map(bytes)


def with_payload(payload: bytes, count: int, codec: int) -> memoryview:
    """A batch whose header and checksum are right for any payload."""
    length = HEADER_SIZE - 12 + len(payload)
    header = read_header(BATCH)._replace(batch_length=length, record_count=count, last_offset_delta=count - 1, attributes=codec)
    batch = bytearray(pack_header(header)) + payload
    stamp_crc(batch)
    return memoryview(batch)


def outcome(read: Callable[[], object]) -> object:
    """What it gives, or None where it refuses."""
    try:
        return read()
    except PeerError:
        return None


def rows_of(log: memoryview) -> list[Record]:
    columns = Columns()
    read_columns(log, columns, max_decompressed_bytes=MAX_BYTES)
    return [
        Record(*row)
        for row in zip(
            columns.offsets, columns.timestamps, columns.timestamp_types, columns.keys, columns.values, columns.headers, strict=True
        )
    ]


@thorough
@given(noise, st.integers(0, 6), st.sampled_from(Compression))
@example(b"\xff" * 100, 1, Compression.NONE)
@example(b"\xff" * 100, 2**31 - 1, Compression.NONE)
@example(b"", 2**31 - 1, Compression.NONE)
@example(b"\0", 2**31 - 1, Compression.GZIP)
def test_any_payload(payload: bytes, count: int, codec: Compression) -> None:
    batch = with_payload(payload, count, codec)
    records = outcome(lambda: list(iterate(batch, max_decompressed_bytes=MAX_BYTES)))
    summary = outcome(lambda: validated(batch, MAX_BYTES))
    assert summary is None or records is not None
    if count:
        assert records == outcome(lambda: rows_of(batch))


def mutations(data: st.DataObject, whole: bytes) -> bytes:
    """`whole` with up to three places changed, cut out or doubled."""
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, len(damaged) - 1))
        width = data.draw(st.integers(0, 3))
        damaged[where : where + width] = data.draw(noise.map(lambda each: each[:4]))
        if not damaged:
            break
    return bytes(damaged)


@thorough
@given(st.data())
def test_damaged_records_of_which_both_readers_think_alike(data: st.DataObject) -> None:
    batch = with_payload(mutations(data, BATCH[HEADER_SIZE:]), 4, Compression.NONE)
    records = outcome(lambda: list(iterate(batch, max_decompressed_bytes=MAX_BYTES)))
    summary = outcome(lambda: validated(batch, MAX_BYTES))
    if isinstance(records, list):
        dense = [record.offset for record in records] == list(range(4))
        assert (summary is not None) == dense
    else:
        assert summary is None


@thorough
@given(st.data())
def test_a_damaged_stretch_of_a_log(data: st.DataObject) -> None:
    log = memoryview(mutations(data, BATCH * 3))
    outcome(lambda: list(batches(log)))
    outcome(lambda: list(iterate_log(log, max_decompressed_bytes=MAX_BYTES)))
    outcome(lambda: check_batch(log))
    outcome(lambda: read_columns(log, Columns(), max_decompressed_bytes=MAX_BYTES, first_offset=1, end_offset=3))


@thorough
@given(noise)
def test_noise_in_place_of_a_log(data: bytes) -> None:
    log = memoryview(data)
    assert outcome(lambda: check_batch(log)) is None
    outcome(lambda: list(iterate_log(log, max_decompressed_bytes=MAX_BYTES)))


def test_memory_follows_the_bytes_not_the_claims() -> None:
    """Counts and lengths of 2 GiB in a few bytes, in each field that has one."""
    tracemalloc.start()
    try:
        for where in range(len(BATCH[HEADER_SIZE:])):
            payload = bytearray(BATCH[HEADER_SIZE:])
            payload[where : where + 1] = b"\xfe\xff\xff\xff\x0f"
            for count in (4, 2**31 - 1):
                batch = with_payload(bytes(payload), count, Compression.NONE)
                outcome(lambda batch=batch: list(iterate(batch, max_decompressed_bytes=MAX_BYTES)))  # type: ignore[misc]
                outcome(lambda batch=batch: validated(batch, MAX_BYTES))  # type: ignore[misc]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300_000
