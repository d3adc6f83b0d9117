"""A job's outputs are what a plain Python model makes of its events, over starts and stops; what is wrong with it stops it with a line."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.groups import Groups
from moldau.lake.tables.opening import format_of
from moldau.streams import StreamJob, windows
from moldau.streams.errors import BatchError, CheckpointError, StreamError
from moldau.streams.operator import StreamOperator
from moldau.streams.queries import JobQuery
from moldau.streams.runner import JobRun
from moldau.streams.table_output import TableOutput
from moldau.testing.broker import Broker
from support.spark import spark_session
from support.stream_jobs import SCHEMA, counted, counting_job, counts_of, event, events, in_table, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture
def topics(broker: Broker) -> tuple[str, str]:
    """To read and to write."""
    names = broker.unique_topic("in"), broker.unique_topic("out")
    for name in names:
        broker.create_topic(name, 2)
    return names


Status = Callable[[str], dict[str, Any]]


@pytest.fixture
def status(broker: Broker) -> Iterator[Status]:
    operator = StreamOperator(broker.bootstrap_servers)

    def of(job: str) -> dict[str, Any]:
        (query,) = operator.status(job)["queries"]
        return dict(query)

    yield of
    operator.close()


def test_a_session_that_is_given(spark: Any, tmp_path: Path) -> None:
    """It gets the settings of state and checkpoint files, which Spark does not have by itself; what the user has set stays."""
    given, files = spark.newSession(), "spark.sql.streaming.checkpointFileManagerClass"
    given.conf.set(files, "com.example.Files")
    StreamJob("flights", brokers="127.0.0.1:9092", directory=str(tmp_path), spark=given)
    assert given.conf.get("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled") == "true"
    assert given.conf.get(files) == "com.example.Files"


def test_windows_over_several_starts(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, status: Status) -> None:
    """Topic and table have each closed window once, with all that came in time; late, future and timeless events are counted, and a wrong
    clock moves the watermark no further than the present."""
    source, sink = topics
    bootstrap, name = broker.bootstrap_servers, source
    first, second = events(0, 240), events(240, 480)
    send(bootstrap, source, first)
    counting_job(bootstrap, tmp_path, source, sink, spark=spark, name=name).run(once=True)
    closed = {key: count for key, count in counted(first).items() if key[0] < "2013-01-01T03"}
    assert counts_of(in_topic(bootstrap, sink)) == counts_of(in_table(tmp_path / "lake" / sink)) == closed
    assert status(name)["late_rows"] == 0

    send(bootstrap, source, [*second, event(5, "late"), event(6, "late"), event(7, "later")])
    counting_job(bootstrap, tmp_path, source, sink, spark=spark, name=name).run(once=True)
    closed = {key: count for key, count in counted([*first, *second]).items() if key[0] < "2013-01-01T07"}
    assert counts_of(in_topic(bootstrap, sink)) == counts_of(in_table(tmp_path / "lake" / sink)) == closed
    found = status(name)
    assert (found["late_rows"], found["lag_records"], found["lag_s"], found["state_rows"]) == (2, 0, 0.0, 3), "two groups of late rows"
    assert found["inputs"][source]["rows"] == 483
    assert found["watermark_ms"] == 1357027140000 - 600_000, "ten minutes behind 07:59"

    send(bootstrap, source, [event(60 * 24 * 365 * 90, "wrong clock"), {"airport": "no clock", "number": 1}])
    counting_job(bootstrap, tmp_path, source, sink, spark=spark, name=name).run(once=True)
    closed = counted([*first, *second])
    assert counts_of(in_topic(bootstrap, sink)) == counts_of(in_table(tmp_path / "lake" / sink)) == closed, "those two are of now"
    found = status(name)
    assert (found["inputs"][source]["ahead"], found["inputs"][source]["without_time"]) == (1, 1)
    with Cluster(bootstrap) as cluster:
        assert sum(each.offset for each in Groups(cluster).committed(f"moldau-stream-{name}").values()) == 485


def test_a_job_that_does_not_fit_is_refused_before_anything_is_written(
    broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Another key in its state, another job's checkpoint, a checkpoint that was deleted: by a start, and by a check."""
    source, sink = topics
    bootstrap = broker.bootstrap_servers
    send(bootstrap, source, events(0, 120))

    def job(name: str, *keys: str, directory: str = "job") -> StreamJob:
        made = StreamJob(name, brokers=bootstrap, directory=str(tmp_path / directory), spark=spark)
        rows = made.topic(source, format="json", schema=SCHEMA, time="at")
        made.to_topic(windows.tumbling(rows, "1 hour", *keys), sink, key=list(keys))
        return made

    job(source, "airport").run(once=True)
    before = in_topic(bootstrap, sink)
    assert len(before) == 3
    send(bootstrap, source, events(120, 240))
    for start in (StreamJob.check, lambda refused: refused.run(once=True)):
        with pytest.raises(
            CheckpointError, match=rf"query {sink}: stateful operator 1 \(Aggregate\), keys was .*airport.*, and is .*number"
        ):
            start(job(source, "airport", "number"))
        with pytest.raises(CheckpointError, match=f"it is the checkpoint of job {source}"):
            start(job("other", "airport"))
        with pytest.raises(CheckpointError, match=r"were written with the checkpoint of id .* there is none. Bring that checkpoint back"):
            start(job(source, "airport", directory="empty"))
    assert in_topic(bootstrap, sink) == before
    job(source, "airport").check()
    job(source, "airport").run(once=True)
    assert len(in_topic(bootstrap, sink)) == 9
    job(source, "airport", directory="empty").run(once=True, fresh=True)
    assert len(in_topic(bootstrap, sink)) == 18, "all again, as was asked for"


def test_records_that_cannot_be_decoded(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, status: Status) -> None:
    """They stop the job, with topic, partition and offset; or they are left out and counted."""
    source, sink = topics
    send(broker.bootstrap_servers, source, [*events(0, 4), b"no object", b""])

    def job(undecodable: str) -> StreamJob:
        made = StreamJob(source, brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)
        made.to_topic(made.topic(source, format="json", schema=SCHEMA, time="at", undecodable=undecodable), sink)
        return made

    with pytest.raises(BatchError, match=rf"{source}-[01]: offset 2: the value is no JSON object"):
        job("stop").run(once=True)
    assert in_topic(broker.bootstrap_servers, sink) == []
    job("skip").run(once=True)
    assert sorted(row["number"] for row in in_topic(broker.bootstrap_servers, sink)) == [0, 1, 2, 3]
    assert status(source)["inputs"][source]["undecodable"] == 2


def test_a_first_batch_that_begins_at_the_latest_records_is_repeated_from_there(
    broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins where the topic ended when the job was started: what has come since is in both outputs, though the first try had written
    one of them, and others came before the second."""
    source, sink = topics
    bootstrap, table = broker.bootstrap_servers, tmp_path / "table"

    def run() -> None:
        job = StreamJob(source, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        rows = job.topic(source, format="json", schema=SCHEMA, time="at", start="latest")
        job.to_topic(rows, sink)
        job.to_table(rows, str(table))
        job.run(once=True)

    def begin(run: JobRun, query: JobQuery, *, once: bool) -> None:
        """Records come before Spark asks where the query begins."""
        monkeypatch.setattr(JobRun, "_start", start)
        send(bootstrap, source, events(10, 20))
        start(run, query, once=once)

    def fail(*_: object) -> None:
        monkeypatch.setattr(TableOutput, "write", write)
        raise BatchError("the power is cut")

    start, write = JobRun._start, TableOutput.write
    monkeypatch.setattr(JobRun, "_start", begin)
    monkeypatch.setattr(TableOutput, "write", fail)
    send(bootstrap, source, events(0, 10))
    with pytest.raises(BatchError, match="the power is cut"):
        run()
    assert sorted(each["number"] for each in in_topic(bootstrap, sink)) == [*range(10, 20)]
    send(bootstrap, source, events(20, 30))
    run()
    for found in (in_topic(bootstrap, sink), in_table(table)):
        assert sorted(each["number"] for each in found) == [*range(10, 30)]
    run()
    assert not (tmp_path / "job" / "starts.json").exists()


def test_a_stream_is_stopped_by_an_order_and_takes_new_partitions(
    broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path
) -> None:
    """It runs until the order, which comes from anywhere; a partition that appears is read from its first record."""
    source, sink = topics
    send(broker.bootstrap_servers, source, events(0, 10))
    job = StreamJob(source, brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark, trigger="100 milliseconds")
    job.to_topic(job.topic(source, format="json", schema=SCHEMA, time="at"), sink)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            job.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).create_partitions(source, 3)
    send(broker.bootstrap_servers, source, events(10, 40), partitions=3)
    while thread.is_alive() and len(in_topic(broker.bootstrap_servers, sink)) < 40:
        pass
    operator = StreamOperator(broker.bootstrap_servers)
    assert operator.stop(source, 300).state.value == "stopped"
    operator.close()
    thread.join(300)
    assert (thread.is_alive(), failures) == (False, [])
    assert sorted(row["number"] for row in in_topic(broker.bootstrap_servers, sink)) == list(range(40))


def test_mistakes_are_named(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path) -> None:
    source, sink = topics
    job = StreamJob("mistakes", brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)
    with pytest.raises(StreamError, match="job mistakes writes nothing"):
        job.run(once=True)
    with pytest.raises(ValueError, match=r"the time 'when' is no column or expression of its rows"):
        job.topic(source, format="json", schema=SCHEMA, time="when")
    with pytest.raises(ValueError, match=r"the time 'at' is of type bigint, not a timestamp; .* write timestamp_millis\(at\)"):
        job.topic(source, format="json", schema="at long", time="at")
    rows = job.topic(source, format="json", schema=SCHEMA, time="at")
    with pytest.raises(ValueError, match="name with time= the column to partition by"):
        job.to_table(rows.select("airport"), str(tmp_path / "table"))
    job.to_topic(rows, "nowhere")
    with pytest.raises(ValueError, match="job mistakes writes to topic nowhere already"):
        job.to_topic(rows, "nowhere")
    with pytest.raises(StreamError, match=r"there is no topic nowhere at .*: moldau topic create nowhere makes it"):
        job.run(once=True)
    endless = StreamJob("mistakes", brokers=broker.bootstrap_servers, directory=str(tmp_path / "endless"), spark=spark)
    endless.to_topic(endless.topic(source, format="json", schema=SCHEMA).groupBy("airport").count(), sink)
    with pytest.raises(StreamError, match=f"job mistakes, query {sink}: Spark does not run it: .* aggregations without watermark"):
        endless.run(once=True)
    other = StreamJob("mistakes", brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)
    other.to_topic(other.topic(source, format="json", schema=SCHEMA), sink, key="nothing")
    with pytest.raises(StreamError, match=f"topic {sink}: there is no column nothing; there are at, airport, number"):
        other.run(once=True)
    assert format_of(str(tmp_path / "table")) is None
    assert not (tmp_path / "job").exists()
