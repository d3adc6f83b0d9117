"""A merged table has one row for each key: that of the last record, or of the latest time; and only for tables that it can be made of."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from moldau.lake.merging.merge import MergeResult, merge_table
from moldau.lake.merging.options import MergeError
from moldau.lake.tables.committing import set_properties
from moldau.lake.tables.format import TableChange, TableError
from moldau.lake.tables.opening import opened
from moldau.lake.tables.rewriting import compact_table, widen
from moldau.lake.tables.schemas import evolve
from moldau.tracking.clock import now_ms
from support.merge_world import DAY_MS, NOON_MS, AppendedTable, data_files, live, merged_rows, moment, named_files

KINDS = ("delta", "parquet")


@pytest.fixture(params=KINDS)
def appended(request: pytest.FixtureRequest, tmp_path: Path) -> AppendedTable:
    return AppendedTable(tmp_path / "clicks", request.param)


def merge(appended: AppendedTable, **options: Any) -> MergeResult:
    return merge_table(appended.path, f"{appended.path}_merged", **{"keys": ["id"], "deletes": "op=d", "buckets": 4, **options})


def numbers(appended: AppendedTable) -> dict[Any, Any]:
    return {key[0]: row["n"] for key, row in live(f"{appended.path}_merged").items()}


def row(id_: str | None, n: int, op: str = "u", at_ms: int = NOON_MS, **more: Any) -> dict[str, Any]:
    return {"id": id_, "n": n, "op": op, "at": moment(at_ms), **more}


def test_the_last_record_of_each_key_counts(appended: AppendedTable) -> None:
    appended.append([row("a", 1), row("b", 1), row("a", 2)])
    made = merge(appended)
    assert (made.whole, made.changed, made.rows_read, made.rows, made.appended_version) == (True, True, 3, 2, appended.version)
    assert numbers(appended) == {"a": 2, "b": 1}
    appended.append([row("b", 2), row("c", 1)])
    result = merge(appended)
    assert (result.whole, result.rows_read, result.rows) == (False, 2, 3)
    assert numbers(appended) == {"a": 2, "b": 2, "c": 1}
    again = merge(appended)
    assert (again.changed, again.rows_read, again.version) == (False, 0, result.version)


def test_a_row_is_whole_with_the_columns_that_stand_in_folders_names(appended: AppendedTable) -> None:
    appended.append([row("a", 1, at_ms=NOON_MS + DAY_MS)])
    merge(appended)
    found = merged_rows(f"{appended.path}_merged")["a",]
    assert {name: found[name] for name in appended.schema.names} == appended.rows[0]


def test_a_deletion_leaves_no_row_in_the_order_of_the_log(appended: AppendedTable) -> None:
    appended.append([row("a", 1), row("b", 1), row("c", 1), row("c", 2, "d"), row("c", 3)])
    merge(appended)
    appended.append([row("a", 2, "d"), row("unknown", 1, "d")])
    assert merge(appended).rows == 2
    assert numbers(appended) == {"b": 1, "c": 3}
    appended.append([row("a", 3)])
    merge(appended)
    assert numbers(appended) == {"a": 3, "b": 1, "c": 3}


def test_a_bucket_that_has_no_row_any_more_has_no_file(appended: AppendedTable) -> None:
    appended.append([row("a", 1)])
    merge(appended)
    appended.append([row("a", 2, "d")])
    merge(appended)
    assert opened(f"{appended.path}_merged").files() == []


def test_only_buckets_with_new_rows_that_count_are_written(appended: AppendedTable) -> None:
    appended.append([row(f"key {number}", 1, _partition=0) for number in range(100)])
    assert merge(appended, order="time:at").buckets == 4
    before = named_files(f"{appended.path}_merged")
    appended.append(
        [row("key 1", 2, at_ms=NOON_MS + 1), row("key 1", 3, at_ms=NOON_MS - 5), *(row(f"key {n}", 3, at_ms=1) for n in range(50))]
    )
    assert merge(appended, order="time:at").buckets == 1
    assert len(before & named_files(f"{appended.path}_merged")) == 3
    assert numbers(appended)["key 1"] == 2


def test_the_latest_time_counts_and_of_equal_ones_the_later_record(appended: AppendedTable) -> None:
    appended.append([row("a", 1, at_ms=NOON_MS + 5), row("a", 2, at_ms=NOON_MS), row("b", 1), {"id": "c", "n": 1, "op": "u", "at": None}])
    merge(appended, order="time:at")
    assert numbers(appended) == {"a": 1, "b": 1, "c": 1}
    appended.append([row("a", 3, at_ms=NOON_MS + 4), row("b", 2), {"id": "c", "n": 2, "op": "u", "at": None}])
    merge(appended, order="time:at")
    assert numbers(appended) == {"a": 1, "b": 2, "c": 2}, "a comes too late, b is equal and later in the log, c has no time in both"
    appended.append([row("c", 3, at_ms=1)])
    merge(appended, order="time:at")
    assert numbers(appended)["c"] == 3, "any time is later than none"


def test_a_deletion_stays_marked_until_the_horizon(appended: AppendedTable) -> None:
    options = {"order": "time:at", "horizon": timedelta(days=1)}
    appended.append([row("a", 1), row("a", 2, "d", NOON_MS + 10)])
    merge(appended, **options)
    (marked,) = merged_rows(f"{appended.path}_merged").values()
    assert marked["_deleted"] is True
    appended.append([row("a", 3, at_ms=NOON_MS + 9)])
    assert not merge(appended, **options).rows_without_key
    assert numbers(appended) == {}, "it was deleted later than that"
    appended.append([row("b", 1, at_ms=NOON_MS + 10 + DAY_MS)])
    merge(appended, **options)
    appended.append([row("a", 4, at_ms=NOON_MS + 8)])
    merge(appended, **options)
    assert numbers(appended) == {"b": 1}, "the horizon is not over"
    appended.append([row("b", 2, at_ms=NOON_MS + 11 + DAY_MS)])
    merge(appended, **options)
    appended.append([row("a", 5, at_ms=NOON_MS + 7)])
    merge(appended, **options)
    assert numbers(appended) == {"b": 2, "a": 5}, "the horizon is over, and so is the mark"


def test_a_time_in_the_far_future_does_not_end_the_horizon(appended: AppendedTable) -> None:
    options = {"order": "time:at", "horizon": timedelta(days=1), "clock": lambda: NOON_MS + 100}
    appended.append([row("a", 1, "d", NOON_MS), row("b", 1, at_ms=NOON_MS + 3_000 * DAY_MS)])
    merge(appended, **options)
    appended.append([row("a", 2, at_ms=NOON_MS - 1)])
    merge(appended, **options)
    assert numbers(appended) == {"b": 1}


def test_rows_without_a_key_are_counted_and_left_out(appended: AppendedTable, caplog: pytest.LogCaptureFixture) -> None:
    appended.append([row(None, 1), row("a", 1), row(None, 2)])
    assert merge(appended).rows_without_key == 2
    assert numbers(appended) == {"a": 1}
    assert "2 new rows have null in a key column" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_keys_may_have_many_columns_and_be_fields_of_structs(kind: str, tmp_path: Path) -> None:
    fields = pa.schema(
        [("who", pa.struct([("id", pa.int32()), ("day", pa.date32())])), ("binary", pa.binary()), ("n", pa.int32()), ("off", pa.bool_())]
    )
    appended = AppendedTable(tmp_path / "t", kind, fields)
    whos = [{"id": number % 3, "day": moment(NOON_MS + number % 2 * DAY_MS).date()} for number in range(12)]
    appended.append([{"who": who, "binary": bytes([n // 6]), "n": n, "off": n == 11} for n, who in enumerate(whos)])
    result = merge(appended, keys=["who.id", "who.day", "binary"], deletes="off")
    assert result.rows == 11
    appended.append([{"who": whos[0], "binary": b"\0", "n": 99}, {"who": {"id": None, "day": whos[0]["day"]}, "binary": b"", "n": 1}])
    assert merge(appended, keys=["who.id", "who.day", "binary"], deletes="off").rows_without_key == 1
    rows = {(each["who"]["id"], each["who"]["day"], each["binary"]): each["n"] for each in merged_values(appended)}
    assert rows[0, whos[0]["day"], b"\0"] == 99
    assert len(rows) == 11


def merged_values(appended: AppendedTable) -> list[Any]:
    from support.merge_world import rows_in

    return rows_in(f"{appended.path}_merged")


def test_a_compaction_of_the_append_only_table_neither_loses_nor_doubles_rows(appended: AppendedTable) -> None:
    appended.append([row("a", 1), row("b", 1)])
    merge(appended)
    appended.append([row("a", 2)])
    compacted = compact_table(appended.path)
    assert compacted.files_before == 2
    appended.append([row("a", 3, "d")])
    assert compact_table(appended.path).files_before == 2
    result = merge(appended)
    assert (result.rows_read, result.whole) == (2, False), "the rows since the first merge, and not those that compactions wrote again"
    assert numbers(appended) == {"b": 1}
    appended.append([row("b", 2)])
    compact_table(appended.path)
    merge(appended)
    compact_table(appended.path)
    assert merge(appended).rows_read == 0
    assert numbers(appended) == {"b": 2}


def test_versions_or_files_that_were_deleted_have_it_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for kind in KINDS:
        appended = AppendedTable(tmp_path / kind, kind)
        appended.append([row("a", 1), row("b", 1)])
        merge(appended)
        first = appended.append([row("b", 2, "d")])
        appended.append([row("c", 1)])
        folder = "_delta_log" if kind == "delta" else "_manifests"
        if kind == "delta":
            appended.commit(TableChange("A VERSION"))
            from deltalake import DeltaTable

            DeltaTable(appended.path).create_checkpoint()
        os.unlink(Path(appended.path, folder, f"{first:020d}.json"))
        result = merge(appended)
        assert result.whole
        assert numbers(appended) == {"a": 1, "c": 1}
        appended.append([row("c", 2)])
        new = max(named_files(appended.path), key=lambda name: os.stat(Path(appended.path, name)).st_mtime_ns)
        compact_table(appended.path)
        os.unlink(Path(appended.path, new))
        assert merge(appended).whole
        assert numbers(appended) == {"a": 1, "c": 2}
        assert f"the merged table is made again from version {opened(appended.path).version}" in caplog.text


def test_a_merge_between_the_openings_of_the_two_tables_is_no_table_set_back(
    appended: AppendedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two merges at once the other one merges a version that is newer than the one that this one has seen first."""
    appended.append([row("a", 1)])
    merge(appended)
    appended.append([row("a", 2)])
    kind: Any = type(appended.tables)
    real = kind.open
    met: list[bool] = []

    def meet(self: Any, path: str, version: int | None = None) -> Any:
        found = real(self, path, version)
        if not met:
            met.append(True)
            appended.append([row("b", 1)])
            assert merge(appended).rows_read == 2
        return found

    monkeypatch.setattr(kind, "open", meet)
    result = merge(appended)
    assert (result.changed, result.rows_read, result.appended_version) == (False, 0, appended.version)
    assert numbers(appended) == {"a": 2, "b": 1}


def test_a_table_that_was_set_back_is_named(appended: AppendedTable) -> None:
    appended.append([row("a", 1)])
    last = appended.append([row("b", 1)])
    merge(appended)
    os.unlink(Path(appended.path, "_delta_log" if appended.tables.name == "delta" else "_manifests", f"{last:020d}.json"))
    with pytest.raises(MergeError, match="clicks: the newest version is 1, and version 2 was merged: the table was set back"):
        merge(appended)


def test_new_and_wider_columns_follow(tmp_path: Path) -> None:
    for kind in KINDS:
        fields = pa.schema([("id", pa.int32()), ("op", pa.string())])
        appended = AppendedTable(tmp_path / kind, kind, fields)
        appended.append([{"id": number, "op": "u"} for number in range(40)])
        merge(appended)
        before = opened(appended.path)
        evolution = evolve("t", before.schema, pa.schema([("id", pa.int64()), ("more", pa.string())]))
        widen(appended.tables, appended.path, before, evolution)
        appended.schema = evolution.schema
        appended.append([{"id": 1, "op": "v", "more": "x"}, {"id": 2**40, "op": "u", "more": "y"}])
        result = merge(appended)
        assert result.buckets == 4, "files with narrow columns are written again"
        rows = merged_rows(f"{appended.path}_merged")
        assert len(rows) == 41
        assert (rows[1,]["more"], rows[2,]["more"], rows[2**40,]["op"]) == ("x", None, "u")
        assert opened(f"{appended.path}_merged").schema.field("id").type == pa.int64()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": ["n"]}, "clicks: column n is double, which is no type of a key"),
        ({"order": "time:n"}, "clicks: column n is double: an order is by a timestamp, a date or a number"),
    ],
)
def test_a_column_of_the_key_or_the_order_that_became_double_is_named(
    options: dict[str, Any], message: str, appended: AppendedTable
) -> None:
    appended.append([row("a", 1)])
    merge(appended, **options)
    before = opened(f"{appended.path}_merged").version
    table = opened(appended.path)
    evolution = evolve("t", table.schema, pa.schema([("n", pa.float64())]))
    widen(appended.tables, appended.path, table, evolution)
    appended.schema = evolution.schema
    appended.append([{**row("b", 1), "n": 1.5}])
    with pytest.raises(MergeError, match=message):
        merge(appended, **options)
    with pytest.raises(MergeError, match=message):
        merge_table(appended.path, f"{appended.path}_merged")
    assert opened(f"{appended.path}_merged").version == before


def test_the_watermark_comes_along(appended: AppendedTable) -> None:
    appended.append([row("a", 1)])
    merge(appended)
    set_properties(appended.tables, appended.path, {"completionWatermark": "2013-07-01T10:00:00.000Z"})
    assert merge(appended).changed
    assert opened(f"{appended.path}_merged").properties["completionWatermark"] == "2013-07-01T10:00:00.000Z"


def test_replaced_files_are_deleted_when_no_reader_needs_them(appended: AppendedTable) -> None:
    """The time of a replaced file is that of its replacement, however old it was then."""
    appended.append([row("a", 0), row("b", 0)])
    path = f"{appended.path}_merged"
    first = merge(appended)
    for file in data_files(path):
        os.utime(Path(path, file), (0, 0))
    for number in range(first.version + 1, 10):
        appended.append([row("a", number)])
        assert merge(appended).version == number
    assert len(data_files(path)) == 8 + len(named_files(path)), "the eight that were replaced"
    appended.append([row("a", 10)])
    assert merge(appended).version == 10
    assert len(data_files(path)) == 9 + len(named_files(path)), "readers of the last hours have theirs"
    for number in range(11, 21):
        appended.append([row("a", number)])
        assert merge(appended, keep=timedelta(0), clock=lambda: now_ms() + 1000).version == number
    assert data_files(path) == named_files(path)
    assert numbers(appended) == {"a": 20, "b": 0}


def test_many_versions_without_rows_are_passed_over_in_one(appended: AppendedTable) -> None:
    appended.append([row("a", 1)])
    made = merge(appended)
    for number in range(20):
        assert merge(appended).version == made.version
        set_properties(appended.tables, appended.path, {"x": str(number)})
    assert merge(appended).version == made.version + 1
    assert not merge(appended).changed


def test_without_options_they_are_those_that_it_was_made_by(appended: AppendedTable) -> None:
    appended.append([row("a", 1), row("a", 2, "d")])
    merge(appended)
    appended.append([row("b", 1), row("b", 2)])
    merge_table(appended.path, f"{appended.path}_merged")
    assert numbers(appended) == {"b": 2}


def test_it_can_be_made_again_by_other_options(appended: AppendedTable) -> None:
    appended.append([row("a", 1), row("a", 2, at_ms=NOON_MS - 1), row("b", 1, "d")])
    merge(appended)
    with pytest.raises(MergeError, match=r"made with order log, not time:at; make it again"):
        merge(appended, order="time:at")
    result = merge(appended, order="time:at", buckets=7, remake=True)
    assert (result.whole, numbers(appended)) == (True, {"a": 1})
    assert len(merged_rows(f"{appended.path}_merged")) == 2
    merge(appended, remake=True)
    assert "_deleted" not in opened(f"{appended.path}_merged").schema.names
    assert numbers(appended) == {"a": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": ["idd"]}, r"clicks: there is no column idd of the key \(did you mean 'id'\?\)|there is no column idd of the key"),
        ({"keys": ["id", "id"]}, "a key column is named twice"),
        ({"keys": []}, "clicks_merged: there is no merged table yet: it needs key columns"),
        ({"keys": ["_key"]}, "there is no column _key of the key: the load keeps the record's key only if"),
        ({"deletes": "tombstones"}, "there is no column _tombstone that marks deletions: the load keeps tombstones only if"),
        ({"deletes": "op"}, "column op is string, not boolean: give the values that delete, op=VALUE"),
        ({"deletes": "n=x"}, "column n is int32, which has no value x"),
        ({"deletes": "= 4"}, "deletions are tombstones, COLUMN, COLUMN=VALUE"),
        ({"order": "sideways"}, "the order is log, or time:COLUMN, and not 'sideways'"),
        ({"order": "time:op"}, "column op is string: an order is by a timestamp, a date or a number"),
        ({"buckets": 0}, "there are 1 to 4096 buckets, not 0"),
    ],
)
def test_options_that_do_not_fit_are_named_before_anything_is_made(options: dict[str, Any], message: str, appended: AppendedTable) -> None:
    appended.append([row("a", 1)])
    with pytest.raises(MergeError, match=message):
        merge(appended, **options)
    assert not os.path.exists(f"{appended.path}_merged")


def test_tables_that_cannot_be_merged_are_named(appended: AppendedTable, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="nowhere: there is no table"):
        merge_table(str(tmp_path / "nowhere"), str(tmp_path / "m"), keys=["id"])
    appended.append([row("a", 1)])
    merge(appended)
    with pytest.raises(MergeError, match="clicks_merged: this is a merged table itself"):
        merge_table(f"{appended.path}_merged", str(tmp_path / "m"), keys=["id"])
    other = AppendedTable(tmp_path / "other", appended.tables.name)
    other.append([row("a", 1)])
    with pytest.raises(MergeError, match="other: this is a table, and no merged table"):
        merge_table(appended.path, other.path, keys=["id"])
    empty = AppendedTable(tmp_path / "empty", appended.tables.name)
    with pytest.raises(MergeError, match="empty: this is a table, and no merged table"):
        merge_table(appended.path, empty.path, keys=["id"])
    for inside in (appended.path, f"{appended.path}/merged"):
        with pytest.raises(MergeError, match="the merged table is a table of its own: neither may lie in the other"):
            merge_table(appended.path, inside, keys=["id"])
    with pytest.raises(MergeError, match=r"clicks_merged: made from a table with id .* and .*other has id"):
        merge_table(other.path, f"{appended.path}_merged", keys=["id"], deletes="op=d")
    appended.commit(TableChange("DELETE", removes=opened(appended.path).files()))
    with pytest.raises(MergeError, match=r"clicks: version 2 \(DELETE\) removed rows: a merged table follows tables that only append"):
        merge(appended)


def test_a_key_in_two_partitions_has_no_order_by_the_log(appended: AppendedTable) -> None:
    appended.append([row("a", 1), row("a", 2, _partition=1)])
    with pytest.raises(MergeError, match="clicks: key id 'a' is in partitions 0 and 1, and offsets of two partitions have no order"):
        merge(appended)
    assert data_files(f"{appended.path}_merged") == set()
    merge(appended, order="time:_timestamp", keys=["id"])
    assert len(merged_rows(f"{appended.path}_merged")) == 1


@pytest.mark.parametrize("merged_before", [False, True])
def test_two_topics_of_one_name_have_no_order_by_the_log(merged_before: bool, appended: AppendedTable) -> None:
    """The second one begins with offset 0 again: by offsets its rows would be older than those of the first."""
    appended.append([row("a", 1, _offset=7)], "first")
    if merged_before:
        merge(appended)
    appended.append([row("a", 2, _offset=0)], "second")
    with pytest.raises(MergeError, match="clicks: the rows are of 2 topics, with ids first, second: the topic was deleted and made again"):
        merge(appended)
    merge(appended, order="time:at", remake=True)
    assert merged_rows(f"{appended.path}_merged")["a",]["n"] == 1, "of equal times by the log"
    appended.append([row("a", 3, at_ms=NOON_MS + 1)], "second")
    merge(appended, order="time:at")
    assert numbers(appended) == {"a": 3}


def test_a_table_that_no_load_has_made_is_named(tmp_path: Path) -> None:
    from moldau.lake.tables.opening import format_named

    format_named("delta").create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]), (), "")
    with pytest.raises(MergeError, match="t: there is no column _partition: only tables that a load has made have the order of the log"):
        merge_table(str(tmp_path / "t"), str(tmp_path / "m"), keys=["id"])


def test_a_source_file_that_is_missing_is_named_and_nothing_is_left(appended: AppendedTable) -> None:
    appended.append([row("a", 1)])
    appended.append([row("b", 1)])
    (first, *_) = sorted(data_files(appended.path))
    os.unlink(Path(appended.path, first))
    with pytest.raises(TableError, match=rf"{first}: the file is missing"):
        merge(appended)
    assert data_files(f"{appended.path}_merged") == set()
