"""Dead letters that a killed load has committed are reported by the load that takes its records: by line, result and exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.cli.load import load_command
from moldau.lake import session
from moldau.lake.loading.load import LoadResult, load
from moldau.lake.points import on_point
from moldau.testing.broker import Broker
from support.load_world import Killed, LoadWorld, Row, words_of
from support.tasks_here import TasksHere

pytestmark = pytest.mark.system


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> LoadWorld:
    """A load of 40 records was killed between its commits: four of them are dead letters."""
    world = LoadWorld(broker, tmp_path)
    world.publish(40)

    def die(point: str) -> None:
        if point == "driver: dead letters committed":
            raise Killed(point)

    with on_point(die), pytest.raises(Killed):
        load(TasksHere(), world.job)
    assert len(world.rows(world.job.dead_letters)) == 4
    return world


def dead_letters(world: LoadWorld) -> list[Row]:
    """The rows of their table, in the log's order."""
    return sorted(world.rows(world.job.dead_letters), key=lambda row: (row["_partition"], row["_offset"]))


def described(world: LoadWorld, row: Row) -> str:
    """A dead letter as the result of a load names it."""
    return f"{world.topic}-{row['_partition']} offset {row['_offset']}: {row['error']}"


def first_of(world: LoadWorld) -> str:
    """The first dead letter of the table, as a load names it."""
    return described(world, dead_letters(world)[0])


def run(world: LoadWorld, directory: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> Result:
    monkeypatch.setattr(session, "start_tasks", lambda *_, **__: TasksHere())
    where = ["--bootstrap", world.job.bootstrap_servers, "--registry", str(world.job.registry), "--to", str(directory)]
    return CliRunner().invoke(load_command, ["--name", world.job.name, "--topics", world.topic, *where, *more])


def test_the_next_load_counts_those_of_the_killed_one_and_its_own(world: LoadWorld) -> None:
    """The first one is named wherever it lies, and the table's words say the same as the audit."""
    world.publish(20)
    result = load(TasksHere(), world.job)
    assert (result.rows, result.dead_letters) == (54, 6)
    assert result.first_dead_letter == first_of(world)
    assert [words["moldau.dead.letters"] for words in words_of(world.job.table) if "moldau.rows" in words] == [6]
    assert world.state() == world.complete()
    assert load(TasksHere(), world.job).dead_letters == 0, "each is reported once"


def test_a_load_of_fewer_records_counts_the_dead_letters_among_those(world: LoadWorld) -> None:
    """The killed one had taken more: its other dead letters are reported by the loads that take their records.

    A load takes three records at most: none takes all four dead letters, wherever they lie.
    """
    results: list[LoadResult] = []
    while not results or results[-1].more:
        results.append(load(TasksHere(), world.other(records_max=3)))
    letters = dead_letters(world)
    of_each = [
        [row for row in letters if any(r.partition == row["_partition"] and r.start <= row["_offset"] < r.end for r in result.ranges)]
        for result in results
    ]
    assert [each.dead_letters for each in results] == [len(rows) for rows in of_each]
    assert [each.first_dead_letter for each in results] == [described(world, rows[0]) if rows else None for rows in of_each]
    assert sum(each.dead_letters for each in results) == 4 > max(each.dead_letters for each in results)
    assert world.state() == world.complete()


def test_the_line_and_the_exit_code_count_those_of_the_killed_load(
    world: LoadWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All dead letters are the killed load's: too many of them are exit code 5, and the next run has none."""
    done = run(world, tmp_path, monkeypatch, "--max-dead-letters", "3")
    assert done.exit_code == 5, done.output
    assert f"{world.topic}: 36 rows, 4 dead letters, 1 file, version 2" in done.output
    assert f"first dead letter: {first_of(world)}" in done.output
    assert f"{world.topic}: 4 dead letters of 40 records in {world.job.dead_letters}: more than --max-dead-letters 3" in done.output
    done = run(world, tmp_path, monkeypatch, "--max-dead-letters", "0", "--json")
    assert (done.exit_code, json.loads(done.output)["dead_letters"]) == (0, 0)
    assert world.state() == world.complete()
