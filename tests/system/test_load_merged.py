"""A load with key columns keeps a merged table: after each of its commits, tombstones included, and after a crash by the next one."""

import json
from pathlib import Path
from typing import Any

import pytest

from moldau.client import Producer
from moldau.lake.loading.job import LoadJob, LoadJobs
from moldau.lake.loading.load import load
from moldau.lake.loading.service import LoadService
from moldau.lake.points import on_point
from moldau.lake.tables.opening import opened
from moldau.testing.broker import Broker
from support.load_world import Killed
from support.merge_world import rows_in
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

COLUMNS = {"member": "long", "page": "string"}


def send(broker: Broker, topic: str, *records: tuple[str | None, Any]) -> None:
    with Producer(broker.bootstrap_servers, linger_ms=1) as producer:
        for key, value in records:
            producer.send(topic, None if value is None else json.dumps(value), key=key)


def jobs(broker: Broker, directory: Path, topic: str, **more: Any) -> LoadJobs:
    from moldau.lake.loading.job import load_jobs

    settings = {"columns": COLUMNS, "writers": 1, **more}
    values = {"name": "test", "bootstrap": broker.bootstrap_servers, "to": str(directory / "lake"), "topics": [topic]}
    return load_jobs({**values, "merged": str(directory / "merged"), "tier": None, "topic": {topic: settings}})


def pages(job: LoadJob) -> dict[int, str]:
    assert job.merged is not None
    rows = rows_in(job.merged)
    found = {row["member"]: row["page"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_service_keeps_the_merged_table_with_tombstones(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(broker.unique_topic("members"), 2)
    service_jobs = jobs(broker, tmp_path, topic, keys=["_key"], deletes="tombstones")
    service = LoadService(spark_session(), service_jobs)
    send(broker, topic, *((str(n), {"member": n, "page": "home"}) for n in range(10)), (None, None))
    (outcome,) = service.run_once()
    assert (outcome.error, outcome.rows, outcome.dead_letters) == (None, 10, 1), "a null without a key says nothing"
    assert pages(outcome.job) == dict.fromkeys(range(10), "home")
    send(broker, topic, ("3", {"member": 3, "page": "news"}), ("4", None), ("99", None))
    (outcome,) = service.run_once()
    assert (outcome.error, outcome.rows) == (None, 3)
    assert pages(outcome.job) == {**dict.fromkeys([0, 1, 2, 5, 6, 7, 8, 9], "home"), 3: "news"}
    tombstones = [row["_key"] for row in rows_in(outcome.job.table) if row["_tombstone"]]
    assert sorted(tombstones) == [b"4", b"99"]


def test_what_a_crash_left_out_the_next_load_merges(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(broker.unique_topic("members"), 2)
    job = jobs(broker, tmp_path, topic, keys=["member"], deletes="page=gone").job(topic)
    send(broker, topic, *((str(n), {"member": n, "page": "home"}) for n in range(4)))

    def die(point: str) -> None:
        if point == "merge: files written":
            raise Killed(point)

    with on_point(die), pytest.raises(Killed):
        load(spark_session(), job)
    assert opened(job.table).files(), "the load itself is committed"
    assert job.merged is not None
    assert rows_in(job.merged) == []
    result = load(spark_session(), job)
    assert (result.ranges, result.merge is not None and result.merge.rows) == ((), 4)
    send(broker, topic, ("1", {"member": 1, "page": "gone"}))
    load(spark_session(), job)
    assert pages(job) == {0: "home", 2: "home", 3: "home"}


def test_a_merge_that_fails_leaves_the_load_and_is_the_topics_error(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(broker.unique_topic("members"), 2)
    service_jobs = jobs(broker, tmp_path, topic, keys=["member"])
    with Producer(broker.bootstrap_servers, linger_ms=1) as producer:
        for partition in (0, 1):
            producer.send(topic, json.dumps({"member": 7, "page": "home"}), partition=partition)
    (outcome,) = LoadService(spark_session(), service_jobs).run_once()
    assert outcome.rows == 2
    assert "key member 7 is in partitions 0 and 1, and offsets of two partitions have no order" in str(outcome.error)
    timed = jobs(broker, tmp_path / "other", topic, keys=["member"], merge_order="time:_timestamp")
    (outcome,) = LoadService(spark_session(), timed).run_once()
    assert (outcome.error, pages(outcome.job)) == (None, {7: "home"})


def test_a_key_column_that_becomes_double_leaves_the_load_and_is_the_topics_error(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(broker.unique_topic("members"), 1)
    send(broker, topic, ("1", {"member": 1, "page": "home"}))
    narrow = jobs(broker, tmp_path, topic, keys=["member"], columns={**COLUMNS, "member": "integer"})
    (outcome,) = LoadService(spark_session(), narrow).run_once()
    assert (outcome.error, pages(outcome.job)) == (None, {1: "home"})
    send(broker, topic, ("2", {"member": 1.5, "page": "news"}))
    wide = jobs(broker, tmp_path, topic, keys=["member"], columns={**COLUMNS, "member": "double"})
    (outcome,) = LoadService(spark_session(), wide).run_once()
    assert outcome.rows == 1
    assert "column member is double, which is no type of a key" in str(outcome.error)
    assert sorted(row["member"] for row in rows_in(outcome.job.table)) == [1.0, 1.5], "the load is committed"
    assert pages(outcome.job) == {1: "home"}
