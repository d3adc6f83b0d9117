"""A point in a topic is read as people name it, and found in every partition."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import pytest

from moldau.cli.offsets import AtOffset, AtTime, LastOffsets, LogEnd, LogStart, StartPoint, find_offsets, parse_point
from moldau.client.partition_requests import EARLIEST, LATEST, ListedOffset
from moldau.model.identity import Offset, TimestampMs, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("beginning", LogStart()),
        ("End", LogEnd()),
        ("0", AtOffset(0)),
        ("1357016400000", AtOffset(1357016400000)),
        ("-10", LastOffsets(10)),
        ("1h", AtTime(NOW_MS - 3_600_000)),
        ("@1357016400000", AtTime(1357016400000)),
        ("2013-01-01", AtTime(1356998400000)),
        ("1969-12-31T23:59:59.998Z", AtTime(0)),
        ("0001-01-01T00:00+14:00", AtTime(0)),
        ("2013-01-01T05:00", AtTime(1357016400000)),
        ("2013-01-01T05:00:00Z", AtTime(1357016400000)),
        ("2013-01-01T00:00:00.250-05:00", AtTime(1357016400250)),
    ],
)
def test_points_are_read(text: str, point: StartPoint) -> None:
    assert parse_point(text, NOW_MS) == point


@pytest.mark.parametrize("text", ["", "start", "-", "@", "@-5", "1.5", "-1h", "12:00", "2013-13-01", "٣", "9" * 19])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is none of beginning, end"):
        parse_point(text, NOW_MS)


class FakeCluster:
    """Partition 0 has offsets 5 to 100, one of each millisecond from 1005 on; partition 1 is empty."""

    def list_offsets(self, wanted: Mapping[TopicPartition, int], *, isolation_level: int) -> dict[TopicPartition, ListedOffset]:
        return {where: ListedOffset(Offset(self._find(where.partition, time)), TimestampMs(-1), 0) for where, time in wanted.items()}

    def _find(self, partition: int, timestamp: int) -> int:
        first, end = (5, 100) if partition == 0 else (0, 0)
        if timestamp == EARLIEST:
            return first
        if timestamp == LATEST:
            return end
        return max(first, timestamp - 1000) if timestamp - 1000 < end else -1


@pytest.mark.parametrize(
    ("point", "offsets"),
    [
        (LogStart(), [5, 0]),
        (LogEnd(), [100, 0]),
        (AtOffset(7), [7, 7]),
        (LastOffsets(3), [97, 0]),
        (LastOffsets(500), [5, 0]),
        (AtTime(1042), [42, 0]),
        (AtTime(9999), [100, 0]),
    ],
)
def test_points_are_found_in_each_partition(point: StartPoint, offsets: list[int]) -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    found = find_offsets(cast("Cluster", FakeCluster()), point, partitions)
    assert [found[where] for where in partitions] == offsets
