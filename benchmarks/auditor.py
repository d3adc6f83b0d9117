"""How many tracked events a second of one core the audit counts: without numpy, with it, out of Arrow columns, and an auditor at work.

    python benchmarks/auditor.py [--events 200000] [--runs 5] [--out FILE]

* *walk*: batches of 500 events as a fetch brings them, checksum and decompression included; without numpy and with it, by codec.
* *walk, mixed*: batches of 20 events, each batch of one of 200 hosts, event times spread over a day: the worst that is usual.
* *columns*: a pyarrow array of values, as a task of a load has it; and headers that are decoded already.
* *auditor*: `Auditor.run(once=True)` against `moldau serve` in a process of its own: fetching, counting, publishing.

Events of 10 fields, about 190 bytes. CPU time of this process, median of the runs; JSON lines.
"""

import argparse
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
from moldau.client.partition_requests import Fetched
from moldau.protocol.records.compression import Compression
from moldau.tracking.header import read_header
from support.audit_events import NOON, Host, batch, fetched
from support.server import ServerProcess

BODY = b"/product/1234 CZ Mozilla/5.0 (X11; Linux x86_64) https://example.org/search PHONE 52345 " * 2
FETCH = 16
"""Batches in one fetch."""
DAY_MS = 86_400_000


def events(count: int, *, hosts: int = 1, run: int = 500, apart_ms: int = 7) -> Iterator[list[bytes]]:
    """Batches of `run` events, each of one host."""
    for first in range(0, count, run):
        host = Host(f"host-{first // run % hosts}", "ewr", "departures", struct.pack(">Q", first // run % hosts + 1))
        yield [host.event(number, NOON + number * apart_ms % DAY_MS, body=BODY[: 80 + number % 80]) for number in range(first, first + run)]


def fetches(batches: list[list[bytes]], codec: Compression) -> list[tuple[int, Fetched]]:
    """Offsets and fetches."""
    found = []
    run = len(batches[0])
    for first in range(0, len(batches), FETCH):
        part = batches[first : first + FETCH]
        encoded = [batch(values, base_offset=(first + number) * run, codec=codec) for number, values in enumerate(part)]
        found.append((first * run, fetched(*encoded)))
    return found


def measured(work: Callable[[], int], runs: int) -> dict[str, float]:
    """Events per second of CPU time, after one run to warm up."""
    rates = []
    for number in range(runs + 1):
        begun = time.process_time()
        count = work()
        if number:
            rates.append(count / (time.process_time() - begun))
    return {name: round(rate) for name, rate in spread(rates).items()}


def walk(told: list[tuple[int, Fetched]], *, fast: bool) -> int:
    """One walk over all fetches."""
    walker, tally = Walker(fast=fast), Tally()
    for offset, each in told:
        walker.walk("events", each, offset, tally)
    return tally.records


def at_work(values: list[bytes], runs: int) -> dict[str, float]:
    """A whole auditor, of a new tier each time."""
    from confluent_kafka import Producer

    with tempfile.TemporaryDirectory() as directory, ServerProcess(Path(directory)) as server:
        with Cluster(server.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 2)
        producer = Producer({"bootstrap.servers": server.bootstrap, "queue.buffering.max.messages": 1_000_000, "linger.ms": 5})
        for number, value in enumerate(values):
            producer.produce("events", value, partition=number % 2)
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0
        tiers = iter(range(runs + 1))

        def run() -> int:
            auditor = Auditor(server.bootstrap, AuditorOptions(f"tier-{next(tiers)}"))
            auditor.run(once=True)
            return auditor.statistics()["published"]

        return measured(run, runs)


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    usual, mixed = list(events(given.events)), list(events(given.events, hosts=200, run=20, apart_ms=450))
    values = [value for part in usual for value in part]
    size = round(statistics.mean(map(len, values)))

    def add(what: str, rates: dict[str, float]) -> None:
        results.write(benchmark="auditor", test=what, events=given.events, value_bytes=size, load=load_average(), events_per_s=rates)

    for codec in (Compression.NONE, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY, Compression.GZIP):
        told = fetches(usual, codec)
        for fast in (False, True):
            way = "with numpy" if fast else "pure Python"
            add(f"walk, {codec.name.lower()}, {way}", measured(lambda told=told, fast=fast: walk(told, fast=fast), given.runs))  # type: ignore[misc]
    told = fetches(mixed, Compression.NONE)
    for fast in (False, True):
        add(f"walk, mixed, {'with numpy' if fast else 'pure Python'}", measured(lambda fast=fast: walk(told, fast=fast), given.runs))  # type: ignore[misc]
    column = pa.array(values)
    add("columns, values", measured(lambda: sum(c.count for c in count_values("events", column).counts.values()), given.runs))
    headers = [header for value in values if (header := read_header(value)) is not None]
    texts = {name: pa.array([getattr(h, name) for h in headers]) for name in ("service", "host", "datacenter")}
    times = pa.array([h.time_ms for h in headers], pa.timestamp("ms", tz="UTC"))
    guids, sizes = pa.array([h.guid for h in headers], pa.binary(16)), pa.array([len(v) for v in values])

    def decoded() -> int:
        return sum(c.count for c in count_columns("events", time=times, guid=guids, value_bytes=sizes, **texts).counts.values())

    add("columns, decoded headers", measured(decoded, given.runs))
    add("auditor", at_work(values, given.runs))


if __name__ == "__main__":
    main()
