"""Mirrors between two brokers of Moldau, in turn in one run: ours, `copy` and `merge`, and MirrorMaker 2 of Apache Kafka, with its defaults
(at least once) and as `mm2-eos` with exactly-once support (KIP-618), which is what `merge` gives.

    python benchmarks/mirror_rates.py [--scale 1.0] [--runs 3] [--mirrors copy,merge,mm2,mm2-eos] [--out FILE]

Each mirror gets a topic of its own with 2 M messages (times --scale) of 200 bytes in four partitions, and is started only then. From its
start: seconds until the first message is in the target, and until all are; the rate of those after the first look; processor seconds of
the mirror per million of them; its memory when all are there. Then messages come at a constant pace (open loop, 1,000/s for 15 s), and a
consumer of the target says how old they are; the first quarter is not counted.
"""

import argparse
import contextlib
import math
import multiprocessing
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import confluent_kafka

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness import in_turn
from load import LoadClient, build
from measure import Results, cpu_seconds, load_average, resident_mb, spread
from moldau.client.cluster import Cluster
from moldau.client.partition_requests import LATEST
from moldau.model.identity import TopicPartition
from support.maven import connect_libraries
from systems import KAFKA_JAVA, KAFKA_VERSION, ROOT, System, free_port, moldau

PARTITIONS, MESSAGES, SIZE = 4, 2_000_000, 200
PACE, PACE_S, UNCOUNTED = 1_000, 15, 0.25
LIMIT_S, SILENCE_S = 180.0, 15.0
LOOK_S = 0.02
MIRRORS = ("copy", "merge", "mm2", "mm2-eos")
_TIME = struct.Struct("<q")
_FIGURES = ("first_s", "all_s", "rate", "cpu_s_per_million", "rss_mb", "p50_us", "p99_us")
_PLAN = """
name = "bench"
mode = "{mode}"
{naming}

[{source}]
bootstrap.servers = "{from_}"

[target]
bootstrap.servers = "{to}"

[topics]
include = ["{topic}"]
{more}
"""
_MM2 = """
clusters=source,target
source.bootstrap.servers={from_}
target.bootstrap.servers={to}
source->target.enabled=true
source->target.topics={topic}
target->source.enabled=false
replication.factor=1
heartbeats.topic.replication.factor=1
checkpoints.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
{more}
"""
_EXACTLY_ONCE = """
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:{rest_port}
target.exactly.once.source.support=enabled
"""


@dataclass(frozen=True, slots=True)
class Link:
    """The two brokers, and a folder for the mirrors' files."""

    source: System
    target: System
    folder: Path


@contextlib.contextmanager
def mirroring(kind: str, link: Link, topic: str, more: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A mirror's process, until the end of the block. `more`: settings in its file, at the end."""
    where = {"from_": link.source.bootstrap, "to": link.target.bootstrap, "topic": topic, "more": more}
    if kind in {"mm2", "mm2-eos"}:
        file = link.folder / f"{topic}.properties"
        exactly_once = _EXACTLY_ONCE.format(rest_port=free_port()) if kind == "mm2-eos" else ""
        file.write_text(_MM2.format(**where) + exactly_once)
        heap = ["-Xms256M", "-Xmx2G"]
        libraries = f"{connect_libraries(KAFKA_VERSION)}/*"
        command = ["java", *heap, *KAFKA_JAVA, "-cp", libraries, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
    else:
        file = link.folder / f"{topic}.toml"
        is_copy = kind == "copy"
        naming = "" if is_copy else 'naming = "source.topic"'
        file.write_text(_PLAN.format(mode=kind, naming=naming, source="source" if is_copy else "sources.source", **where))
        command = [sys.executable, "-m", "moldau.cli.main", "mirror", "run", str(file)]
    with (link.folder / f"{topic}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ends(cluster: Cluster, topic: str) -> dict[int, int]:
    """End offsets by partition; empty while the topic is not there."""
    found = cluster.metadata([topic]).topics[topic]
    if found.error or len(found.partitions) < PARTITIONS:
        return {}
    answers = cluster.list_offsets({TopicPartition(topic, number): LATEST for number in range(PARTITIONS)})
    return {place.partition: found.offset for place, found in answers.items()}


def catch_up(
    link: Link, kind: str, topic: str, process: "subprocess.Popen[bytes]", begun: float, messages: int, enough_s: float = math.inf
) -> dict[str, Any]:
    """Wait until all is there, or for `enough_s` and until something is; `left` are those that are not."""
    cluster, name = Cluster(link.target.bootstrap), topic if kind == "copy" else f"source.{topic}"
    first = first_at = first_cpu = 0.0
    while True:
        seen, now = sum(ends(cluster, name).values()), time.monotonic()
        if seen and not first:
            first, first_at, first_cpu = seen, now, cpu_seconds(process.pid)
        if seen >= messages or (first and now - begun > enough_s):
            break
        if process.poll() is not None or now - begun > LIMIT_S:
            raise SystemExit(f"{kind}: {seen} of {messages} messages are there: {(link.folder / f'{topic}.log').read_text()[-2000:]}")
        time.sleep(LOOK_S)
    flowing = max(seen - first, 1)
    return {
        "first_s": round(first_at - begun, 3),
        "all_s": round(now - begun, 3),
        "left": messages - seen,
        "rate": round(flowing / max(now - first_at, 1e-9)),
        "cpu_s_per_million": round((cpu_seconds(process.pid) - first_cpu) / flowing * 1e6, 3),
        "rss_mb": round(resident_mb(process.pid), 1),
    }


def read(bootstrap: str, topic: str, starts: dict[int, int], expected: int, pipe: Connection) -> None:
    """Read from these offsets on; the ages of the messages, in their order."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, "log_level": 0})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, offset) for number, offset in starts.items()])
    consumer.poll(1.0)
    pipe.send("ready")
    ages: list[int] = []
    limit = time.monotonic() + PACE_S + SILENCE_S
    while len(ages) < expected and time.monotonic() < limit:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None, "it has a time"
            ages.append(time.monotonic_ns() - _TIME.unpack_from(value)[0])
    consumer.close()
    pipe.send(ages)


def send(bootstrap: str, topic: str, messages: int) -> None:
    """Send at a constant pace, whatever the brokers do."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    begun, filling = time.monotonic(), b"x" * (SIZE - _TIME.size)
    for number in range(messages):
        producer.poll(0)
        time.sleep(max(begun + number / PACE - time.monotonic(), 0.0))
        producer.produce(topic, _TIME.pack(time.monotonic_ns()) + filling, partition=number % PARTITIONS)
    producer.flush(60)


def latency(link: Link, kind: str, topic: str, seconds: float) -> dict[str, Any]:
    """How old messages are when a reader of the target has them, microseconds."""
    name, messages = topic if kind == "copy" else f"source.{topic}", int(PACE * seconds)
    starts = ends(Cluster(link.target.bootstrap), name)
    near, far = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    reader = context.Process(target=read, args=(link.target.bootstrap, name, starts, messages, far))
    reader.start()
    assert near.recv() == "ready"
    sender = context.Process(target=send, args=(link.source.bootstrap, topic, messages))
    sender.start()
    ages = near.recv()
    sender.join()
    reader.join()
    counted = sorted(ages[int(len(ages) * UNCOUNTED) :])
    return {
        "missing": messages - len(ages),
        "p50_us": round(counted[len(counted) // 2] / 1000),
        "p99_us": round(counted[int(len(counted) * 0.99)] / 1000),
    }


def main() -> None:
    """All mirrors, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of messages")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mirrors", type=lambda text: tuple(text.split(",")), default=MIRRORS)
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    given = parser.parse_args()
    results, program = Results(given.out), build(ROOT / "out")
    messages = max(int(MESSAGES * given.scale), 10_000)
    rows: dict[str, list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        source, target = (stack.enter_context(moldau(folder / each)) for each in ("source", "target"))
        link, client = Link(source, target, folder), LoadClient(program, source.bootstrap)
        for run in range(given.runs):
            for kind in in_turn(given.mirrors, run):
                topic = f"{kind}-{run}"
                client.create(topic, PARTITIONS)
                client.run("produce", f"{topic}:{PARTITIONS}", messages, SIZE, settings=["acks=-1"])
                load, begun = load_average(), time.monotonic()
                with mirroring(kind, link, topic) as process:
                    figures = catch_up(link, kind, topic, process, begun, messages)
                    figures |= latency(link, kind, topic, PACE_S)
                client.delete(topic)
                rows.setdefault(kind, []).append(figures)
                results.write(system=kind, test="mirror", run=run, load=load, **figures)
    for kind, runs in rows.items():
        results.write(system=kind, test="mirror", summary=True, **{figure: spread([run[figure] for run in runs]) for figure in _FIGURES})


if __name__ == "__main__":
    main()
