"""Spark may run a task of a load twice, at once or one after the other, and each attempt writes files: one alone is in the table."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from moldau.client import Producer
from moldau.lake.table import remove_orphans
from moldau.lake.tables.opening import opened
from moldau.testing.broker import Broker
from support.straggler import DIES, HANGS, NOTES

pytestmark = [pytest.mark.system, pytest.mark.spark]

RECORDS, LIMIT_S = 4_000, 400.0


def test_of_a_task_that_speculation_starts_twice_and_one_that_is_tried_again_each_row_is_there_once(moldau: Broker, tmp_path: Path) -> None:
    """Both attempts of either task have written all their files. What the table does not name goes as orphans do."""
    topic = moldau.create_topic(moldau.unique_topic("load"), 2)
    with Producer(moldau.bootstrap_servers) as producer:
        for number in range(RECORDS):
            value = f"no event {number}" if number % 10 == 9 else f'{{"n":{number}}}'
            producer.send(topic, value, partition=number % 2, timestamp=1_372_680_000_000)
    table, dead, notes = tmp_path / "table", tmp_path / "dead", tmp_path / "notes"
    notes.mkdir()
    paths = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, "-m", "support.speculating_load", moldau.bootstrap_servers, topic, str(table), str(dead)],
        env={**os.environ, NOTES: str(notes), "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{RECORDS * 9 // 10} {RECORDS // 10}\n"), done.stderr[-3000:]
    attempts = {each.name for each in notes.iterdir()}
    assert {f"{HANGS}-1", f"{DIES}-1"} <= attempts, "Spark has started both a second time"
    assert f"{DIES}-0" not in attempts
    for path, column, wanted in (
        (table, "n", [number for number in range(RECORDS) if number % 10 != 9]),
        (dead, "value", sorted(f"no event {number}".encode() for number in range(9, RECORDS, 10))),
    ):
        known = {file.path for file in opened(str(path)).files()}
        rows = [row for name in known for row in pq.read_table(path / name, partitioning=None)[column].to_pylist()]
        assert sorted(rows) == wanted
        assert len(known) == 4, "one file of each task"
        assert len(data_files(path)) == 6, "two tasks have left theirs twice"
        remove_orphans(str(path), 0)
        assert data_files(path) == known


def data_files(path: Path) -> set[str]:
    return {each.relative_to(path).as_posix() for each in path.rglob("*.parquet") if "_delta_log" not in each.parts}
