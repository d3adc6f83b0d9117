"""Values to columns in a task: JSON objects or framed Avro, behind one face."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.schema import Decoding


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The values that could be decoded, as a table; which ones they were, rising; and why the others could not be."""

    table: Any
    rows: list[int]
    rejected: Mapping[int, str]


Decode = Callable[[Any], DecodedRows]
"""Takes a pyarrow array of binary values."""


def decoder(job: LoadJob, decoding: Decoding) -> Decode:
    """The decoder of a job's events. It keeps what it learns (schemas, code made for them), so one is made for each task."""
    return _json(job) if decoding.reader is None else _avro(job, decoding)


def _json(job: LoadJob) -> Decode:
    from moldau.lake.loading.json_events import parse_events

    def decode(values: Any) -> DecodedRows:
        parsed = parse_events(values.to_pylist(), job.columns, refuse_unknown=job.refuse_unknown)
        return DecodedRows(parsed.table, parsed.accepted, parsed.rejected)

    return decode


def _avro(job: LoadJob, decoding: Decoding) -> Decode:
    import pyarrow as pa

    from moldau.lake.avro.columns import AvroColumns

    assert job.registry is not None
    columns = AvroColumns(job.registry, reader_schema=decoding.reader)

    def decode(values: Any) -> DecodedRows:
        decoded = columns.decode(values)
        return DecodedRows(pa.Table.from_batches([decoded.batch]), decoded.rows.tolist(), decoded.rejected)

    return decode
