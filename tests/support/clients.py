"""Other people's Kafka clients behind one small interface, so that one dialogue can be held with each of them.

A client creates a topic, writes values to partitions (each with its codec and its acks) and reads a partition from an offset or a time.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from support.java import java_command

READ_LIMIT_S = 60.0
JAVA_LIMIT_S = 180.0
DEFAULT = -1
"""Replicas as the brokers have it."""


@dataclass(frozen=True, slots=True)
class Write:
    """Values for one partition, to be sent with one codec and one acknowledgement mode ("0", "1", "all")."""

    partition: int
    codec: str
    acks: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """Read `count` records of one partition: from an offset, or from the first record not older than `timestamp_ms`."""

    partition: int
    count: int
    offset: int = 0
    timestamp_ms: int | None = None


class Seen(NamedTuple):
    """A record as the client showed it."""

    offset: int
    timestamp_ms: int
    value: str


class Client(Protocol):
    """What the conformance dialogue asks of a client."""

    def close(self) -> None:
        """Nothing more will be asked."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Make a topic, with as many replicas as the brokers have by default."""

    def write(self, topic: str, writes: Sequence[Write]) -> None:
        """Send everything and wait until it is sent (acks 0) or acknowledged."""

    def read(self, topic: str, reads: Sequence[Read]) -> list[list[Seen]]:
        """One list of records per read, by assignment, without a group."""


def collect(failures: list[object]) -> Callable[[object, object], None]:
    """A delivery callback that keeps the errors."""

    def on_delivery(error: object, _: object) -> None:
        if error:
            failures.append(error)

    return on_delivery


class _NothingKept:
    """A client that holds nothing between two calls."""

    def close(self) -> None:
        """Nothing to do."""


class ConfluentClient(_NothingKept):
    """confluent-kafka, that is librdkafka."""

    def __init__(self, bootstrap: str) -> None:
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 3}

    def create_topic(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(self.settings)
        for future in admin.create_topics([NewTopic(topic, partitions, DEFAULT)]).values():
            future.result(READ_LIMIT_S)

    def write(self, topic: str, writes: Sequence[Write]) -> None:
        import confluent_kafka

        for write in writes:
            failures: list[object] = []
            producer = confluent_kafka.Producer({**self.settings, "compression.type": write.codec, "acks": write.acks, "linger.ms": 20})
            for value in write.values:
                producer.produce(topic, value.encode(), partition=write.partition, on_delivery=collect(failures))
            assert producer.flush(READ_LIMIT_S) == 0
            assert not failures

    def read(self, topic: str, reads: Sequence[Read]) -> list[list[Seen]]:
        import confluent_kafka

        consumer = confluent_kafka.Consumer(
            {**self.settings, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 20}
        )
        found = []
        try:
            for read in reads:
                at = confluent_kafka.TopicPartition(topic, read.partition, read.offset)
                if read.timestamp_ms is not None:
                    at = consumer.offsets_for_times(
                        [confluent_kafka.TopicPartition(topic, read.partition, read.timestamp_ms)], READ_LIMIT_S
                    )[0]
                consumer.assign([at])
                seen: list[Seen] = []
                while len(seen) < read.count:
                    messages = consumer.consume(read.count - len(seen), READ_LIMIT_S)
                    assert messages, f"{topic}-{read.partition}: nothing more after {len(seen)} of {read.count}"
                    for message in messages:
                        assert message.error() is None, message.error()
                        seen.append(Seen(message.offset() or 0, message.timestamp()[1], (message.value() or b"").decode()))
                found.append(seen)
        finally:
            consumer.close()
        return found


class KafkaPythonClient(_NothingKept):
    """kafka-python 3."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic

        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            admin.create_topics([NewTopic(topic, partitions, DEFAULT)])
        finally:
            admin.close()

    def write(self, topic: str, writes: Sequence[Write]) -> None:
        from kafka import KafkaProducer

        for write in writes:
            codec = None if write.codec == "none" else write.codec
            acks = write.acks if write.acks == "all" else int(write.acks)
            producer = KafkaProducer(
                bootstrap_servers=self.bootstrap, compression_type=codec, acks=acks, enable_idempotence=acks == "all", linger_ms=20
            )
            try:
                futures = [producer.send(topic, value.encode(), partition=write.partition) for value in write.values]
                producer.flush(READ_LIMIT_S)
                for future in futures:
                    future.get(READ_LIMIT_S)
            finally:
                producer.close()

    def read(self, topic: str, reads: Sequence[Read]) -> list[list[Seen]]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False, consumer_timeout_ms=int(READ_LIMIT_S * 1000))
        found = []
        try:
            for read in reads:
                partition = TopicPartition(topic, read.partition)
                consumer.assign([partition])
                offset = read.offset
                if read.timestamp_ms is not None:
                    offset = consumer.offsets_for_times({partition: read.timestamp_ms})[partition].offset
                consumer.seek(partition, offset)
                seen: list[Seen] = []
                for message in consumer:
                    seen.append(Seen(message.offset, message.timestamp, message.value.decode()))
                    if len(seen) == read.count:
                        break
                found.append(seen)
        finally:
            consumer.close()
        return found


class AiokafkaClient(_NothingKept):
    """aiokafka, which speaks older versions of the protocol than the others."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        async def work() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                brokers = (await admin.describe_cluster())["brokers"]  # it cannot leave the number to them
                await admin.create_topics([NewTopic(topic, partitions, len(brokers))])
            finally:
                await admin.close()

        asyncio.run(work())

    def write(self, topic: str, writes: Sequence[Write]) -> None:
        from aiokafka import AIOKafkaProducer

        async def work() -> None:
            for write in writes:
                codec = None if write.codec == "none" else write.codec
                acks = write.acks if write.acks == "all" else int(write.acks)
                producer = AIOKafkaProducer(
                    bootstrap_servers=self.bootstrap, compression_type=codec, acks=acks, enable_idempotence=acks == "all", linger_ms=20
                )
                await producer.start()
                try:
                    futures = [await producer.send(topic, value.encode(), partition=write.partition) for value in write.values]
                    await asyncio.wait_for(asyncio.gather(*futures), READ_LIMIT_S)
                finally:
                    await producer.stop()

        asyncio.run(work())

    def read(self, topic: str, reads: Sequence[Read]) -> list[list[Seen]]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def work() -> list[list[Seen]]:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False, check_crcs=True)
            await consumer.start()
            found = []
            try:
                for read in reads:
                    partition = TopicPartition(topic, read.partition)
                    consumer.assign([partition])
                    offset = read.offset
                    if read.timestamp_ms is not None:
                        offset = (await consumer.offsets_for_times({partition: read.timestamp_ms}))[partition].offset
                    consumer.seek(partition, offset)
                    seen: list[Seen] = []
                    while len(seen) < read.count:
                        message = await asyncio.wait_for(consumer.getone(), READ_LIMIT_S)
                        seen.append(Seen(message.offset, message.timestamp, message.value.decode()))
                    found.append(seen)
            finally:
                await consumer.stop()
            return found

        return asyncio.run(work())


class KcatClient(_NothingKept):
    """kcat, which creates topics by asking for them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def _run(self, *arguments: str, text: str = "") -> str:
        command = ["kcat", "-b", self.bootstrap, *arguments]
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=READ_LIMIT_S * 2, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def create_topic(self, topic: str, partitions: int) -> None:
        for _ in range(100):  # the first answer to a request that creates the topic may say that it has no leader yet
            listed = json.loads(self._run("-L", "-J", "-t", topic))
            if [len(entry["partitions"]) for entry in listed["topics"]] == [partitions]:
                return
        raise AssertionError(f"{topic} was not created with {partitions} partitions: {listed}")

    def write(self, topic: str, writes: Sequence[Write]) -> None:
        for write in writes:
            settings = ["-X", f"acks={write.acks}", "-z", write.codec, "-p", str(write.partition)]
            self._run("-P", "-t", topic, *settings, text="".join(value + "\n" for value in write.values))

    def read(self, topic: str, reads: Sequence[Read]) -> list[list[Seen]]:
        found = []
        for read in reads:
            start = str(read.offset) if read.timestamp_ms is None else f"s@{read.timestamp_ms}"
            printed = self._run("-C", "-q", "-t", topic, "-p", str(read.partition), "-o", start, "-c", str(read.count), "-f", "%o %T %s\n")
            rows = [line.split(" ", 2) for line in printed.splitlines()]
            found.append([Seen(int(offset), int(timestamp), value) for offset, timestamp, value in rows])
        return found


class JavaClient:
    """The Java client of Apache Kafka; `libraries` are kafka-clients and what it needs."""

    def __init__(self, bootstrap: str, libraries: Path, source: Path) -> None:
        quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Dlog4j2.level=ERROR"]
        java = java_command(libraries, *quiet, str(source), bootstrap)
        self._process = subprocess.Popen(java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=JAVA_LIMIT_S)
        assert self._process.returncode == 0, "the cause is on standard error"

    def _run(self, command: str, topic: str, *lines: str) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("".join(line + "\n" for line in (f"{command} {topic} {len(lines)}", *lines)))
        self._process.stdin.flush()
        answer = []
        while (line := self._process.stdout.readline()) != "done\n":
            assert line, "the process has ended, the cause is on standard error"
            answer.append(line.rstrip("\n"))
        return answer

    def create_topic(self, topic: str, partitions: int) -> None:
        self._run("create", topic, str(partitions))

    def write(self, topic: str, writes: Sequence[Write]) -> None:
        self._run("write", topic, *(f"{w.partition} {w.codec} {w.acks} {','.join(w.values)}" for w in writes))

    def read(self, topic: str, reads: Sequence[Read]) -> list[list[Seen]]:
        lines = [f"{r.partition} {r.count} {r.offset} {-1 if r.timestamp_ms is None else r.timestamp_ms}" for r in reads]
        found: list[list[Seen]] = [[] for _ in reads]
        for line in self._run("read", topic, *lines):
            number, offset, timestamp, value = line.split(" ", 3)
            found[int(number)].append(Seen(int(offset), int(timestamp), value))
        return found
