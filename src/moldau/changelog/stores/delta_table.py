"""One Delta table of a replica: rows by key, changed by merges that say which batch of the replica they are.

The number of the batch is the version of an application transaction: it is in the commit of the rows, and checkpoints keep it. Two commits
that both have one conflict, so a second process that writes the table fails.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from pyarrow.dataset import Dataset, dataset, partitioning

from moldau.changelog.store import SHARD_COLUMN, KeyRange
from moldau.changelog.values import Key, Row, Table, Value

APPLICATION: Final = "moldau-changelog"
_KEY: Final = "a replica with the primary key "
"""In the description of the table, before the columns as JSON."""
_DELETED: Final = "_moldau_deleted"
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "any": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "decimal": pa.string(),
    "date": pa.date32(),
    "time": pa.string(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
KEPT_HOURS: Final = 7 * 24
_FEATURES: Final = frozenset({"timestampNtz"})
"""That a reader of its tables has to know."""
_COMPARED: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Instead of the bounds of files, which deltalake writes as views: Arrow cannot compare these with anything else."""
_ROWS: Final = 10_000
"""Read at once."""


def folder_of(table: str) -> str:
    """The name of a table's directory: its own, with ~XX for what names of directories do not take everywhere."""
    name = "".join(letter if letter.isalnum() or letter in "_-." else f"~{ord(letter):X}" for letter in table)
    return f"~{ord(name[0]):X}{name[1:]}" if name[0] in "._" else name


def batch_properties(batch: int) -> CommitProperties:
    """Of a commit that is a part of this batch."""
    return CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])


class StoredTable:
    """In a directory. `table` is as it was prepared."""

    def __init__(self, root: Path, table: Table, *, sharded: bool) -> None:
        self.table = table
        self.sharded = sharded
        self._place = str(root / folder_of(table.name))
        self.columns = {SHARD_COLUMN: "integer", **table.columns} if sharded else dict(table.columns)
        self.key = [SHARD_COLUMN, *table.key] if sharded else list(table.key)
        self._delta: DeltaTable | None = None

    @property
    def delta(self) -> DeltaTable:
        """Once it is opened."""
        assert self._delta is not None, "opened"
        return self._delta

    @property
    def version(self) -> int:
        """Of the Delta table."""
        return int(self.delta.version())

    @property
    def batch(self) -> int:
        """The last one that has changed it; 0 before the first."""
        return self.delta.transaction_version(APPLICATION) or 0

    def exists(self) -> bool:
        """Whether it is there."""
        return DeltaTable.is_deltatable(self._place)

    def open(self, version: int | None = None) -> None:
        """As it is now, or was."""
        self._delta = DeltaTable(self._place, version=version)

    def has_shards(self) -> bool:
        """Whether it has the column of shards."""
        return SHARD_COLUMN in self._fields()

    def make(self) -> None:
        """The table, or the columns that it has got. ValueError for one with another primary key."""
        if not self.exists():
            schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in self.columns.items()])
            partitions = [SHARD_COLUMN] if self.sharded else None
            DeltaTable.create(self._place, schema, partition_by=partitions, mode="ignore", description=f"{_KEY}{json.dumps(self.key)}")
        if self._delta is None:
            self.open()
        description = str(self.delta.metadata().description or "")
        if description != f"{_KEY}{json.dumps(self.key)}":
            what = description if description.startswith(_KEY) else "no primary key of a replica"
            raise ValueError(f"it has {what}, and the replica needs {_KEY}{json.dumps(self.key)}")
        have = {name.lower() for name in self._fields()}
        missing = [pa.field(name, _TYPES[kind]) for name, kind in self.columns.items() if name.lower() not in have]
        if missing:
            self.delta.alter.add_columns([Field.from_arrow(each) for each in missing])
            self.open()

    def _fields(self) -> list[str]:
        return [field.name for field in self.delta.schema().fields]

    def restore(self, version: int, batch: int) -> None:
        """To what it was at a version, after that batch."""
        self.delta.restore(version, commit_properties=batch_properties(batch))
        self.open()

    def write(self, shard: int, rows: Sequence[tuple[Key, Row | None]], batch: int) -> None:
        """In one commit: rows that are None are deleted. Values have been checked."""
        columns = self._arrays(shard, rows)
        columns[_DELETED] = pa.array([row is None for _, row in rows], pa.bool_())
        on = [f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self.table.key]
        if self.sharded:
            on.append(f"target.{SHARD_COLUMN} = {shard}")
        values = {_quoted(name): f"source.{_quoted(name)}" for name in self.columns}
        merge = self.delta.merge(
            pa.table(columns),
            " AND ".join(on),
            source_alias="source",
            target_alias="target",
            streamed_exec=False,
            commit_properties=batch_properties(batch),
        )
        merge = merge.when_matched_delete(f"source.{_DELETED}").when_matched_update(values, f"NOT source.{_DELETED}")
        merge.when_not_matched_insert(values, f"NOT source.{_DELETED}").execute()

    def _arrays(self, shard: int, rows: Sequence[tuple[Key, Row | None]]) -> dict[str, pa.Array]:
        columns = {SHARD_COLUMN: pa.array([shard] * len(rows), pa.int64())} if self.sharded else {}
        places = {name: place for place, name in enumerate(self.table.key)}
        for name, kind in self.table.columns.items():
            place = places.get(name)
            if place is None:
                values = [None if row is None else to_arrow(kind, row.get(name)) for _, row in rows]
            else:
                values = [to_arrow(kind, key[place] if row is None else row.get(name)) for key, row in rows]
            columns[name] = pa.array(values, _TYPES[kind])
        return columns

    def clear(self, shard: int, batch: int) -> None:
        """Delete the rows of a shard."""
        self.delta.delete(f"{SHARD_COLUMN} = {shard}" if self.sharded else None, commit_properties=batch_properties(batch))

    def maintain(self) -> None:
        """Make few files of many, and remove those that no version of the last week needs."""
        self.delta.optimize.compact()
        self.delta.vacuum(KEPT_HOURS, dry_run=False)
        self.open()

    def rows(self, shard: int, rows: KeyRange) -> Iterator[tuple[Key, Row]]:
        """Of a range, in any order. ValueError for a range over decimals, which are text, in another order."""
        kinds = self.table.columns
        scanner = self._dataset().scanner(columns=list(kinds), filter=self._filter(shard, rows), batch_size=_ROWS)
        for batch in scanner.to_batches():
            columns = {name: batch.column(name).to_pylist() for name in kinds}
            for values in zip(*columns.values(), strict=True):
                row = {name: from_arrow(kind, value) for (name, kind), value in zip(kinds.items(), values, strict=True)}
                yield tuple(row[name] for name in self.table.key), row

    def middle(self, shard: int, rows: KeyRange) -> Key | None:
        """The key in the middle of a range, of which the keys are read."""
        names = list(self.table.key)
        found = self._dataset().to_table(columns=names, filter=self._filter(shard, rows))
        if found.num_rows < 2:
            return None
        (middle,) = found.sort_by([(name, "ascending") for name in names]).slice(found.num_rows // 2, 1).to_pylist()
        key = tuple(from_arrow(self.table.columns[name], middle[name]) for name in names)
        self._check_bound(key)
        return key

    def _dataset(self) -> Dataset:
        """ValueError for a table that another program has changed to one that is read otherwise."""
        features = set(self.delta.protocol().reader_features or ())
        if unknown := features - _FEATURES:
            raise ValueError(f"another program has changed it to a table with {', '.join(sorted(unknown))}, which this store does not read")
        schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in self.columns.items()])
        files = [f"{self._place}/{path}" for path in pa.table(self.delta.get_add_actions())["path"].to_pylist()]
        if not files:
            return dataset(schema.empty_table())
        shards = partitioning(pa.schema([pa.field(SHARD_COLUMN, pa.int64())]), flavor="hive") if self.sharded else None
        return dataset(files, schema, "parquet", partitioning=shards)

    def _filter(self, shard: int, rows: KeyRange) -> pc.Expression | None:
        wanted = [pc.field(SHARD_COLUMN) == shard] if self.sharded else []
        if rows.low is not None:
            wanted.append(~self._is_before(rows.low))
        if rows.high is not None:
            wanted.append(self._is_before(rows.high))
        return reduce(and_, wanted) if wanted else None

    def _is_before(self, bound: Key) -> pc.Expression:
        """By the first column of the key that differs."""
        self._check_bound(bound)
        cases: list[pc.Expression] = []
        equal: list[pc.Expression] = []
        for name, value in zip(self.table.key, bound, strict=True):
            kind, column = self.table.columns[name], pc.field(name)
            compared = _COMPARED.get(_TYPES[kind], _TYPES[kind])
            scalar = pa.scalar(to_arrow(kind, value), compared)
            column = column if compared == _TYPES[kind] else column.cast(compared)
            cases.append(reduce(and_, [*equal, column < scalar]))
            equal.append(column == scalar)
        return reduce(or_, cases)

    def _check_bound(self, key: Key) -> None:
        for name, value in zip(self.table.key, key, strict=True):
            if isinstance(value, Decimal):
                raise ValueError(f"its primary key has the decimal {name}, so it can only be compared as a whole, not by ranges of keys")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def to_arrow(kind: str, value: Value) -> Any:
    """A value of a column of this type, as Arrow has it."""
    match value:
        case datetime():
            return value if value.tzinfo is None else value.astimezone(UTC)
        case time():
            return value.isoformat("microseconds")
        case _ if kind == "decimal" and value is not None:
            return str(value)
        case _:
            return value


def from_arrow(kind: str, found: Any) -> Value:
    """What `to_arrow` was given."""
    if found is not None:
        match kind:
            case "decimal":
                return Decimal(found)
            case "time":
                return time.fromisoformat(found)
            case "timestamptz":
                return found.astimezone(UTC)  # type: ignore[no-any-return]
            case "date":
                return found if type(found) is date else date.fromisoformat(str(found))
            case _:
                pass
    return found  # type: ignore[no-any-return]
