"""Seconds from the start of a broker's process to its first acknowledgement, and its memory when idle, Moldau and Apache Kafka in turn.

    python benchmarks/first_ack.py [--runs 3] [--out FILE]

A fresh folder each time. The message goes to a new topic with acks all, as soon as the broker takes it. Memory is read ten seconds later.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from measure import Results, load_average, resident_mb, spread
from systems import KAFKA_VERSION, free_port, kafka_command

EAGER: dict[str, str | int | float | bool] = {
    "log_level": 0,
    "socket.timeout.ms": 2000,
    "retry.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
}
IDLE_S = 10.0


def acknowledged(bootstrap: str, replicas: int = 1) -> bool:
    """Create a topic, send one message, and say whether it was acknowledged."""
    settings: dict[str, str | int | float | bool] = {**EAGER, "bootstrap.servers": bootstrap, "topic.metadata.refresh.fast.interval.ms": 20}
    outcome: list[object] = []
    admin = AdminClient(settings)
    try:
        for future in admin.create_topics([NewTopic("first", 1, replicas)], request_timeout=2).values():
            error = future.exception(5)
            if (
                isinstance(error, confluent_kafka.KafkaException)
                and error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
            ):
                return False
    except (confluent_kafka.KafkaException, TimeoutError):
        return False
    producer = confluent_kafka.Producer({**settings, "acks": "all", "linger.ms": 0, "message.timeout.ms": 5000})
    producer.produce("first", b"x" * 200, partition=0, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(6)
    return outcome == [None]


def moldau_command(data: Path, port: int) -> list[str]:
    """Moldau with its defaults."""
    return [sys.executable, "-m", "moldau.cli.main", "serve", "--listen", f"127.0.0.1:{port}", "--data", str(data)]


def measure_once(command: Callable[[Path, int], list[str]]) -> dict[str, float]:
    """One start."""
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        port = free_port()
        line = command(Path(folder) / "data", port)
        load, begun = load_average(), time.monotonic()
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not acknowledged(f"127.0.0.1:{port}"):
                if time.monotonic() - begun > 60 or process.poll() is not None:
                    raise SystemExit(f"no acknowledgement from {line[0]}")
            first_ack = time.monotonic() - begun
            time.sleep(IDLE_S)  # what is measured is a broker left alone for so long
            return {"first_ack_s": round(first_ack, 3), "idle_rss_mb": resident_mb(process.pid), "load": load}
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            process.wait(60)


def main() -> None:
    """Both systems in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    rows: dict[str, list[dict[str, float]]] = {}
    for run in range(given.runs):
        for name, command in (("moldau", moldau_command), (f"kafka {KAFKA_VERSION}", kafka_command)):
            result = measure_once(command)
            rows.setdefault(name, []).append(result)
            results.write(system=name, test="start", run=run, **result)
    for name, runs in rows.items():
        summary = {key: spread([run[key] for run in runs]) for key in ("first_ack_s", "idle_rss_mb")}
        results.write(system=name, test="start", summary=True, **summary)


if __name__ == "__main__":
    main()
