"""What a merged table is made by: its key columns, the order of rows, which rows delete their key. It stands in the table's properties.

A column may be a field of a struct: ``header.guid``. Keys are numbers without a fraction, texts, bytes, booleans, dates, timestamps or
decimals: what can be equal.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.tables.format import TableError
from moldau.model.near_names import did_you_mean

BUCKET = "key_bucket"
"""The partition column of merged tables: files of one bucket lie in one folder."""
DELETED = "_deleted"
"""Of tables in the order of a time: whether the row marks a key as deleted."""
PARTITION, OFFSET = "_partition", "_offset"
"""What loads keep of the place of a record."""
RECORD_KEY, TOMBSTONE = "_key", "_tombstone"
"""What loads keep of the record itself, where a merged table needs it: its key, and whether its value was null."""
LOG, TOMBSTONES = "log", "tombstones"
HORIZON_MS = 7 * 86_400_000
BUCKETS_MIN, BUCKETS_MAX = 16, 4096
BUCKET_BYTES_TARGET = 16 << 20
PROPERTY = "moldau.merge"
NEWEST = "moldau.merge.newest"
APPENDED_ID = "moldau.merge.appended"
TOPICS = "moldau.merge.topics"
_TIME = "time:"
_CONDITION = re.compile(r"\s*([^=\s]+?)\s*(?:=\s*(.*?)|\s(is\s+(?:not\s+)?null))?\s*", re.IGNORECASE | re.DOTALL)


class MergeError(TableError):
    """A merged table cannot be made or brought forward; the message names the table and the column."""


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Which rows delete their key: those where a column is true, has one of some values, is null or is not null."""

    column: str
    values: tuple[str, ...] | None = None
    null: bool | None = None

    def mask(self, rows: Any) -> Any:
        """Which rows delete. Boolean array without nulls."""
        column = column_of(rows, self.column)
        if self.null is not None:
            return pc.is_null(column) if self.null else pc.is_valid(column)
        if self.values is None:
            return pc.fill_null(column, False)
        return pc.is_in(column, value_set=pa.array(self.values, pa.string()).cast(column.type))

    def check(self, path: str, schema: Any) -> None:
        """MergeError if the table has no such column, or one that cannot have these values."""
        kind = type_of(path, schema, self.column, "that marks deletions")
        if self.null is None and self.values is None and not pa.types.is_boolean(kind):
            raise MergeError(f"{path}: column {self.column} is {kind}, not boolean: give the values that delete, {self.column}=VALUE")
        if self.values is not None:
            try:
                pa.array(self.values, pa.string()).cast(kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise MergeError(f"{path}: column {self.column} is {kind}, which has no value {', '.join(self.values)}") from None


def delete_rule(text: str) -> DeleteRule:
    """``tombstones``, ``COLUMN`` (a boolean), ``COLUMN=VALUE,VALUE``, ``COLUMN is null``, ``COLUMN is not null``. ValueError."""
    if text == TOMBSTONES:
        return DeleteRule(TOMBSTONE)
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"deletions are {TOMBSTONES}, COLUMN, COLUMN=VALUE, or COLUMN is [not] null, and not {text!r}")
    column, values, null = found.groups()
    if null is not None:
        return DeleteRule(column, null="not" not in null.lower())
    return DeleteRule(column, None if values is None else tuple(each.strip() for each in values.split(",")))


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How the rows of an append-only table become one for each key."""

    keys: tuple[str, ...]
    order: str = LOG
    """``log``: by partition and offset. ``time:COLUMN``: by that column, and by the log where it is equal."""
    deletes: str | None = None
    """As `delete_rule` reads it."""
    horizon_ms: int = HORIZON_MS
    """By how much the newest time is later than that of a deletion when its mark is dropped."""
    buckets: int = BUCKETS_MIN

    def __post_init__(self) -> None:
        if not self.keys:
            raise ValueError("a merged table needs key columns")
        if len(set(self.keys)) < len(self.keys):
            raise ValueError(f"a key column is named twice: {', '.join(self.keys)}")
        if self.order != LOG and not self.order.removeprefix(_TIME) != self.order:
            raise ValueError(f"the order is {LOG}, or {_TIME}COLUMN, and not {self.order!r}")
        if self.time == "":
            raise ValueError(f"the order {_TIME} needs a column")
        if self.horizon_ms < 0:
            raise ValueError(f"the horizon is no time before now: {self.horizon_ms} ms")
        if not 1 <= self.buckets <= BUCKETS_MAX:
            raise ValueError(f"there are 1 to {BUCKETS_MAX} buckets, not {self.buckets}")
        if self.deletes is not None:
            delete_rule(self.deletes)

    @property
    def time(self) -> str | None:
        """The column of the order; None for that of the log."""
        return None if self.order == LOG else self.order.removeprefix(_TIME)

    @property
    def rule(self) -> DeleteRule | None:
        """Which rows delete; None if none does."""
        return None if self.deletes is None else delete_rule(self.deletes)

    @property
    def keeps_marks(self) -> bool:
        """Whether deleted keys stay as marked rows for a while."""
        return self.time is not None and self.deletes is not None

    def check(self, path: str, schema: Any) -> None:
        """MergeError if the append-only table at `path` cannot be merged so."""
        for name in (PARTITION, OFFSET):
            if name not in schema.names:
                raise MergeError(f"{path}: there is no column {name}: only tables that a load has made have the order of the log")
        for name in (BUCKET, DELETED):
            if name in schema.names:
                raise MergeError(f"{path}: there is a column {name}, which a merged table has for itself")
        for name in self.keys:
            kind = type_of(path, schema, name, "of the key")
            if pa.types.is_nested(kind) or pa.types.is_floating(kind):
                raise MergeError(f"{path}: column {name} is {kind}, which is no type of a key")
        if self.time is not None:
            kind = type_of(path, schema, self.time, "of the order")
            if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                raise MergeError(f"{path}: column {self.time} is {kind}: an order is by a timestamp, a date or a number (milliseconds)")
        rule = self.rule
        if rule is not None:
            rule.check(path, schema)

    def properties(self, appended_id: str) -> dict[str, str]:
        """As they stand in the merged table."""
        return {PROPERTY: json.dumps(asdict(self)), APPENDED_ID: appended_id}


def stored_options(path: str, properties: Mapping[str, str]) -> MergeOptions | None:
    """The options of the merged table at `path`; None if this is no merged table. MergeError for what cannot be read."""
    text = properties.get(PROPERTY)
    if text is None:
        return None
    try:
        values = json.loads(text)
        return MergeOptions(**{**values, "keys": tuple(values["keys"])})
    except (ValueError, KeyError, TypeError) as error:
        raise MergeError(f"{path}: property {PROPERTY} cannot be read: {error}") from None


def buckets_for(size_bytes: int) -> int:
    """How many buckets a table of this size is divided into."""
    return min(BUCKETS_MAX, max(BUCKETS_MIN, -(-size_bytes // BUCKET_BYTES_TARGET)))


def type_of(path: str, schema: Any, name: str, what: str) -> Any:
    """The type of a column, or of a field of a struct. MergeError if there is none."""
    if name in schema.names:
        return schema.field(name).type
    head, *rest = name.split(".")
    kind = schema.field(head).type if head in schema.names and rest else None
    for part in rest:
        number = kind.get_field_index(part) if kind is not None and pa.types.is_struct(kind) else -1
        kind = kind.field(number).type if kind is not None and number >= 0 else None
    if kind is None:
        needed = {RECORD_KEY: "the record's key", TOMBSTONE: "tombstones"}.get(name)
        hint = f": the load keeps {needed} only if it has the options of the merged table" if needed else did_you_mean(name, schema.names)
        raise MergeError(f"{path}: there is no column {name} {what}{hint}")
    return kind


def column_of(rows: Any, name: str) -> Any:
    """The column of a table, or the field of a struct."""
    if name in rows.column_names:
        return rows.column(name)
    head, *rest = name.split(".")
    column = rows.column(head)
    for part in rest:
        column = pc.struct_field(column, [column.type.get_field_index(part)])
    return column
