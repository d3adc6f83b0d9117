"""A wait for a table looks into it only when its log has changed: of very many files that takes seconds."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moldau.lake import table as lake_table
from moldau.lake.table import IncompleteTableError, set_watermark, wait_until_complete
from moldau.lake.tables.opening import FORMATS
from support.number_table import NumberTable

NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


class Clock:
    """Time passes while the wait sleeps, and `on_sleep` is what others do meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []
        self.opened = 0
        self.on_sleep: Callable[[], object] = lambda: None
        real, time_s = lake_table.completion_watermark, time.time

        def counted(path: str) -> datetime | None:
            self.opened += 1
            return real(path)

        monkeypatch.setattr(lake_table, "completion_watermark", counted)
        monkeypatch.setattr(time, "time", lambda: time_s() + 10 + self.now_s)  # the log was changed long ago

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        self.on_sleep()

    def wait(self, path: str, timeout_s: float) -> datetime:
        return wait_until_complete(path, NOON, timeout_s, monotonic=lambda: self.now_s, sleep=self.sleep)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unchanged_table_is_opened_once_in_half_a_minute(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = NumberTable(kind, tmp_path / "table"), Clock(monkeypatch)
    with pytest.raises(IncompleteTableError, match="after 20 s; it has no completion watermark yet"):
        clock.wait(table.path, 20)
    assert (clock.opened, len(clock.slept)) == (1, 40)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_watermark_is_seen_with_the_next_look(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = NumberTable(kind, tmp_path / "table"), Clock(monkeypatch)

    def store() -> None:
        if len(clock.slept) == 3:
            set_watermark(table.tables, table.path, NOON_MS)

    clock.on_sleep = store
    assert clock.wait(table.path, 60) == NOON
    assert (clock.opened, clock.now_s) == (2, 1.5)


def test_the_table_may_come_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, path = Clock(monkeypatch), tmp_path / "table"

    def make() -> None:
        if len(clock.slept) == 2:
            table = NumberTable("delta", path)
            set_watermark(table.tables, table.path, NOON_MS + 1)

    clock.on_sleep = make
    assert clock.wait(str(path), 60) > NOON
    assert clock.now_s == 1.0


def test_a_table_that_takes_long_to_open_is_opened_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes all the time, and each look takes two seconds: four fifths of the time are left to others."""
    table, clock = NumberTable("delta", tmp_path / "table"), Clock(monkeypatch)
    counted = lake_table.completion_watermark

    def slow(path: str) -> datetime | None:
        clock.now_s += 2.0
        return counted(path)

    monkeypatch.setattr(lake_table, "completion_watermark", slow)
    clock.on_sleep = lambda: table.load(1)
    with pytest.raises(IncompleteTableError):
        clock.wait(table.path, 30)
    assert clock.slept == [8.0, 8.0, 8.0]
