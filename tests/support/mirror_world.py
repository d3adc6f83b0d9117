"""Two brokers and a mirror between them, as processes that can be killed; writers that never stop, and what committed readers then see."""

import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from support.server import ServerProcess

LIMIT_S = 90.0
STOP_LIMIT_S = 20.0
PARTITIONS = 4
Seen = list[tuple[Any, ...]]
"""Offset, key, value, timestamp and headers of records, in their order."""


class MirrorProgram:
    """``moldau mirror run``; may be killed and started again."""

    def __init__(self, file: Path, instance: str = "1", *options: str) -> None:
        self._command = [sys.executable, "-m", "moldau.cli.main", "mirror", "run", str(file), "--instance", instance, *options]
        self._process: subprocess.Popen[str] | None = None
        self.log = file.with_name(f"{file.stem}-{instance}.log")

    def start(self) -> None:
        """Start it; it is not waited for."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, text=True)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_LIMIT_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_LIMIT_S)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None


class Writers:
    """Threads that write to a topic until `stop`: one idempotent producer, one with transactions of which some are aborted."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._transact)]
        self.failures: list[BaseException] = []
        self.acknowledged = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more, and wait for what was sent."""
        self._over.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        assert not any(thread.is_alive() for thread in self._threads), "a writer hangs"
        assert not self.failures, self.failures

    def _write(self) -> None:
        try:
            producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0})
            number = 0
            while not self._over.is_set():
                for _ in range(self._random.randint(1, 200)):
                    value = f"plain {number}".encode() + b"." * self._random.randint(0, 300)
                    headers: list[tuple[str, str | bytes | None]] = [("number", str(number))]
                    producer.produce(
                        self._topic,
                        value,
                        key=str(number % 50),
                        partition=number % PARTITIONS,
                        headers=headers,
                        on_delivery=self._delivered,
                    )
                    number += 1
                producer.poll(0)
                self._over.wait(self._random.random() * 0.02)
            assert producer.flush(LIMIT_S) == 0, "records without an answer"
        except BaseException as error:
            self.failures.append(error)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self.failures.append(KafkaException(error))
        self.acknowledged += 1

    def _transact(self) -> None:
        try:
            settings = {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "writer",
                "transaction.timeout.ms": 10_000,
                "log_level": 0,
            }
            number, producer = 0, None
            while not self._over.is_set():
                try:
                    if producer is None:
                        producer = Producer(settings)
                        producer.init_transactions(LIMIT_S)
                    producer.begin_transaction()
                    for _ in range(self._random.randint(1, 20)):
                        producer.produce(self._topic, f"transaction {number}", partition=self._random.randrange(PARTITIONS))
                        number += 1
                    if self._random.random() < 0.3:
                        producer.flush(5)
                        producer.abort_transaction(LIMIT_S)
                    else:
                        producer.commit_transaction(LIMIT_S)
                except KafkaException:  # the broker was killed: whatever became of it, both readers see the same
                    producer = None
                self._over.wait(self._random.random() * 0.05)
        except BaseException as error:
            self.failures.append(error)


class MirrorWorld:
    """A source and a target, each one broker in a process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source = ServerProcess(directory / "source")
        self.target = ServerProcess(directory / "target")

    def __enter__(self) -> Self:
        self.source.start()
        self.target.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for server in (self.source, self.target):
            if server.running:
                server.stop()

    def file(self, text: str) -> Path:
        """A mirror's file, with both clusters."""
        path = self.directory / "mirror.toml"
        path.write_text(text.format(source=self.source.bootstrap, target=self.target.bootstrap))
        return path


def committed_end(bootstrap: str, topic: str, partitions: Sequence[int] = range(PARTITIONS)) -> dict[int, Seen]:
    """What readers of committed records see of a topic, by partition, up to where its logs end now."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "judge",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1] for number in partitions}
        found: dict[int, Seen] = {number: [] for number in partitions}
        ended: set[int] = set()  # where more is written all the time, no end is reported
        while len(ended) < len(found):
            for message in consumer.consume(10_000, 0.1):
                error, number = message.error(), message.partition()
                assert number is not None, "it is about a partition"
                if error is None:
                    offset = message.offset()
                    assert offset is not None, "it has been stored"
                    if offset + 1 >= ends[number]:
                        ended.add(number)
                    if offset >= ends[number]:
                        continue
                    found[number].append((offset, message.key(), message.value(), message.timestamp()[1], message.headers()))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(number)
        return found
    finally:
        consumer.close()
