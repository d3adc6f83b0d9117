"""Positions as the table of positions has them, in every store with the same columns."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from moldau.changelog.store import Phase, Position
from moldau.changelog.values import Table

TABLE = "_moldau_positions"
COLUMNS: Mapping[str, str] = {
    "changelog": "text",
    "shard": "integer",
    "phase": "text",
    "epoch": "integer",
    "commit_number": "integer",
    "commit_ms": "integer",
    "topics": "text",
}
"""Names and types, by the vocabulary of `moldau.changelog.values.Table`. The primary key is changelog and shard; `topics` is JSON: of each
topic the next offset, the id, and the table's columns and key; of the topic of commits also whether the position is partial.
"""
KEY = ("changelog", "shard")


def to_columns(changelog: str, shard: int, position: Position) -> tuple[str | int, ...]:
    """The row of a position."""
    topics = {topic: _topic(position, topic) for topic in sorted(position.offsets)}
    text = json.dumps(topics, ensure_ascii=False, separators=(",", ":"))
    return (changelog, shard, position.phase.value, position.epoch, position.commit, position.commit_ms, text)


def _topic(position: Position, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = {"offset": position.offsets[topic]}
    if topic in position.ids:
        found["id"] = position.ids[topic]
    if topic in position.tables:
        table = position.tables[topic]
        found["table"] = {"name": table.name, "columns": dict(table.columns), "key": list(table.key)}
    elif position.partial:
        found["partial"] = True
    return found


def from_columns(row: Sequence[Any]) -> tuple[int, Position]:
    """Shard and position out of a row. ValueError for one that was not written by `to_columns`."""
    _, shard, phase, epoch, commit, commit_ms, text = row
    try:
        topics = json.loads(text)
        offsets = {topic: int(each["offset"]) for topic, each in topics.items()}
        ids = {topic: str(each["id"]) for topic, each in topics.items() if "id" in each}
        tables = {topic: _table(each["table"]) for topic, each in topics.items() if "table" in each}
        partial = any(each.get("partial") is True for each in topics.values())
        return int(shard), Position(Phase(phase), int(epoch), int(commit), int(commit_ms), offsets, ids, tables, partial)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"table {TABLE}, shard {shard}: not a position: {error!r}") from error


def _table(found: Mapping[str, Any]) -> Table:
    return Table(str(found["name"]), dict(found["columns"]), tuple(found["key"]))
