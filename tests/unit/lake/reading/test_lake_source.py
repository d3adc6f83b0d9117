"""What the data source sends to tasks."""

import pickle

import pytest

from moldau.lake.reading.source import MoldauDataSource

SEGMENT_BYTES = 65_483
"""Of TCP on the loopback interface: an MTU of 65,536 less the headers and the timestamp option."""


@pytest.mark.parametrize("how", ["reader", "streamReader"])
def test_a_reader_is_longer_than_a_segment_so_that_its_task_does_not_wait_for_an_acknowledgement(how: str) -> None:
    """Spark writes reader and partition one after the other; behind a shorter reader the partition would be held back for 40 ms."""
    source = MoldauDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    reader = getattr(source, how)(source.schema())
    assert len(pickle.dumps(reader)) > SEGMENT_BYTES
