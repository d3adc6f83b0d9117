"""Wherever the driver or a task of a load dies, each event is in the table once, each bad record in the dead letters once, and the audit
finds everything complete (missions I1, H4).

The driver dies by an exception that nothing catches; what a real death would leave, it leaves. A task dies by SIGKILL to its process.
`test_load_torture` kills whole processes at random moments.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.lake.loading.errors import TaskError
from moldau.lake.loading.load import load
from moldau.lake.points import DIE_AT, DIE_ONCE, DRIVER_POINTS, TASK_POINTS, on_point
from moldau.lake.table import remove_orphans
from moldau.lake.tables.opening import open_table
from moldau.lake.tables.rewriting import compact_table
from moldau.testing.broker import Broker
from support.load_world import Killed, LoadWorld, State
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

COMMITTED = DRIVER_POINTS.index("driver: table committed")


@pytest.fixture(scope="module")
def table_of_kills() -> Iterator[list[tuple[str, str, State]]]:
    """Printed at the end: pytest shows it with -s, or where a test fails."""
    lines: list[tuple[str, str, State]] = []
    yield lines
    print(f"\n{'died at':<36} {'format':<8} {'times':>5} {'rows':>5} {'distinct':>8} {'dead letters':>12} {'distinct':>8}  audit")
    for point, kind, state in lines:
        numbers = f"{state.rows:>5} {state.distinct:>8} {state.dead_letters:>12} {state.distinct_dead_letters:>8}"
        print(f"{point:<36} {kind:<8} {1:>5} {numbers}  {state.verdict}")


def die_at(wanted: str) -> Any:
    """A hook that ends the driver at a point."""

    def hook(point: str) -> None:
        if point == wanted:
            raise Killed(point)

    return on_point(hook)


@pytest.mark.parametrize("number", range(len(DRIVER_POINTS)), ids=[each.replace("driver: ", "") for each in DRIVER_POINTS])
def test_the_driver_dies(number: int, broker: Broker, tmp_path: Path, table_of_kills: list[tuple[str, str, State]]) -> None:
    spark, point = spark_session(), DRIVER_POINTS[number]
    kind = "parquet" if number % 3 == 2 else "delta"
    world = LoadWorld(broker, tmp_path, table_format=kind, writers=1)
    world.publish(40)
    with die_at(point), pytest.raises(Killed):
        load(spark, world.job)
    assert len(world.rows(columns=["n"])) == (world.published if number >= COMMITTED else 0), "all of a load is seen, or nothing"
    world.publish(20)
    load(spark, world.job)
    table_of_kills.append((point, kind, world.state()))
    assert world.state() == world.complete()


@pytest.mark.parametrize("point", TASK_POINTS, ids=[each.replace("task: ", "") for each in TASK_POINTS])
def test_a_task_dies(
    point: str, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_of_kills: list[tuple[str, str, State]]
) -> None:
    """Spark may run a task again or give the load up, as here; either way nothing is committed that is not whole."""
    spark, world = spark_session(), LoadWorld(broker, tmp_path, partition="hour", writers=2)
    world.publish(40)
    with monkeypatch.context() as patched:
        patched.setenv(DIE_AT, point)
        patched.setenv(DIE_ONCE, str(tmp_path / "it is done"))
        with pytest.raises(TaskError, match=f"topic {world.topic}: a Python process of Spark died in the middle of a task"):
            load(spark, world.job)
    assert world.rows(columns=["n"]) == []
    load(spark, world.job)
    table_of_kills.append((point, "delta", world.state()))
    assert world.state() == world.complete()


def test_a_task_that_dies_is_run_again_and_its_files_are_nobodys(broker: Broker, tmp_path: Path) -> None:
    """`moldau load` lets Spark try a task again. The first try has written and synced all its files: the table has those of the second
    only, and the others go as all orphans do."""
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(40)
    command = [*(sys.executable, "-m", "moldau.cli.main", "load", "--name", world.job.name, "--topics", world.topic, "--to", str(tmp_path))]
    command += [
        "--bootstrap",
        world.job.bootstrap_servers,
        "--registry",
        broker.registry_url,
        "--memory",
        "512m",
        "--max-dead-letters",
        "100%",
    ]
    orders = {DIE_AT: "task: done", DIE_ONCE: str(tmp_path / "it is done")}
    done = subprocess.run(command, env={**os.environ, **orders}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "it is done").exists()
    assert world.state() == world.complete()
    for path in (world.job.table, world.job.dead_letters):
        table = open_table(path)
        assert table is not None
        known = {file.path for file in table.files()}
        assert len(known) < len(data_files(path)), "there are two tries on the disk"
        remove_orphans(path, 0)
        assert data_files(path) == known


def data_files(path: str) -> set[str]:
    return {each.relative_to(path).as_posix() for each in Path(path).rglob("event_day=*/*.parquet")}


@pytest.mark.parametrize("point", ["compaction: files written", "compaction: committed"])
def test_a_compaction_dies(point: str, broker: Broker, tmp_path: Path, table_of_kills: list[tuple[str, str, State]]) -> None:
    spark, world = spark_session(), LoadWorld(broker, tmp_path, writers=1)
    for _ in range(2):
        world.publish(20)
        load(spark, world.job)
    with die_at(point), pytest.raises(Killed):
        compact_table(world.job.table)
    table_of_kills.append((point, "delta", world.state()))
    assert world.state() == world.complete()
    compact_table(world.job.table)
    assert world.state() == world.complete()
