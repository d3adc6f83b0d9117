"""Rates, processor time, acknowledgements and memory of replicated topics: three brokers of Moldau and of Apache Kafka, in turn in one run.

    python benchmarks/cluster_rates.py [--scale 1.0] [--runs 3] [--systems moldau,kafka] [--out FILE]

Three replicas, of which one may fail, acks all, 200-byte messages, one client. Produce: six partitions, batches as large as librdkafka
makes them, of 50 and of 1; what the large ones wrote is read back by one consumer. Acknowledgements: 200 and 1,000 single messages a
second to one partition, whatever the brokers do (open loop), beside a consumer; the first quarter is not counted. Processor time and
memory are those of the three brokers.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cluster_systems import BROKERS, ClusterSystem, names_of, running_clusters
from harness import in_turn
from load import LoadClient, build
from measure import Results, load_average, spread, touch_memory
from systems import ROOT
from throughput import BATCHES, SIZE, TOUCHED_TO_READ, TOUCHED_TO_WRITE

PARTITIONS = 6
MESSAGES = {"large": 2_000_000, "50": 1_000_000, "1": 40_000}
"""By the size of the batches."""
MESSAGES_MIN = 1000
PACES = (200, 1000)
PACE_S = 15
CATCH_UP_S = 0.5
"""Followers may have a little to do when the last acknowledgement is there."""
PRODUCE_TESTS = {"large": "cluster: produce, large batches", "50": "cluster: produce, batches of 50", "1": "cluster: produce, batches of 1"}
CONSUME_TEST = "cluster: consume, large batches"
PACE_TESTS = {pace: f"cluster: acknowledgement at {pace:,}/s" for pace in PACES}
MEMORY_TEST = "cluster: after the load"
RATE, PACE = ("rate", "cpu_s_per_million"), ("p50_us", "p99_us", "cpu_share")
"""Figures of summaries."""
Figures = dict[str, Any]


class LoadedCluster:
    """A cluster, and the client that loads it; `scale` multiplies numbers of messages."""

    def __init__(self, system: ClusterSystem, program: Path, scale: float) -> None:
        self.system = system
        self.client = LoadClient(program, system.bootstrap)
        self.scale = scale

    def messages(self, size: str) -> int:
        """How many are sent in batches of a size."""
        return max(int(MESSAGES[size] * self.scale), MESSAGES_MIN)

    def create(self, topic: str) -> None:
        """Make a topic."""
        self.client.create(topic, PARTITIONS, len(BROKERS))

    def produce(self, topic: str, size: str, messages: int) -> Figures:
        """Send messages to all partitions of a new topic, until the last acknowledgement."""
        self.create(topic)

        def work() -> float:
            seconds: float = self.client.run("produce", _all(topic), messages, SIZE, settings=[*BATCHES[size][1], "acks=all"])["seconds"]
            time.sleep(CATCH_UP_S)
            return seconds

        figures = self._counted(messages, messages * SIZE * len(BROKERS) * 3 // 2 + int(TOUCHED_TO_WRITE * min(self.scale, 1)), work)
        if (end := self.client.end_offset(topic, PARTITIONS)) != messages:
            raise SystemExit(f"{self.system.name} {topic}: end offsets of {end} messages, not {messages}")
        return figures

    def consume(self, topic: str, messages: int) -> Figures:
        """Read all partitions from the beginning."""
        return self._counted(messages, TOUCHED_TO_READ, lambda: float(self.client.run("consume", _all(topic), messages, 0)["seconds"]))

    def acknowledge(self, topic: str, pace: int) -> Figures:
        """Send single messages at a constant pace."""
        self.create(topic)
        load, before = load_average(), self.system.cpu_seconds()
        figures = self.client.run("each", topic, int(pace * PACE_S * self.scale), pace, settings=["linger.ms=0", "acks=all"])
        figures["cpu_share"] = round((self.system.cpu_seconds() - before) / figures["seconds"], 3)
        return {**figures, "load": load}

    def _counted(self, messages: int, touched: int, work: Callable[[], float]) -> Figures:
        """The counters of the brokers around work, which returns the seconds that make the rate."""
        os.sync()
        touch_memory(touched)
        load, before = load_average(), self.system.cpu_seconds()
        seconds = work()
        cpu = self.system.cpu_seconds() - before
        return {
            "rate": round(messages / max(seconds, 1e-6)),
            "messages": messages,
            "cpu_s_per_million": round(cpu / messages * 1e6, 3),
            "rss_mb": self.system.resident_mb(),
            "load": load,
        }


def measure(clusters: Sequence[LoadedCluster], results: Results, runs: int) -> None:
    """All tests, one after the other."""

    def repeat(test: str, work: Callable[[LoadedCluster, int], Figures], names: Sequence[str]) -> None:
        """Each cluster's `work`, given the number of the run, in turn; a summary of the figures of these names."""
        found: dict[str, list[Figures]] = {}
        for run in range(runs):
            for cluster in in_turn(clusters, run):
                figures = work(cluster, run)
                found.setdefault(cluster.system.name, []).append(figures)
                results.write(system=cluster.system.name, test=test, run=run, **figures)
        for system, rows in found.items():
            results.write(system=system, test=test, summary=True, **{name: spread([row[name] for row in rows]) for name in names})

    def produce(size: str) -> Callable[[LoadedCluster, int], Figures]:
        def work(cluster: LoadedCluster, run: int) -> Figures:
            figures = cluster.produce(f"{size}-{run}", size, cluster.messages(size))
            if size != "large" or run:  # the first one is read back
                cluster.client.delete(f"{size}-{run}")
            return figures

        return work

    def acknowledge(pace: int) -> Callable[[LoadedCluster, int], Figures]:
        def work(cluster: LoadedCluster, run: int) -> Figures:
            figures = cluster.acknowledge(f"pace-{pace}-{run}", pace)
            cluster.client.delete(f"pace-{pace}-{run}")
            return figures

        return work

    for cluster in clusters:  # a first round warms them up
        for size in MESSAGES:
            cluster.produce(f"warm-{size}", size, max(cluster.messages(size) // 4, MESSAGES_MIN))
            cluster.client.delete(f"warm-{size}")
    for size, test in PRODUCE_TESTS.items():
        repeat(test, produce(size), RATE)
    repeat(CONSUME_TEST, lambda cluster, _: cluster.consume("large-0", cluster.messages("large")), RATE)
    for pace, test in PACE_TESTS.items():
        repeat(test, acknowledge(pace), PACE)
    for cluster in clusters:
        memory = {"rss_mb": cluster.system.resident_mb(), "peak_mb": cluster.system.resident_mb("VmHWM")}
        results.write(system=cluster.system.name, test=MEMORY_TEST, summary=True, **memory)


def main() -> None:
    """All systems up, one of them under load at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of messages or seconds")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--systems", type=names_of, default=["moldau", "kafka"], metavar="SYSTEM,...", help="moldau, zookeeper, kafka")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    program = build(ROOT / "out")
    with running_clusters(given.systems) as systems:
        measure([LoadedCluster(system, program, given.scale) for system in systems], Results(given.out), given.runs)


def _all(topic: str) -> str:
    """All partitions of the topic, for the load client."""
    return f"{topic}:{PARTITIONS}"


if __name__ == "__main__":
    main()
