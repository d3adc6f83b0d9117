"""A history as lines of JSON, for people with grep and for checking it again: `python -m support.history FILE` in `tests`."""

import json
from array import array
from collections.abc import Iterator
from dataclasses import astuple, fields
from math import inf
from pathlib import Path
from typing import Any

from support.history.history import (
    EndSeen,
    History,
    OffsetCommit,
    OffsetSeen,
    Outage,
    Outcome,
    OutOfRange,
    Producer,
    Reader,
    Sends,
    Transaction,
)

TABLES: dict[str, type] = {
    "producers": Producer,
    "transactions": Transaction,
    "offset_commits": OffsetCommit,
    "offsets_seen": OffsetSeen,
    "ends_seen": EndSeen,
    "out_of_range": OutOfRange,
    "outages": Outage,
}
"""Lists of the history with plain values."""
_RECORD = ("partition", "offset", "value", "poll")
_POLL = ("poll_begun", "poll_ended", "poll_transaction")


def save(history: History, file: Path) -> Path:
    """Write it; the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as output:
        for line in _lines(history):
            output.write(json.dumps(line) + "\n")
    return file


def _lines(history: History) -> Iterator[list[Any]]:
    yield ["history", history.ended, sorted(history.forward_groups)]
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
        for row in zip(*(getattr(reader, name) for name in _POLL), strict=True):
            yield ["poll", number, *row]
        for row in zip(*(getattr(reader, name) for name in _RECORD), strict=True):
            yield ["record", number, *row]


def load(file: Path) -> History:
    """What `save` wrote."""
    history = History(clock=lambda: inf)
    sends = [getattr(history.sends, column.name) for column in fields(Sends)]
    for line in file.read_text(encoding="utf-8").splitlines():
        what, *rest = json.loads(line)
        match what:
            case "history":
                history.ended, history.forward_groups = rest[0], set(rest[1])
            case "partition":
                history.partitions.append(rest[0])
            case "send":
                _append(sends, rest[1:])
            case "reader":
                history.readers.append(Reader(*rest[1:]))
            case "poll":
                _append([getattr(history.readers[rest[0]], name) for name in _POLL], rest[1:])
            case "record":
                _append([getattr(history.readers[rest[0]], name) for name in _RECORD], rest[1:])
            case _:
                entry = TABLES[what](*rest)
                if hasattr(entry, "told"):
                    entry.told = Outcome(entry.told)
                getattr(history, what).append(entry)
    return history


def _append(columns: list["array[Any]"], row: list[Any]) -> None:
    for column, cell in zip(columns, row, strict=True):
        column.append(cell)
