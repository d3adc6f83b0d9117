"""A table of the lake as a secondary store of a stream: each batch reads its newest version, or all read one that is named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from moldau.lake.dataset import scan
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import opened
from moldau.lake.tables.rewriting import fit
from moldau.streams.errors import StreamError
from moldau.streams.lookups import Store, StoreVersion, added_names, key_rows, with_lookup
from moldau.streams.versions import Note

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TABLE_VERSION = "_table_version"
_VERSION, _ID = "version", "id"
_NO_KEYS = ("struct", "array", "map", "float", "double")


@dataclass(frozen=True, slots=True)
class TableStore(Store):
    """A table whose rows are found by their key columns. Each key has one row, or the one with the greatest `latest` counts."""

    path: str
    name: str
    directory: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """Those that rows get."""
    schema: Any
    """Arrow schema of key, columns and `latest`, in this order."""
    version: int | None = None
    latest: str | None = None
    id: str = ""
    """Of the table."""

    def join(
        self, rows: Any, on: str | Sequence[str] | None = None, *, how: str = "left_outer", version_column: str = TABLE_VERSION
    ) -> Any:
        """The rows with the table's columns for their key, and the version of the table in which they were looked up.

        `on` names the columns of the rows that have the key, if they are called otherwise. Columns that the rows have too get `right_`
        before their names. Without a match: nulls, or with `how="inner"` no row. ValueError.
        """
        from pyspark.sql.types import LongType, StructField, StructType

        keys = self.key if on is None else (on,) if isinstance(on, str) else tuple(on)
        if len(keys) != len(self.key):
            raise ValueError(f"{self.path}: its key is {', '.join(self.key)}; on= names {len(keys)} columns")
        names = added_names(rows, self.columns, keys, version_column, how)
        theirs = self._spark_schema()
        for ours, other in zip(keys, self.key, strict=True):
            kinds = rows.schema[ours].dataType.simpleString(), theirs[other].dataType.simpleString()
            if kinds[0] != kinds[1]:
                raise ValueError(f"{self.path}: its key column {other} is {kinds[1]}, and the rows' column {ours} is {kinds[0]}: cast it")
        added = StructType([StructField(names[name], theirs[name].dataType) for name in self.columns])
        return with_lookup(rows, self, keys, added.add(version_column, LongType()), dropped=(), how=how)

    def newest(self) -> Note:
        """TableError."""
        snapshot = opened(self.path)
        return {_VERSION: snapshot.version, _ID: snapshot.id}

    def fixed(self) -> Note | None:
        """The version that was named."""
        return None if self.version is None else {_VERSION: self.version, _ID: self.id}

    def load(self, note: Note, before: StoreVersion | None) -> StoreVersion:
        """TableError: the version is no longer there, or another table is in its place; StreamError for a key that is there twice."""
        there = opened(self.path, note[_VERSION])
        if there.id != note[_ID]:
            raise TableError(f"{self.path}: another table was made there since the batch began: it was {note[_ID]}, and is {there.id}")
        where = f"{self.path}, version {note[_VERSION]}"
        for each in (*self.key, *(() if self.latest is None else (self.latest,))):
            if each not in there.schema.names:
                raise StreamError(f"{where}: the table has no column {each} any more, by which the job looks its rows up")
        rows = scan(self.path, version=note[_VERSION]).to_table(columns=[each for each in self.schema.names if each in there.schema.names])
        try:
            return _TableVersion(note, self, fit(rows, self.schema), where)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StreamError(
                f"{where}: a value does not fit the columns with which the job has started: {error}; start it again"
            ) from error

    def _spark_schema(self) -> "StructType":
        from moldau.lake.reading.row_shape import spark_schema

        return spark_schema(self.schema)


class _TableVersion(StoreVersion):
    def __init__(self, note: Note, store: TableStore, rows: Any, where: str) -> None:
        self.note, self.label = note, note[_VERSION]
        if store.latest is not None:
            rows = rows.sort_by([(store.latest, "ascending")])  # nulls would be last
            rows = pa.concat_tables([rows.filter(rows.column(store.latest).is_null()), rows.filter(rows.column(store.latest).is_valid())])
        self._index = _index(rows, store, where)
        self._columns = [rows.column(name).combine_chunks() for name in store.columns]

    def columns(self, keys: Sequence[Any]) -> tuple[list[Any], Any]:
        found = key_rows(self._index, keys)
        return [_array(column.take(found)) for column in self._columns], found


def _array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _index(rows: Any, store: TableStore, where: str) -> Mapping[Any, int]:
    """By key, the row that counts: the last. StreamError if one is there twice and no column tells which."""
    parts = [rows.column(name).to_pylist() for name in store.key]
    keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    index: dict[Any, int] = {key: number for number, key in enumerate(keys) if _is_whole(key)}
    if store.latest is None and len(index) < sum(map(_is_whole, keys)):
        seen: set[Any] = set()
        twice = next(key for key in keys if _is_whole(key) and (key in seen or seen.add(key)))  # type: ignore[func-returns-value]  # it is None
        raise StreamError(
            f"{where}: the key {twice!r} has several rows: name with latest= the column whose greatest value counts, or take a merged table"
        )
    return index


def _is_whole(key: Any) -> bool:
    """A null is no key, nor is one with a null in it."""
    return key is not None and not (isinstance(key, tuple) and None in key)


def table_store(
    path: str, name: str, directory: str, key: Sequence[str], columns: Sequence[str] | None, version: int | None, latest: str | None
) -> TableStore:
    """The store, with the columns that the table has now. TableError if there is no table; ValueError for a column that is not there."""
    from moldau.lake.reading.row_shape import spark_schema

    snapshot = opened(path, version)
    known = snapshot.schema
    if not key:
        raise ValueError(f"{path}: name the columns of the key with key=")
    chosen = tuple(each for each in known.names if each not in key) if columns is None else tuple(columns)
    for each in (*key, *chosen, *(() if latest is None else (latest,))):
        if each not in known.names:
            raise ValueError(f"{path}: the table has no column {each}; it has {', '.join(known.names)}")
    wanted = pa.schema([known.field(each) for each in dict.fromkeys((*key, *chosen, *(() if latest is None else (latest,))))])
    kinds = spark_schema(wanted)
    for each in key:
        if (kind := kinds[each].dataType.simpleString()).startswith(_NO_KEYS):
            raise ValueError(f"{path}: the column {each} is {kind}, and no key: a key is text, bytes, whole numbers, decimals or times")
    from pyspark.sql.pandas.types import to_arrow_schema

    return TableStore(path, name, directory, tuple(key), chosen, to_arrow_schema(kinds, timezone="UTC"), version, latest, snapshot.id)
