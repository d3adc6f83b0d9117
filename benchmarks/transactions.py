"""Transactional producing, Moldau and Apache Kafka in one run, in turn, 100 records of 200 bytes each, one producer, one partition.

    python benchmarks/transactions.py [--scale 1.0] [--runs 3] [--out FILE]

The producer is confluent-kafka with its defaults but linger 0; a transaction is begun when the one before is committed. What is read back
with read_committed at the end must be all of it.
"""

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from harness import Options, Pair, benchmark, in_turn
from measure import Results, cpu_seconds, load_average, spread
from systems import System

TRANSACTIONS = 1000
RECORDS = 100
VALUE = b"x" * 200
WARM_UP = 50
LIMIT_S = 30.0


def run_transactions(system: System, topic: str, count: int) -> dict[str, Any]:
    """Send and commit; rates, and the broker's processor time."""
    settings: dict[str, Any] = {"bootstrap.servers": system.bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0}
    producer = Producer(settings)
    producer.init_transactions(LIMIT_S)
    load, before, begun = load_average(), cpu_seconds(system.pid), time.monotonic()
    for _ in range(count):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(LIMIT_S)
    seconds = time.monotonic() - begun
    records = count * RECORDS
    cpu = cpu_seconds(system.pid) - before
    return {
        "rate": round(records / seconds),
        "transactions_per_s": round(count / seconds, 1),
        "cpu_s_per_million": round(cpu * 1e6 / records, 2),
        "load": load,
    }


def committed_records(system: System, topic: str) -> int:
    """How many records a reader of committed data finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": system.bootstrap,
            "group.id": "counts",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found, limit = 0, time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is not None:
                    return found
                found += 1
    finally:
        consumer.close()
    return found


def measure(pair: Pair, results: Results, options: Options) -> None:
    """Both systems in turn."""
    count = max(int(TRANSACTIONS * options.scale), 20)
    rows: dict[str, list[dict[str, Any]]] = {}
    for system, _ in pair:
        run_transactions(system, "warm-up", WARM_UP)
    for run in range(options.runs):
        for system, _ in in_turn(pair, run):
            topic = f"transactions-{run}"
            result = run_transactions(system, topic, count)
            found = committed_records(system, topic)
            if found != count * RECORDS:
                raise SystemExit(f"{system.name}: {found} committed records read, {count * RECORDS} sent")
            rows.setdefault(system.name, []).append(result)
            results.write(system=system.name, test="transactions", run=run, **result)
    for name, runs in rows.items():
        summary = {key: spread([run[key] for run in runs]) for key in ("rate", "transactions_per_s", "cpu_s_per_million")}
        results.write(system=name, test="transactions", summary=True, **summary)


if __name__ == "__main__":
    benchmark(__doc__, measure)
