"""What a task does beside reading its range."""

import gc

from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import Use, parse_options
from moldau.lake.reading.row_shape import plan_shape
from moldau.lake.reading.tasks import read_range


def test_the_collection_that_spark_does_after_a_task_passes_over_what_was_loaded() -> None:
    """The first task of a process puts the modules' objects out of the collector's sight; those that follow leave their own to it."""
    options = parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, Use.STREAM)
    shape, nothing = plan_shape(options), OffsetRange("t", 0, 5, 5)
    try:
        assert list(read_range(options, shape, nothing, None)) == []
        spared = gc.get_freeze_count()
        assert spared > 10_000
        assert list(read_range(options, shape, nothing, None)) == []
        assert gc.get_freeze_count() <= spared
    finally:
        gc.unfreeze()
