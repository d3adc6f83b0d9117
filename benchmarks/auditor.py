"""How many tracked events a second of one core the audit counts: without numpy, with it, out of Arrow columns, and an auditor at work.

    python benchmarks/auditor.py [--scale 1.0] [--runs 5] [--out FILE]

* *batches of 500* events as a fetch brings them, checksum and decompression included, by codec.
* *batches of 20*, each of one of 200 hosts, event times spread over a day: the worst that is usual.
* *Arrow values*: a pyarrow array of values, as a task of a load has it; and headers that are decoded already.
* *the whole auditor*: `Auditor.run(once=True)` against `moldau serve` in a process of its own: fetching, counting, publishing.

200,000 (times --scale) events of 10 fields, about 190 bytes. CPU time of this process, median of the runs; JSON lines.
"""

import argparse
import itertools
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pyarrow as pa

from measure import Results, load_average, spread
from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.columns import count_columns, count_values
from moldau.audit.tally import Tally
from moldau.audit.walker import Walker
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.partition_requests import FetchedBatches
from moldau.model.identity import TopicPartition
from moldau.protocol.records.compression import Compression
from moldau.tracking.header import read_header
from support.audit_events import NOON, Host, batch, fetched
from support.server import ServerProcess

CODECS = (Compression.NONE, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY, Compression.GZIP)
BODY = b"/product/1234 CZ Mozilla/5.0 (X11; Linux x86_64) https://example.org/search PHONE 52345 " * 2
EVENTS = 200_000
FETCH = 16
"""Batches in one fetch."""
DAY_MS = 86_400_000
SEEN_AFTER_MS = 500


def events(count: int, *, hosts: int = 1, run: int = 500, apart_ms: int = 7) -> Iterator[list[bytes]]:
    """Batches of `run` events, each of one host."""
    for first in range(0, count, run):
        host = Host(f"host-{first // run % hosts}", "ewr", "departures", struct.pack(">Q", first // run % hosts + 1))
        yield [host.event(number, NOON + number * apart_ms % DAY_MS, body=BODY[: 80 + number % 80]) for number in range(first, first + run)]


def fetches(batches: list[list[bytes]], codec: Compression) -> list[tuple[int, FetchedBatches, int]]:
    """Offsets, fetches, and when each is seen: half a second after its last event, which was sent when it happened, as all were. So
    latencies are of many buckets."""
    found = []
    run = len(batches[0])
    for first in range(0, len(batches), FETCH):
        part = batches[first : first + FETCH]
        times = [[header.time_ms for value in values if (header := read_header(value))] for values in part]
        encoded = [
            batch(values, base_offset=(first + number) * run, codec=codec, sent_ms=times[number]) for number, values in enumerate(part)
        ]
        found.append((first * run, fetched(*encoded), times[-1][-1] + SEEN_AFTER_MS))
    return found


def measured(work: Callable[[], int], count: int, runs: int) -> dict[str, float]:
    """Events per second of CPU time, after one run to warm up; each counts all events."""
    rates = []
    for number in range(runs + 1):
        begun = time.process_time()
        counted = work()
        took = time.process_time() - begun
        assert counted == count, f"{counted} of {count} events were counted"
        if number:
            rates.append(count / took)
    return {name: round(rate) for name, rate in spread(rates).items()}


def walk(told: list[tuple[int, FetchedBatches, int]], *, fast: bool) -> int:
    """One walk over all fetches."""
    walker, tally = Walker(fast=fast), Tally()
    for offset, each, seen_ms in told:
        walker.walk(TopicPartition("events", 0), each, offset, tally, seen_ms)
    return tally.records


def fill(bootstrap: str, values: list[bytes]) -> None:
    """A topic of these, in two partitions."""
    from confluent_kafka import Producer

    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce("events", value, partition=number % 2)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def at_work(values: list[bytes], runs: int) -> Iterator[tuple[bool, dict[str, float]]]:
    """A whole auditor, of a new tier each time; whether with numpy, and its rates."""
    with tempfile.TemporaryDirectory() as directory, ServerProcess(Path(directory)) as server:
        fill(server.bootstrap, values)
        tiers = itertools.count()

        def run(fast: bool) -> int:
            auditor = Auditor(server.bootstrap, AuditorOptions(f"tier-{next(tiers)}", fast=fast))
            auditor.run(once=True)
            return auditor.statistics()["published"]

        for fast in (False, True):
            yield fast, measured(lambda fast=fast: run(fast), len(values), runs)  # type: ignore[misc]


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of events")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results, count = Results(given.out), int(EVENTS * given.scale)
    usual, mixed = list(events(count)), list(events(count, hosts=200, run=20, apart_ms=450))
    values = [value for part in usual for value in part]
    size = round(statistics.mean(map(len, values)))

    def add(what: str, fast: bool, rates: dict[str, float]) -> None:
        way, load = "numpy" if fast else "pure Python", load_average()
        results.write(
            system="moldau", test="audit", what=what, way=way, summary=True, events=count, value_bytes=size, load=load, events_per_s=rates
        )

    shapes = [(f"batches of 500, {codec.name.lower()}", fetches(usual, codec)) for codec in CODECS]
    for what, told in (*shapes, ("batches of 20, 200 hosts, a day", fetches(mixed, Compression.NONE))):
        for fast in (False, True):
            add(what, fast, measured(lambda told=told, fast=fast: walk(told, fast=fast), count, given.runs))  # type: ignore[misc]
    column = pa.array(values)
    add("Arrow values", True, measured(lambda: sum(c.count for c in count_values("events", column).counts.values()), count, given.runs))
    headers = [header for value in values if (header := read_header(value)) is not None]
    texts = {name: pa.array([getattr(h, name) for h in headers]) for name in ("service", "host", "datacenter")}
    times = pa.array([h.time_ms for h in headers], pa.timestamp("ms", tz="UTC"))
    guids, sizes = pa.array([h.guid for h in headers], pa.binary(16)), pa.array([len(v) for v in values])

    def decoded() -> int:
        return sum(c.count for c in count_columns("events", time=times, guid=guids, value_bytes=sizes, **texts).counts.values())

    add("decoded headers in Arrow", True, measured(decoded, count, given.runs))
    for fast, rates in at_work(values, given.runs):
        add("the whole auditor", fast, rates)


if __name__ == "__main__":
    main()
