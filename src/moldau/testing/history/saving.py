"""A history as lines of JSON, for people with grep and for checking it again: `python -m moldau.testing.history FILE`."""

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from moldau.testing.history.history import (
    NONE,
    EndSeen,
    Eviction,
    History,
    HistoryProducer,
    HistoryTransaction,
    Loss,
    OffsetCommit,
    OffsetSeen,
    Outage,
    Outcome,
    OutOfRange,
    Reader,
    Sends,
    StateLoss,
)

TABLES: dict[str, type] = {
    "producers": HistoryProducer,
    "transactions": HistoryTransaction,
    "offset_commits": OffsetCommit,
    "offsets_seen": OffsetSeen,
    "ends_seen": EndSeen,
    "out_of_range": OutOfRange,
    "outages": Outage,
    "losses": Loss,
    "state_losses": StateLoss,
    "evictions": Eviction,
}
"""Lists of the history with plain values."""


def save(history: History, file: Path) -> Path:
    """Write it; the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as output:
        for line in _lines(history):
            output.write(json.dumps(line) + "\n")
    return file


def _lines(history: History) -> Iterator[list[Any]]:
    for name in history.partitions:
        yield ["partition", name]
    for table in TABLES:
        for entry in getattr(history, table):
            yield [table, *astuple(entry)]
    columns = [getattr(history.sends, column.name) for column in fields(Sends)]
    for value, row in enumerate(zip(*columns, strict=True)):
        yield ["send", value, *row]
    for number, reader in enumerate(history.readers):
        yield ["reader", number, reader.name, reader.committed, reader.group]
        yield from _reader_lines(number, reader)
    yield ["history", history.ended, sorted(history.forward_groups)]


def _reader_lines(number: int, reader: Reader) -> Iterator[list[Any]]:
    """Its polls with their records, and between them the positions that were set."""
    rows = zip(reader.partition, reader.offset, reader.value, reader.epoch, reader.poll, strict=True)
    for poll, found in groupby(rows, key=lambda row: row[4]):
        records = [list(row[:4]) for row in found]
        if poll == NONE:
            yield from (["position", number, partition, offset] for partition, offset, _, _ in records)
        else:
            yield ["poll", number, reader.poll_begun[poll], reader.poll_ended[poll], reader.poll_transaction[poll], records]


def load(file: Path) -> History:
    """What `save` wrote."""
    history = History(clock=lambda: 0.0)
    sends = [getattr(history.sends, column.name) for column in fields(Sends)]
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            _take(history, sends, *json.loads(line))
    return history


def _take(history: History, sends: list["array[Any]"], what: str, *rest: Any) -> None:
    match what:
        case "history":
            history.ended, history.forward_groups = rest[0], set(rest[1])
        case "partition":
            history.partitions.append(rest[0])
        case "send":
            _append(sends, rest[1:])
        case "reader":
            history.readers.append(Reader(*rest[1:]))
        case "position":
            history.position(*rest)
        case "poll":
            reader, begun, ended, transaction, records = rest
            history.polled(reader, begun, records, transaction=transaction)
            history.readers[reader].poll_ended[-1] = ended
        case _:
            entry = TABLES[what](*rest)
            if hasattr(entry, "reported"):
                entry.reported = Outcome(entry.reported)
            getattr(history, what).append(entry)


def _append(columns: list["array[Any]"], row: Sequence[Any]) -> None:
    for column, cell in zip(columns, row, strict=True):
        column.append(cell)
