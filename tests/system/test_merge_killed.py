"""Wherever a merge dies by SIGKILL, the merged table is that of one version or the other, and the next merge ends it (missions I1, I2);
and what it commits is a table like any other to `deltalake` and Spark.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.lake.merging.merge import merge_table
from moldau.lake.points import DIE_AT, MERGE_POINTS
from moldau.lake.table import read_table, remove_orphans
from moldau.lake.tables.opening import open_table
from support.merge_world import AppendedTable, Model, comparable, data_files, merged_rows, named_files
from support.spark import spark_session

pytestmark = pytest.mark.system

COMMITTED = MERGE_POINTS.index("merge: committed")
COMMAND = (sys.executable, "-c", "from moldau.cli.lake_merge import merge; merge()")


def merge(appended: AppendedTable, point: str) -> int:
    """The exit code of a process that merges, and dies at the point."""
    options = ["--key", "id", "--deletes", "op=d", "--buckets", "3"]
    command = [*COMMAND, appended.path, f"{appended.path}_merged", *options]
    done = subprocess.run(command, env={**os.environ, DIE_AT: point}, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def rows(begin: int) -> list[dict[str, object]]:
    return [{"id": f"key {number % 17}", "n": number, "op": "d" if number % 5 == 4 else "u"} for number in range(begin, begin + 40)]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize("number", range(len(MERGE_POINTS)), ids=[each.removeprefix("merge: ") for each in MERGE_POINTS])
def test_a_merge_dies(number: int, kind: str, tmp_path: Path) -> None:
    appended, merged, point = AppendedTable(tmp_path / "t", kind), str(tmp_path / "t_merged"), MERGE_POINTS[number]
    before, after = Model(), Model()
    appended.append(rows(0))
    after.merge(appended.rows)
    if point != "merge: table made":
        merge_table(appended.path, merged, keys=["id"], deletes="op=d", buckets=3)
        before.merge(appended.rows)
        appended.append(rows(40))
        after.merge(appended.rows[40:])
    assert merge(appended, point) == -signal.SIGKILL
    seen = after if number >= COMMITTED else before
    assert comparable(merged_rows(merged)) == comparable(seen.live()), "one version or the other"
    merge_table(appended.path, merged, keys=["id"], deletes="op=d", buckets=3)
    assert comparable(merged_rows(merged)) == comparable(after.live())
    remove_orphans(merged, 0)
    assert data_files(merged) == named_files(merged), "what the dead one left is removed as an orphan, and nothing else"
    assert [each.name for each in Path(merged).iterdir() if each.is_file()] == [], "rows on their way were in a file without a name"


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_processes_that_merge_at_once_merge_once(kind: str, tmp_path: Path) -> None:
    appended, merged = AppendedTable(tmp_path / "t", kind), str(tmp_path / "t_merged")
    command = [*COMMAND, appended.path, merged, "--key", "id", "--deletes", "op=d", "--buckets", "3", "--json"]
    model, read = Model(), 0
    for begin in (0, 40):
        appended.append(rows(begin))
        model.merge(appended.rows[begin:])
        merges = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        found = [json.loads(each.communicate()[0]) for each in merges]
        assert [each["changed"] for each in found].count(True) == 1, "the others found nothing to do"
        read += sum(each["rows_read"] for each in found)
        assert comparable(merged_rows(merged)) == comparable(model.live())
    assert read == 80


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_other_readers_read_the_same(kind: str, tmp_path: Path) -> None:
    appended, merged = AppendedTable(tmp_path / "t", kind), str(tmp_path / "t_merged")
    for begin in (0, 40, 80):
        appended.append(rows(begin))
        merge_table(appended.path, merged, keys=["id"], deletes="op=d", order="time:_timestamp", buckets=3)
    ours = sorted((key[0], row["n"], row["op"], row["_deleted"]) for key, row in merged_rows(merged).items())
    assert len(ours) == 17
    assert any(row[3] for row in ours)
    if kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(merged).to_pyarrow_table()
        names = ("id", "n", "op", "_deleted")
        assert sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True)) == ours
        first = DeltaTable(merged, version=1).to_pyarrow_table()
        assert first.num_rows == len(merged_rows(merged, version=1)) == 17, "readers of an older version read its files"
    frame = read_table(spark_session(), merged)
    assert sorted((row.id, row.n, row.op, row._deleted) for row in frame.collect()) == ours
    snapshot = open_table(merged)
    assert snapshot is not None
    assert {row.key_bucket for row in frame.collect()} == {int(file.partition["key_bucket"] or 0) for file in snapshot.files()}
