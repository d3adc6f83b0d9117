"""Repairs: what was a finding is none afterwards, no row is lost or doubled, and what runs beside is not disturbed."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from moldau.lake.counts import COUNTS_KEY
from moldau.lake.dataset import scan
from moldau.lake.doctor.examination import examine
from moldau.lake.doctor.facts import Limits
from moldau.lake.doctor.findings import Check, Repair
from moldau.lake.doctor.repairing import repair
from moldau.lake.doctor.rules import findings
from moldau.lake.tables import delta
from moldau.lake.tables.format import Snapshot, TableChange
from moldau.lake.tables.opening import FORMATS
from support.number_table import NumberTable

NOW = datetime.now(UTC)
LIMITS = Limits(small_files_min=3, since_checkpoint_max=5, old_versions_min=1, expired_tombstones_min=1)


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> NumberTable:
    return NumberTable(request.param, tmp_path / "table")


def repaired(table: NumberTable, limits: Limits = LIMITS, now: datetime = NOW) -> list[Repair]:
    return repair(table.path, findings(examine(table.path, limits, now=now), limits), limits, now=now)


def checks(table: NumberTable, now: datetime = NOW) -> list[Check]:
    return [each.check for each in findings(examine(table.path, LIMITS, now=now), LIMITS)]


def grow_old(path: Path) -> None:
    os.utime(path, (0, 0))


def test_small_files_become_one(table: NumberTable) -> None:
    for number in range(3):
        table.load(number)
    (done,) = repaired(table)
    assert (done.check, done.done, done.text) == (Check.SMALL_FILES, True, "3 files of 1 partition became 1; version 4")
    assert (checks(table), table.numbers(), len(table.now().files())) == ([], [0, 1, 2], 1)


def test_a_load_that_commits_meanwhile_is_not_disturbed(table: NumberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        table.load(number)
    meet(monkeypatch, table, lambda: table.load(3))
    (done,) = repaired(table)
    assert done.done
    assert (table.numbers(), len(table.now().files())) == ([0, 1, 2, 3], 2)


def test_of_two_repairs_at_once_one_compacts(table: NumberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        table.load(number)
    meet(monkeypatch, table, lambda: repaired(table))
    (done,) = repaired(table)
    assert (done.done, done.text) == (True, "another compaction was faster")
    assert (table.numbers(), len(table.now().files())) == ([0, 1, 2], 1)


def meet(monkeypatch: pytest.MonkeyPatch, table: NumberTable, other: Callable[[], object]) -> None:
    """Another writer commits right before the compaction does."""
    kind: Any = type(table.tables)
    real = kind.put
    met: list[bool] = []

    def put(self: Any, path: str, base: Snapshot, change: TableChange) -> int:
        if change.operation == "OPTIMIZE" and not met:
            met.append(True)
            other()
        return int(real(self, path, base, change))

    monkeypatch.setattr(kind, "put", put)


def test_nothing_is_compacted_while_files_are_missing(table: NumberTable) -> None:
    for number in range(3):
        table.load(number)
    table.file().unlink()
    (done,) = repaired(table)
    assert not done.done
    assert done.text.startswith("refused: a compaction would read files that are wrong (1 file of the newest version is not there")
    assert checks(table) == [Check.MISSING_FILES, Check.SMALL_FILES]


def test_a_repair_that_fails_is_reported_and_the_next_one_is_made(table: NumberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        table.load(number)
    (old,) = table.write([9])
    grow_old(Path(table.path, old.path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("moldau.lake.tables.rewriting.sync_files", full)
    first, second = repaired(table)
    assert (first.check, first.done, second.check, second.done) == (Check.SMALL_FILES, False, Check.UNNEEDED_FILES, True)
    assert "No space left on device" in first.text
    assert table.numbers() == [0, 1, 2]


def test_files_that_nothing_needs_are_deleted_and_others_stay(table: NumberTable) -> None:
    table.load(1)
    (young,), (old,) = table.write([2]), table.write([3])
    grow_old(Path(table.path, old.path))
    (done,) = repaired(table)
    assert (done.check, done.done, done.text) == (Check.UNNEEDED_FILES, True, "1 data file deleted")
    assert (Path(table.path, old.path).exists(), Path(table.path, young.path).exists()) == (False, True)
    assert table.numbers() == [1]


def test_what_dead_writers_left_in_the_log_is_deleted(table: NumberTable) -> None:
    folder = Path(table.path, "_delta_log" if table.tables.name == "delta" else "_manifests")
    left = folder / f"_moldau_{1:032x}.tmp"
    left.write_text("half")
    grow_old(left)
    (done,) = repaired(table)
    assert (done.check, left.exists(), checks(table)) == (Check.LOG_LEFTOVERS, False, [])


def test_a_checkpoint_is_made(tmp_path: Path) -> None:
    table = NumberTable("delta", tmp_path / "table")
    for day in range(5):
        table.load(day, day=day)
    assert checks(table) == [Check.CHECKPOINT]
    (done,) = repaired(table)
    assert (done.check, done.text, checks(table)) == (Check.CHECKPOINT, "checkpoint of version 5", [])
    assert table.numbers() == [0, 1, 2, 3, 4]


def test_one_checkpoint_drops_old_tombstones_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = NumberTable("delta", tmp_path / "table")
    monkeypatch.setattr(delta, "now_ms", lambda: 1_000)
    for number in range(3):
        table.load(number)
    for file in table.now().files():
        grow_old(Path(table.path, file.path))
    assert [each.check for each in repaired(table, Limits(small_files_min=3))] == [Check.SMALL_FILES]
    monkeypatch.undo()
    assert checks(table) == [Check.TOMBSTONES, Check.UNNEEDED_FILES]
    deleted, done = repaired(table)
    assert (done.check, done.text, deleted.text) == (Check.TOMBSTONES, "checkpoint of version 4", "3 data files deleted")
    assert checks(table) == []
    assert table.numbers() == [0, 1, 2]


def test_old_versions_are_deleted_and_later_ones_stay_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 3)
    table = NumberTable("delta", tmp_path / "table")
    for day in range(7):
        table.load(day, day=day)
    folder = Path(table.path, "_delta_log")
    for version in range(5):  # 5 is the first of the last 30 days, so a reader may be at 4, which needs the checkpoint of 3
        grow_old(folder / f"{version:020d}.json")
    (done,) = repaired(table)
    assert (done.check, done.done) == (Check.OLD_VERSIONS, True)
    assert done.text.startswith("3 files of versions deleted")
    assert sorted(int(each.name[:20]) for each in folder.glob("*.json")) == [3, 4, 5, 6, 7]
    for version in range(3, 8):
        assert scan(table.path, version=version).count_rows() == version
    assert (checks(table), table.numbers()) == ([], list(range(7)))
    table.load(7, day=7)
    assert table.numbers() == list(range(8))


def test_a_checkpoint_deletes_no_version_however_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of a load stand in its version until the audit has them, and `--log-retention` says how long versions are kept."""
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 3)
    table = NumberTable("delta", tmp_path / "table")
    words = {"moldau.job": "job", "moldau.topic": "t", COUNTS_KEY: {"x": 1}}
    folder = Path(table.path, "_delta_log")
    for number in range(6):
        for file in folder.iterdir():
            grow_old(file)
        table.commit(TableChange("LOAD", table.write([number]), metadata=words))
    for file in folder.iterdir():
        grow_old(file)
    assert delta.make_checkpoint(table.path) == 6
    assert sorted(int(each.name[:20]) for each in folder.glob("*.json")) == list(range(7))
    assert [each.version for each in table.tables.commits(table.path, -1) if each.metadata.get(COUNTS_KEY)] == [1, 2, 3, 4, 5, 6]


def test_a_repair_that_dies_at_old_versions_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 5)
    table = NumberTable("delta", tmp_path / "table")
    for day in range(6):
        table.load(day, day=day)
    folder = Path(table.path, "_delta_log")
    real = os.unlink
    deleted: list[str] = []

    def dying(path: str) -> None:
        if len(deleted) == 2:
            raise OSError(5, "Input/output error")
        deleted.append(path)
        real(path)

    monkeypatch.setattr("moldau.lake.tables.places.local.os.unlink", dying)
    later = NOW + timedelta(days=60)
    (done,) = repaired(table, now=later)
    monkeypatch.undo()
    assert not done.done
    assert sorted(int(each.name[:20]) for each in folder.glob("*.json")) == [2, 3, 4, 5, 6]
    assert table.numbers() == list(range(6))
    assert repaired(table, now=later)[0].done
    assert sorted(int(each.name[:20]) for each in folder.glob("*.json")) == [5, 6]
    assert table.numbers() == list(range(6))


def test_a_table_that_is_well_is_left_as_it_is(table: NumberTable) -> None:
    table.load(1)
    assert repaired(table) == []
    assert table.now().version == 1


def test_repairs_again_and_again_beside_loads_lose_and_double_nothing(table: NumberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loads commit, each as fast as it can; checkpoints, compactions and deletions come between their versions."""
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 7)
    loads, each, later = 2, 15, NOW + timedelta(days=60)

    def load(first: int) -> None:
        for number in range(each):
            table.load(first * each + number)

    with ThreadPoolExecutor(loads) as pool:
        running = [pool.submit(load, first) for first in range(loads)]
        rounds = 0
        while not all(one.done() for one in running) or rounds < 2:
            found = findings(examine(table.path, LIMITS, now=later), LIMITS)
            wanted = [one for one in found if one.check is not Check.LOG_LEFTOVERS]  # they are the loads' own, since the clock is ahead
            done = repair(table.path, wanted, LIMITS, now=later)
            assert [one.text for one in done if not one.done] == []
            rounds += 1
        for one in running:
            one.result()
    repaired(table)
    assert table.numbers() == list(range(loads * each))
    assert examine(table.path).missing == []
