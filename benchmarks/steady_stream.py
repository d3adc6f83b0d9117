"""A producer that sends numbers to one partition at a constant pace, and when each was acknowledged: what a client sees of a failover."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

INTERVAL_S = 0.002
BACKLOG_MAX = 1000
"""Messages that are under way where a stream keeps its pace."""
FLOWS_S = 1.0
FLUSH_S = 60.0
IDLE_S = 10.0
NUMBER_BYTES = 8
FILLING = bytes(192)
Settings = Mapping[str, str | int | float | bool]


class Gap(NamedTuple):
    """A time without an acknowledgement: its length, and when it ended."""

    seconds: float
    ended: float


class Outcome(NamedTuple):
    """What is in a partition in the end of what a stream has sent."""

    lost: int
    """Acknowledged, and not there."""
    doubled: int
    reordered: int
    failed: int
    """Reported to the application as not delivered."""


def longest_gap(acknowledged: Sequence[float], since: float) -> Gap:
    """The longest between two acknowledgements of which the second came after `since`; of no length where none came."""
    gaps = [Gap(after - before, after) for before, after in pairwise(acknowledged) if after > since]
    return max(gaps, default=Gap(0.0, since))


def outcome(acknowledged: Sequence[int], found: Sequence[int], failed: int) -> Outcome:
    """Compare the numbers that were acknowledged with those in the partition, in their order there."""
    different = dict.fromkeys(found)
    lost = sum(number not in different for number in acknowledged)
    return Outcome(lost, len(found) - len(different), sum(after < before for before, after in pairwise(found)), failed)


class SteadyStream:
    """librdkafka with idempotence, acks all and no linger; `settings` beside them. Sends as a context manager, in threads of its own."""

    def __init__(self, bootstrap: str, topic: str, partition: int, settings: Settings) -> None:
        self._bootstrap, self._topic, self._partition = bootstrap, topic, partition
        own: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
        self._producer = Producer({**own, "linger.ms": 0, "log_level": 0, **settings})
        self._acknowledged: list[float] = []
        self._numbers: list[int] = []
        self._errors: list[str] = []
        self._sent = 0
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._poll)]

    def longest_gap(self, since: float) -> Gap:
        """See `longest_gap`."""
        return longest_gap(self._acknowledged[:], since)

    @property
    def failed(self) -> int:
        """Messages that were reported as not delivered."""
        return len(self._errors)

    def flows(self, since: float) -> bool:
        """Whether acknowledgements have come for a second after `since`, and nothing waits any more."""
        under_way = self._sent - len(self._numbers) - self.failed
        return bool(self._acknowledged) and self._acknowledged[-1] > since + FLOWS_S and under_way < BACKLOG_MAX

    def outcome(self) -> Outcome:
        """Read the partition back, when the stream has ended."""
        place = TopicPartition(self._topic, self._partition, 0)
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "benchmark", "enable.auto.commit": False, "log_level": 0})
        offsets = consumer.get_watermark_offsets(place, timeout=IDLE_S, cached=False)
        assert offsets is not None
        consumer.assign([place])
        found: list[int] = []
        last = time.monotonic()
        while len(found) < offsets[1] and time.monotonic() - last < IDLE_S:
            for message in consumer.consume(10_000, 0.5):
                if message.error() is None:
                    last = time.monotonic()
                    found.append(_number(message))
        consumer.close()
        return outcome(self._numbers, found, self.failed)

    def _send(self) -> None:
        begun = time.monotonic()
        while not self._ends.is_set():
            value = self._sent.to_bytes(NUMBER_BYTES) + FILLING
            self._producer.produce(self._topic, value, partition=self._partition, on_delivery=self._delivered)
            self._sent += 1
            time.sleep(max(0.0, begun + self._sent * INTERVAL_S - time.monotonic()))

    def _poll(self) -> None:
        while not self._ends.is_set():
            self._producer.poll(0.05)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(str(error))
        else:
            self._acknowledged.append(time.monotonic())
            self._numbers.append(_number(message))

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()
        if self._producer.flush(FLUSH_S):
            print(f"{self._topic}: messages are still under way after {FLUSH_S:.0f} s", file=sys.stderr)


def _number(message: Message) -> int:
    value = message.value()
    assert value is not None
    return int.from_bytes(value[:NUMBER_BYTES])
