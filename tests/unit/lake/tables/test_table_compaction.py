"""What a compaction writes: few row groups, whatever the number of files that it reads, and all their rows."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from moldau.lake.tables import rewriting
from moldau.lake.tables.opening import FORMATS
from moldau.lake.tables.rewriting import compact_table
from support.number_table import NumberTable


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("at_once", "groups"), [(100_000, [20]), (7, [8, 8, 4])])
def test_small_files_become_row_groups_of_many_rows(
    kind: str, at_once: int, groups: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten files of two rows each."""
    monkeypatch.setattr(rewriting, "ROWS_AT_ONCE", at_once)
    table = NumberTable(kind, tmp_path / "table")
    for number in range(10):
        table.load(number, number + 100)
    compact_table(table.path)
    written = pq.ParquetFile(table.file()).metadata
    assert [written.row_group(number).num_rows for number in range(written.num_row_groups)] == groups
    assert table.numbers() == sorted([*range(10), *range(100, 110)])
