"""End-to-end latency under a constant pace, open loop, on Moldau and Apache Kafka in the same run.

    python benchmarks/latency.py [--scale 1.0] [--runs 3] [--out FILE]

200-byte messages, linger 0, acks 1 and all, at 1,000 and 10,000 a second for 10 s (times --scale), the first quarter not counted. Producer
and consumer are two clients in one process; the time runs from the hand-over to the producer to the hand-out by the consumer.
"""

from typing import Any

from harness import Options, Pair, benchmark, in_turn
from measure import Results, cpu_seconds, load_average, spread

SECONDS = 10
RATES = (1_000, 10_000)


def measure(pair: Pair, results: Results, options: Options) -> None:
    """All paces."""
    for rate in RATES:
        for acks in ("1", "all"):
            rows: dict[str, list[dict[str, Any]]] = {}
            for run in range(options.runs):
                for system, client in in_turn(pair, run):
                    topic = f"latency-{rate}-{acks}-{run}"
                    client.create(topic)
                    load, before = load_average(), cpu_seconds(system.pid)
                    count = int(rate * SECONDS * options.scale)
                    result = client.run("latency", topic, count, rate, settings=["linger.ms=0", f"acks={acks}"])
                    result["cpu_share"] = round((cpu_seconds(system.pid) - before) / result["seconds"], 3)
                    client.delete(topic)
                    rows.setdefault(system.name, []).append(result)
                    results.write(system=system.name, test="latency", rate=rate, acks=acks, run=run, load=load, **result)
            for name, runs in rows.items():
                keys = ("p50_us", "p90_us", "p99_us", "p999_us", "cpu_share")
                summary = {key: spread([run[key] for run in runs]) for key in keys}
                results.write(system=name, test="latency", rate=rate, acks=acks, summary=True, **summary)


if __name__ == "__main__":
    benchmark(__doc__, measure)
