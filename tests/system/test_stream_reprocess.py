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
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from moldau.lake.tables.opening import open_table
from moldau.streams import StreamJob, output, places
from moldau.streams.errors import CheckpointError, JobFencedError, StreamError
from moldau.streams.generations import OutputPlace
from moldau.streams.operator import StreamOperator
from moldau.streams.points import DIE_AT, DIE_ONCE, SWITCH_POINTS
from moldau.testing.broker import Broker
from support import stream_jobs
from support.spark import short_lived, spark_session
from support.stream_jobs import AIRPORTS, BEGIN, Counts, Event, counted, counting_job, counts_of, events, in_table, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark]

TORTURE = bool(os.environ.get("MOLDAU_TORTURE"))
DAYS, A_DAY = 365, 720 if TORTURE else 8
END_S = 600


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
        {"at": (BEGIN + timedelta(days=day, hours=24 * number / A_DAY)).astimezone(UTC).isoformat(), "airport": AIRPORTS[number % 3], "number": number}
        for day in range(first, last)
        for number in range(A_DAY)
    ]


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
        self._consumer.assign([TopicPartition(place.place, number, place.begin.get(str(number), 0)) for number in range(2)])
        self._reached: dict[int, int] = {}

    def _read_to_end(self, place: OutputPlace) -> None:
        ended: set[int | None] = set()
        while len(ended) < 2:
            message = self._consumer.poll(1)
            if message is None:
                return
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
        return counting_job(bootstrap, tmp_path, source, sink, spark=spark, name=name, records_max=max(400, len(sent) // 20))

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
        operator.stop(name, 60)
    reprocessing.join()
    reader.read()
    counting_job(bootstrap, tmp_path, source, sink, spark=spark, name=name).run(once=True)
    reader.read()
    last = max(each["at"] for each in sent)
    model = {key: count for key, count in counted(sent).items() if key[0] < last[:13]}
    place = output(name, sink, brokers=bootstrap)
    assert (place.place, place.generation, place.end) == (f"{sink}.v2", 2, None)
    assert counts_of(reader.rows) == model, "the reader across the switch"
    assert counts_of(in_topic(bootstrap, place.place)) == model
    table = places(name, "table-of-" + sink, brokers=bootstrap) if False else places(name, str(tmp_path / "lake" / sink), brokers=bootstrap)
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
