"""The producer, consumer and space tests of the 2011 paper (mission K1-K3), Moldau and Apache Kafka in one run, cell by cell in turn.

    python benchmarks/throughput.py [--scale 1.0] [--runs 3] [--batch large|50|1] [--out FILE]

200-byte messages, one client, one partition. Producer: batches as large as librdkafka makes them within 5 ms and 1 MB, of 50, of 1; acks 0,
1, all; with acks 0 the clock runs until the end offset says that everything has arrived. Consumer: everything is read back with fetches
of 200 KB and with librdkafka's default. Space: bytes of the segment files per message beyond its 200. Processor time is the broker's.
"""

import os
from collections.abc import Callable
from typing import Any

from harness import Options, Pair, benchmark, in_turn
from load import LoadClient
from measure import Results, cpu_seconds, directory_bytes, load_average, resident_mb, spread, touch_memory
from systems import System

SIZE = 200
BATCHES = {
    "large": (2_000_000, ["linger.ms=5", "batch.num.messages=10000", "batch.size=1000000"]),
    "50": (1_000_000, ["linger.ms=5", "batch.num.messages=50"]),
    "1": (100_000, ["linger.ms=0", "batch.num.messages=1"]),
}
FETCHES = {"200kB": ["fetch.message.max.bytes=200000"], "default": []}
ACKS = ("0", "1", "all")
TOUCHED_TO_WRITE = 4 * 1024**3
TOUCHED_TO_READ = 256 * 1024**2
"""Memory made ready before each run beyond one and a half times its messages. What is written takes pages from all over the free memory:
with 256 MB every other run of large batches took cold ones, at more than twice the processor time."""


def counted(system: System, messages: int, touched: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work with the broker's counters around it."""
    os.sync()
    touch_memory(messages * SIZE * 3 // 2 + touched)
    load, before = load_average(), cpu_seconds(system.pid)
    result = work()
    cpu = cpu_seconds(system.pid) - before
    return {
        **result,
        "messages": messages,
        "cpu_s_per_million": round(cpu / messages * 1e6, 3),
        "rss_mb": resident_mb(system.pid),
        "load": load,
    }


def produce(system: System, client: LoadClient, topic: str, batch: str, acks: str, messages: int) -> dict[str, Any]:
    """Send the messages; the rate to the last acknowledgement or, with acks 0, until the broker has them all."""

    def work() -> dict[str, Any]:
        seconds = client.run("produce", topic, messages, SIZE, settings=[*BATCHES[batch][1], f"acks={acks}"])["seconds"]
        if acks == "0":
            seconds += client.wait_for_end_offset(topic, messages)
        elif client.end_offset(topic) != messages:
            raise SystemExit(f"{system.name} {topic}: end offset {client.end_offset(topic)} of {messages}")
        return {"rate": round(messages / seconds)}

    result = counted(system, messages, TOUCHED_TO_WRITE, work)
    result["overhead_bytes"] = round(directory_bytes(system.data, f"{topic}-0/*.log") / messages - SIZE, 2)
    return result


def consume(system: System, client: LoadClient, topic: str, fetch: str, messages: int) -> dict[str, Any]:
    """Read everything from the beginning."""
    return counted(
        system,
        messages,
        TOUCHED_TO_READ,
        lambda: {"rate": round(messages / max(client.run("consume", topic, messages, 0, settings=FETCHES[fetch])["seconds"], 1e-6))},
    )


def summarise(results: Results, rows: dict[str, list[dict[str, Any]]], **fields: Any) -> None:
    """One line per system for a cell."""
    for name, runs in rows.items():
        summary = {key: spread([run[key] for run in runs]) for key in ("rate", "cpu_s_per_million")}
        extra = {"overhead_bytes": runs[-1]["overhead_bytes"]} if "overhead_bytes" in runs[-1] else {}
        results.write(system=name, **fields, summary=True, **summary, **extra)


def measure(pair: Pair, results: Results, options: Options) -> None:
    """All cells, or those of one size of batches."""
    batches = [options.batch] if options.batch else list(BATCHES)
    for system, client in pair:  # a first round warms both up
        for batch in batches:
            client.create(f"warm-{batch}")
            produce(system, client, f"warm-{batch}", batch, "1", max(int(BATCHES[batch][0] * options.scale / 4), 1000))
            client.delete(f"warm-{batch}")
    for batch in batches:
        messages = max(int(BATCHES[batch][0] * options.scale), 1000)
        for acks in ACKS:
            rows: dict[str, list[dict[str, Any]]] = {}
            for run in range(options.runs):
                topic = f"produce-{batch}-{acks}-{run}"
                for system, client in in_turn(pair, run):
                    client.create(topic)
                    result = produce(system, client, topic, batch, acks, messages)
                    rows.setdefault(system.name, []).append(result)
                    results.write(system=system.name, test="produce", batch=batch, acks=acks, run=run, **result)
                    if acks != "all" or run:
                        client.delete(topic)
            summarise(results, rows, test="produce", batch=batch, acks=acks)
        for fetch in FETCHES:
            rows = {}
            for run in range(options.runs):
                for system, client in in_turn(pair, run):
                    result = consume(system, client, f"produce-{batch}-all-0", fetch, messages)
                    rows.setdefault(system.name, []).append(result)
                    results.write(system=system.name, test="consume", batch=batch, fetch=fetch, run=run, **result)
            summarise(results, rows, test="consume", batch=batch, fetch=fetch)
        for _, client in pair:
            client.delete(f"produce-{batch}-all-0")
    for system, _ in pair:
        rss, peak = resident_mb(system.pid), resident_mb(system.pid, "VmHWM")
        results.write(system=system.name, test="memory after", summary=True, rss_mb=rss, peak_mb=peak)


if __name__ == "__main__":
    benchmark(__doc__, measure)
