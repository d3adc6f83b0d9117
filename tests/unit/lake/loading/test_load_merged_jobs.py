"""Key columns of a job are given with a place for the merged tables, for all topics or for one."""

from typing import Any

import pyarrow as pa
import pytest

from moldau.lake.loading.job import LoadJobs, load_jobs

COLUMNS = {"columns": {"id": "long", "at": "timestamp", "op": "string"}}


def jobs(**more: Any) -> LoadJobs:
    return load_jobs({"name": "j", "bootstrap": "b:1", "to": "/lake", "topics": ["a", "b"], "topic": {"a": COLUMNS, "b": COLUMNS}, **more})


def test_keys_of_all_topics_and_of_one() -> None:
    both = jobs(merged="/m", keys=["id"], deletes="op=d", merge_order="time:at")
    assert [(both.job(name).merged, both.job(name).keys) for name in "ab"] == [("/m/a", ("id",)), ("/m/b", ("id",))]
    assert (both.job("a").deletes, both.job("a").merge_order) == ("op=d", "time:at")
    one = jobs(merged="/m", topic={"a": {**COLUMNS, "keys": ["id", "op"], "deletes": "tombstones"}, "b": COLUMNS})
    assert (one.job("a").merged, one.job("a").keys, one.job("a").takes_tombstones) == ("/m/a", ("id", "op"), True)
    assert (one.job("b").merged, one.job("b").keys, one.job("b").kept_of_records) == (None, (), [])


def test_the_record_is_kept_as_far_as_the_merged_table_needs_it() -> None:
    schema = pa.schema([("id", pa.int64())])

    def kept(**more: Any) -> list[str]:
        job = jobs(merged="/m", **more).job("a")
        return [name for name in job.table_schema(schema).names if name in ("_key", "_tombstone")]

    assert kept(keys=["id"]) == []
    assert kept(keys=["_key"]) == ["_key"]
    assert kept(keys=["_key"], deletes="tombstones") == ["_key", "_tombstone"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keys": ["id"]}, r"merged tables need both key columns \(--key\) and a directory \(--merged\)"),
        ({"merged": "/m"}, "merged tables need both"),
        ({"deletes": "op=d"}, "merged tables need both"),
        ({"merged": "/lake", "keys": ["id"]}, "the merged table is a table of its own, and no other lies in it: /lake/a, /lake/a"),
        ({"merged": "/m", "keys": ["id", "id"]}, "a key column is named twice"),
        ({"merged": "/m", "keys": ["id"], "merge_order": "at"}, "the order is log, or time:COLUMN, and not 'at'"),
        ({"merged": "/m", "keys": "id"}, "'keys' is no list"),
        ({"merged": "/m", "topic": {"a": {**COLUMNS, "keys": "id"}, "b": COLUMNS}}, "topic a: keys are a list of columns, not 'id'"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jobs(**given)
