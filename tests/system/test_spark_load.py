"""A load puts every record into the table once, wherever it dies, and what cannot be parsed next to it (mission I1)."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from moldau.client import Consumer, Producer
from moldau.client.cluster import Cluster
from moldau.client.groups import GroupOffset, Groups
from moldau.demo.loading import group_lag
from moldau.lake.loading.commit import commit_dead_letters, commit_events, prepare_table
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.load import load, write_files
from moldau.lake.loading.plan import Plan, plan_load
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import DataLossError
from moldau.lake.table import LoadConflictError, read_table
from moldau.lake.tables.committing import TableWriter
from moldau.model.identity import Offset, TopicPartition
from moldau.testing.broker import Broker
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

PARTITIONS = 2
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


class Lake:
    """A topic and a job that loads it; events are numbered, every tenth cannot be parsed."""

    def __init__(self, spark: Any, broker: Broker, directory: Path) -> None:
        self.spark, self.broker = spark, broker
        self.topic = broker.create_topic(broker.unique_topic("load"), PARTITIONS)
        self.source = ClusterLog(broker.bootstrap_servers, "test")
        self.number = 0
        self.job = LoadJob(
            name="test",
            bootstrap_servers=broker.bootstrap_servers,
            topic=self.topic,
            table=str(directory / "table"),
            dead_letters=str(directory / "dead"),
            columns=pa.schema([("n", pa.int64()), ("text", pa.string())]),
        )

    def produce(self, count: int) -> None:
        with Producer(self.broker.bootstrap_servers) as producer:
            for _ in range(count):
                event = json.dumps({"n": self.number, "text": "x" * (self.number % 50)})
                value = f"no event {self.number}" if self.number % 10 == 0 else event
                producer.send(self.topic, value, partition=self.number % PARTITIONS, timestamp=(1 + self.number % 3) * DAY_MS)
                self.number += 1

    def planned(self, job: LoadJob) -> Plan:
        return prepare_table(plan_load(job, self.source))

    def committed(self, job: LoadJob) -> dict[int, int]:
        """What the job's group has committed, by partition."""
        with Cluster(job.bootstrap_servers) as cluster:
            return {where.partition: found.offset for where, found in Groups(cluster).committed(job.group_id or "").items()}

    def rows(self) -> list[int]:
        return sorted(row.n for row in read_table(self.spark, self.job.table).select("n").collect())

    def letters(self) -> list[int]:
        values = read_table(self.spark, self.job.dead_letters).select("value").collect()
        return sorted(int(bytes(row.value).decode().rpartition(" ")[2]) for row in values)

    def check_complete(self) -> None:
        assert self.rows() == [number for number in range(self.number) if number % 10]
        assert self.letters() == [number for number in range(self.number) if number % 10 == 0]


@pytest.fixture
def lake(spark: Any, moldau: Broker, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(spark, moldau, tmp_path / "a lake [with] {odd} näme *")
    yield made
    made.source.close()


def test_loads_add_what_is_new_and_nothing_else(spark: Any, lake: Lake) -> None:
    lake.produce(300)
    first = load(spark, lake.job)
    assert (first.rows, first.dead_letters, first.version) == (270, 30, 2), "one version for its claim, one for the rows"
    again = load(spark, lake.job)
    assert (again.rows, again.files, again.version, again.ranges) == (0, 0, 2, ())
    lake.produce(50)
    assert load(spark, lake.job).rows == 45
    lake.check_complete()
    frame = read_table(spark, lake.job.table)
    assert frame.columns == ["n", "text", "_partition", "_offset", "_timestamp", "event_hour", "event_day"]
    for row in frame.where("n < 30").collect():
        assert row.event_day.toordinal() - 719_163 == 1 + row.n % 3
        assert (row._partition, row._offset) == (row.n % PARTITIONS, row.n // PARTITIONS)
    assert read_table(spark, lake.job.table, version=2).count() == 270, "an older snapshot is still there to be read"
    letter = read_table(spark, lake.job.dead_letters).where("_offset = 5 AND _partition = 0").first()
    assert bytes(letter.value) == b"no event 10"
    assert letter.error.startswith("not JSON")
    assert letter.topic == lake.topic


@pytest.mark.parametrize("step", ["plan", "files", "dead letters", "events"])
def test_a_load_that_dies_anywhere_is_made_good_by_the_next(spark: Any, lake: Lake, step: str) -> None:
    """A load that dies after a step has done what the steps up to it did, and nothing else."""
    lake.produce(100)
    load(spark, lake.job)
    lake.produce(60)
    planned = lake.planned(lake.job)
    steps: dict[str, Callable[[], object]] = {"plan": lambda: None}
    if step != "plan":
        written = write_files(spark, planned)
        steps["files"] = lambda: None
        steps["dead letters"] = lambda: commit_dead_letters(planned, written, TableWriter("test"), lake.source)
        steps["events"] = lambda: commit_events(planned, written, TableWriter("test"), lake.source)
    for name, work in steps.items():
        work()
        if name == step:
            break
    lake.produce(40)
    load(spark, lake.job)
    lake.check_complete()


def test_of_two_loads_at_once_one_fails_and_nothing_is_doubled(spark: Any, lake: Lake) -> None:
    lake.produce(100)
    slow = lake.planned(lake.job)
    written = write_files(spark, slow)
    load(spark, lake.job)
    with pytest.raises(LoadConflictError):
        commit_dead_letters(slow, written, TableWriter("test"), lake.source)
    with pytest.raises(LoadConflictError):
        commit_events(slow, written, TableWriter("test"), lake.source)
    lake.check_complete()


def test_two_jobs_load_the_same_topic_apart(spark: Any, lake: Lake, tmp_path: Path) -> None:
    lake.produce(40)
    load(spark, lake.job)
    other = replace(lake.job, name="other", table=str(tmp_path / "other"), dead_letters=str(tmp_path / "other-dead"))
    assert load(spark, other).rows == 36


def test_a_topic_made_anew_is_loaded_anew(spark: Any, lake: Lake) -> None:
    lake.produce(40)
    load(spark, lake.job)
    lake.broker.delete_topic(lake.topic)
    lake.broker.create_topic(lake.topic, PARTITIONS)
    lake.produce(20)
    assert load(spark, lake.job).rows == 18
    lake.check_complete()


def test_a_topic_made_anew_under_a_running_load_is_not_committed(spark: Any, lake: Lake) -> None:
    lake.produce(40)
    planned = lake.planned(lake.job)
    written = write_files(spark, planned)
    lake.broker.delete_topic(lake.topic)
    lake.broker.create_topic(lake.topic, PARTITIONS)
    with pytest.raises(LoadConflictError, match="was deleted and recreated while it was loaded"):
        commit_events(planned, written, TableWriter("test"), lake.source)
    assert DeltaTable(lake.job.table).version() == 0


def test_the_offsets_of_the_table_are_those_of_the_group(spark: Any, lake: Lake) -> None:
    """`moldau group describe` shows the lag of the job; a read by itself commits nothing (mission I1)."""
    job = replace(lake.job, group_id=f"group of {lake.topic}")
    lake.produce(30)
    options = {"kafka.bootstrap.servers": job.bootstrap_servers, "subscribe": job.topic, "groupId": job.group_id or ""}
    assert spark.read.format("moldau").options(**options).load().count() == 30
    assert (lake.committed(job), group_lag(job.bootstrap_servers, job.group_id or "", job.topic)) == ({}, 30)
    assert load(spark, job).group_error is None
    assert (lake.committed(job), group_lag(job.bootstrap_servers, job.group_id or "", job.topic)) == ({0: 15, 1: 15}, 0)
    lake.produce(4)
    assert group_lag(job.bootstrap_servers, job.group_id or "", job.topic) == 4
    load(spark, job)
    assert lake.committed(job) == {0: 17, 1: 17}
    lake.check_complete()


def test_a_load_that_dies_before_it_has_told_the_group_is_made_good_by_the_next(spark: Any, lake: Lake) -> None:
    """What is committed to the group comes from the table, also where there is nothing to load."""
    job = replace(lake.job, group_id=f"group of {lake.topic}")
    lake.produce(30)
    load(spark, job)
    lake.produce(10)
    planned = lake.planned(job)
    written = write_files(spark, planned)
    commit_dead_letters(planned, written, TableWriter("test"), lake.source)
    commit_events(planned, written, TableWriter("test"), lake.source)
    assert lake.committed(job) == {0: 15, 1: 15}, "it died here"
    assert load(spark, job).ranges == ()
    assert lake.committed(job) == {0: 20, 1: 20}
    with Cluster(job.bootstrap_servers) as cluster:
        Groups(cluster).commit(job.group_id or "", {TopicPartition(job.topic, 0): GroupOffset(Offset(3))})
    load(spark, job)
    assert lake.committed(job) == {0: 20, 1: 20}, "the table knows better than who has reset the group"
    lake.check_complete()


def test_a_group_that_cannot_be_told_does_not_fail_the_load(spark: Any, lake: Lake) -> None:
    job = replace(lake.job, group_id=f"group of {lake.topic}")
    lake.produce(20)
    with Consumer(job.bootstrap_servers, group_id=job.group_id, topics=[job.topic]) as consumer:
        assert consumer.poll(30) is not None
        result = load(spark, job)
    assert (result.rows, lake.committed(job)) == (18, {})
    assert result.group_error is not None
    assert f"group {job.group_id}, partition {job.topic}-0" in result.group_error
    assert load(spark, job).group_error is None
    assert lake.committed(job) == {0: 10, 1: 10}


def test_records_of_aborted_transactions_are_not_loaded_and_open_ones_are_waited_for(spark: Any, lake: Lake) -> None:
    lake.produce(20)
    with Producer(lake.broker.bootstrap_servers, transactional_id=lake.topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            1 // producer.send(lake.topic, b'{"n": -1}', partition=0).result(30).partition
        with producer.transaction():
            producer.send(lake.topic, b'{"n": 1000001}', partition=0)
        with producer.transaction():
            producer.send(lake.topic, b'{"n": 1000003}', partition=0).result(30)
            assert load(spark, lake.job).rows == 19
            assert lake.rows()[-1] == 1000001
            everything = replace(
                lake.job,
                name="all",
                table=f"{lake.job.table}-all",
                dead_letters=f"{lake.job.dead_letters}-all",
                isolation_level="read_uncommitted",
            )
            assert load(spark, everything).rows == 21
        assert load(spark, lake.job).rows == 1
    assert lake.rows() == [*(number for number in range(20) if number % 10), 1000001, 1000003]
    options = {"kafka.bootstrap.servers": lake.job.bootstrap_servers, "subscribe": lake.topic}
    read = spark.read.format("moldau").options(**options)
    assert read.load().count() == 23, "as with the connector, unless it is asked for"
    assert read.option("isolationLevel", "read_committed").load().count() == 22


def test_a_tail_that_the_log_lost_is_told(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is ahead of the log: offsets will be used again, and the new records under them would never be loaded."""

    lake.produce(40)
    load(spark, lake.job)
    real = ClusterLog.offsets
    monkeypatch.setattr(
        ClusterLog, "offsets", lambda self, times: {where: max(0, offset - 5) for where, offset in real(self, times).items()}
    )
    with pytest.raises(DataLossError, match=f"{lake.topic}-0: offset 20 is beyond the end of the log, 15"):
        load(spark, lake.job)
