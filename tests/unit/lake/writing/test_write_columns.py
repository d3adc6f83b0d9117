"""Rows of Spark's Arrow batches by topic, with their numbers in the task; what no record can be made of is named by row."""

import numpy as np
import pyarrow as pa
import pytest

from moldau.lake.writing.encoding import FrameLayout, RowError, pieces

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_rows_by_topic_keep_their_numbers() -> None:
    batch = pa.record_batch(
        [pa.array(["a", "b", "a"]), pa.array(["1", "2", "3"]), pa.array([0, None, 1], pa.int32())], names=["topic", "v", "p"]
    )
    first, second = FrameLayout(None, {"topic": 0, "value": 1, "partition": 2}).columns(batch, 100)
    assert (first.topic, first.numbers.tolist(), first.rows.value.to_pylist()) == ("a", [100, 102], [b"1", b"3"])
    assert first.partition is not None
    assert first.partition.to_pylist() == [0, 1]
    assert (second.topic, second.numbers.tolist(), second.rows.value.to_pylist()) == ("b", [101], [b"2"])


def test_the_option_is_stronger_than_the_column() -> None:
    batch = pa.record_batch([pa.array(["a", None]), pa.array([b"1", None])], names=["topic", "value"])
    (only,) = FrameLayout("t", {"topic": 0, "value": 1}).columns(batch, 0)
    assert (only.topic, only.rows.value.to_pylist(), only.rows.key, only.rows.headers) == ("t", [b"1", None], None, None)


def test_a_row_without_a_topic() -> None:
    batch = pa.record_batch([pa.array(["a", None]), pa.array([b"1", b"2"])], names=["topic", "value"])
    with pytest.raises(RowError, match="row 41 of the task has no topic"):
        list(FrameLayout(None, {"topic": 0, "value": 1}).columns(batch, 40))


def test_a_header_without_a_key() -> None:
    headers = pa.array([[{"key": "a", "value": b""}], [{"key": None, "value": b""}]], HEADERS)
    batch = pa.record_batch([pa.array([b"1", b"2"]), headers], names=["value", "headers"])
    with pytest.raises(RowError, match="a header without a key among rows 40 to 41 of the task"):
        list(FrameLayout("t", {"value": 0, "headers": 1}).columns(batch, 40))


@pytest.mark.parametrize("wanted", [-1, 2])
def test_a_partition_that_is_not_there(wanted: int) -> None:
    layout = FrameLayout("t", {"value": 0})
    (columns,) = layout.columns(pa.record_batch([pa.array([b"1", b"2"])], names=["value"]), 40)
    with pytest.raises(RowError, match=f"row 41 of the task names partition {wanted} of topic t, which has 2 partitions"):
        layout.check_partitions(np.array([0, wanted]), columns, 2)


@pytest.mark.parametrize(("bytes_max", "sizes"), [(1, [1] * 8), (10**9, [8]), (430, [4, 4]), (330, [3, 3, 2])])
def test_large_batches_are_taken_in_pieces(bytes_max: int, sizes: list[int]) -> None:
    batch = pa.record_batch([pa.array([b"x" * 100] * 8)], names=["value"])
    cut = list(pieces(batch, bytes_max))
    assert [piece.num_rows for piece in cut] == sizes
    assert pa.Table.from_batches(cut).equals(pa.Table.from_batches([batch]))


def test_a_batch_without_rows_has_no_pieces() -> None:
    assert list(pieces(pa.record_batch([pa.array([], pa.binary())], names=["value"]), 100)) == []
