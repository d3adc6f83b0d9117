"""What source and sink send to Spark's Python tasks."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, StructType

from moldau.lake.python_tasks import begun_early
from moldau.lake.reading.source import MoldauDataSource

SEGMENT_BYTES = 65_483
"""Of TCP on the loopback interface: an MTU of 65,536 less the headers and the timestamp option."""


@pytest.mark.parametrize("how", ["reader", "streamReader", "writer", "streamWriter"])
def test_a_reader_or_writer_is_longer_than_a_segment_so_that_its_task_does_not_wait_for_an_acknowledgement(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes it, and then the partition or the rows; behind a shorter one these would be held back for 40 ms."""
    monkeypatch.setattr("moldau.lake.writing.task.check_brokers", lambda _: None)
    if how in ("reader", "streamReader"):
        source = MoldauDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
        sent = getattr(source, how)(source.schema())
    else:
        sink = MoldauDataSource({"kafka.bootstrap.servers": "h:1", "topic": "t"})
        sent = getattr(sink, how)(StructType().add("value", BinaryType()), overwrite=False)
    assert len(pickle.dumps(sent)) > SEGMENT_BYTES


def test_so_is_a_function_over_rows() -> None:
    """It gives what the function gives."""
    step = begun_early(reversed)  # type: ignore[arg-type]
    assert len(pickle.dumps(step)) > SEGMENT_BYTES
    assert list(step([1, 2])) == [2, 1]  # type: ignore[arg-type]
