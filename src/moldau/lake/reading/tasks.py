"""What a Spark task does: reads its ranges one after the other and makes rows of them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from moldau.lake.python_tasks import spare_collections
from moldau.lake.reading.beginnings import Beginnings
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import ReadOptions
from moldau.lake.reading.ranges import RangeRead, ReadRules

if TYPE_CHECKING:
    from moldau.lake.reading.row_shape import RowShape

Planned = tuple[OffsetRange, str | None]
"""A range, of the topic that had this id when the read was planned."""

_logs: dict[tuple[str, str, float, int, str | None], ClusterLog] = {}
"""Connections of this process, which Spark uses for one task after the other: a small batch of a stream would mostly connect.

Those of one topic, by its id: a connection remembers ids, and would ask for a topic that was made anew by its old one.
"""


def read_ranges(options: ReadOptions, shape: "RowShape", task: Sequence[Planned]) -> Iterator[Any]:
    """Arrow record batches of the ranges of a task. ReadError, DataLossError, MalformedEventError."""
    for wanted, topic_id, read in reads(options, shape.fields, task):
        maker = shape.maker(wanted, topic_id)
        for columns in read:
            yield from maker.batches(columns)
        maker.finish()


def reads(options: ReadOptions, fields: Iterable[str], task: Sequence[Planned]) -> Iterator[tuple[OffsetRange, str | None, RangeRead]]:
    """The reads of a task, of these fields of the records; each to be iterated over before the next."""
    rules = ReadRules(
        wanted=frozenset(fields),
        bytes_max=options.max_bytes_per_fetch,
        fail_on_data_loss=options.fail_on_data_loss,
        accept_loss=options.accept_loss,
        poll_timeout_s=options.poll_timeout_ms / 1000,
    )
    spare_collections()
    for (_, topic_id), planned in groupby(task, key=lambda each: (each[0].topic, each[1])):
        ranges = [wanted for wanted, _ in planned]
        fetcher = Beginnings(_log(options, topic_id), ranges)
        for wanted in ranges:
            yield wanted, topic_id, RangeRead(fetcher.begin(wanted), wanted, rules, topic_id=topic_id)


def _log(options: ReadOptions, topic_id: str | None) -> ClusterLog:
    timeout_s = min(30.0, options.poll_timeout_ms / 1000)
    key = (options.bootstrap, options.client_id, timeout_s, options.isolation_level, topic_id)
    if key not in _logs:
        _logs[key] = ClusterLog(options.bootstrap, options.client_id, timeout_s, isolation_level=options.isolation_level)
    return _logs[key]
