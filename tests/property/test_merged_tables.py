"""A merged table equals a plain dict after each version that it names (missions I1, I2).

Rows of few keys come with deletions and times out of order; merges are ended at named points, others merge in the middle of them, and the
append-only table is compacted in between.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.lake.merging import bucket_rows, resolution
from moldau.lake.merging.merge import merge_table
from moldau.lake.merging.planning import application_id
from moldau.lake.points import MERGE_POINTS, on_point
from moldau.lake.tables.opening import open_table, opened
from moldau.lake.tables.rewriting import compact_table
from support.load_world import Killed
from support.merge_world import DAY_MS, NOON_MS, AppendedTable, Model, Row, comparable, live, merged_rows, moment

KEYS = [f"key {number}" for number in range(9)]
HORIZON_MS = 3 * DAY_MS


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    made = []
    for number in range(draw(st.integers(1, 12))):
        key = draw(st.sampled_from([*KEYS, None]))
        at = draw(st.one_of(st.none(), st.integers(-60, 60)))
        made.append({
            "id": key, "n": number, "op": draw(st.sampled_from("uuud")), "at": None if at is None else moment(NOON_MS + at * DAY_MS // 6),
            "_partition": 0 if key is None else KEYS.index(key) % 3,
        })  # fmt: skip
    return made


STEPS = st.lists(
    st.one_of(
        rows(),
        rows(),
        st.just("merge"),
        st.just("compact"),
        st.tuples(st.just("die"), st.sampled_from(MERGE_POINTS)),
        st.tuples(st.just("another"), st.sampled_from(MERGE_POINTS)),
    ),
    min_size=2,
    max_size=12,
)


class World:
    """Two tables and the model; every look at them takes the versions into the model that the merged table names."""

    def __init__(self, folder: Path, kind: str, *, by_time: bool) -> None:
        self.appended = AppendedTable(folder / "t", kind)
        self.merged = str(folder / "t_merged")
        self.options: dict[str, Any] = {
            "keys": ["id"],
            "deletes": "op=d",
            "order": "time:at" if by_time else "log",
            "buckets": 3,
            "clock": lambda: NOON_MS + 999 * DAY_MS,
            "horizon": timedelta(milliseconds=HORIZON_MS),
        }
        self.model = Model(by_time, HORIZON_MS)
        self.versions: list[tuple[int, list[Row]]] = []
        self._named = -1

    def append(self, new: list[Row]) -> None:
        begin = len(self.appended.rows)
        version = self.appended.append(new)
        self.versions.append((version, self.appended.rows[begin:]))

    def merge(self) -> None:
        merge_table(self.appended.path, self.merged, **self.options)

    def look(self) -> None:
        snapshot = open_table(self.merged)
        named = None if snapshot is None else snapshot.offset(application_id(opened(self.appended.path).id))
        if named is None:
            return
        if named > self._named:
            self.model.merge([row for version, new in self.versions if self._named < version <= named for row in new])
            self._named = named
        assert comparable(live(self.merged)) == comparable(self.model.live())
        assert set(merged_rows(self.merged)) >= {(key,) for key in self.model.rows}


@contextmanager
def at(point: str, then: Any) -> Iterator[None]:
    """The first time that a merge reaches the point."""
    left = [then]

    def hook(reached: str) -> None:
        if reached == point and left:
            left.pop()()

    with on_point(hook):
        yield


def die() -> None:
    raise Killed


def follow(world: World, steps: list[Any]) -> None:
    for step in steps:
        match step:
            case list():
                world.append(step)
            case "merge":
                world.merge()
            case "compact":
                compact_table(world.appended.path)
            case "die", point:
                try:
                    with at(point, die):
                        world.merge()
                except Killed:
                    pass
            case "another", point:
                with at(point, world.merge):
                    world.merge()
        world.look()
    world.merge()
    world.look()
    assert world._named == world.appended.version or not world.versions or world._named >= world.versions[-1][0]


@settings(deadline=None, max_examples=25)
@given(steps=STEPS, kind=st.sampled_from(["delta", "parquet"]), by_time=st.booleans())
def test_the_merged_table_equals_the_model(steps: list[Any], kind: str, by_time: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        follow(World(Path(folder), kind, by_time=by_time), steps)


@settings(deadline=None, max_examples=8)
@given(steps=STEPS, by_time=st.booleans())
def test_rows_that_pass_through_the_disk_and_in_many_turns_are_the_same(steps: list[Any], by_time: bool) -> None:
    """With no room in memory each batch goes to the file, and each part of it is put together with its bucket alone."""
    known = bucket_rows.BYTES_MAX, resolution.ROWS_AT_ONCE_MIN
    bucket_rows.BYTES_MAX, resolution.ROWS_AT_ONCE_MIN = 0, 1
    try:
        with tempfile.TemporaryDirectory() as folder:
            follow(World(Path(folder), "parquet", by_time=by_time), steps)
    finally:
        bucket_rows.BYTES_MAX, resolution.ROWS_AT_ONCE_MIN = known
