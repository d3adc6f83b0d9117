"""What a task does beside reading its ranges."""

import gc
import sys
from types import ModuleType

import pytest

from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import OptionScope, parse_options
from moldau.lake.reading.source import plan_shape
from moldau.lake.reading.tasks import read_ranges


def test_the_collection_that_spark_does_after_a_task_passes_over_what_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task of a process puts the modules' objects out of the collector's sight; those that follow leave their own to it.

    Where one has loaded more modules since, as a task of the sink in the same process does, the next one puts them there too.
    """
    options = parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, OptionScope.STREAM)
    shape, nothing = plan_shape(options), OffsetRange("t", 0, 5, 5)

    def spared() -> int:
        assert list(read_ranges(options, shape, [(nothing, None)])) == []
        return gc.get_freeze_count()

    try:
        first = spared()
        assert first > 10_000
        garbage = [[] for _ in range(1000)]  # type: ignore[var-annotated]
        assert spared() <= first
        monkeypatch.setitem(sys.modules, "made_for_this_test", ModuleType("made_for_this_test"))
        assert spared() > first + 900
        assert garbage
    finally:
        gc.unfreeze()
