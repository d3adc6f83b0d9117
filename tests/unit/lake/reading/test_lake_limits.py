"""A stream begins and ends where a file says that may change while it runs."""

from pathlib import Path

import pytest

from moldau.lake.reading.limits import NO_LIMITS, StreamLimits, read_limits, write_limits
from moldau.lake.reading.offsets import OptionError
from moldau.model.identity import TopicPartition

FIRST, SECOND, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("planes", 0)


def test_only_topics_that_are_named_are_limited() -> None:
    """A partition that is not named stays where it is; one that was never read is left out."""
    limits = StreamLimits(ends={"flights": {"0": 10}})
    assert limits.limit({FIRST: 30, SECOND: 30, OTHER: 30}, {SECOND: 4}) == {FIRST: 10, SECOND: 4, OTHER: 30}
    assert limits.limit({FIRST: 7, SECOND: 30}, {}) == {FIRST: 7}
    assert NO_LIMITS.limit({FIRST: 7}, {}) == {FIRST: 7}
    assert StreamLimits({"flights": {"0": 3}}).start(FIRST, 0) == 3
    assert StreamLimits({"flights": {"0": 3}}).start(SECOND, 8) == 8


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "limits.json")
    assert read_limits(None) == read_limits(path) == NO_LIMITS
    limits = StreamLimits({"flights": {"0": 3}}, {"flights": {"0": 10}}, group=False, round="a1")
    write_limits(path, limits)
    assert read_limits(path) == limits
    Path(path).write_text("{", encoding="utf-8")
    with pytest.raises(OptionError, match=r"option limitsFile: .*limits\.json cannot be read"):
        read_limits(path)
