"""Changes of rows and the commits that they are part of, as every source gives them and every replica takes them."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

Value: TypeAlias = bool | int | float | str | bytes | Decimal | date | time | datetime | None
"""What a column may hold. A datetime without a zone is one without a zone in the store."""
Row: TypeAlias = Mapping[str, Value]
"""By the names of columns."""
Key: TypeAlias = tuple[Value, ...]
"""The columns of the primary key, in its order."""
ALL_SHARDS: Final = -1
"""Instead of a shard: all of a changelog, whose rows are divided by the hash of their keys."""


class Op(Enum):
    """What became of a row, by the letters of Debezium."""

    READ = "r"
    """It was there when the changelog began."""
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"


class Change(NamedTuple):
    """Of one row."""

    table: str
    op: Op
    key: Key
    before: Row | None
    """None where there was none, or the source does not know it."""
    after: Row | None
    """None: the row was deleted."""


class Commit(NamedTuple):
    """A whole transaction of a shard, or several that were sealed together."""

    shard: int
    """Or `ALL_SHARDS`."""
    epoch: int
    """Of the shard: each promotion raises it."""
    number: int
    """Of the shard, from 1 on, without gaps; it continues over epochs. With `ALL_SHARDS` that of the transaction, over all shards."""
    time_ms: int
    """Of the commit in the source, since 1970."""
    changes: Sequence[Change]
    source: Mapping[str, str | int] = {}
    """What the source needs to find its place again: the LSN of PostgreSQL."""


class Table(NamedTuple):
    """What a replica has to know of a table."""

    name: str
    columns: Mapping[str, str]
    """Names, and types by one vocabulary for all stores: `boolean`, `integer`, `real`, `text`, `bytes`, `decimal`, `date`, `time`,
    `timestamp`, `timestamptz`; `any` for text and whatever else a database has in the column.
    """
    key: Sequence[str]
    """Columns of the primary key."""
