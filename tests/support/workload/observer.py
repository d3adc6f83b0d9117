"""A client that only looks: at groups' offsets, and at the ends of partitions in both isolations."""

import time
from math import inf
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from moldau.testing.history.history import NONE
from support.workload.consumers import Reading, commit
from support.workload.world import COPIES, NUMBERS, PARTITIONS, Worker, World, error_of, may_pass

PAUSE_S = 0.1


class Observer(Worker):
    """Looks at something else each time."""

    def __init__(self, world: World, name: str, groups: list[str]) -> None:
        super().__init__(world, name)
        self.groups = groups

    def live(self, name: str) -> None:
        groups = [Reading(self, f"{name} at {group}", group=group) for group in self.groups]
        ends = {committed: Reading(self, f"{name} at ends", committed=committed) for committed in (False, True)}
        partitions = [TopicPartition(NUMBERS, number) for number in range(PARTITIONS)]
        for _ in self.moments(10, 30):
            try:
                self.random.choice(groups).committed(partitions)
                committed = self.random.random() < 0.5
                look_at_end(self, ends[committed].consumer, self.random.choice(list(self.world.partitions)), committed=committed)
            except KafkaException as failure:
                if not may_pass(error_of(failure)):
                    raise
            time.sleep(PAUSE_S)
        for reading in (*groups, *ends.values()):
            reading.end()


class Committer(Worker):
    """Commits whatever it likes for a group that has no members, and looks."""

    def live(self, name: str) -> None:
        reading = Reading(self, name, group=self.name)
        for _ in self.moments(5, 20):
            place = TopicPartition(NUMBERS, self.random.randrange(PARTITIONS), self.random.randrange(1_000_000))
            commit(self, reading, self.name, [place])
            if self.random.random() < 0.3:
                reading.committed([TopicPartition(NUMBERS, place.partition)])
            time.sleep(0.01)
        reading.end(crash=self.random.random() < 0.3)


def look_at_end(worker: Worker, consumer: Any, partition: tuple[str, int], *, committed: bool) -> int:
    """The end of a partition, noted; nothing is ever deleted, so that it begins at 0."""
    begun = worker.history.now()
    first, end = consumer.get_watermark_offsets(TopicPartition(*partition), timeout=5)
    worker.history.saw_end(worker.world.partitions[partition], end, begun, committed=committed)
    assert first == 0, f"{partition} begins at {first}"
    return int(end)


def _end_of(message: Any) -> tuple[tuple[str, int], int]:
    """The partition and offset of a message that says that there is no more; of any other, nonsense."""
    error = message.error()
    at_end = error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF
    return (message.topic(), message.partition()), message.offset() if at_end else NONE


class Drain(Worker):
    """Reads everything from the beginning to the ends that no open transaction holds back any more."""

    def __init__(self, world: World, name: str, *, committed: bool = True, topics: tuple[str, ...] = (NUMBERS, COPIES)) -> None:
        super().__init__(world, name)
        self.committed = committed
        self.partitions = [partition for partition in world.partitions if partition[0] in topics]
        self.last: dict[tuple[str, int], int] = {}
        """Per partition: the offset behind its last record."""

    def run(self) -> None:
        try:
            self.live(self.name)
        except BaseException as failure:
            self.world.failures.append(failure)

    def live(self, name: str) -> None:
        reading = Reading(self, name, committed=self.committed, enable_partition_eof=True)
        targets = {partition: self._settled_end(reading, partition) for partition in self.partitions}
        reading.assign(dict.fromkeys(targets, 0))
        while targets:
            begun = self.history.now()
            messages = reading.consumer.consume(1000, 0.5)
            reading.take(messages, begun)
            for key, offset in map(_end_of, messages):
                if offset >= targets.get(key, inf):
                    del targets[key]
        self.last = dict(reading.next)
        reading.end()

    def _settled_end(self, reading: Reading, partition: tuple[str, int]) -> int:
        """The end, once it is the same in both isolations: transactions left open have timed out then."""
        everything = Reading(self, f"{self.name} at the end", committed=False)
        try:
            while True:
                end = self.insist(lambda: look_at_end(self, everything.consumer, partition, committed=False))
                if self.insist(lambda: look_at_end(self, reading.consumer, partition, committed=True)) == end:
                    return int(end)
                time.sleep(0.1)
        finally:
            everything.end()
