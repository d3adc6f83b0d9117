"""An append-only table as loads make it, without brokers; the merged table beside it as rows; and what it should be, by a plain dict."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.lake.tables.committing import application_id, commit
from moldau.lake.tables.data_files import DataFile, ParquetFileWriter, sync_files
from moldau.lake.tables.format import TableChange
from moldau.lake.tables.opening import format_named, format_of, open_or_create, opened
from moldau.lake.tables.places.addresses import place_of

DAY_MS = 86_400_000
NOON_MS = 1_372_680_000_000
"""2013-07-01T12:00:00Z."""
TIME = pa.timestamp("us", tz="UTC")
FIELDS = pa.schema([("id", pa.string()), ("n", pa.int32()), ("op", pa.string()), ("at", TIME)])
PLACE = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64()), ("_timestamp", TIME)])
DAYS = pa.schema([("event_day", pa.date32()), ("event_hour", pa.int32())])

Row = dict[str, Any]


def moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


class AppendedTable:
    """Takes rows with the columns `FIELDS`, and gives each the next offset of its partition."""

    def __init__(self, path: Path | str, kind: str = "delta", fields: Any = FIELDS) -> None:
        self.path = str(path)
        self.tables = format_named(kind)
        self.schema = pa.schema([*fields, *PLACE, *DAYS])
        self.rows: list[Row] = []
        self._ends: dict[int, int] = defaultdict(int)
        open_or_create(self.tables, self.path, self.schema, ("event_day",), "a test")

    @property
    def version(self) -> int:
        return opened(self.path).version

    def append(self, rows: Iterable[Mapping[str, Any]], topic_id: str = "0a") -> int:
        """The version that has them; a row says its partition by `_partition`, 0 otherwise."""
        made = []
        for row in rows:
            partition = row.get("_partition", 0)
            at = row.get("at") or moment(NOON_MS)
            offset = row.get("_offset", self._ends[partition])
            self._ends[partition] = offset + 1
            place = {"_partition": partition, "_offset": offset, "_timestamp": moment(NOON_MS + offset), "event_hour": at.hour}
            made.append({**row, **place, "event_day": at.date()})
        self.rows += made
        ids = {application_id("test", topic_id, partition): end for partition, end in self._ends.items()}
        return self.commit(TableChange("LOAD", self._files(made), offsets=ids, metadata={"moldau.topic.id": topic_id}))

    def commit(self, change: TableChange) -> int:
        return commit(self.tables, self.path, change)

    def _files(self, rows: list[Row]) -> list[DataFile]:
        inside = pa.schema([each for each in self.schema if each.name != "event_day"])
        by_day: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            by_day[row["event_day"]].append(row)
        files = []
        for day, some in by_day.items():
            file = ParquetFileWriter(self.path, "load-", {"event_day": day.isoformat()}, inside)
            file.write(pa.Table.from_pylist(some, inside))
            files.append(file.close())
        sync_files(self.path, [file.path for file in files])
        return files


def rows_in(path: str | Path, version: int | None = None) -> list[Row]:
    """The rows of a table, with the columns that stand in the folders' names as text, read without the code under test."""
    found: list[Row] = []
    for file in opened(str(path), version).files():
        found += [{**row, **file.partition} for row in pq.ParquetFile(place_of(str(path)).source(file.path)).read().to_pylist()]
    return found


def merged_rows(path: str | Path, *, keys: tuple[str, ...] = ("id",), version: int | None = None) -> dict[Any, Row]:
    """The rows of a merged table by key, each key once."""
    rows = rows_in(path, version)
    found = {tuple(row[name] for name in keys): row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


@dataclass
class Model:
    """A merged table of `FIELDS` with the key `id`, where op `d` deletes: one row after the other into a dict."""

    by_time: bool = False
    horizon_ms: int = 7 * DAY_MS
    newest_ms: int | None = None
    rows: dict[str, Row] = field(default_factory=dict)

    def merge(self, new: Iterable[Row]) -> None:
        self._drop_marks()
        for row in new:
            if row["id"] is None:
                continue
            known = self.rows.get(row["id"])
            if known is None or self._rank(row) > self._rank(known):
                self.rows[row["id"]] = row
            if self.by_time and row["at"] is not None:
                self.newest_ms = max(self.newest_ms or -(2**63), _ms(row["at"]))
        if not self.by_time:
            self.rows = {key: row for key, row in self.rows.items() if row["op"] != "d"}
        self._drop_marks()

    def live(self) -> dict[Any, Row]:
        return {(key,): row for key, row in self.rows.items() if row["op"] != "d"}

    def _rank(self, row: Row) -> tuple[Any, ...]:
        place = row["_partition"], row["_offset"]
        return (-(2**63) if row["at"] is None else _ms(row["at"]), *place) if self.by_time else place

    def _drop_marks(self) -> None:
        if self.by_time and self.newest_ms is not None:
            over = self.newest_ms - self.horizon_ms
            self.rows = {k: row for k, row in self.rows.items() if row["op"] != "d" or (row["at"] is not None and _ms(row["at"]) >= over)}


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def comparable(rows: Mapping[Any, Row]) -> dict[Any, tuple[Any, ...]]:
    """The columns that a test chose."""
    return {key: tuple(row.get(name) for name in (*FIELDS.names, "_partition", "_offset")) for key, row in rows.items()}


def live(path: str | Path) -> dict[Any, Row]:
    """The rows of a merged table that are not marked as deleted."""
    return {key: row for key, row in merged_rows(path).items() if not row.get("_deleted")}


def data_files(path: str | Path) -> set[str]:
    return {each.relative_to(path).as_posix() for each in Path(path).rglob("*.parquet") if "_delta_log" not in each.parts}


def named_files(path: str | Path) -> set[str]:
    assert format_of(str(path)) is not None
    return {file.path for file in opened(str(path)).files()}
