"""A topic of tracked events, a job that loads it, and the question that all tests of loads ask: is each event there once?"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.audit.follow import read_audit
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Verdict
from moldau.client import Producer
from moldau.client.cluster import Cluster
from moldau.lake.loading.job import LoadJob
from moldau.lake.tables.opening import open_table
from moldau.lake.tables.places.addresses import joined, place_of
from moldau.registry.client import RegistryClient
from moldau.testing.broker import Broker
from moldau.tracking.producer import TrackerProducer

PARTITIONS = 2
NOON_MS = 1_372_680_000_000
"""2013-07-01T12:00:00Z."""
STEP_MS = 47_000
"""Between two events: hours and days change within a test."""
_LATER_MS = 3_600_000

Row = Mapping[str, Any]


class Killed(BaseException):
    """Stands for the end of the driver: nothing in a load may catch it."""


@dataclass(frozen=True)
class State:
    """What the lake has, and what the audit says of it."""

    rows: int
    distinct: int
    dead_letters: int
    distinct_dead_letters: int
    verdict: str

    def __str__(self) -> str:
        dead = f"{self.dead_letters} ({self.distinct_dead_letters} distinct) dead letters"
        return f"{self.rows} rows, {self.distinct} distinct, {dead}, {self.verdict}"


class LoadWorld:
    """Events are numbered in `n`; every tenth record is none."""

    def __init__(self, broker: Broker, directory: Path | str, **job: Any) -> None:
        self.broker = broker
        self.topic = broker.create_topic(broker.unique_topic("load"), PARTITIONS)
        self.published = self.spoilt = 0
        self.job = LoadJob(
            name="test",
            bootstrap_servers=broker.bootstrap_servers,
            topic=self.topic,
            table=joined(str(directory), self.topic),
            dead_letters=joined(str(directory), "dead-letters", self.topic),
            registry=broker.registry_url,
            tier="lake",
            group_id=f"group of {self.topic}",
            **job,
        )

    def schema(self, *fields: Mapping[str, Any]) -> dict[str, Any]:
        """The events' schema, with more fields."""
        own = [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}, *fields]
        return {"type": "record", "name": "Event", "namespace": "test", "fields": own}

    @contextmanager
    def tracker(self, schema: Mapping[str, Any] | None = None, host: str = "host-1") -> Iterator[TrackerProducer]:
        """A producer of events of this schema, which closes its counts at the end."""
        with (
            RegistryClient(self.broker.registry_url) as registry,
            TrackerProducer(
                service="tests",
                bootstrap_servers=self.broker.bootstrap_servers,
                registry=registry,
                host=host,
                schemas={self.topic: schema or self.schema()},
                linger_ms=1,
            ) as tracker,
        ):
            yield tracker

    def publish(self, count: int, schema: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Publish so many more records; nine in ten are events."""
        with self.tracker(schema) as tracker, Producer(self.broker.bootstrap_servers, linger_ms=1) as raw:
            for _ in range(count):
                number = self.published + self.spoilt
                if number % 10 == 9:
                    raw.send(self.topic, f"no event {number}", partition=number % PARTITIONS, timestamp=self.time_of(number))
                    self.spoilt += 1
                else:
                    event = {"n": number, "text": "x" * (number % 50), **more}
                    tracker.track(event, time=self.time_of(number), topic=self.topic, key=str(number))
                    self.published += 1

    def time_of(self, number: int) -> int:
        """When the event with this number happened, in ms."""
        return NOON_MS + number * STEP_MS

    def rows(self, path: str | None = None, columns: list[str] | None = None) -> list[Row]:
        """The rows of a table's newest version, read without Spark."""
        path = path or self.job.table
        snapshot = open_table(path)
        found: list[Row] = []
        for file in snapshot.files() if snapshot is not None else ():
            table = pq.read_table(place_of(path).source(file.path), partitioning=None)
            found += [{**row, **file.partition} for row in (table.select(columns) if columns else table).to_pylist()]
        return found

    def audit(self) -> TierCounts:
        """What the tiers have published."""
        with Cluster(self.broker.bootstrap_servers) as cluster:
            return read_audit(cluster)

    def verdict(self, found: TierCounts | None = None) -> str:
        """What the audit says of the topic: one word if it is the same for all windows."""
        rules = Rules(now_ms=int(time.time() * 1000) + _LATER_MS, tree=TierTree.chain(("producer", "lake")), topics=[self.topic])
        words = {pair.verdict for pair in reconcile(found or self.audit(), rules).pairs}
        return ", ".join(sorted(each.value for each in words)) or "no counts"

    def state(self) -> State:
        """Everything that a reader can see."""
        rows, dead = self.rows(columns=["n"]), self.rows(self.job.dead_letters, ["value"])
        return State(len(rows), len({row["n"] for row in rows}), len(dead), len({row["value"] for row in dead}), self.verdict())

    def complete(self) -> State:
        """What is to be there in the end."""
        return State(self.published, self.published, self.spoilt, self.spoilt, Verdict.COMPLETE.value)

    def other(self, **changes: Any) -> LoadJob:
        """The job with changes."""
        return replace(self.job, **changes)


def words_of(path: str) -> list[dict[str, Any]]:
    """What each commit of loads says of itself, oldest first."""
    folder = Path(path, "_delta_log")
    infos = [json.loads(line) for file in sorted(folder.glob("*.json")) for line in file.read_text().splitlines()]
    return [info["commitInfo"] for info in infos if "moldau.job" in info.get("commitInfo", {})]


def columns_of(path: str) -> pa.Schema:
    """The columns of a table's newest version."""
    snapshot = open_table(path)
    assert snapshot is not None
    return snapshot.schema
