"""What a task of a load makes of record batches: rows with their place and headers, dead letters with their reason."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.schema import EventDecoding
from moldau.lake.loading.task import TaskOrder, write_batches
from moldau.lake.reading.options import ReadOptions, TopicNames
from moldau.lake.reading.row_shape import ARROW_TYPES
from moldau.lake.tables import data_files
from moldau.lake.tables.data_files import FileError
from moldau.tracking.latencies import Latencies, bucket_of
from support.audit_events import MINUTE, NOON, Host

NAMES = ("key", "value", "partition", "offset", "timestamp", "headers")
EVENTS, DEAD_LETTERS = "events", "dead letters"
Row = tuple[bytes | None, bytes | None, int, int, int, list[dict[str, Any]] | None]


def job(directory: Path, **changes: Any) -> LoadJob:
    return LoadJob(
        name="job",
        bootstrap_servers="nowhere:1",
        topic="t",
        table=str(directory / "table"),
        dead_letters=str(directory / "dead"),
        **{"columns": pa.schema([("a", pa.int64())]), **changes},
    )


def header(name: str, value: bytes | None) -> dict[str, Any]:
    return {"key": name, "value": value}


def run(task: LoadJob, rows: list[Row], held: dict[int, set[int]] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Rows of the files that the task reports, by target."""
    columns = [pa.array(column, ARROW_TYPES[name]) for name, column in zip(NAMES, zip(*rows, strict=True), strict=True)]
    batch = pa.record_batch(columns, names=list(NAMES))
    found: dict[str, list[dict[str, Any]]] = {EVENTS: [], DEAD_LETTERS: []}
    order = TaskOrder(
        job=task,
        decoding=EventDecoding(task.columns),
        schema=task.table_schema(task.columns),
        topic_id="00ff",
        held=held or {},
        load_id="1234abcd",
        options=ReadOptions(task.bootstrap_servers, TopicNames((task.topic,))),
    )
    report = write_batches(iter([batch]), order)
    found["dead"] = [{"count": report.put_aside.untracked, "first": report.put_aside.first}]
    assert report.untracked == len(rows), "none of them has a header of a tracked event"
    for target, root, files in ((EVENTS, task.table, report.events), (DEAD_LETTERS, task.dead_letters, report.dead_letters)):
        for file in files:
            table = pq.read_table(Path(root, file.path), partitioning=None)
            assert table.num_rows == file.rows
            found[target] += table.to_pylist()
    return found


def test_rows_keep_their_place_and_chosen_headers(tmp_path: Path) -> None:
    rows: list[Row] = [
        (b"k", b'{"a":1}', 0, 7, 1_000_000, [header("line", b"1"), header("line", b"2"), header("x", b"y")]),
        (None, b'{"a":null}', 1, 8, 2_000_000, None),
        (None, b'{"a":3}', 1, 9, 3_000_000, [header("line", None)]),
    ]
    found = run(job(tmp_path, headers={"line": pa.int64()}), rows)
    assert [(row["a"], row["_partition"], row["_offset"], row["_line"]) for row in found[EVENTS]] == [
        (1, 0, 7, 2),
        (None, 1, 8, None),
        (3, 1, 9, None),
    ], "the last header of a name counts"
    assert found[DEAD_LETTERS] == []


def test_dead_letters_say_what_and_why(tmp_path: Path) -> None:
    rows: list[Row] = [
        (b"k", b"no json", 0, 1, 0, None),
        (None, None, 0, 2, 0, None),
        (None, b'{"a":1}', 0, 3, 0, [header("line", b"x")]),
        (None, b'{"a":2}', 0, 4, 0, [header("bad", b"line 9: torn")]),
        (None, b'{"a":3}', 0, 5, 0, [header("line", b"5")]),
    ]
    found = run(job(tmp_path, headers={"line": pa.int64()}, reject_header="bad"), rows)
    assert [row["a"] for row in found[EVENTS]] == [3]
    letters = [(row["key"], row["value"], row["_offset"], row["topic"]) for row in found[DEAD_LETTERS]]
    assert letters == [(b"k", b"no json", 1, "t"), (None, None, 2, "t"), (None, b'{"a":1}', 3, "t"), (None, b'{"a":2}', 4, "t")]
    errors = [row["error"] for row in found[DEAD_LETTERS]]
    assert errors[0].startswith("not JSON: ")
    assert errors[1] == "the value is null"
    assert errors[2].startswith("header 'line': Failed to parse string: 'x'")
    assert errors[3] == "line 9: torn"


def test_dead_letters_that_were_committed_are_left_out(tmp_path: Path) -> None:
    """The load before died between its two commits. What it gave up stays given up, even if it could be read now; and only that."""
    values = (b"bad", b'{"a":1}')
    rows: list[Row] = [(None, value, partition, offset, 0, None) for partition in (0, 1) for offset, value in enumerate(values)]
    found = run(job(tmp_path), rows, held={0: {0}, 1: {1}})
    assert [(row["_partition"], row["_offset"]) for row in found[DEAD_LETTERS]] == [(1, 0)]
    assert [(row["_partition"], row["_offset"]) for row in found[EVENTS]] == [(0, 1)]


@pytest.mark.parametrize(
    ("kind", "good", "bad", "reason"),
    [
        (pa.timestamp("us", tz="UTC"), b'"2013-07-01T23:30:00.250Z"', b'"last week"', "a timestamp: ISO 8601 text"),
        (pa.int64(), b"1372721400250", b"1372721400250000", "is 1372721400250000: in no year from 1 to 9999 (a long is milliseconds"),
        (pa.date32(), b"15887", b'"2013-07-01"', "a date: the number of days since 1970"),
    ],
    ids=["timestamp", "long", "date"],
)
def test_rows_go_by_the_time_of_their_event(tmp_path: Path, kind: Any, good: bytes, bad: bytes, reason: str) -> None:
    """Claim: a column decides the day, not the record's timestamp of 1970; one without a readable time is a dead letter."""
    rows: list[Row] = [
        (None, b'{"a":1,"at":' + good + b"}", 0, 1, 0, None),
        (None, b'{"a":2}', 0, 2, 0, None),
        (None, b'{"a":3,"at":null}', 0, 3, 0, None),
        (None, b'{"a":4,"at":' + bad + b"}", 0, 4, 0, None),
        (None, b'{"a":5,"at":' + good + b"}", 0, 5, 0, [header("line", b"x")]),
        (None, b'{"a":6,"at":' + good + b"}", 0, 6, 0, None),
    ]
    task = job(tmp_path, time="at", headers={"line": pa.int64()}, columns=pa.schema([("a", pa.int64()), ("at", kind)]))
    found = run(task, rows)
    assert [row["a"] for row in found[EVENTS]] == [1, 6]
    assert {path.parent.name for path in tmp_path.glob("table/*/*.parquet")} == {"event_day=2013-07-01"}
    assert [row["_offset"] for row in found[DEAD_LETTERS]] == [2, 3, 4, 5]
    missing, null, unreadable, _ = [row["error"] for row in found[DEAD_LETTERS]]
    assert missing == null == "field 'at', the event's time, is missing or null"
    assert "'at'" in unreadable
    assert reason in unreadable
    assert {path.parent.name for path in tmp_path.glob("dead/*/*.parquet")} == {"event_day=1970-01-01"}


@pytest.mark.parametrize(("time", "said"), [("b", "none of the columns a"), ("a", "not string")])
def test_a_time_that_no_event_has_is_refused(tmp_path: Path, time: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        job(tmp_path, time=time, columns=pa.schema([("a", pa.string())]))


@pytest.mark.parametrize("name", ["event_day", "event_hour", "_offset", "_line", "Event_Day", "_LINE"])
def test_events_may_not_use_the_names_of_the_table_itself(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"events have a field '{name}'"):
        LoadJob("j", "b", "t", "x", "y", pa.schema([(name, pa.int64())]), headers={"line": pa.int64()})


def test_events_may_not_have_fields_that_are_one_column_for_spark() -> None:
    """Of a table with both Spark could read neither."""
    with pytest.raises(ValueError, match="load j: events have fields 'a' and 'A': no table has both"):
        LoadJob("j", "b", "t", "x", "y", pa.schema([("a", pa.int64()), ("A", pa.int64())]))


def test_columns_that_no_json_can_be_read_into_are_refused() -> None:
    """Each record would be a dead letter otherwise."""
    inner = pa.struct([("all", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(ValueError, match=r"load j: column 'm': events of JSON have no values of type struct<all: map<string, int64>>"):
        LoadJob("j", "b", "t", "x", "y", pa.schema([("a", pa.int64()), ("m", inner)]))


@pytest.mark.parametrize(("kind", "bad"), [(pa.timestamp("us", tz="UTC"), b"0000-01-01T00:00:00Z"), (pa.date32(), b"0000-01-01")])
def test_a_header_beyond_what_its_column_holds_is_a_dead_letter(tmp_path: Path, kind: Any, bad: bytes) -> None:
    rows: list[Row] = [
        (None, b'{"a":1}', 0, 1, 0, [header("at", b"0001-01-01T00:00:00Z" if pa.types.is_timestamp(kind) else b"0001-01-01")]),
        (None, b'{"a":2}', 0, 2, 0, [header("at", bad)]),
    ]
    found = run(job(tmp_path, headers={"at": kind}), rows)
    assert [row["a"] for row in found[EVENTS]] == [1]
    assert [row["error"] for row in found[DEAD_LETTERS]] == [f"header 'at': {bad.decode()} is beyond what a column {kind} can hold"]


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run again, four times, and by the next load: on a full disk its files would keep the disk full."""
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 1)
    real, calls = data_files.ParquetFileWriter.write, []

    def full(self: Any, table: Any) -> None:
        calls.append(table)
        if len(calls) == 3:
            raise FileError("no space")
        real(self, table)

    monkeypatch.setattr(data_files.ParquetFileWriter, "write", full)
    rows: list[Row] = [(None, b"bad", 0, 0, 0, None), (None, b'{"a":1}', 0, 1, 0, None), (None, b'{"a":2}', 0, 2, 86_400_000_000, None)]
    with pytest.raises(FileError, match="no space"):
        run(job(tmp_path), rows)
    assert len(calls) == 3
    assert list(tmp_path.rglob("*.parquet")) == []


def test_latencies_are_from_the_time_of_the_record_in_the_window_of_the_event(tmp_path: Path) -> None:
    """Claim: events of 2013 that were sent two and five seconds before the load was planned took that long, and are in windows of 2013."""
    task, sent_ms = job(tmp_path), 1_764_000_000_000
    rows: list[Row] = [
        (None, Host().event(number, NOON + number * MINUTE), 0, number, (sent_ms + (0 if number < 2 else 3_000)) * 1_000, None)
        for number in range(12)
    ]
    columns = [pa.array(column, ARROW_TYPES[name]) for name, column in zip(NAMES, zip(*rows, strict=True), strict=True)]
    order = TaskOrder(
        job=task,
        decoding=EventDecoding(task.columns, tracked=frozenset({7})),
        schema=task.table_schema(task.columns),
        topic_id="00ff",
        held={},
        load_id="1234abcd",
        options=ReadOptions(task.bootstrap_servers, TopicNames((task.topic,))),
        seen_ms=sent_ms + 5_000,
    )
    report = write_batches(iter([pa.record_batch(columns, names=list(NAMES))]), order)
    assert report.latencies == {
        NOON: Latencies.of({bucket_of(5_000): 2, bucket_of(2_000): 8}),
        NOON + 10 * MINUTE: Latencies.of({bucket_of(2_000): 2}),
    }


def test_dead_letters_are_counted_apart_with_the_first_one(tmp_path: Path) -> None:
    """Those too that a load which died had put aside already."""
    rows: list[Row] = [
        (None, b'{"a":1}', 0, 7, 1_000_000, None),
        (None, b"no JSON", 1, 9, 2_000_000, None),
        (None, b"[]", 0, 8, 2_000_000, None),
        (None, b"held", 1, 4, 2_000_000, None),
    ]
    (dead,) = run(job(tmp_path), rows, held={1: {4}})["dead"]
    assert dead == {"count": 3, "first": (0, 8, "a JSON array, not an object")}


def test_tombstones_are_rows_where_the_merged_table_needs_them(tmp_path: Path) -> None:
    rows: list[Row] = [
        (b"k", b'{"a":1}', 0, 1, 1_000_000, None),
        (b"k", None, 0, 2, 2_000_000, None),
        (None, None, 0, 3, 3_000_000, None),
        (b"l", None, 0, 4, 4_000_000, [header("bad", b"torn")]),
        (b"m", b"no json", 0, 5, 5_000_000, None),
    ]
    merged = {"merged": str(tmp_path / "merged"), "keys": ("_key",), "deletes": "tombstones"}
    found = run(job(tmp_path, **merged, reject_header="bad", headers={"line": pa.int64()}), rows)
    assert [(row["_key"], row["a"], row["_tombstone"], row["_offset"]) for row in found[EVENTS]] == [
        (b"k", 1, False, 1),
        (b"k", None, True, 2),
    ]
    assert [(row["_offset"], row["error"][:8]) for row in found[DEAD_LETTERS]] == [(3, "the valu"), (4, "torn"), (5, "not JSON")]
    without = run(job(tmp_path), rows)
    assert [row["_offset"] for row in without[EVENTS]] == [1]


def test_a_tombstone_has_the_time_of_its_record(tmp_path: Path) -> None:
    columns = pa.schema([("at", pa.int64())])
    rows: list[Row] = [(b"k", b'{"at":1372680000000}', 0, 1, 0, None), (b"k", None, 0, 2, 1_000_000 * 86_400, None)]
    merged = {"merged": str(tmp_path / "merged"), "keys": ("_key",), "deletes": "tombstones"}
    task = job(tmp_path, columns=columns, time="at", **merged)
    assert [(row["_offset"], row["event_hour"]) for row in run(task, rows)[EVENTS]] == [(2, 0), (1, 12)]
