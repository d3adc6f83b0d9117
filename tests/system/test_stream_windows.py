"""Sliding windows, sessions, joins and rows without repetitions, as a plain Python model has them; tracked events by their header."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.registry.client import RegistryClient
from moldau.registry.wire import frame
from moldau.streams import StreamJob, windows
from moldau.streams.plans import operators_of
from moldau.testing.broker import Broker
from moldau.tracking.header import HEADER_SCHEMA
from support.avro_registry import encoded
from support.spark import spark_session
from support.stream_jobs import BEGIN, SCHEMA, Event, event, events, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark]

END = event(10_000, "END", -1)
"""Moves the watermark past all other events."""


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def minute_of(text: str) -> int:
    return int((datetime.fromisoformat(text) - BEGIN).total_seconds() // 60)


def windows_in(broker: Broker, topic: str) -> Counter[tuple[int, int, str]]:
    """Counts by the minutes in which a window begins and ends, and the airport; each window is there once."""
    rows = [row for row in in_topic(broker.bootstrap_servers, topic) if row["airport"] != "END"]
    found = Counter({(minute_of(row["window"]["start"]), minute_of(row["window"]["end"]), row["airport"]): row["count"] for row in rows})
    assert len(found) == len(rows)
    return found


def slid(values: list[Event], length: int, step: int) -> Counter[tuple[int, int, str]]:
    found: Counter[tuple[int, int, str]] = Counter()
    for each in values:
        minute = minute_of(each["at"])
        for start in range(minute // step * step, minute - length, -step):
            found[start, start + length, each["airport"]] += 1
    return found


def in_sessions(values: list[Event], gap: int) -> Counter[tuple[int, int, str]]:
    found: Counter[tuple[int, int, str]] = Counter()
    for airport in {each["airport"] for each in values}:
        begin = end = count = 0
        for minute in sorted(minute_of(each["at"]) for each in values if each["airport"] == airport):
            if count and minute > end:
                found[begin, end, airport] = count
                count = 0
            begin, end, count = (begin if count else minute), minute + gap, count + 1
        found[begin, end, airport] = count
    return found


def test_several_queries_of_a_job(broker: Broker, spark: Any, tmp_path: Path) -> None:
    """Four outputs of four DataFrames, out of events that come in no order: as the models have them, in one run."""
    clicks, buys, sliding, sessions, pairs, distinct = (broker.create_topic(broker.unique_topic(name), 2) for name in (
        "clicks", "buys", "sliding", "sessions", "pairs", "distinct",
    ))  # fmt: skip
    values = [each for each in events(0, 240) if each["number"] % 100 < 60]
    mixed = sorted(values, key=lambda each: each["number"] * 7919 % 9)  # in a batch any order is in time
    later = [event(n + (5 if n % 2 == 0 else 50), "-", n) for n in range(40)]
    job = StreamJob("several", brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)
    left, right = (job.topic(topic, format="json", schema=SCHEMA, time="at") for topic in (clicks, buys))
    job.to_topic(windows.sliding(left, "1 hour", "20 minutes", "airport"), sliding)
    job.to_topic(windows.sessions(left, "15 minutes", "airport"), sessions)
    both = windows.join(left, right, "number", before="1 minute", after="10 minutes", how="left_outer")
    job.to_topic(both.select("number", "at", "right_at"), pairs)
    job.to_topic(windows.distinct(left, "1 day", "number").select("number"), distinct)
    send(broker.bootstrap_servers, clicks, [*mixed, *mixed[:50]])
    send(broker.bootstrap_servers, buys, later)
    job.run(once=True)
    send(broker.bootstrap_servers, clicks, [END])
    send(broker.bootstrap_servers, buys, [END])
    job.run(once=True)

    twice = [*mixed, *mixed[:50]]
    assert windows_in(broker, sliding) == slid(twice, 60, 20)
    assert windows_in(broker, sessions) == in_sessions(twice, 15)
    found = Counter((row["number"], row["right_at"] is not None) for row in in_topic(broker.bootstrap_servers, pairs))
    expected = Counter((each["number"], each["number"] < 40 and each["number"] % 2 == 0) for each in twice)
    assert {pair: count for pair, count in found.items() if pair[0] >= 0} == expected
    numbers = [row["number"] for row in in_topic(broker.bootstrap_servers, distinct)]
    assert sorted(numbers) == sorted({each["number"] for each in values} | {-1})


def test_tracked_events(broker: Broker, spark: Any, tmp_path: Path) -> None:
    """Their time is the header's; those with a guid that was there are left out, also in a later batch; broken ones are counted."""
    source, sink = (broker.create_topic(broker.unique_topic(name), 2) for name in ("views", "pages"))
    schema = {"type": "record", "name": "View", "fields": [{"name": "header", "type": HEADER_SCHEMA}, {"name": "page", "type": "string"}]}
    assert broker.registry_url is not None
    with RegistryClient(broker.registry_url) as registry:
        number = registry.register(f"{source}-value", json.dumps(schema))

    def view(count: int) -> bytes:
        header = {"time": BEGIN + timedelta(minutes=count), "service": "shop", "host": "h", "datacenter": "d", "guid": b"%016d" % count}
        return frame(number, encoded(schema, {"header": header, "page": f"/{count}"}))

    def publish(*values: bytes) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
        for value in values:
            producer.produce(source, value, partition=0)
        assert producer.flush(30) == 0

    def run() -> None:
        registry = broker.registry_url
        job = StreamJob("views", brokers=broker.bootstrap_servers, registry=registry, directory=str(tmp_path / "job"), spark=spark)
        views = job.topic(source, format="tracked", undecodable="skip")
        job.to_topic(windows.distinct(views, "1 day").select("page", "event_time"), sink)
        job.run(once=True)

    publish(view(1), view(2), view(1), b"broken")
    run()
    publish(view(2), view(3))
    run()
    rows = {row["page"]: datetime.fromisoformat(row["event_time"]) for row in in_topic(broker.bootstrap_servers, sink)}
    assert rows == {f"/{count}": (BEGIN + timedelta(minutes=count)).astimezone(UTC) for count in (1, 2, 3)}
    assert len(in_topic(broker.bootstrap_servers, sink)) == 3


def test_what_a_job_is_compared_by(broker: Broker, spark: Any, tmp_path: Path) -> None:
    """Windows of other lengths or another offset, and other keys, have another shape; the same ones have the same in each plan."""
    source = broker.create_topic(broker.unique_topic("clicks"), 1)
    job = StreamJob("compared", brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)

    def rows() -> Any:
        return job.topic(source, format="json", schema=SCHEMA, time="at")

    def shapes() -> list[str]:
        return [
            str(*operators_of(frame))
            for frame in (
                windows.tumbling(rows(), "1 hour", "airport"),
                windows.tumbling(rows(), "1 hour", "airport", offset="15 minutes"),
                windows.sliding(rows(), "1 hour", "20 minutes", "airport"),
                windows.sliding(rows(), "1 hour", "20 minutes", "airport", offset="5 minutes"),
                windows.sliding(rows(), "1 hour", "30 minutes", "airport", offset="5 minutes"),
                windows.sessions(rows(), "15 minutes", "airport"),
                windows.sessions(rows(), "20 minutes", "airport"),
                windows.distinct(rows(), "1 day", "airport"),
                windows.distinct(rows(), "1 day", "_topic"),
            )
        ]

    found = shapes()
    assert len(set(found)) == len(found)
    assert shapes() == found
    lengths = [each.partition(" of ")[2].partition(", airport ")[0] for each in found]
    assert lengths[:4] == ["3600 s", "3600 s, 900 s", "3600 s, 2400 s, 1200 s", "3600 s, 2400 s, 1200 s, 300 s"]
