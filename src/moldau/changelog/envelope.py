"""Records of a changelog: changes in Debezium's envelope, commits, and tables, as JSON (docs/formats/changelog.md)."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from moldau.changelog.columns import key_text, row_format, row_from_json, row_text
from moldau.changelog.debezium import UNAVAILABLE, Schema, fields_of, unwrapped, value_of
from moldau.changelog.errors import ChangelogError, RecordError, ValueRefusedError
from moldau.changelog.naming import shard_text, table_of
from moldau.changelog.values import Change, Commit, Key, Op, Row, Table

KeyValue = tuple[bytes, bytes | None]
"""Of a record."""
UNKNOWN: Final = 0
"""Instead of a commit's number or epoch, in records of a source that has none."""
_text: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_LETTERS: Final = {op: op.value for op in Op}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REFUSED = {
    "t": "the table was truncated in the source, and which rows that removed cannot be said from the log: begin a new changelog",
    "m": "it is a message of the source, and no change of a row",
}
"""Debezium's operations that are no change of a row."""


class ChangeRecord(NamedTuple):
    """A change as a topic of a table has it."""

    shard: int
    epoch: int
    """`UNKNOWN` from another source."""
    commit: int
    """`UNKNOWN` from another source."""
    index: int  # type: ignore[assignment]
    """In its commit, from 0 on."""
    change: Change
    key_columns: tuple[str, ...]
    time_ms: int
    """When the source committed it; 0 if not known."""
    transaction: str | None
    """As the source calls it: equal for changes that were committed together."""


class Tombstone(NamedTuple):
    """A row that is deleted, for compaction. Its deletion is the record before, unless that was compacted away."""

    shard: int
    table: str
    key: Key
    key_columns: tuple[str, ...]


class CommitRecord(NamedTuple):
    """A commit whose changes are in the log."""

    shard: int
    epoch: int
    commit: int
    time_ms: int
    counts: Mapping[str, int]
    """Changes by table; tombstones do not count."""
    source: Mapping[str, str | int]
    """What the source needs to find its place again."""


class TableRecord(NamedTuple):
    """What a table of a shard is from the next commit record on."""

    shard: int
    table: Table


def encode_change(changelog: str, commit: Commit, index: int, change: Change, table: Table) -> list[KeyValue]:
    """The records of the change with this index in a commit: its envelope, and after a deletion a tombstone. ValueRefusedError."""
    encoder = ChangeEncoder(changelog, commit, table)
    key, value = encoder.key(change), encoder.value(index, change)
    return [(key, value)] if change.op is not Op.DELETE else [(key, value), (key, None)]


class ChangeEncoder:
    """Of the changes of one table in one commit, whose envelopes have most in common."""

    def __init__(self, changelog: str, commit: Commit, table: Table) -> None:
        self._subject = f"changelog {changelog}, {shard_text(commit.shard)}, commit {commit.number}: table {table.name}"
        self._key = tuple(table.key)
        self._key_format = row_format(self._key)
        source = {
            "connector": "moldau",
            "changelog": changelog,
            "shard": commit.shard,
            "epoch": commit.epoch,
            "commit": commit.number,
            "table": table.name,
            "ts_ms": commit.time_ms,
        }
        self._rest = (
            f'"source":{_text(source)},"ts_ms":{commit.time_ms},"transaction":{{"id":"{commit.shard}:{commit.number}","total_order":'
        )

    def key(self, change: Change) -> bytes:
        """That of the change's records. ValueRefusedError."""
        try:
            text = key_text(self._key, change.key, self._key_format)
        except (TypeError, ValueError) as error:
            raise ValueRefusedError(f"{self._subject}, key {change.key}: {error}") from error
        return encoded(text)

    def value(self, index: int, change: Change) -> bytes:
        """The envelope of the change with this index in the commit. ValueRefusedError."""
        _, op, values, before, after = change
        try:
            before_text = "null" if before is None else row_text(before)
            after_text = "null" if after is None else row_text(after)
        except (TypeError, ValueError) as error:
            raise ValueRefusedError(f"{self._subject}, key {values}: {error}") from error
        return encoded(f'{{"op":"{_LETTERS[op]}","before":{before_text},"after":{after_text},{self._rest}{index + 1}}}}}')


def key_bytes(columns: Sequence[str], key: Key) -> bytes:
    """The key of a row's records. TypeError, ValueError."""
    return encoded(key_text(columns, key))


def encode_commit(changelog: str, commit: Commit, counts: Mapping[str, int]) -> KeyValue:
    """The record of a commit with so many changes of each table."""
    value = {
        "changelog": changelog,
        "shard": commit.shard,
        "epoch": commit.epoch,
        "commit": commit.number,
        "ts_ms": commit.time_ms,
        "changes": dict(counts),
        "source": dict(commit.source),
    }
    return _dumps({"shard": commit.shard}), _dumps(value)


def encode_table(changelog: str, shard: int, table: Table) -> KeyValue:
    """The record of a table of a shard."""
    value = {"changelog": changelog, "shard": shard, "columns": dict(table.columns), "key": list(table.key)}
    return _dumps({"shard": shard, "table": table.name}), _dumps(value)


def decode_change(topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None) -> ChangeRecord | Tombstone:
    """What a record of a table's topic says, ours or of a connector of Debezium. RecordError."""
    try:
        columns, values = _key(key)
        if value is None:
            return Tombstone(partition, table_of(topic).table, values, columns)
        envelope, schema = unwrapped(_object(value, "the value"))
        return _change(topic, partition, columns, values, envelope, schema)
    except KeyError as error:
        raise RecordError(topic, partition, offset, f"it has no {error}, and is no change in Debezium's envelope") from error
    except (AttributeError, ChangelogError, TypeError, ValueError, RecursionError) as error:
        raise RecordError(topic, partition, offset, str(error)) from error


def decode_commit(topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None) -> CommitRecord | TableRecord:
    """What a record of the topic of commits says. RecordError."""
    try:
        subject, found = _object(key, "the key"), _object(value, "the value")
        if "table" in subject:
            return TableRecord(int(subject["shard"]), Table(str(subject["table"]), dict(found["columns"]), tuple(found["key"])))
        counts = {str(table): int(count) for table, count in found["changes"].items()}
        return CommitRecord(
            int(subject["shard"]), int(found["epoch"]), int(found["commit"]), int(found["ts_ms"]), counts, dict(found["source"])
        )
    except KeyError as error:
        raise RecordError(topic, partition, offset, f"it has no {error}, and is no record of a commit") from error
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RecordError(topic, partition, offset, f"it is no record of a commit: {error}") from error


def _dumps(found: Mapping[str, Any]) -> bytes:
    return encoded(_text(found))


def encoded(text: str) -> bytes:
    """JSON as it is in records: text that no UTF-8 has (a lone surrogate) is escaped."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if data is None:
        raise ValueError(f"{what} is missing")
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{what} is no JSON: {error}: {data[:100]!r}") from error
    if type(found) is not dict:
        raise ValueError(f"{what} is no object: {data[:100]!r}")
    return found


def _key(data: bytes | None) -> tuple[tuple[str, ...], Key]:
    """Names and values of the primary key."""
    if data is None:
        raise ValueError("it has no key; a table of a changelog has a primary key")
    found, schema = unwrapped(_object(data, "the key"))
    row = _row(found, schema)
    if not row:
        raise ValueError("the key has no columns")
    return tuple(row), tuple(row.values())


def _change(topic: str, partition: int, columns: tuple[str, ...], key: Key, envelope: Any, schema: Schema | None) -> ChangeRecord:
    letter, source = envelope["op"], envelope.get("source") or {}
    if letter in _REFUSED:
        raise ValueError(f"op {letter}: {_REFUSED[letter]}")
    op, parts = Op(letter), fields_of(schema)
    before, after = _image(envelope.get("before"), parts.get("before")), _image(envelope.get("after"), parts.get("after"))
    if (after is None) != (op is Op.DELETE):
        raise ValueError(f"op {letter} {'with' if after is not None else 'without'} a row after the change")
    is_ours = "changelog" in source
    for name, value in () if is_ours or after is None else after.items():
        if value == UNAVAILABLE:
            raise ValueError(f"column {name}: the source has not sent its value, which has not changed: set REPLICA IDENTITY FULL")
    block = envelope.get("transaction") or {}
    return ChangeRecord(
        shard=int(source.get("shard", partition)) if is_ours else partition,
        epoch=int(source.get("epoch", UNKNOWN)),
        commit=int(source.get("commit", UNKNOWN)),
        index=max(int(block.get("total_order", 1)) - 1, 0),
        change=Change(str(source["table"]) if is_ours else table_of(topic).table, op, key, before, after),
        key_columns=columns,
        time_ms=int(source.get("ts_ms") or envelope.get("ts_ms") or 0),
        transaction=block.get("id"),
    )


def _image(found: Any, schema: Schema | None) -> Row | None:
    return None if found is None else _row(found, schema)


def _row(found: Any, schema: Schema | None) -> Row:
    if type(found) is not dict:
        raise ValueError(f"a row is an object, not {str(found)[:100]}")
    if schema is None:
        return row_from_json(found)
    fields: Mapping[str, Schema] = fields_of(schema)
    row = {}
    for name, value in found.items():
        try:
            row[name] = value_of(fields.get(name, {}), value)
        except ValueError as error:
            raise ValueError(f"column {name}: {error}") from error
    return row
