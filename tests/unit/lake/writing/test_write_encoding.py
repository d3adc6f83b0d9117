"""Arrow columns become the very bytes that the record builder makes one by one; keys go where every Kafka client puts them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client.partitioning import partition_of
from moldau.lake.writing.encoding import Rows, batch_ends, batch_of, encode, size_estimates
from moldau.lake.writing.task import ROWS_IN_TURN, by_key, in_turn
from moldau.lake.writing.task import given as given_partitions
from moldau.lake.writing.transactions import ProducerIdentity
from moldau.protocol.records.batch import RecordBatchBuilder, iterate
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import read_header, verify_crc
from support.sizes import sized

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_357_000_000_000

content = st.one_of(st.none(), st.binary(max_size=5), st.integers(60, 70).map(bytes), st.sampled_from([b"x" * 8191, b"y" * 8192]))
header = st.fixed_dictionaries({"key": st.text(max_size=3), "value": content})
records = st.lists(
    st.fixed_dictionaries({"key": content, "value": content, "headers": st.one_of(st.none(), st.lists(header, max_size=3))}),
    min_size=1,
    max_size=20,
)


def columns(rows: list[dict[str, Any]], *, keys: bool, headers: bool) -> Rows:
    return Rows(
        pa.array([row["value"] for row in rows], pa.binary()),
        pa.array([row["key"] for row in rows], pa.binary()) if keys else None,
        pa.array([row["headers"] for row in rows], HEADERS) if headers else None,
    )


def one_by_one(rows: list[dict[str, Any]], *, keys: bool, headers: bool) -> bytes:
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=2, base_sequence=40, transactional=True)
    for row in rows:
        pairs = [(each["key"], each["value"]) for each in row["headers"] or []] if headers else []
        builder.append(NOW_MS, row["key"] if keys else None, row["value"], pairs)
    return builder.build()


@given(records, st.booleans(), st.booleans(), st.integers(0, 5))
@settings(max_examples=sized(30), deadline=None)
def test_the_same_bytes_as_one_by_one(rows: list[dict[str, Any]], keys: bool, headers: bool, cut: int) -> None:
    """Of a slice of Arrow arrays, too."""
    cut = min(cut, len(rows))
    whole = columns(rows * 2, keys=keys, headers=headers)
    some = Rows(*(None if each is None else each.slice(cut, len(rows)) for each in whole))
    made = encode(some, np.arange(len(rows)))
    batch = batch_of(made.payload(0, len(rows)), len(rows), ProducerIdentity("id", 7, 2), 40, Compression.NONE, time_ms=NOW_MS)
    assert bytes(batch) == one_by_one((rows * 2)[cut : cut + len(rows)], keys=keys, headers=headers)
    sizes = np.diff(made.starts)
    assert (sizes <= size_estimates(some)).all(), "an estimate is never too small"


@pytest.mark.parametrize("codec", list(Compression), ids=[codec.name for codec in Compression])
def test_every_codec_is_read_back(codec: Compression) -> None:
    rows = columns([{"key": b"k", "value": b"v" * 100, "headers": None}] * 300, keys=True, headers=False)
    made = encode(rows, np.arange(300))
    batch = memoryview(batch_of(made.payload(0, 300), 300, None, 0, codec))
    read = list(iterate(batch, max_decompressed_bytes=1 << 20))
    assert verify_crc(batch)
    assert [record.offset for record in read] == list(range(300))
    assert {(record.key, record.value) for record in read} == {(b"k", b"v" * 100)}
    assert (read_header(batch).producer_id, read_header(batch).base_sequence) == (-1, -1)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 120))
@settings(max_examples=sized(30))
def test_batches_are_cut_as_late_as_they_may(sizes: list[int], limit: int) -> None:
    """None is above the limit but one of a single row; none could take the row that follows."""
    ends = batch_ends(np.array(sizes), limit)
    start = 0
    for end in ends:
        assert sum(sizes[start:end]) <= limit or end == start + 1
        assert end == len(sizes) or sum(sizes[start : end + 1]) > limit
        start = end
    assert ends[-1] == len(sizes)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(1, 50), st.integers(0, 3))
@settings(max_examples=sized(20), deadline=None)
def test_keys_go_where_every_client_puts_them(keys: list[bytes], partitions: int, cut: int) -> None:
    keys = [*keys, b"k" * 256, b"k" * 257, b"k" * 1000]
    array = pa.array([b"", b"a", b"bc", *keys], pa.binary()).slice(cut)
    assert by_key(array, partitions).tolist() == [partition_of(key, partitions) for key in array.to_pylist()]


def test_rows_without_a_key_take_turns() -> None:
    turns = in_turn(ROWS_IN_TURN // 2, 2 * ROWS_IN_TURN, 1, 2)
    assert turns.tolist() == [1] * (ROWS_IN_TURN // 2) + [0] * ROWS_IN_TURN + [1] * (ROWS_IN_TURN // 2)


def test_a_given_partition_is_stronger_than_the_key() -> None:
    otherwise = np.array([4, 5, 6])
    assert given_partitions(pa.array([1, None, -1], pa.int32()), otherwise).tolist() == [1, 5, -1]
