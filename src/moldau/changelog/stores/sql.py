"""What the statements of SQL stores have in common: a table, its columns and conditions for its rows."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from moldau.changelog.store import SHARD_COLUMN, KeyRange
from moldau.changelog.values import Key, Table


def quoted(name: str) -> str:
    """A name."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Names with commas between them."""
    return ", ".join(map(quoted, names))


class SqlTable:
    """A table in a store, which may have rows of several shards. Statements have `?` for parameters."""

    def __init__(self, table: Table, *, sharded: bool) -> None:
        self.table = table
        self.sharded = sharded
        self.name = quoted(table.name)
        """For SQL."""
        self.columns = {SHARD_COLUMN: "integer", **table.columns} if sharded else dict(table.columns)
        """All of them, with their types."""
        self.key = [SHARD_COLUMN, *table.key] if sharded else list(table.key)
        """The columns of the primary key in the store."""

    def selected(self, column: str) -> str:
        """How a column is read."""
        return quoted(column)

    def ordered(self, column: str) -> str:
        """How a column is compared, so that the order is Python's."""
        return quoted(column)

    def mark(self, column: str) -> str:
        """For a parameter that a column is compared with."""
        return "?"

    @cached_property
    def all_selected(self) -> str:
        """The columns of the source's table."""
        return ", ".join(map(self.selected, self.table.columns))

    @cached_property
    def key_selected(self) -> str:
        """The columns of its primary key."""
        return ", ".join(map(self.selected, self.table.key))

    @cached_property
    def order(self) -> str:
        """By its primary key."""
        return ", ".join(map(self.ordered, self.table.key))

    def stored(self, shard: int, values: Sequence[Any]) -> list[Any]:
        """A row, or a key, of a shard."""
        return [shard, *values] if self.sharded else list(values)

    def of_shard(self, shard: int) -> tuple[str, list[Any]]:
        """A condition, and its parameters."""
        return (f"{quoted(SHARD_COLUMN)} = ?", [shard]) if self.sharded else ("TRUE", [])

    def in_range(self, shard: int, rows: KeyRange) -> tuple[str, list[Any]]:
        """A condition, and its parameters. ValueError for a range over decimals, which stores may keep as text, in another order."""
        condition, parameters = self.of_shard(shard)
        marks = ", ".join(map(self.mark, self.table.key))
        for bound, compared in ((rows.low, ">="), (rows.high, "<")):
            if bound is not None:
                self.check_bound(bound)
                condition += f" AND ({self.order}) {compared} ({marks})"
                parameters += bound
        return condition, parameters

    def check_bound(self, key: Key) -> None:
        """ValueError for a key that cannot divide a table."""
        for name, value in zip(self.table.key, key, strict=True):
            if isinstance(value, Decimal):
                raise ValueError(f"its primary key has the decimal {name}, so it can only be compared as a whole, not by ranges of keys")
