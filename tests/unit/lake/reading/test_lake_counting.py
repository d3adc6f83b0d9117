"""What tasks of a stream leave of their counts, and what the driver takes of it: each record once, or it is known what is not there."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.counts import counts_from_json, latencies_from_json
from moldau.lake.reading.batch_order import BatchOrder
from moldau.lake.reading.columns import RecordColumns
from moldau.lake.reading.counting import FoundCounts, TaskCounts, adjoining, ordered_counts, read_counts
from moldau.lake.reading.input_counts import InputCounts
from moldau.lake.reading.offsets import OffsetRange
from support.audit_events import NOON, Host

EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
WANTED = OffsetRange("t", 0, 10, 20)


def records(*values: bytes) -> RecordColumns:
    """Of one time."""
    numbers = np.arange(len(values))
    return RecordColumns(numbers, np.full(len(values), NOON), np.zeros(len(values), np.int64), None, pa.array(values, pa.binary()), None)


def test_a_task_leaves_what_it_has_read_by_range(tmp_path: Path) -> None:
    """Events by their headers, other records by their number; of topics that are not ordered nothing; nothing before the task has ended.

    A range without records is there too: that nothing was in it is known.
    """
    directory = str(tmp_path / "counts")
    assert read_counts(directory) == FoundCounts()
    task = TaskCounts(directory, ["t"])
    empty, other = OffsetRange("t", 1, 0, 5), OffsetRange("other", 0, 0, 5)
    for wanted, parts in ((WANTED, ([EWR.event(1, NOON), b"none"], [EWR.event(2, NOON)])), (empty, ()), (other, ([EWR.event(3, NOON)],))):
        task.begin(wanted)
        for part in parts:
            task.add(wanted, records(*part))
    assert read_counts(directory) == FoundCounts()
    task.write()
    assert read_counts(directory).inputs == {}
    found = read_counts(directory).audited
    assert set(found) == {WANTED, empty}
    (count,) = counts_from_json("t", found[WANTED]).values()
    assert (count.count, found[WANTED]["untracked"], counts_from_json("t", found[empty])) == (2, 1, {})
    (latencies,) = latencies_from_json(found[WANTED], NOON).values()
    assert latencies.total == 2


def test_a_task_that_is_run_again_leaves_the_same_file(tmp_path: Path) -> None:
    """A file has the name of its ranges; one that a task was at when it was killed is no file."""
    for _ in range(2):
        task = TaskCounts(str(tmp_path), ["t"])
        task.begin(WANTED)
        task.add(WANTED, records(EWR.event(1, NOON)))
        task.write()
    (file,) = tmp_path.iterdir()
    file.with_name(".killed").write_text("[")
    assert [each["count"] for each in read_counts(str(tmp_path)).audited.values()] == [[1]]


def test_the_rows_of_an_input_are_counted_under_its_name(tmp_path: Path) -> None:
    """Two inputs of one topic, as where a job reads it with two times, are two, also where they have the same ranges."""
    empty = OffsetRange("t", 1, 0, 5)
    for name, parts in (("t", (InputCounts(2, newest_ms=7), InputCounts(3, late=1, newest_ms=5, latest_ms=20))), ("t (2)", ())):
        task = TaskCounts(str(tmp_path), [], name)
        for wanted in (WANTED, empty):
            task.begin(wanted)
        for counts in parts:
            task.add_rows(WANTED, counts)
        task.add(WANTED, records(EWR.event(1, NOON)))
        task.write()
    found = read_counts(str(tmp_path))
    assert found.audited == {}
    assert found.inputs["t"] == {WANTED: InputCounts(5, late=1, newest_ms=7, latest_ms=20), empty: InputCounts()}
    assert found.inputs["t (2)"] == {WANTED: InputCounts(), empty: InputCounts()}


def test_a_host_that_does_not_see_the_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is written there; the driver finds that something is missing. A directory that cannot be written fails the audit."""

    def task(directory: Path, audited: list[str]) -> TaskCounts:
        found = TaskCounts(str(directory), audited, "t")
        found.begin(WANTED)
        return found

    task(tmp_path / "elsewhere" / "counts", ["t"]).write()
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "file").touch()
    task(tmp_path / "file" / "counts", []).write()
    with pytest.raises(NotADirectoryError):
        task(tmp_path / "file" / "counts", ["t"]).write()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/elsewhere: is not seen on this host: what its tasks count is missing",
        f"{tmp_path}/file/counts: what a task counts is missing: not a directory",
    ]


def test_what_is_ordered() -> None:
    """Counts of the audit, of rows by event times, or none."""
    order = BatchOrder(1, 2, "/counts", ["t"])
    assert ordered_counts(order, None) is not None
    assert ordered_counts(replace(order, audited=()), "t") is not None
    for nothing, name in ((replace(order, audited=()), None), (replace(order, directory=None), "t"), (None, "t")):
        assert ordered_counts(nothing, name) is None


def test_nothing_is_left_where_nothing_is_counted(tmp_path: Path) -> None:
    task = TaskCounts(str(tmp_path / "counts"), ["t"])
    task.begin(OffsetRange("other", 0, 0, 5))
    task.write()
    assert not (tmp_path / "counts").exists()


def of(*bounds: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange("t", 0, start, end) for start, end in bounds]


def test_the_ranges_of_one_reading_are_taken() -> None:
    """Of two attempts that have cut a batch at other places, of which the first has not come to its end; or of two inputs."""
    assert adjoining(of((0, 60), (0, 50), (50, 100)), 0, 100) == tuple(of((0, 50), (50, 100)))
    assert adjoining(of((0, 50), (50, 100), (40, 100)), 0, 100) == tuple(of((0, 50), (50, 100)))
    assert adjoining(of((0, 60), (70, 100)), 0, 100) is None, "ten are not there"
    assert adjoining(of((0, 50), (50, 200)), 0, 100) is None
    assert adjoining(of((-5, 100), (5, 100)), 5, 100) == tuple(of((5, 100)))
    assert adjoining(of((7, 20), (20, 30)), None, 30) == tuple(of((7, 20), (20, 30))), "it began where the first range does"
    assert adjoining([], 3, 3) == ()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=8), st.integers(0, 6), st.integers(1, 10))
def test_what_is_taken_has_each_offset_once(parts: list[tuple[int, int]], start: int, size: int) -> None:
    """Claim: ranges are found where some of them follow each other from start to end, and then they do so."""
    ranges = of(*((first, first + length) for first, length in parts))
    found = adjoining(ranges, start, start + size)
    reachable = {start}
    for _ in ranges:
        reachable |= {each.end for each in ranges if each.start in reachable}
    assert (found is not None) == (start + size in reachable)
    if found is not None:
        assert set(found) <= set(ranges)
        assert [each.end for each in found[:-1]] == [each.start for each in found[1:]] == [after.start for _, after in pairwise(found)]
        assert (found[0].start, found[-1].end) == (start, start + size)
