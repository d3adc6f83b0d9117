"""A year of events is reprocessed beside a running job, which then switches: no window is missing between the two, and none is twice."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from moldau.lake.tables.opening import open_table
from moldau.streams import StreamJob, output, places, windows
from moldau.streams.errors import CheckpointError, StreamError
from moldau.streams.generations import OutputPlace
from moldau.streams.operator import StreamOperator
from moldau.streams.points import DIE_AT, SWITCH_POINTS
from moldau.testing.broker import Broker
from support.sizes import TORTURE
from support.spark import spark_session
from support.stream_jobs import AIRPORTS, BEGIN, SCHEMA, Counts, Event, counts_of, in_table, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.torture]

DAYS, A_DAY = 365, 720 if TORTURE else 8
END_S = 600
WEEK, EPOCH = timedelta(days=7), datetime(1970, 1, 1, tzinfo=UTC)


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


def of_days(first: int, last: int) -> list[Event]:
    """So many events a day, of an airport after the other."""
    return [
        {
            "at": (BEGIN + timedelta(days=day, hours=24 * number / A_DAY)).astimezone(UTC).isoformat(),
            "airport": AIRPORTS[number % 3],
            "number": number,
        }
        for day in range(first, last)
        for number in range(A_DAY)
    ]


def weekly_job(
    bootstrap: str, directory: Path, source: str, sink: str, *, key: str = "airport", records_max: int | None = None, spark: Any = None
) -> StreamJob:
    """Counts by week and airport, into a topic and a table."""
    job = StreamJob(source, brokers=bootstrap, directory=str(directory / "job"), spark=spark)
    rows = job.topic(source, format="json", schema=SCHEMA, time="at", records_max=records_max)
    counts = windows.tumbling(rows, "7 days", key)
    job.to_topic(counts, sink, key=key)
    job.to_table(counts, str(directory / "lake" / sink))
    return job


def counted_weekly(sent: list[Event]) -> Counts:
    """The model: the weeks that ten minutes before the last event have ended."""
    newest = max(datetime.fromisoformat(each["at"]) for each in sent) - timedelta(minutes=10)
    found: Counts = {}
    for each in sent:
        start = EPOCH + (datetime.fromisoformat(each["at"]) - EPOCH) // WEEK * WEEK
        if start + WEEK <= newest:
            key = (start.strftime("%FT%H"), each["airport"])
            found[key] = found.get(key, 0) + 1
    return found


class Job:
    """A run in a thread."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.failure: BaseException | None = None
        self._work = run
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = error

    def join(self) -> None:
        self.thread.join(END_S)
        assert not self.thread.is_alive()
        if self.failure is not None:
            raise self.failure


def wait_for(what: Callable[[], object], *jobs: Job) -> None:
    """Until it is true; a job that fails meanwhile fails the test."""
    deadline = time.monotonic() + END_S
    while not what():
        assert time.monotonic() < deadline
        for job in jobs:
            if job.failure is not None:
                raise job.failure
        time.sleep(0.05)


@contextmanager
def operated(broker: Broker) -> Iterator[StreamOperator]:
    operator = StreamOperator(broker.bootstrap_servers)
    yield operator
    operator.close()


class Reader:
    """Follows an output over switches: each of its places from where it begins to where it ends."""

    def __init__(self, bootstrap: str, job: str, name: str) -> None:
        self._bootstrap, self._job, self._name = bootstrap, job, name
        self._at = 0
        self.rows: list[dict[str, Any]] = []
        self._assign(places(job, name, brokers=bootstrap)[0])

    @classmethod
    def when_there(cls, bootstrap: str, job: str, name: str, running: Job) -> "Reader":
        """When the job has begun to write."""
        wait_for(lambda: in_topic(bootstrap, name), running)
        return cls(bootstrap, job, name)

    def read(self) -> None:
        """What there is now."""
        while True:
            known = places(self._job, self._name, brokers=self._bootstrap)
            place = known[self._at]
            self._read_to_end(place)
            if place.end is None or any(self._reached.get(int(number), 0) < offset for number, offset in place.end.items()):
                return
            self._at += 1
            self._assign(known[self._at])

    def _assign(self, place: OutputPlace) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "r", "isolation.level": "read_committed", "enable.partition.eof": True}
        )
        self._reached = {number: place.begin.get(str(number), 0) for number in range(2)}

    def _read_to_end(self, place: OutputPlace) -> None:
        self._consumer.assign([TopicPartition(place.place, number, offset) for number, offset in self._reached.items()])
        ended: set[int | None] = set()
        while len(ended) < 2:
            message = self._consumer.poll(60)
            assert message is not None
            if (error := message.error()) is None:
                self.rows.append(json.loads(message.value() or b""))
                self._reached[message.partition() or 0] = (message.offset() or 0) + 1
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                self._reached[message.partition() or 0] = message.offset() or 0
                ended.add(message.partition())


def test_a_year_beside_a_running_job_then_the_switch(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path) -> None:
    """A reader that follows the output sees each window once, with the count of the model; so do the new topic and table by themselves."""
    source, sink = topics
    bootstrap, name = broker.bootstrap_servers, source
    sent = of_days(0, DAYS)
    send(bootstrap, source, sent)

    def job() -> StreamJob:
        return weekly_job(bootstrap, tmp_path, source, sink, spark=spark, records_max=len(sent) // 4)

    job().run(once=True)
    old, new = job(), job()
    running = Job(old.run)
    lines: list[str] = []
    reader = Reader(bootstrap, name, sink)
    reader.read()
    reprocessing = Job(lambda: new.reprocess("earliest", once=False, tell=lines.append))
    day = DAYS
    with operated(broker) as operator:
        while not any("is" in line and "now" in line for line in lines):
            more = of_days(day, day + 1)
            day += 1
            sent += more
            send(bootstrap, source, more)
            reader.read()
            for each in (running, reprocessing):
                if each.failure is not None:
                    raise each.failure
        running.join()
        more = of_days(day, day + 3)
        sent += more
        send(bootstrap, source, more)
        wait_for(lambda: operator.status(name)["queries"][0]["lag_records"] == 0, reprocessing)
        assert (operator.status(name)["generation"], operator.jobs()) == (2, [each for each in operator.jobs() if "@" not in each])
        operator.stop(name, END_S)
    reprocessing.join()
    reader.read()
    job().run(once=True)
    reader.read()
    model = counted_weekly(sent)
    place = output(name, sink, brokers=bootstrap)
    assert (place.place, place.generation, place.end) == (f"{sink}.v2", 2, None)
    assert counts_of(reader.rows) == model, "the reader across the switch"
    assert counts_of(in_topic(bootstrap, place.place)) == model
    table = places(name, str(tmp_path / "lake" / sink), brokers=bootstrap)
    assert counts_of(in_table(table[-1].place)) == model
    assert counts_of([*in_table(table[0].place), *rows_after(table[1])]) == model, "a reader of the tables"
    print(f"\n{len(sent):,} events in {len(model):,} windows of {day} days; at the switch {place.begin}; {lines}")


def rows_after(place: OutputPlace) -> list[dict[str, Any]]:
    """Of a table what came after the version where it continues."""
    from pyarrow import parquet

    snapshot, before = open_table(place.place), open_table(place.place, place.begin["version"])
    assert snapshot is not None
    assert before is not None
    had = {file.path for file in before.files()}
    return [
        row
        for file in snapshot.files()
        if file.path not in had
        for row in parquet.ParquetFile(os.path.join(place.place, file.path)).read().to_pylist()
    ]


PROGRAM = """import sys
from pathlib import Path
from test_stream_reprocess import weekly_job
job = weekly_job({bootstrap!r}, Path({directory!r}), {source!r}, {sink!r})
"""


@pytest.mark.long
@pytest.mark.parametrize("dies_at", [SWITCH_POINTS[:-1], SWITCH_POINTS[-1:]], ids=["each point", "the last one"])
def test_killed_in_the_middle_it_continues(
    broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, dies_at: tuple[str, ...]
) -> None:
    """The reprocessing process dies at points of the switch; the same command continues, and a reader still sees each window once.

    What dies when it has switched does not come to the last point any more.
    """
    source, sink = topics
    bootstrap = broker.bootstrap_servers
    sent = of_days(0, 60)
    send(bootstrap, source, sent)
    file = tmp_path / "weekly.py"
    file.write_text(PROGRAM.format(bootstrap=bootstrap, directory=str(tmp_path), source=source, sink=sink))
    running = Job(weekly_job(bootstrap, tmp_path, source, sink, spark=spark).run)
    reader = Reader.when_there(bootstrap, source, sink, running)
    lines = []
    for number, point in enumerate(dies_at):
        more = of_days(60 + number, 61 + number)
        sent += more
        send(bootstrap, source, more)
        code, out = reprocess(file, point)
        lines.append((point, output(source, sink, brokers=bootstrap).place))
        assert code == -signal.SIGKILL, out
        reader.read()
    running.join()
    print(f"\n{'killed at':<24} the output then")
    for point, place in lines:
        print(f"{point:<24} {place}")
    more = of_days(80, 90)
    sent += more
    send(bootstrap, source, more)
    weekly_job(bootstrap, tmp_path, source, sink, spark=spark).run(once=True)
    reader.read()
    with operated(broker) as operator:
        assert (operator.status(source)["generation"], operator.status(source)["state"]) == (2, "stopped")
        assert f"{source}@2" not in operator.jobs()
    assert counts_of(reader.rows) == counts_of(in_topic(bootstrap, f"{sink}.v2")) == counted_weekly(sent)


def reprocess(file: Path, point: str) -> tuple[int, str]:
    """The exit code of the command that dies at a point, and what it printed."""
    paths = [*sys.path, str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), DIE_AT: point}
    command = [sys.executable, "-m", "moldau", "stream", "reprocess", str(file), "--once"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=END_S, check=False)
    return done.returncode, done.stdout + done.stderr


def test_savepoints(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path) -> None:
    """Of a running job and of a stopped one. Reprocessing from one gives what follows it, and after the switch the reader has each window
    once; a run from one writes what followed it to the same outputs again."""
    source, sink = topics
    bootstrap = broker.bootstrap_servers
    first, second = of_days(0, 30), of_days(30, 60)
    send(bootstrap, source, first)

    def job(key: str = "airport", directory: Path = tmp_path) -> StreamJob:
        return weekly_job(bootstrap, directory, source, sink, key=key, spark=spark)

    old = job()
    running = Job(old.run)
    with operated(broker) as operator:
        reader = Reader.when_there(bootstrap, source, sink, running)
        wait_for(lambda: len(in_topic(bootstrap, sink)) == len(counted_weekly(first)), running)
        of_running = tmp_path / "savepoints" / "running"
        operator.savepoint(source, str(of_running), END_S)
        with pytest.raises(StreamError, match="exists already: a savepoint is made in a directory of its own"):
            operator.savepoint(source, str(of_running), END_S)
        send(bootstrap, source, second)
        wait_for(lambda: len(in_topic(bootstrap, sink)) == len(counted_weekly([*first, *second])), running)
        operator.stop(source, END_S)
        running.join()
        of_stopped = tmp_path / "savepoints" / "stopped"
        operator.savepoint(source, str(of_stopped), END_S)
        with pytest.raises(StreamError, match=r"was stopped or killed in the middle.* Start it again"):
            job().reprocess(savepoint=str(of_running), once=True)
        with pytest.raises(CheckpointError, match=r"does not fit the savepoint in .*stateful operator 1 \(Aggregate\), keys was"):
            job("number").reprocess(savepoint=str(of_running), once=True, fresh=True)
        with pytest.raises(CheckpointError, match=r"there is no savepoint: it has no savepoint\.json"):
            job().run(once=True, savepoint=str(tmp_path))
        job().run(once=True)
        assert operator.status(source)["generation"] == 1
    job().reprocess(savepoint=str(of_running), once=True)
    reader.read()
    model = counted_weekly([*first, *second])
    assert counts_of(reader.rows) == model
    followed = {key: count for key, count in model.items() if key not in counted_weekly(first)}
    assert counts_of(in_topic(bootstrap, f"{sink}.v2")) == followed, "the new generation begins with the savepoint"
    job().run(once=True, savepoint=str(of_running))
    assert len(in_topic(bootstrap, f"{sink}.v2")) == 2 * len(followed), "again, as was asked for"
    job().run(once=True, savepoint=str(of_stopped))
    assert len(in_topic(bootstrap, f"{sink}.v2")) == 2 * len(followed), "nothing came after that one"


def test_a_job_that_was_stopped_before_it_closed_its_windows(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path) -> None:
    """Its last batch moved the watermark, and no record has come since: its next start closes them all the same, so that it can be
    switched."""
    source, sink = topics
    bootstrap = broker.bootstrap_servers
    sent = of_days(0, 30)
    send(bootstrap, source, sent)
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(name, "false")
    try:
        weekly_job(bootstrap, tmp_path, source, sink, spark=spark).run(once=True)
    finally:
        spark.conf.unset(name)
    assert in_topic(bootstrap, sink) == []
    weekly_job(bootstrap, tmp_path, source, sink, spark=spark).run(once=True)
    assert counts_of(in_topic(bootstrap, sink)) == counted_weekly(sent)
    lines: list[str] = []
    weekly_job(bootstrap, tmp_path, source, sink, spark=spark).reprocess("earliest", once=True, tell=lines.append)
    reader = Reader(bootstrap, source, sink)
    reader.read()
    assert counts_of(reader.rows) == counts_of(in_topic(bootstrap, f"{sink}.v2")) == counted_weekly(sent)


def test_a_job_that_reads_what_another_one_has_made_again(
    broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topic ends, which its next start says; reprocessed over the new one, its own outputs are those of the new events, whole."""
    source, middle = topics
    bootstrap, sink = broker.bootstrap_servers, broker.create_topic(broker.unique_topic("last"), 2)
    sent = of_days(0, 30)
    send(bootstrap, source, sent)

    def first(factor: int) -> StreamJob:
        job = StreamJob(source, brokers=bootstrap, directory=str(tmp_path / "first"), spark=spark)
        rows = job.topic(source, format="json", schema=SCHEMA, time="at")
        job.to_topic(rows.selectExpr("at", "airport", f"number * {factor} AS number"), middle)
        return job

    def second(topic: str) -> StreamJob:
        job = StreamJob(sink, brokers=bootstrap, directory=str(tmp_path / "second"), spark=spark)
        job.to_topic(job.topic(topic, format="json", schema=SCHEMA, time="at").select("number"), sink)
        return job

    first(1).run(once=True)
    second(middle).run(once=True)
    first(10).reprocess(once=True)
    second(middle).run(once=True)
    assert f"reads topic {middle}, in which an output of job {source} has ended: what follows is in {middle}.v2" in caplog.text
    caplog.clear()
    second(output(source, brokers=bootstrap).place).reprocess(whole=True, once=True)
    place = output(sink, brokers=bootstrap)
    assert (place.place, place.begin) == (f"{sink}.v2", {})
    assert sorted(each["number"] for each in in_topic(bootstrap, place.place)) == sorted(10 * each["number"] for each in sent)
    assert "has ended" not in caplog.text
