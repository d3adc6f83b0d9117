"""Stream jobs beside the same queries over Spark's own Kafka connector with plain sinks: rates, latency of batches, state, restart.

    python benchmarks/streams.py [--scale 1.0] [--runs 3] [--keys 1000000] [--only counts,join,...] [--out FILE]

Avro events of 150 bytes in two partitions at one broker (`moldau serve`), Spark on two cores. Both have the same broker, batches, state
store and, in the counter, Python function; the connector decodes with ``from_avro`` and writes plain Parquet or, from distinct and counter,
to a topic. Ours writes tables and topics each row once. JSON lines: system, test, seconds, records per second; `cpu` is the processor time
of driver, Java and Python workers together, in seconds per million records.

counts, join, distinct, counter: two million records (times --scale) in four batches. latency: the median batch of window counts at 1,000
events/s. state: distinct over --keys keys, the peak memory of all processes of the query, in which what several share counts once. restart:
a process that starts from a checkpoint, reads a thousand events more, and ends; with what `moldau spark prepare` makes, and without.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from confluent_kafka import Producer

from measure import TICKS_PER_SECOND, Results, load_average, spread
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.lake.java_options import OPTIONS_VARIABLE
from moldau.lake.spark_home import CACHE_VARIABLE
from moldau.registry.client import RegistryClient
from moldau.registry.wire import frame
from spark_rows import CONNECTOR
from spark_turns import bench_session, in_turn
from stream_queries import BEGIN_MS, MOLDAU, QUERIES, SCHEMA, SPAN_MS, StreamBench, value_of
from support.registry import running_registry
from support.server import ServerProcess
from support.spark import connector_jars

RECORDS, PARTITIONS, BATCHES = 2_000_000, 2, 4
KEYS = 1_000_000
RATE, LATENCY_S, WARM_BATCHES = 1_000, 20, 5
RESTARTED = 1_000
JAVAS_CHOICE = "-XX:+UseG1GC"
"""The collector of a Spark of two cores that has no option of ours."""
TESTS = (*QUERIES, "latency", "state", "restart")
HERE = Path(__file__).resolve().parent


class Events:
    """Fills topics."""

    def __init__(self, bootstrap: str, registry: str) -> None:
        self.bootstrap = bootstrap
        with RegistryClient(registry) as client:
            self.prefix = frame(client.register("departures-value", SCHEMA), b"")
        self.producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "queue.buffering.max.messages": 1_000_000, "log_level": 3})

    def create(self, *topics: str) -> None:
        """Empty ones."""
        with Cluster(self.bootstrap) as cluster:
            for topic in topics:
                Admin(cluster).create_topic(topic, PARTITIONS)

    def empty(self, *topics: str) -> None:
        """Again empty."""
        with Cluster(self.bootstrap) as cluster:
            for topic in topics:
                if topic in cluster.metadata().topics:
                    Admin(cluster).delete_topic(topic)
        self.create(*topics)

    def send(self, topic: str, first: int, end: int, step_ms: float, *, later_ms: int = 0, repeats: bool = False) -> None:
        """Events of these numbers, one each `step_ms`; with `repeats` each fourth one has the number of an earlier one."""
        for number in range(first, end):
            kept = number - 100 if repeats and number % 4 == 0 and number >= first + 100 else number
            value = value_of(self.prefix, BEGIN_MS + int(number * step_ms) + later_ms, kept)
            while True:
                try:
                    self.producer.produce(topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    self.producer.poll(0.1)
            if number % 10_000 == 0:
                self.producer.poll(0)
        assert self.producer.flush(120) == 0


class Streams:
    """The measurements."""

    def __init__(self, events: Events, registry: str, space: Path, results: Results, runs: int, systems: list[str]) -> None:
        self.events, self.registry, self.space, self.results, self.runs, self.systems = events, registry, space, results, runs, systems
        self.round = 0

    def rates(self, queries: list[str], records: int) -> None:
        """All queries in one session, the systems in turn."""
        self.events.empty("departures", "arrivals")
        self.events.send("departures", 0, records, SPAN_MS / records, repeats=True)
        self.events.send("arrivals", 0, records // 2, SPAN_MS / records, later_ms=600_000)
        spark = bench_session()
        benches = [
            StreamBench(spark, self.events.bootstrap, self.registry, system, self.space, records // BATCHES) for system in self.systems
        ]
        for query in queries:
            read = records + records // 2 if query == "join" else records
            load, found = load_average(), in_turn(benches, lambda bench: self._timed(bench, query), self.runs, warm_ups=1)  # noqa: B023
            for bench, taken in zip(benches, found, strict=True):
                seconds, cpu = zip(*taken, strict=True)
                figures = {
                    "rate": spread([round(read / each) for each in seconds]),
                    "seconds": spread([round(each, 3) for each in seconds]),
                }
                figures["cpu"] = spread([round(each / read * 1e6, 2) for each in cpu])
                self.write(bench.system, query, records=read, load=load, **figures)
        spark.stop()

    def _timed(self, bench: StreamBench, query: str) -> tuple[float, float]:
        self.round += 1
        name = f"{query}-{self.round}"
        self.events.create(name)
        begun, used = time.perf_counter(), tree_cpu(os.getpid())
        bench.start(query, name)
        bench.run()
        return time.perf_counter() - begun, tree_cpu(os.getpid()) - used

    def latency(self) -> None:
        """Window counts while events come."""
        spark = bench_session()
        found: dict[str, list[float]] = {system: [] for system in self.systems}
        for run in range(self.runs):
            for system in self.systems[:: -1 if run % 2 else 1]:
                self.events.empty("departures")
                bench = StreamBench(spark, self.events.bootstrap, self.registry, system, self.space, None)
                bench.start("counts", f"latency-{system.split()[0]}-{run}")
                found[system].append(self._batch_ms(spark, bench))
        for system, each in found.items():
            self.write(system, "latency", ms=spread([round(one, 1) for one in each]))
        spark.stop()

    def _batch_ms(self, spark: Any, bench: StreamBench) -> float:
        thread = threading.Thread(target=bench.run_on)
        thread.start()
        batches: dict[int, float] = {}
        begun = time.monotonic()
        for number in range(LATENCY_S * 20):
            self.events.send("departures", number * RATE // 20, (number + 1) * RATE // 20, 1000 / RATE)
            if number % 20 == 0:
                for query in spark.streams.active:
                    for progress in query.recentProgress:
                        if progress.numInputRows:
                            batches[progress.batchId] = progress.durationMs["triggerExecution"]
            time.sleep(max(0.0, begun + number / 20 - time.monotonic()))
        bench.stop()
        thread.join()
        return statistics.median(taken for batch, taken in batches.items() if batch >= WARM_BATCHES)

    def state(self, keys: int) -> None:
        """Peak memory and time of a process whose state has all keys."""
        self.events.empty("departures")
        self.events.send("departures", 0, keys, SPAN_MS / keys / 2)
        beside = self.systems[1:]
        ways = [*((each, None) for each in self.systems), *((each, JAVAS_CHOICE) for each in beside)]
        for number, (system, collector) in enumerate(ways):
            name = f"state-{number}"
            self.events.create(name)
            process = Spawned(self, system, "distinct", name, keys // 10, options=collector)
            seconds = process.wait()
            test = f"state{' with the collector of Java' if collector else ''}"
            self.write(system, test, keys=keys, mb=round(process.peak_mb), seconds=round(seconds, 1), cpu=round(process.cpu, 1))
            process.end()

    def restart(self) -> None:
        """A whole process."""
        self.events.empty("departures")
        step = SPAN_MS / 200_000
        self.events.send("departures", 0, 100_000, step)
        prepared = self.space / "prepared"
        subprocess.run([sys.executable, "-m", "moldau", "spark", "prepare"], env=os.environ | {CACHE_VARIABLE: str(prepared)}, check=True)
        ways = [(system, cache) for cache in (None, prepared) for system in self.systems]
        seconds: dict[Any, list[float]] = {way: [] for way in ways}
        cpu: dict[Any, list[float]] = {way: [] for way in ways}
        for run in range(self.runs + 1):
            for way in ways[:: -1 if run % 2 else 1]:
                system, cache = way
                name = f"restart-{system.split()[0]}-{'bare' if cache is None else cache.name}"
                process = Spawned(self, system, "counts", name, 0, cache)
                taken = process.wait()
                if run:
                    seconds[way].append(round(taken, 2))
                    cpu[way].append(round(process.cpu, 2))
                process.end()
            self.events.send("departures", 100_000 + run * RESTARTED, 100_000 + (run + 1) * RESTARTED, step)
        for way in ways:
            system, cache = way
            self.write(system, f"restart{' prepared' if cache else ''}", seconds=spread(seconds[way]), cpu=spread(cpu[way]))

    def write(self, system: str, test: str, **figures: Any) -> None:
        """A line."""
        self.results.write(system=system, test=f"stream {test}", summary=True, runs=self.runs, **{"load": load_average(), **figures})


class Spawned:
    """A query in a process of its own, with the `cache` of `moldau spark prepare` or without; its memory is looked at four times
    a second.
    """

    def __init__(
        self, bench: Streams, system: str, query: str, name: str, rows: int, cache: Path | None = None, options: str | None = None
    ) -> None:
        self.begun = time.perf_counter()
        given = [system, query, name, bench.events.bootstrap, bench.registry, str(bench.space), str(rows)]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "stream_queries.py"), *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ
            | {CACHE_VARIABLE: str(cache or bench.space / "nothing prepared")}
            | ({OPTIONS_VARIABLE: options} if options else {}),
        )
        self.peak_mb, self.cpu = 0.0, 0.0
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()

    def _look(self) -> None:
        while not self._done.wait(0.25):
            self.peak_mb = max(self.peak_mb, sum(map(memory_mb, tree(self.process.pid))))

    def wait(self) -> float:
        """Seconds from its start until it has read all."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        seconds = time.perf_counter() - self.begun
        assert line, "it has failed"
        assert json.loads(line)["done"]
        self.cpu = tree_cpu(self.process.pid)
        self._done.set()
        self._watch.join()
        return seconds

    def end(self) -> None:
        """It ends."""
        self.process.communicate("\n", timeout=60)


def tree(root: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                parents[int(entry)] = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found)


def tree_cpu(root: int) -> float:
    """Seconds of processor time of them all, and of those that have ended."""
    total = 0
    for pid in tree(root):
        try:
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return total / TICKS_PER_SECOND


def memory_mb(pid: int) -> float:
    """Resident, of shared pages its part of them; 0 for a process that has ended, and for one that Java is just starting, which is Java's
    own memory a second time until it becomes another program.
    """
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        program = os.readlink(f"/proc/{pid}/exe")
        if program.endswith("/java") and program == os.readlink(f"/proc/{parent}/exe"):
            return 0.0
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of records and keys")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--only", default=",".join(TESTS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    wanted = given.only.split(",")
    with (
        tempfile.TemporaryDirectory(prefix="moldau-bench-") as name,
        ServerProcess(Path(name, "data")) as server,
        running_registry(server.bootstrap) as registry,
    ):
        systems = [MOLDAU, *([CONNECTOR] if connector_jars() else [])]
        bench = Streams(Events(server.bootstrap, registry.url), registry.url, Path(name), Results(given.out), given.runs, systems)
        others: dict[str, Callable[[], None]] = {
            "latency": bench.latency, "state": lambda: bench.state(int(given.keys * given.scale)), "restart": bench.restart,
        }  # fmt: skip
        if queries := [each for each in QUERIES if each in wanted]:
            bench.rates(queries, int(RECORDS * given.scale))
        for test, work in others.items():
            if test in wanted:
                work()


if __name__ == "__main__":
    main()
