"""``moldau lake merge`` makes a merged table and brings it forward: a line for each, and one for what is wrong."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from moldau.cli.lake_merge import merge
from support.merge_world import AppendedTable, merged_rows


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(merge, [str(each) for each in arguments])


def test_a_table_is_made_and_brought_forward(tmp_path: Path) -> None:
    appended, merged = AppendedTable(tmp_path / "t", "parquet"), tmp_path / "m"
    appended.append([{"id": "a", "n": 1}, {"id": "b", "n": 1}, {"id": None, "n": 1}])
    made = run(appended.path, merged, "--key", "id", "--deletes", "op=d", "--buckets", 1)
    assert made.exit_code == 0, made.output
    assert made.output.startswith(f"{merged}: made from 3 rows, 1 row without a key; 2 rows, version 1, 1 bucket written, in ")
    assert run(appended.path, merged).output == f"{merged}: nothing new since version 1 of {appended.path}\n"
    appended.append([{"id": "a", "n": 2}])
    found = json.loads(run(appended.path, merged, "--json").output)
    assert (found["rows_read"], found["rows"], found["appended_version"], found["changed"]) == (1, 2, 2, True)
    assert merged_rows(merged)["a",]["n"] == 2


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    appended, merged = AppendedTable(tmp_path / "t", "parquet"), tmp_path / "m"
    missing = run(appended.path, merged)
    assert (missing.exit_code, missing.output) == (1, f"Error: {merged}: there is no merged table yet: it needs key columns\n")
    unkeyed = run(appended.path, merged, "--order", "time:at")
    assert unkeyed.exit_code == 2
    assert "give its --key too" in unkeyed.output
    assert run(tmp_path / "nowhere", merged).exit_code == 2
