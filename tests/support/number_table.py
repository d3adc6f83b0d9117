"""A small table of either format: numbers go in as rows of a day, by commits as loads make them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.tables.committing import commit
from moldau.lake.tables.data_files import DAY, TIME_FIELDS, DataFile, PartitionWriter
from moldau.lake.tables.format import Snapshot, TableChange
from moldau.lake.tables.opening import format_named, open_or_create, opened

COLUMNS = [("n", pa.int64())]
DAY_MS = 86_400_000


class NumberTable:
    """A table with the columns `n` and others if wanted, by day: day 0 is the first of 1970."""

    def __init__(self, kind: str, path: Path | str, columns: Any = None) -> None:
        self.tables, self.path = format_named(kind), str(path)
        self.schema = pa.schema([*(columns or COLUMNS), *TIME_FIELDS])
        open_or_create(self.tables, self.path, self.schema, [DAY], "numbers")

    def write(self, rows: Any, day: int = 0) -> list[DataFile]:
        """Data files that no commit names yet; rows are numbers, or a table."""
        table = rows if isinstance(rows, pa.Table) else pa.table({"n": pa.array(rows, pa.int64())})
        writer = PartitionWriter(self.path, "job")
        writer.add(table, np.full(table.num_rows, day * DAY_MS))
        return writer.finish()

    def load(self, *numbers: int, day: int = 0) -> int:
        """A commit of a file with these numbers; its version."""
        return self.commit(TableChange("LOAD", self.write(list(numbers), day), metadata={"moldau.job": "job"}))

    def commit(self, change: TableChange) -> int:
        """The version of any change."""
        return commit(self.tables, self.path, change)

    def now(self) -> Snapshot:
        """The newest version."""
        return opened(self.path)

    def file(self, number: int = 0) -> Path:
        """A data file of the newest version on disk."""
        return Path(self.path, sorted(each.path for each in self.now().files())[number])

    def numbers(self) -> list[int]:
        """The rows that readers see."""
        from moldau.lake.dataset import scan

        return sorted(scan(self.path).to_table(columns=["n"])["n"].to_pylist())
