"""What a Spark task does: reads one range and makes rows of it."""

import gc
from collections.abc import Iterator
from functools import cache
from typing import Any

from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import ReadOptions
from moldau.lake.reading.ranges import RangeRead, ReadRules
from moldau.lake.reading.row_shape import RowShape

_logs: dict[tuple[str, str, float, int, str | None], ClusterLog] = {}
"""Connections of this process, which Spark uses for one task after the other: a small batch of a stream would mostly connect.

Those of one topic, by its id: a connection remembers ids, and would ask for a topic that was made anew by its old one.
"""


def read_range(options: ReadOptions, shape: RowShape, wanted: OffsetRange, topic_id: str | None) -> Iterator[Any]:
    """Arrow record batches of one range, of the topic that has this id. ReadError, DataLossError, MalformedEventError."""
    rules = ReadRules(
        wanted=frozenset(shape.fields),
        bytes_max=options.max_bytes_per_fetch,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_s=options.poll_timeout_ms / 1000,
    )
    maker = shape.maker(wanted, topic_id)
    _spare_collections()
    for columns in RangeRead(_log(options, topic_id), wanted, rules, topic_id=topic_id):
        yield from maker.batches(columns)
    maker.finish()


@cache
def _spare_collections() -> None:
    """Leave what this process has loaded out of collections of garbage, once.

    Spark lets its Python process collect after every task. To go through the objects of all modules takes some 40 ms of a core, beside
    the commit of a small batch and the start of the next one.
    """
    gc.freeze()


def _log(options: ReadOptions, topic_id: str | None) -> ClusterLog:
    timeout_s = min(30.0, options.poll_timeout_ms / 1000)
    key = (options.bootstrap, options.client_id, timeout_s, options.isolation_level, topic_id)
    if key not in _logs:
        _logs[key] = ClusterLog(options.bootstrap, options.client_id, timeout_s, isolation_level=options.isolation_level)
    return _logs[key]
