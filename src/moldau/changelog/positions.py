"""Positions as the table of positions has them, in every store with the same columns."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from moldau.changelog.store import Phase, Position

TABLE = "moldau_positions"
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
topic the next offset and the id.
"""
KEY = ("changelog", "shard")


def to_columns(changelog: str, shard: int, position: Position) -> tuple[str | int, ...]:
    """The row of a position."""
    topics = {topic: {"offset": offset, "id": position.ids.get(topic, "")} for topic, offset in sorted(position.offsets.items())}
    return (
        changelog,
        shard,
        position.phase.value,
        position.epoch,
        position.commit,
        position.commit_ms,
        json.dumps(topics, ensure_ascii=False, separators=(",", ":")),
    )


def from_columns(row: Sequence[Any]) -> tuple[int, Position]:
    """Shard and position out of a row. ValueError for one that was not written by `to_columns`."""
    _, shard, phase, epoch, commit, commit_ms, text = row
    try:
        topics = json.loads(text)
        offsets = {topic: int(each["offset"]) for topic, each in topics.items()}
        ids = {topic: str(each["id"]) for topic, each in topics.items() if each["id"]}
        return int(shard), Position(Phase(phase), int(epoch), int(commit), int(commit_ms), offsets, ids)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"table {TABLE}, shard {shard}: not a position: {error!r}") from error
