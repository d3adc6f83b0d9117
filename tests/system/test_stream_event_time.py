"""What a job makes of event time is what a plain model makes of it (`support.event_time_model`): late rows, rows in no order, wrong clocks,
partitions that are new or idle, schemas that change."""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from moldau.cli.application import application
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.registry.client import RegistryClient
from moldau.registry.wire import frame
from moldau.streams import StreamJob, windows
from moldau.streams.errors import BatchError
from moldau.streams.operator import StreamOperator
from moldau.testing.broker import Broker
from support.avro_registry import encoded
from support.event_time_model import EPOCH, EventTimeModel, Row, Sessions, Sliding, in_batches, mixed_rows
from support.sizes import sized
from support.spark import spark_session
from support.stream_jobs import BEGIN, SCHEMA, event, in_table, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.torture]

END: Row = (50_000, "end")
"""Moves the watermark past all other rows."""


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


Status = Callable[[str], dict[str, Any]]


@pytest.fixture
def status(broker: Broker) -> Iterator[Status]:
    """Of the only query of a job, or the first one."""
    operator = StreamOperator(broker.bootstrap_servers)
    yield lambda job: dict(operator.status(job)["queries"][0])
    operator.close()


class Places:
    """Topics and tables of one test, and a job between them."""

    def __init__(self, broker: Broker, spark: Any, directory: Path) -> None:
        self.bootstrap, self.broker, self.spark, self.directory = broker.bootstrap_servers, broker, spark, directory
        self.name = broker.unique_topic("event-time")

    def topic(self, what: str, partitions: int = 1, **config: int) -> str:
        self.broker.create_topic(f"{self.name}-{what}", partitions, {name.replace("_", "."): value for name, value in config.items()})
        return f"{self.name}-{what}"

    def table(self, what: str) -> str:
        return str(self.directory / "lake" / what)

    def job(self, **given: Any) -> StreamJob:
        return StreamJob(self.name, brokers=self.bootstrap, directory=str(self.directory / "job"), spark=self.spark, **given)

    def send(self, topic: str, rows: list[Row], partitions: int = 1) -> None:
        send(self.bootstrap, topic, [event(minute, key) for minute, key in rows], partitions)


@pytest.fixture
def places(broker: Broker, spark: Any, tmp_path: Path) -> Places:
    return Places(broker, spark, tmp_path)


def minute_of(at: Any) -> int:
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    return round((time.astimezone(UTC) - BEGIN).total_seconds() / 60)


def closed_in(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> list[tuple[int, int, str, int]]:
    return sorted((minute_of(r["window"]["start"]), minute_of(r["window"]["end"]), r["airport"], r["count"]) for r in rows)


def late_in(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    return sorted((minute_of(each["event_time"]), each["airport"], each["_late_ms"] // 60_000) for each in rows)


def sliding_model(seed: int) -> EventTimeModel:
    """Of the rows of a seed, in batches of ten: windows of an hour, a new one each 20 minutes."""
    model = EventTimeModel(Sliding(60, 20), 20)
    model.run(in_batches([*mixed_rows(seed, 60), END], 10))
    return model


def has_both(seed: int) -> bool:
    """Whether there are late rows that a window still takes, and others."""
    model = sliding_model(seed)
    return len(model.late) > len(model.dropped) > 0


@pytest.mark.parametrize("seed", list(itertools.islice((seed for seed in itertools.count() if has_both(seed)), sized(1, 20))))
def test_rows_in_no_order(places: Places, seed: int, status: Status) -> None:
    """Batches of ten rows each, some of them hours late: windows, late rows, and rows that no window takes are those of the model; the
    status has their number and the greatest lateness."""
    source = places.topic("in")
    rows = mixed_rows(seed, 60)
    places.send(source, [*rows, END])

    job = places.job()
    events = job.topic(source, format="json", schema=SCHEMA, time="at", delay="20 minutes", records_max=10)
    slid = windows.sliding(events, "1 hour", "20 minutes", "airport")
    job.to_table(slid, places.table("sliding"))
    job.late_to_table(slid, places.table("late"))
    job.late_to_table(slid, places.table("dropped"), choose=lambda late: windows.closed(late, "1 hour", "20 minutes"))
    sessions = windows.sessions(events, "15 minutes", "airport")
    job.to_table(sessions, places.table("sessions"))
    job.late_to_table(sessions, places.table("late-for-sessions"), choose=lambda late: late.filter("_late_ms >= 15 * 60000"))
    job.run(once=True)

    sliding, in_sessions = sliding_model(seed), EventTimeModel(Sessions(15), 20)
    in_sessions.run(in_batches([*rows, END], 10))
    assert closed_in(in_table(places.table("sliding"))) == sorted(sliding.closed)
    assert late_in(in_table(places.table("late"))) == sorted(sliding.late)
    assert sorted(each[:2] for each in late_in(in_table(places.table("dropped")))) == sorted(sliding.dropped)
    assert closed_in(in_table(places.table("sessions"))) == sorted(in_sessions.closed)
    assert sorted(each[:2] for each in late_in(in_table(places.table("late-for-sessions")))) == sorted(in_sessions.dropped)
    counts = status(places.name)["inputs"][source]
    assert (counts["rows"], counts["late"]) == (61, len(sliding.late))
    assert counts["latest_ms"] == max(by for _, _, by in sliding.late) * 60_000


def test_late_rows_are_written_once(
    places: Places, monkeypatch: pytest.MonkeyPatch, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that fails before its late rows are written, or after, is run again: they and outputs are there once, and counted once."""
    source, sink, aside = places.topic("in", 2), places.topic("out"), places.topic("late")

    def run() -> None:
        job = places.job(task_tries=1)
        counts = windows.tumbling(job.topic(source, format="json", schema=SCHEMA, time="at"), "1 hour", "airport")
        job.to_topic(counts, sink, key="airport")
        job.late_to_topic(counts, aside, key="airport")
        job.late_to_table(counts, places.table("late"))
        job.run(once=True)

    def fail_at(point: str) -> Callable[[str], None]:
        def reached(now: str) -> None:
            if now == point:
                raise OSError(f"dies at {point}")

        return reached

    first: list[Row] = [(600, "a"), (700, "a"), (601, "b"), (EPOCH - 1, "old")]
    second: list[Row] = [(650, "a"), (685, "b"), (710, "a"), (400, "c")]
    model = EventTimeModel(Sliding(60, 60), 10)
    places.send(source, first, 2)
    run()
    model.run([first])
    places.send(source, second, 2)
    for point in ("outputs written", "late rows written"):
        with monkeypatch.context() as patched:
            patched.setattr("moldau.streams.late.reached", fail_at(point))
            with pytest.raises(BatchError, match=f"dies at {point}"):
                run()
        assert len(in_topic(places.bootstrap, aside, 1)) == (1 if point == "outputs written" else 4)
    assert len(in_table(places.table("late"))) == 1, "the second output of late rows was not reached"
    places.send(source, [END], 2)
    with caplog.at_level("WARNING"):
        run()
    model.run([second])
    model.run([[END]])
    assert closed_in(in_topic(places.bootstrap, sink, 1)) == sorted(model.closed)
    assert late_in(in_topic(places.bootstrap, aside, 1)) == late_in(in_table(places.table("late"))) == sorted(model.late)
    assert {each["_offset"] for each in in_table(places.table("late"))} == {1, 2, 3}
    found = status(places.name)
    assert (found["inputs"][source]["late"], found["inputs"][source]["latest_ms"], found["late_rows"]) == (4, 290 * 60_000, 3)
    assert f"topic {source}: 3 records were late, the latest by 4:50:00" in caplog.text


def test_clocks_that_are_wrong(places: Places, status: Status) -> None:
    """Times in the far future are those of the records, or of the batch where these are wrong too: counted, and the watermark stays where
    right clocks have it. A row that is late by the time of its record is late where batches are read again, too."""
    century = 60 * 24 * 365 * 100
    source = places.topic("in", message_timestamp_after_max_ms=2 * century * 60_000)
    now = int(time.time()) // 60 * 60

    def publish(*rows: tuple[str, int, int | None]) -> None:
        """Name, minutes of its clock and of its record from now."""
        producer = Producer({"bootstrap.servers": places.bootstrap, "log_level": 3})
        for name, minutes, logged in rows:
            at = datetime.fromtimestamp(now, UTC) + timedelta(minutes=minutes)
            stamp_ms = 0 if logged is None else (now + 60 * logged) * 1000  # 0: the producer's clock
            producer.produce(source, json.dumps({"at": at.isoformat(), "airport": name, "number": 0}), timestamp=stamp_ms)
        assert producer.flush(30) == 0

    def run() -> None:
        job = places.job()
        rows = job.topic(source, format="json", schema=SCHEMA, time="at", delay="30 minutes", future="10 minutes")
        once = windows.distinct(rows, "1 day", "airport")
        job.to_table(once, places.table("rows"))
        job.late_to_table(once, places.table("late"))
        job.run(once=True)

    publish(("right", -100, None), ("little ahead", 5, None), ("ahead", century, 0), ("both ahead", century, century))
    run()
    found = status(places.name)
    assert found["inputs"][source]["ahead"] == 2
    assert (now - 25 * 60) * 1000 <= found["watermark_ms"] <= (time.time() - 20 * 60) * 1000, "30 minutes before the one that is 5 ahead"
    publish(("in time", -10, None), ("late", -60, None), ("ahead and late", century, -70))
    run()
    counts = status(places.name)["inputs"][source]
    assert (counts["ahead"], counts["late"], counts["undecodable"]) == (3, 2, 0)
    times = {each["airport"]: each["event_time"].timestamp() for each in in_table(places.table("rows"))}
    assert set(times) == {"right", "little ahead", "ahead", "both ahead", "in time"}
    assert times["ahead"] == now
    assert now <= times["both ahead"] <= time.time()
    late = {each["airport"]: each["event_time"].timestamp() for each in in_table(places.table("late"))}
    assert late == {"late": now - 60 * 60, "ahead and late": now - 70 * 60}


def test_partitions_that_appear(places: Places) -> None:
    """While the job runs, and between two runs: each row is counted, and one that is late in a new partition is put aside."""
    source = places.topic("in", 2)

    def job() -> StreamJob:
        made = places.job(trigger="100 milliseconds")
        counts = windows.tumbling(made.topic(source, format="json", schema=SCHEMA, time="at", delay="1 day"), "1 hour", "airport")
        made.to_table(counts, places.table("counts"))
        made.late_to_table(counts, places.table("late"))
        return made

    rows = mixed_rows(1, 40)
    operator = StreamOperator(places.bootstrap)
    running = job()
    thread = threading.Thread(target=running.run)
    places.send(source, rows[:10], 2)
    thread.start()
    with Cluster(places.bootstrap) as cluster:
        _wait_read(operator, places.name, source, 10)
        Admin(cluster).create_partitions(source, 3)
        places.send(source, rows[10:25], 3)
        _wait_read(operator, places.name, source, 25)
        running.stop()
        thread.join(120)
        assert not thread.is_alive()
        Admin(cluster).create_partitions(source, 4)
    operator.close()
    places.send(source, [*rows[25:], END], 4)
    job().run(once=True)
    model = EventTimeModel(Sliding(60, 60), 24 * 60)
    model.run([rows, [END]])
    assert closed_in(in_table(places.table("counts"))) == sorted(model.closed)
    with Cluster(places.bootstrap) as cluster:
        Admin(cluster).create_partitions(source, 5)
    producer = Producer({"bootstrap.servers": places.bootstrap, "log_level": 3})
    producer.produce(source, json.dumps(event(700, "late")), partition=4)
    assert producer.flush(30) == 0
    job().run(once=True)
    model.run([[(700, "late")]])
    assert late_in(in_table(places.table("late"))) == model.late


def _wait_read(operator: StreamOperator, job: str, topic: str, rows: int) -> None:
    """Until the job reports so many rows."""
    deadline = time.monotonic() + 120
    while True:
        queries = operator.status(job)["queries"] if job in operator.jobs() else []
        if queries and queries[0]["inputs"].get(topic, {}).get("rows") == rows:
            return
        assert time.monotonic() < deadline, queries
        time.sleep(0.2)


def test_an_idle_partition_holds_nothing_back(places: Places, status: Status) -> None:
    """Windows close by the newest row of all partitions, of which one has never had a row."""
    source = places.topic("in", 2)
    rows = mixed_rows(3, 20)
    places.send(source, rows, 1)
    job = places.job()
    job.to_table(windows.tumbling(job.topic(source, format="json", schema=SCHEMA, time="at"), "1 hour", "airport"), places.table("counts"))
    job.run(once=True)
    model = EventTimeModel(Sliding(60, 60), 10)
    model.run([rows])
    assert model.closed
    assert closed_in(in_table(places.table("counts"))) == sorted(model.closed)
    assert status(places.name)["watermark_ms"] == (BEGIN + timedelta(minutes=model.ends)).timestamp() * 1000


def test_an_idle_topic_of_a_join_holds_the_watermark(places: Places, status: Status) -> None:
    """Rows without a match come when both topics have moved past them since the start; what is late is put aside by topic."""
    left, right = places.topic("left"), places.topic("right")

    def run() -> None:
        job = places.job()
        clicks, buys = (job.topic(topic, format="json", schema=SCHEMA, time="at") for topic in (left, right))
        pairs = windows.join(clicks, buys, "airport", before="0 minutes", after="10 minutes", how="left_outer")
        pairs = pairs.select("airport", "event_time", "right_at")
        job.to_table(pairs, places.table("pairs"))
        for topic in (left, right):
            job.late_to_table(pairs, places.table(f"late-{topic}"), of=topic)
        job.run(once=True)

    def pairs() -> Counter[tuple[str, bool]]:
        return Counter((each["airport"], each["right_at"] is not None) for each in in_table(places.table("pairs")))

    places.send(left, [(600, "a"), (601, "b")])
    run()
    assert (pairs(), status(places.name)["watermark_ms"]) == (Counter(), None)
    places.send(left, [END])  # Spark keeps the watermark of the join, and not that of each topic
    places.send(right, [(605, "a")])
    run()
    assert pairs() == {("a", True): 1}
    assert status(places.name)["watermark_ms"] == (BEGIN + timedelta(minutes=595)).timestamp() * 1000
    for topic in (left, right):
        places.send(topic, [END])
    run()
    assert pairs() == {("a", True): 1, ("b", False): 1, ("end", True): 2}
    places.send(left, [(602, "left")])
    places.send(right, [(603, "right"), (604, "right")])
    run()
    for topic, rows in ((left, [(602, "left")]), (right, [(603, "right"), (604, "right")])):
        assert [each[:2] for each in late_in(in_table(places.table(f"late-{topic}")))] == rows
        assert status(places.name)["inputs"][topic]["late"] == len(rows)
    assert len(pairs()) == 3


V1 = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "airport", "type": "string"}],
}
V2 = {**V1, "fields": [{"name": "tail", "type": "string", "default": "unknown"}, *V1["fields"]]}


@pytest.mark.parametrize("kind", [pytest.param("json", marks=pytest.mark.long), "avro"])
def test_a_schema_that_changes(places: Places, kind: str) -> None:
    """Events with a new field come while the job has the old schema, also where a batch is read again; at its next start it has the field.
    The windows that are open stay."""
    source = places.topic("in")
    assert places.broker.registry_url is not None
    registry = RegistryClient(places.broker.registry_url)
    numbers = [registry.register(f"{source}-value", json.dumps(V1))]

    def value(minute: int, tail: str | None) -> bytes:
        if kind == "json":
            return json.dumps({**event(minute), **({} if tail is None else {"tail": tail})}).encode()
        given = {"at": BEGIN + timedelta(minutes=minute), "airport": "EWR", **({} if tail is None else {"tail": tail})}
        return frame(numbers[tail is not None], encoded(V1 if tail is None else V2, given))

    def job(*, knows_tail: bool) -> StreamJob:
        made = places.job(registry=places.broker.registry_url)
        schema = None if kind == "avro" else "at timestamp, airport string" + (", tail string" if knows_tail else "")
        rows = made.topic(source, format=kind, schema=schema, time="at")
        counts = windows.tumbling(rows, "1 hour", "airport")
        made.to_table(counts, places.table("counts"))
        made.late_to_table(counts, places.table("late"))
        return made

    batches: list[list[Row]] = [[(600, "EWR"), (700, "EWR")], [(710, "EWR"), (500, "EWR"), (501, "EWR")], [(711, "EWR"), (502, "EWR")]]
    send(places.bootstrap, source, [value(minute, None) for minute, _ in batches[0]], 1)
    job(knows_tail=False).run(once=True)
    running = job(knows_tail=False)
    numbers.append(registry.register(f"{source}-value", json.dumps(V2)))
    send(places.bootstrap, source, [value(710, "N1"), value(500, "N2"), value(501, None)], 1)
    running.run(once=True)
    assert ["tail" in each for each in in_table(places.table("late"))] == [False, False]
    send(places.bootstrap, source, [value(711, "N3"), value(502, None)], 1)
    job(knows_tail=True).run(once=True)
    send(places.bootstrap, source, [value(END[0], "N4"), value(503, "N5")], 1)
    job(knows_tail=True).run(once=True)
    registry.close()
    model = EventTimeModel(Sliding(60, 60), 10)
    for rows in (*batches, [(END[0], "EWR"), (503, "EWR")]):
        model.run([rows])
    assert closed_in(in_table(places.table("counts"))) == sorted(model.closed)
    assert late_in(in_table(places.table("late"))) == sorted(model.late)
    tails = {minute_of(each["event_time"]): each.get("tail") for each in in_table(places.table("late"))}
    assert tails == {500: None, 501: None, 502: "unknown" if kind == "avro" else None, 503: "N5"}


@pytest.mark.parametrize("undecodable", [pytest.param("skip", marks=pytest.mark.long), "dead-letters"])
def test_values_that_are_no_events(places: Places, undecodable: str) -> None:
    """They are left out or put aside, and counted; the status has a line for them, and one for late rows."""
    source = places.topic("in")
    assert places.broker.registry_url is not None
    with RegistryClient(places.broker.registry_url) as registry:
        number = registry.register(f"{source}-value", json.dumps(V1))
    good = [frame(number, encoded(V1, {"at": BEGIN + timedelta(minutes=minute), "airport": "EWR"})) for minute in (600, 700, 500)]

    def run() -> None:
        job = places.job(registry=places.broker.registry_url)
        counts = windows.tumbling(job.topic(source, format="avro", time="at", undecodable=undecodable), "1 hour", "airport")
        job.to_table(counts, places.table("counts"))
        job.late_to_table(counts, places.table("late"))
        job.run(once=True)

    send(places.bootstrap, source, [good[0], b"no event", good[1]], 1)
    run()
    send(places.bootstrap, source, [b"none either", good[2]], 1)
    run()
    assert closed_in(in_table(places.table("counts"))) == [(600, 660, "EWR", 1)]
    assert late_in(in_table(places.table("late"))) == [(500, "EWR", 190)]
    files = [each for each in (places.directory / "job" / "dead-letters").rglob("*") if each.is_file()]
    assert len(files) == (2 if undecodable == "dead-letters" else 0), "a batch that is read again puts nothing aside"
    shown = CliRunner().invoke(application, ["stream", "status", places.name, "--bootstrap", places.bootstrap])
    assert f"job {places.name}, topic {source}: 2 records that cannot be decoded, and were left out or put aside" in shown.output
    assert f"job {places.name}, topic {source}: 1 record that came late, the latest by 3:10:00" in shown.output


def test_mistakes_with_late_rows_are_named(places: Places) -> None:
    left, right = places.topic("left"), places.topic("right")
    job = places.job()
    clicks, buys = (job.topic(topic, format="json", schema=SCHEMA, time="at") for topic in (left, right))
    pairs = windows.join(clicks, buys, "airport", before="0 minutes", after="10 minutes")
    path = places.table("late")
    with pytest.raises(ValueError, match=f"the DataFrame reads {left}, {right}: name with of= the topic whose late rows are meant"):
        job.late_to_table(pairs, path)
    with pytest.raises(ValueError, match=f"the DataFrame does not read nothing; it reads {left}, {right}"):
        job.late_to_table(pairs, path, of="nothing")
    with pytest.raises(ValueError, match=f"the DataFrame reads {left} more than once; make an input for each"):
        job.late_to_table(clicks.unionByName(clicks), path)
    job.late_to_table(pairs, path, of=left)
    with pytest.raises(ValueError, match=f"job {places.name} writes to table {path} already"):
        job.late_to_table(pairs, path, of=right)
    with pytest.raises(ValueError, match="late rows are those of a DataFrame that the job writes"):
        job.run(once=True)
