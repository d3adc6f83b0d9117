"""Counts out of Arrow columns, for the tasks of a load: framed values as they came, or headers that are decoded already.

Both give what the auditor's walk over the same events gives, bit for bit. Needs pyarrow and numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.audit.events import HeaderReader, SchemaCheck
from moldau.audit.tally import Origin, Tally, is_untracked
from moldau.audit.vectors import add_events, count_spans, guid_hashes
from moldau.protocol.records.vectors import SLACK, Bytes8, Int64s
from moldau.tracking.counts import Count, CountKey
from moldau.tracking.header import GUID_BYTES, INSTANCE_BYTES
from moldau.tracking.latencies import Latencies

_INT64 = pa.int64()


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """Tracked events by key; and how many values had no tracked header, null ones too, and their bytes."""

    counts: dict[CountKey, Count]
    untracked: int = 0
    untracked_bytes: int = 0
    latencies: Mapping[int, Latencies] = field(default_factory=dict)
    """By the start of the window, of events that were seen at a time that was given."""


def count_values(
    topic: str, values: Any, *, is_tracked: SchemaCheck | None = None, seen_ms: int | None = None, sent_ms: Int64s | None = None
) -> ColumnCounts:
    """Count framed values: a pyarrow array of binary or large binary, or a chunked one.

    `is_tracked` decides by schema id which events are tracked; without it everything that has the shape of a header is one. Their
    latencies are from `sent_ms`, the times of the records, to `seen_ms`; without either they are not counted.
    """
    tally, reader = Tally(seen_ms), HeaderReader(is_tracked)
    row = 0
    for chunk in _chunks(values):
        sent = None if sent_ms is None else sent_ms[row : row + len(chunk)]
        row += len(chunk)
        if len(chunk):
            data, offsets = _bytes_of(chunk)
            start, end = offsets[:-1], offsets[1:]
            if chunk.null_count:
                there = chunk.is_valid().to_numpy(zero_copy_only=False)
                tally.add_untracked(topic, 0, chunk.null_count, 0)
                start, end, sent = start[there], end[there], None if sent is None else sent[there]
            count_spans(data, start, end, np.zeros(len(start), np.int64), sent, topic, reader, tally)
    return _counted(tally)


def count_headers(topic: str, headers: Any, value_bytes: Any) -> ColumnCounts:
    """Count decoded headers: a struct array with the header's fields, and the length of each event's value before it was decoded."""
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    fields = dict(zip(headers.type.names, headers.flatten(), strict=True))
    names = ("time", "service", "host", "datacenter", "guid")
    return count_columns(topic, **{name: fields[name] for name in names}, value_bytes=value_bytes)


def count_columns(topic: str, *, time: Any, service: Any, host: Any, datacenter: Any, guid: Any, value_bytes: Any) -> ColumnCounts:
    """Count decoded headers, column by column: a timestamp of any unit or ms as an integer, three texts, a guid of 16 bytes.

    A row with a null among them is untracked. `value_bytes` are the lengths of the values before they were decoded; nulls count as 0.
    """
    columns = {"time": _milliseconds(_whole(time)), "guid": _whole(guid).cast(pa.binary(GUID_BYTES))}
    columns |= {"datacenter": _whole(datacenter), "service": _whole(service), "host": _whole(host)}
    sizes = _whole(value_bytes).cast(_INT64).fill_null(0)
    there = np.ones(len(sizes), bool)
    for column in columns.values():
        if column.null_count:
            there &= column.is_valid().to_numpy(zero_copy_only=False)
    tally = Tally()
    if not there.all():
        lost = sizes.filter(pa.array(~there)).to_numpy()
        tally.add_untracked(topic, 0, len(lost), int(lost.sum()))
        columns = {name: column.filter(pa.array(there)) for name, column in columns.items()}
        sizes = sizes.filter(pa.array(there))
    if len(sizes):
        lanes = np.frombuffer(b"".join(_fixed(columns["guid"])), "<u8").reshape(-1, 2)
        group, origins = _origins([columns[name] for name in ("datacenter", "service", "host")], lanes[:, 0])
        digest = guid_hashes(lanes[:, 0], lanes[:, 1])
        add_events(topic, origins, group, columns["time"].to_numpy(), sizes.to_numpy(), digest, tally)
    return _counted(tally)


def _chunks(values: Any) -> list[Any]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _whole(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _bytes_of(chunk: Any) -> tuple[Bytes8, Int64s]:
    """The bytes of a binary array with slack after them, and where its values begin and end in them."""
    wide = pa.types.is_large_binary(chunk.type)
    _, offsets, data = chunk.buffers()
    taken = np.frombuffer(offsets, np.int64 if wide else np.int32)[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    first, last = int(taken[0]), int(taken[-1])
    if len(content) - last >= len(SLACK):
        return content, taken
    return np.concatenate([content[first:last], np.frombuffer(SLACK, np.uint8)]), taken - first


def _fixed(guids: Any) -> list[Any]:
    """The bytes of the guids, one after the other."""
    start = guids.offset * GUID_BYTES
    return [memoryview(guids.buffers()[1])[start : start + len(guids) * GUID_BYTES]]


def _milliseconds(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    return column.cast(_INT64)


def _origins(texts: list[Any], instance: Any) -> tuple[Int64s, list[Origin]]:
    """The number of each row's origin, and the origins."""
    instances, group = np.unique(instance, return_inverse=True)
    group = group.astype(np.int64)
    dictionaries = []
    for column in texts:
        encoded = column.dictionary_encode()
        dictionaries.append(encoded.dictionary.to_pylist())
        group = group * len(encoded.dictionary) + encoded.indices.to_numpy()
    found, group = np.unique(group, return_inverse=True)
    origins: list[Origin] = []
    for code in found.tolist():
        names: list[str] = []
        for dictionary in reversed(dictionaries):
            code, index = divmod(code, len(dictionary))
            names.append(dictionary[index])
        host, service, datacenter = names
        origins.append((datacenter, service, host, int(instances[code]).to_bytes(INSTANCE_BYTES, "little").hex()))
    return group.astype(np.int64), origins


def _counted(tally: Tally) -> ColumnCounts:
    counts = tally.counts()
    untracked = [counts.pop(key) for key in list(counts) if is_untracked(key)]
    latencies = {start_ms: each for (_, start_ms), each in tally.latencies().items()}
    return ColumnCounts(counts, sum(each.count for each in untracked), sum(each.bytes for each in untracked), latencies)
