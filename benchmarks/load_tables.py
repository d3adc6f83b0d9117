"""Loads, whole processes from their start to their end: `moldau load` beside a job with Spark's own Kafka connector and ``from_avro``.

    python benchmarks/load_tables.py [--scale 1.0] [--runs 3] [--out FILE]

Three million tracked events (times --scale) of nine fields (`tracking_events`) in four partitions, of three days, in the order of their
times; broker and registry in a process of their own; both loads with two cores and 1 GB, by day, zstd. They take turns, each into a new
directory. The connector's job gives plain files; `moldau load` a Delta table, offsets, and counts for the audit. `load small` are 3,000 of
these events, by `moldau load` alone: there the time is that of the start. JSON lines: system, test, seconds, events per second.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pyarrow.parquet as pq
from confluent_kafka import Producer

from measure import Results, load_average, spread
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.lake.tables.opening import open_table
from moldau.registry.client import RegistryClient
from moldau.registry.wire import frame
from moldau.testing.broker import Broker
from moldau.tracking.producer import text_bytes, time_bytes
from moldau.tracking.schemas.event_schema import event_schema
from spark_rows import CONNECTOR
from support.spark import connector_jars
from tracking_events import KINDS

EVENTS, SMALL, PARTITIONS, DISTINCT = 3_000_000, 3_000, 4, 1_000
BEGIN_MS, SPAN_MS = 1_372_636_800_000, 3 * 86_400_000
HERE = Path(__file__).resolve().parent


def fill(bootstrap: str, topic: str, prefix: bytes, bodies: list[bytes], events: int) -> None:
    """The topic, in the order of the events' times."""
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "queue.buffering.max.messages": 1_000_000, "log_level": 3})
    origin, instance = text_bytes("shop") + text_bytes("host-1") + text_bytes("local"), os.urandom(8)
    for number in range(events):
        when = time_bytes(BEGIN_MS + number * SPAN_MS // events)
        value = b"".join((prefix, when, origin, instance, number.to_bytes(8, "big"), bodies[number % DISTINCT]))
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def moldau_load(broker: Broker, topic: str, schema: Path, target: Path) -> int:
    """The whole command, as anybody runs it; the number of rows."""
    program = [sys.executable, "-m", "moldau.cli.main", "load", "--bootstrap", broker.bootstrap_servers, "--registry", broker.registry_url]
    more = ["--topics", topic, "--to", str(target), "--name", "bench", "--tier", target.name]  # a tier counts one table
    subprocess.run([*program, *more, "--once"], check=True)
    table = open_table(str(target / topic))
    assert table is not None
    return sum(file.rows for file in table.files())


def connector_load(broker: Broker, topic: str, schema: Path, target: Path) -> int:
    """The same by the rival."""
    program = [sys.executable, str(HERE / "load_connector.py"), broker.bootstrap_servers, topic, str(schema), str(target)]
    subprocess.run(program, check=True)
    return sum(pq.ParquetFile(file).metadata.num_rows for file in target.rglob("*.parquet"))


SYSTEMS: dict[str, Callable[[Broker, str, Path, Path], int]] = {"moldau": moldau_load, CONNECTOR: connector_load}


def main() -> None:
    """Fill topics, measure in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of events of the large load")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=list(SYSTEMS), help="leave the other out (no ratio can be quoted then)")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    sizes = {"load large": int(EVENTS * given.scale), "load small": SMALL}
    systems = {"load large": [CONNECTOR, "moldau"] if connector_jars() else ["moldau"], "load small": ["moldau"]}
    source, made = KINDS["dataclass"]
    schema = event_schema(source)
    bodies = [schema.encode(made(number)) for number in range(DISTINCT)]
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name, Broker(registry=True) as broker:
        text = Path(name, "schema.avsc")
        text.write_text(schema.text)
        for test, events in sizes.items():
            topic = test.replace(" ", "-")
            with RegistryClient(broker.registry_url) as registry:
                prefix = frame(registry.register(f"{topic}-value", schema.text), b"")
            fill(broker.bootstrap_servers, topic, prefix, bodies, events)
            for run in range(given.runs):
                for system in systems[test][:: -1 if run % 2 else 1]:
                    if given.only in (None, system):
                        took = timed(system, broker, topic, text, Path(name, f"{topic}-{run}"), events)
                        seconds.setdefault((test, system), []).append(took)
                        results.write(system=system, test=test, run=run, events=events, seconds=took, load=load_average())
    for (test, system), taken in seconds.items():
        rates = spread([round(sizes[test] / each) for each in taken])
        results.write(system=system, test=test, summary=True, events=sizes[test], seconds=spread(taken), rate=rates)


def timed(system: str, broker: Broker, topic: str, schema: Path, target: Path, events: int) -> float:
    """Seconds of one load into a new directory, which has to bring all events."""
    begun = time.perf_counter()
    rows: Any = SYSTEMS[system](broker, topic, schema, target)
    elapsed = time.perf_counter() - begun
    assert rows == events, f"{system}: {rows} rows of {events} events"
    shutil.rmtree(target)
    return round(elapsed, 2)


if __name__ == "__main__":
    main()
