"""Clients of a mirror's clusters, each in threads of its own, until they are stopped."""

import random
import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from support.mirror_world import LIMIT_S, PARTITIONS


class Writers:
    """Threads that write to a topic until `stop`: one idempotent producer, one with transactions of which some are aborted."""

    def __init__(self, bootstrap: str, topic: str, seed: int, name: str = "") -> None:
        """`name`: values begin with it."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._prefix = f"{name} " if name else ""
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._transact)]
        self.failures: list[BaseException] = []
        self.values: list[bytes] = []
        """Of the idempotent producer's records that were acknowledged."""

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
                for _ in range(self._random.randint(1, 100)):
                    value = f"{self._prefix}plain {number}".encode() + b"." * self._random.randint(0, 300)
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
                self._over.wait(self._random.random() * 0.04)
            assert producer.flush(LIMIT_S) == 0, "records without an answer"
        except BaseException as error:
            self.failures.append(error)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(KafkaException(error))
        value = message.value()
        assert isinstance(value, bytes)
        self.values.append(value)

    @property
    def acknowledged(self) -> int:
        """How many."""
        return len(self.values)

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
                        producer.produce(self._topic, f"{self._prefix}transaction {number}", partition=self._random.randrange(PARTITIONS))
                        number += 1
                    if self._random.random() < 0.3:
                        producer.flush(5)
                        producer.abort_transaction(LIMIT_S)
                    else:
                        producer.commit_transaction(LIMIT_S)
                except KafkaException:  # the broker was killed: whatever became of it, both readers see the same
                    producer = None
                self._over.wait(self._random.random() * 0.05)
            if producer is None:  # what it left open ends now, and not when its time is over
                Producer(settings).init_transactions(LIMIT_S)
        except BaseException as error:
            self.failures.append(error)


class LiveReader:
    """Reads the committed records of a topic all the while: where they are, and the longest time without any of a partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        fast = {"topic.metadata.refresh.interval.ms": 500, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
        known = {"bootstrap.servers": bootstrap, "group.id": "live", "isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer({**known, **fast, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._last_s: dict[int, float] = {}
        self.offsets: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.stall_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """The time since the last record of each partition counts too."""
        self._over.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the reader hangs"

    def _read(self) -> None:
        while not self._exists() and not self._over.wait(0.1):
            pass
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in range(PARTITIONS)])
        while not self._over.is_set():
            try:
                messages = [each for each in self._consumer.consume(10_000, 0.05) if each.error() is None]
            except KafkaException:
                continue
            for each in messages:
                number, offset = each.partition(), each.offset()
                assert number is not None
                assert offset is not None
                self.offsets[number].append(offset)
            self._note({number for each in messages if (number := each.partition()) is not None})
        self._note(set(self._last_s))
        self._consumer.close()

    @property
    def records(self) -> int:
        """How many it has read."""
        return sum(map(len, self.offsets.values()))

    def _exists(self) -> bool:
        """A client that fetches a topic before it exists may take long to see that it does."""
        try:
            return len(self._consumer.list_topics(self._topic, 5).topics[self._topic].partitions) == PARTITIONS
        except KafkaException:
            return False

    def _note(self, numbers: set[int]) -> None:
        now_s = time.monotonic()
        for number in numbers:
            self.stall_s = max(self.stall_s, now_s - self._last_s.get(number, now_s))
            self._last_s[number] = now_s


class Arrivals:
    """A producer that writes to each partition of a copy until `stop`: refused while a mirror writes there, and then not any more."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.refused = 0
        self.stored: dict[int, dict[int, bytes]] = {number: {} for number in range(PARTITIONS)}
        """By partition and offset: what was acknowledged."""
        self.failures: list[KafkaError] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the producer hangs"

    @property
    def are_everywhere(self) -> bool:
        """Whether each partition has taken records."""
        return all(self.stored.values())

    def _write(self) -> None:
        number = 0
        while not self._over.wait(0.005):
            self._producer.produce(self._topic, f"arrival {number}", partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        self._producer.flush(LIMIT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            number, offset, value = message.partition(), message.offset(), message.value()
            assert number is not None
            assert offset is not None
            assert isinstance(value, bytes)
            self.stored[number][offset] = value
        elif error.code() == KafkaError.POLICY_VIOLATION:
            self.refused += 1
        else:
            self.failures.append(error)
