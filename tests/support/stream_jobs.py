"""Stream jobs for tests: events, what a plain Python model makes of them, and what is in the outputs. As a program: a job to kill."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyarrow import parquet

from moldau.lake.tables.opening import open_table
from moldau.streams import StreamJob, windows
from moldau.streams.generations import JobGenerations, encode_generations
from moldau.streams.reports import generations_key, process_key
from moldau.streams.state_topic import StateTopic

SCHEMA = "at timestamp, airport string, number int"
BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
AIRPORTS = ("EWR", "JFK", "LGA")

Event = dict[str, Any]
Counts = dict[tuple[str, str], int]
"""By the start of the window and the airport."""


def event(minute: float, airport: str = "EWR", number: int = 0) -> Event:
    """An event of so many minutes after the beginning."""
    return {"at": (BEGIN + timedelta(minutes=minute)).isoformat(), "airport": airport, "number": number}


def events(first: int, last: int) -> list[Event]:
    """One a minute, of an airport after the other."""
    return [event(number, AIRPORTS[number % 3], number) for number in range(first, last)]


def send(bootstrap: str, topic: str, values: Iterable[Event | bytes], partitions: int = 2) -> None:
    """One partition after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 3, "queue.buffering.max.messages": 1_000_000})
    for number, value in enumerate(values):
        producer.produce(topic, value if isinstance(value, bytes) else json.dumps(value), partition=number % partitions)
    assert producer.flush(60) == 0


def hour_of(at: str) -> str:
    """The start of an event's window of an hour."""
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%FT%H")


def counted(values: Iterable[Event]) -> Counts:
    """The model: events by hour and airport."""
    return dict(Counter((hour_of(each["at"]), each["airport"]) for each in values))


def in_topic(bootstrap: str, topic: str, partitions: int = 2) -> list[dict[str, Any]]:
    """The committed JSON values of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[dict[str, Any]] = []
    ended: set[int | None] = set()
    while len(ended) < partitions:
        message = consumer.poll(30)
        assert message is not None, f"{topic}: nothing came for 30 s"
        if message.error() is None:
            found.append(json.loads(message.value() or b"null"))
        else:
            ended.add(message.partition())
    consumer.close()
    return found


def switched_to(bootstrap: str, job: str, generation: int) -> None:
    """A job that does not run is, at its next start, of this generation, which has nothing yet."""
    state = StateTopic(bootstrap)
    former = [process_key(job, each.instance) for each in state.read().processes(job)]
    state.write({**dict.fromkeys(former), generations_key(job): encode_generations(JobGenerations(generation, generation))})
    state.close()


def in_table(path: Path | str) -> list[dict[str, Any]]:
    """The rows of a table, without Spark."""
    snapshot = open_table(str(path))
    return (
        []
        if snapshot is None
        else [row for file in snapshot.files() for row in parquet.ParquetFile(os.path.join(path, file.path)).read().to_pylist()]
    )


def counts_of(rows: Iterable[Mapping[str, Any]]) -> Counts:
    """Of rows with a window; each must be there once."""
    found: Counts = {}
    for row in rows:
        start = row["window"]["start"]
        key = (hour_of(start) if isinstance(start, str) else start.strftime("%FT%H"), row["airport"])
        assert key not in found, f"{key} is there twice"
        found[key] = row["count"]
    return found


def updates_of(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, int]]:
    """Of rows with a window, each of which is an update to a greater count: each must be there once."""
    found: set[tuple[str, str, int]] = set()
    for row in rows:
        start = row["window"]["start"]
        update = (hour_of(start) if isinstance(start, str) else start.strftime("%FT%H"), row["airport"], row["count"])
        assert update not in found, f"{update} is there twice"
        found.add(update)
    return found


def counting_job(
    bootstrap: str,
    directory: str | Path,
    source: str,
    sink: str,
    *,
    spark: Any = None,
    name: str = "counting",
    mode: str = "append",
    **given: Any,
) -> StreamJob:
    """Counts by hour and airport, into a topic and a table."""
    job = StreamJob(name, brokers=bootstrap, directory=str(Path(directory, "job")), spark=spark)
    flights = job.topic(source, format="json", schema=SCHEMA, time="at", **given)
    counts = windows.tumbling(flights, "1 hour", "airport")
    job.to_topic(counts, sink, key="airport", mode=mode)
    job.to_table(counts, str(Path(directory, "lake", sink)), mode=mode)
    return job


if __name__ == "__main__":
    import sys

    bootstrap, directory, source, sink, *others = sys.argv[1:]
    counting_job(bootstrap, directory, source, sink, mode="update", records_max=60).main(others)
