"""Which lines the topic holds already: what is there is seen from the log alone, wherever a run before was killed.

Tracked events have their line as a field; bad lines, which are no events, as a header.
"""

from typing import Any

import numpy as np

from moldau.demo.host import LINE_HEADER
from moldau.demo.inputs import LINE_FIELD
from moldau.lake.avro.columns import AvroColumns
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.columns import RecordColumns
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.ranges import RangeRead, ReadRules
from moldau.model.identity import TopicPartition


class ForeignRecordError(RuntimeError):
    """The topic holds something that the demonstration has not published; the message names partition and offset."""


def lines_there(bootstrap: str, registry: str, topic: str, reader_schema: str) -> Any:
    """The numbers of the lines, rising, each once (numpy, int64); `reader_schema` is that of the events.

    The client's errors, RegistryError, ForeignRecordError.
    """
    found: list[Any] = []
    columns = AvroColumns(registry, reader_schema=reader_schema, columns=[LINE_FIELD])
    rules = ReadRules(wanted=("value", "headers"))
    try:
        with ClusterLog(bootstrap, "moldau-demo") as log:
            for number in range(log.partition_counts([topic])[topic]):
                partition = TopicPartition(topic, number)
                first, end = log.bounds(partition)
                found += [_lines(columns, part, partition) for part in RangeRead(log, OffsetRange(topic, number, first, end), rules)]
    finally:
        columns.close()
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _lines(columns: AvroColumns, records: RecordColumns, partition: TopicPartition) -> Any:
    decoded = columns.decode(records.value)
    lines = decoded.batch.column(0).to_numpy(zero_copy_only=False).astype(np.int64)
    assert records.headers is not None
    others = []
    for row, reason in decoded.rejected.items():
        line = _line_header(records.headers[row].as_py())
        if line is None:
            raise ForeignRecordError(f"{partition}: the record at offset {records.offset[row]} is none of ours: {reason}")
        others.append(line)
    return np.concatenate([lines, np.array(others, np.int64)])


def _line_header(headers: Any) -> int | None:
    for header in headers or []:
        if header["key"] == LINE_HEADER and header["value"].isdigit():
            return int(header["value"])
    return None
