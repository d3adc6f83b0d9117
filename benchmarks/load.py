"""Drives the neutral load client (load_client.c) and the admin calls around it."""

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def build(folder: Path, name: str = "load_client") -> Path:
    """Compile the client, or another program beside this file, if it is older than its source; needs a C compiler."""
    program, source = folder / name, Path(__file__).with_name(f"{name}.c")
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("the benchmarks need a C compiler for their load client (Debian: gcc libc6-dev)")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-pthread", "-o", str(program), str(source), "-ldl"], check=True)
    return program


def library() -> Path:
    """The librdkafka inside the confluent-kafka wheel."""
    package = Path(confluent_kafka.__file__).parent
    found = sorted(package.with_name("confluent_kafka.libs").glob("librdkafka*")) + sorted(package.glob(".dylibs/librdkafka*"))
    if not found:
        raise SystemExit("this build of confluent-kafka carries no librdkafka of its own")
    return found[0]


class LoadClient:
    """The load of a broker or a cluster: topics, produce, consume, latency. To partition 0, or as `load_client.c` says."""

    def __init__(self, program: Path, bootstrap: str, within: Sequence[str] = ()) -> None:
        """`within`: a command that runs the program."""
        self.within = within
        self.program = program
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})

    def create(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Make a topic and wait until its partitions have end offsets."""
        for future in self.admin.create_topics([NewTopic(topic, partitions, replicas)]).values():
            future.result(30)
        limit = time.monotonic() + 30
        while self.end_offset(topic, partitions) != 0:
            if time.monotonic() > limit:
                raise SystemExit(f"{topic} has no leader")
            time.sleep(0.02)

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        for future in self.admin.delete_topics([topic]).values():
            future.result(30)

    def end_offset(self, topic: str, partitions: int = 1) -> int:
        """Sum of the end offsets of these partitions, -1 while one has none.

        A fresh client asks: one that asked too early remembers the topic as unknown.
        """
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "benchmark", "log_level": 3})
        try:
            places = [confluent_kafka.TopicPartition(topic, partition) for partition in range(partitions)]
            found = [consumer.get_watermark_offsets(place, timeout=5, cached=False) for place in places]
        except confluent_kafka.KafkaException:
            return -1
        finally:
            consumer.close()
        return -1 if None in found else sum(offsets[1] for offsets in found if offsets is not None)

    def wait_for_end_offset(self, topic: str, messages: int) -> float:
        """Seconds until the end offset is there (acks 0 tells nobody)."""
        begun = time.monotonic()
        while self.end_offset(topic) < messages:
            if time.monotonic() - begun > 60:
                raise SystemExit(f"{topic}: only {self.end_offset(topic)} of {messages} messages arrived")
        return time.monotonic() - begun

    def run(self, mode: str, topic: str, *numbers: int, settings: Sequence[str] = ()) -> dict[str, Any]:
        """One run of the client; its line of JSON."""
        command = [*self.within, str(self.program), str(library()), mode, self.bootstrap, topic, *map(str, numbers), *settings]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)}: {ended.stdout}{ended.stderr}")
        result: dict[str, Any] = json.loads(ended.stdout)
        return result
