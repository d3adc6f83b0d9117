"""What a Spark task does: reads one range and makes rows of it."""

from collections.abc import Iterator
from typing import Any

from moldau.lake.cluster_log import ClusterLog
from moldau.lake.offsets import OffsetRange
from moldau.lake.options import ReadOptions
from moldau.lake.reading import RangeRead, ReadRules
from moldau.lake.row_shape import RowShape

_logs: dict[tuple[str, str, float, int], ClusterLog] = {}
"""Connections of this process, which Spark uses for one task after the other: a small batch of a stream would mostly connect."""


def read_range(options: ReadOptions, shape: RowShape, wanted: OffsetRange, topic_id: str | None) -> Iterator[Any]:
    """Arrow record batches of one range, of the topic that has this id. ReadError, DataLossError, MalformedEventError."""
    rules = ReadRules(
        wanted=frozenset(shape.fields),
        bytes_max=options.max_bytes_per_fetch,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_s=options.poll_timeout_ms / 1000,
    )
    maker = shape.maker(wanted, topic_id)
    for columns in RangeRead(_log(options), wanted, rules, topic_id=topic_id):
        yield from maker.batches(columns)
    maker.finish()


def _log(options: ReadOptions) -> ClusterLog:
    timeout_s = min(30.0, options.poll_timeout_ms / 1000)
    key = (options.bootstrap, options.client_id, timeout_s, options.isolation_level)
    if key not in _logs:
        _logs[key] = ClusterLog(options.bootstrap, options.client_id, timeout_s, isolation_level=options.isolation_level)
    return _logs[key]
