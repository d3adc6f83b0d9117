"""What the clients of a workload share, and the thread that each of them is."""

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from moldau.testing.history.history import NONE, NOT_OURS, History

NUMBERS = "numbers"
COPIES = "copies"
PARTITIONS = 3
GIVE_UP_S = 90.0
"""A client that cannot begin or end something for so long fails the run: the drain is waiting for it."""
IMPATIENT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}


class World:
    """One run: broker, seed, history."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.bootstrap = bootstrap
        self.seed = seed
        self.history = History()
        self.history.now()
        self.partitions = {
            (topic, number): self.history.add_partition(f"{topic}-{number}") for topic in (NUMBERS, COPIES) for number in range(PARTITIONS)
        }
        self.failures: list[BaseException] = []

    def settings(self, **settings: Any) -> dict[str, Any]:
        """Settings of a client, underscores for dots."""
        return {"bootstrap.servers": self.bootstrap, **IMPATIENT, **{name.replace("_", "."): value for name, value in settings.items()}}

    def random(self, name: str) -> random.Random:
        """Chance of one's own, from the seed of the run."""
        return random.Random(f"{self.seed} {name}")

    def partition(self, of: Any) -> int:
        """The history's number of what a message or a TopicPartition names."""
        topic, number = (of.topic, of.partition) if isinstance(of, TopicPartition) else (of.topic(), of.partition())
        return self.partitions[topic, number]

    def row(self, message: Any) -> tuple[int, int, int, int]:
        """A record for the history."""
        text = message.value() or b""
        return self.partition(message), message.offset(), int(text) if text.isdigit() else NOT_OURS, NONE


class Worker(threading.Thread):
    """A client that lives several lives: each of them with a new instance of the library's producer or consumer."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self.history = world.history
        self.random = world.random(name)
        self.stopping = threading.Event()
        self.lives = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.lives += 1
                self.live(f"{self.name}.{self.lives}")
        except BaseException as failure:
            failure.add_note(f"in {self.name}, life {self.lives}, {self.history.now():.3f} s")
            self.world.failures.append(failure)

    def live(self, name: str) -> None:
        """One life, under this name."""
        raise NotImplementedError

    def moments(self, least_s: float, most_s: float) -> Iterable[None]:
        """Again and again, for a time at random, unless it is told to stop."""
        until = time.monotonic() + self.random.uniform(least_s, most_s)
        while time.monotonic() < until and not self.stopping.is_set():
            yield

    def insist(self, act: Callable[[], Any]) -> Any:
        """Do it again while the error says that this makes sense; other errors and the last one are raised."""
        until = time.monotonic() + GIVE_UP_S
        while True:
            try:
                return act()
            except confluent_kafka.KafkaException as failure:
                error = failure.args[0]
                if error.fatal() or error.txn_requires_abort() or not may_pass(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)


def may_pass(error: Any) -> bool:
    """Whether an error is one that an outage explains, so that trying again may help."""
    codes = confluent_kafka.KafkaError
    passing = (
        *(codes._TRANSPORT, codes._TIMED_OUT, codes._ALL_BROKERS_DOWN, codes._WAIT_COORD, codes._TIMED_OUT_QUEUE, codes._RETRY),
        *(codes.REQUEST_TIMED_OUT, codes.COORDINATOR_NOT_AVAILABLE, codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NOT_COORDINATOR),
        *(codes.NOT_LEADER_FOR_PARTITION, codes.LEADER_NOT_AVAILABLE, codes.UNSTABLE_OFFSET_COMMIT, codes.CONCURRENT_TRANSACTIONS),
        *(codes.NETWORK_EXCEPTION, codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_PARTITION, codes._UNKNOWN_TOPIC, codes._DESTROY_BROKER),
        *(codes.OFFSET_NOT_AVAILABLE, codes.FENCED_LEADER_EPOCH, codes.UNKNOWN_LEADER_EPOCH, codes.NOT_ENOUGH_REPLICAS),
    )
    return error.retriable() or error.code() in passing


def error_of(failure: confluent_kafka.KafkaException) -> confluent_kafka.KafkaError:
    """What it carries."""
    error: confluent_kafka.KafkaError = failure.args[0]
    return error
