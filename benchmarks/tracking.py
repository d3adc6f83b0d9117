"""Tracked events: how many a second one core publishes and reads: dicts of ten simple fields; dataclasses and pydantic models of nine of
mixed types (`tracking_events`).

    python benchmarks/tracking.py [--scale 1.0] [--runs 5] [--out FILE]

This process is bound to one core and the broker to another. `track` runs from the first call until all in-sync replicas have acknowledged
the last event and the counts are published: checked, encoded, sent, delivered, counted. `cpu_us` is the processor time per event of the
whole process, librdkafka's threads too. `encode` is checking and encoding alone. `read` decodes the dicts with their writer's schema into
dicts. The registry is one in memory: it is asked once.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Results, cpu_seconds, load_average, spread
from moldau.client.cluster import Cluster
from moldau.client.settings import ConsumerOptions
from moldau.model.identity import TopicPartition
from moldau.tracking.consumer import TrackedConsumer
from moldau.tracking.producer import TrackerProducer
from moldau.tracking.schemas.event_schema import event_schema
from support.tracked_events import MemoryRegistry
from systems import System, moldau
from tracking_events import KINDS

EVENTS = 400_000
DISTINCT = 1_000


def timed(system: System, count: int, begun: float, cpu: float, broker: float) -> dict[str, Any]:
    """Rates since `begun`."""
    seconds = time.perf_counter() - begun
    return {
        "rate": round(count / seconds),
        "cpu_us": round((time.process_time() - cpu) / count * 1e6, 2),
        "broker_cpu_us": round((cpu_seconds(system.pid) - broker) / count * 1e6, 2),
        "load": load_average(),
    }


def encode(kind: str, count: int) -> dict[str, Any]:
    """Checking and encoding alone."""
    source, made = KINDS[kind]
    schema, events = event_schema(source), [made(number) for number in range(DISTINCT)]
    begun = time.perf_counter()
    for number in range(count):
        schema.encode(events[number % DISTINCT])
    return {"rate": round(count / (time.perf_counter() - begun))}


def track(system: System, registry: MemoryRegistry, kind: str, topic: str, count: int) -> dict[str, Any]:
    """From the first call to the end of close: every event acknowledged, the counts published."""
    source, made = KINDS[kind]
    events = [made(number) for number in range(DISTINCT)]
    tracker = TrackerProducer(service="bench", bootstrap_servers=system.bootstrap, registry=registry, schemas={topic: source})
    tracker.track(events[0], topic=topic).result()
    begun, cpu, broker = time.perf_counter(), time.process_time(), cpu_seconds(system.pid)
    for number in range(1, count):
        tracker.track(events[number % DISTINCT], topic=topic)
    tracker.close()
    return timed(system, count, begun, cpu, broker)


def read(system: System, registry: MemoryRegistry, topic: str, count: int) -> dict[str, Any]:
    """All of it, decoded."""
    options = ConsumerOptions(settings={"fetch.wait.max.ms": 20})
    with TrackedConsumer(system.bootstrap, registry, **options) as consumer:
        with Cluster(system.bootstrap) as cluster:
            consumer.messages.assign({TopicPartition(topic, each.partition): 0 for each in cluster.topic(topic).partitions})
        begun, cpu, broker = time.perf_counter(), time.process_time(), cpu_seconds(system.pid)
        for number in range(count):
            if consumer.poll(30.0) is None:
                raise TimeoutError(f"{topic}: no event within 30 s after {number} of {count}")
        return timed(system, count, begun, cpu, broker)


def main() -> None:
    """All runs, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of events")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    given = parser.parse_args()
    results, count = Results(given.out), int(EVENTS * given.scale)
    cores = sorted(os.sched_getaffinity(0))
    rows: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder, moldau(Path(folder) / "moldau") as system:
        os.sched_setaffinity(0, cores[:1])
        for thread in Path(f"/proc/{system.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[-1:])
        registry = MemoryRegistry()
        for run in range(given.runs):
            for kind in KINDS:
                topic = f"{kind}-{run}"
                measured = {"encode": encode(kind, count), "track": track(system, registry, kind, topic, count)}
                if kind == "dict":
                    measured["read"] = read(system, registry, topic, count)
                for what, row in measured.items():
                    test = f"tracking-{what}" if kind == "dict" else f"tracking-{what} {kind}"
                    rows.setdefault(test, []).append(row)
                    results.write(system="moldau", test=test, run=run, events=count, **row)
    for test, runs in rows.items():
        summary = {key: spread([run[key] for run in runs]) for key in runs[0] if key != "load"}
        results.write(system="moldau", test=test, summary=True, **summary)


if __name__ == "__main__":
    main()
