"""What the statements of SQL stores have in common."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from moldau.changelog.store import SHARD_COLUMN, KeyRange
from moldau.changelog.values import Key, Table, Value


def quoted(name: str) -> str:
    """A name."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Names with commas between them."""
    return ", ".join(map(quoted, names))


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table in a store, which may have rows of several shards."""

    table: Table
    sharded: bool

    @property
    def name(self) -> str:
        """For SQL."""
        return quoted(self.table.name)

    @property
    def columns(self) -> Mapping[str, str]:
        """All of them, with their types."""
        return {SHARD_COLUMN: "integer", **self.table.columns} if self.sharded else self.table.columns

    @property
    def key(self) -> Sequence[str]:
        """The columns of the primary key in the store."""
        return [SHARD_COLUMN, *self.table.key] if self.sharded else list(self.table.key)

    def of_shard(self, shard: int) -> tuple[str, list[Value]]:
        """A condition, and its parameters."""
        return (f"{quoted(SHARD_COLUMN)} = ?", [shard]) if self.sharded else ("TRUE", [])

    def in_range(self, shard: int, rows: KeyRange) -> tuple[str, list[Value]]:
        """A condition, and its parameters. ValueError for a range over decimals, which the stores keep as text, in another order."""
        condition, parameters = self.of_shard(shard)
        key = f"({listed(self.table.key)})"
        marks = f"({', '.join('?' * len(self.table.key))})"
        for bound, compared in ((rows.low, ">="), (rows.high, "<")):
            if bound is not None:
                self.check_bound(bound)
                condition += f" AND {key} {compared} {marks}"
                parameters += bound
        return condition, parameters

    def check_bound(self, key: Key) -> None:
        """ValueError for a key that cannot divide a table."""
        for name, value in zip(self.table.key, key, strict=True):
            if isinstance(value, Decimal):
                raise ValueError(f"its primary key has the decimal {name}, so it can only be compared as a whole, not by ranges of keys")


def missing_columns(wanted: Mapping[str, str], there: Iterable[str]) -> Mapping[str, str]:
    """Columns that a table does not have yet."""
    have = {name.lower() for name in there}
    return {name: kind for name, kind in wanted.items() if name.lower() not in have}
