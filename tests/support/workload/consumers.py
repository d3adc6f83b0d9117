"""Clients that read: by assignment, with either isolation, and in groups."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from moldau.testing.history.history import NONE, Outcome
from support.workload.world import NUMBERS, Worker, World, may_pass

BACK = 3000
"""How many records a reader goes back at most when it seeks or is born again: else a long run would mostly read its beginning."""
QUICK = {
    "fetch_wait_max_ms": 50,
    "auto_offset_reset": "error",
    "enable_auto_commit": False,
    "enable_partition_eof": False,
    # A commit that was out when the broker died drops each connection to the new coordinator until FindCoordinator is answered within this
    # back-off (librdkafka issue 3645). On a loaded machine an answer takes a fifth of a second: with 20 ms that lasted for a minute.
    "retry_backoff_ms": 1000,
}
SESSION_MS = 6_000


class Reading:
    """A consumer instance with its part of the history."""

    def __init__(self, worker: Worker, name: str, *, committed: bool = True, group: str = "", **settings: Any) -> None:
        self.worker = worker
        self.history = worker.history
        self.number = self.history.add_reader(name, committed=committed, group=group)
        isolation = "read_committed" if committed else "read_uncommitted"
        self.consumer = confluent_kafka.Consumer(
            worker.world.settings(group_id=group or "unused", isolation_level=isolation, **{**QUICK, **settings})
        )
        self.next: dict[tuple[str, int], int] = {}
        """Per partition that was read: the offset to be read next."""
        self.gathered: list[Any] = []
        """Records that `gather` has got and nobody noted yet."""
        self.gather_begun = 0.0
        self.rebalanced = False
        self.closing = False

    def take(self, messages: list[Any], begun: float, transaction: int = NONE) -> list[Any]:
        """Note what a poll gave; the records of it."""
        records = [message for message in messages if self._sound(message)]
        if records:
            self.history.polled(self.number, begun, [self.worker.world.row(message) for message in records], transaction=transaction)
            for message in records:
                self.next[message.topic(), message.partition()] = message.offset() + 1
        return records

    def _sound(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self.history.told_out_of_range(self.number, self.worker.world.partition(message), message.offset())
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED):
            assert may_pass(error), error
        return False

    def assign(self, begin_at: Mapping[tuple[str, int], int]) -> None:
        """Read these partitions, from these offsets."""
        places = [TopicPartition(*partition, offset) for partition, offset in begin_at.items()]
        self.consumer.assign(places)
        self.place(places)

    def back_from(self, partition: tuple[str, int]) -> int:
        """An offset some way before the next one."""
        return max(0, self.next[partition] - self.worker.random.randrange(BACK))

    def gather(self, most: int, wait_s: float) -> list[Any]:
        """Messages one by one, until enough, or nothing for a while, or a rebalance: then nothing of before it is returned."""
        until = time.monotonic() + wait_s
        self.gathered, self.gather_begun, self.rebalanced = [], self.history.now(), False
        while len(self.gathered) < most and not self.rebalanced:
            message = self.consumer.poll(max(until - time.monotonic(), 0))
            if message is None:
                break
            self.gathered.append(message)
        found, self.gathered = self.gathered, []
        return found

    def rebalance(self) -> None:
        """The assignment changes: what was gathered so far belongs to the one before."""
        self.take(self.gathered, self.gather_begun)
        self.gathered, self.rebalanced = [], True

    def rewind(self) -> None:
        """Go back to the group's offsets."""
        partitions = self.consumer.assignment()
        if partitions:
            places = self.committed(partitions)
            for place in places:
                self.worker.insist(partial(self.consumer.seek, place))
            self.place(places)

    def end(self, *, crash: bool = False) -> None:
        """Leave as one should; or as a crash does, without a word: the last reference to the library's consumer is dropped."""
        if not crash:
            self.closing = True
            self.consumer.close()
        del self.consumer

    def place(self, partitions: list[TopicPartition]) -> None:
        """The consumer reads these partitions from these offsets now, as far as the history is concerned."""
        for entry in partitions:
            self.history.position(self.number, self.worker.world.partition(entry), entry.offset)
            self.next[entry.topic, entry.partition] = entry.offset

    def committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets there, noted; those that have none are to be read from 0."""
        begun = self.history.now()
        found = self.worker.insist(lambda: _without_errors(self.consumer.committed(partitions, 5)))
        for entry in found:
            offset = max(entry.offset, NONE)
            self.history.saw_offset(self.history.readers[self.number].group, self.worker.world.partition(entry), offset, begun)
            entry.offset = max(offset, 0)
        return list(found)


def _without_errors(found: list[TopicPartition]) -> list[TopicPartition]:
    for entry in found:
        if entry.error is not None:
            raise KafkaException(entry.error)
    return found


class Assigned(Worker):
    """Reads everything by assignment; now and then it seeks or is born again somewhere."""

    def __init__(self, world: World, name: str, *, committed: bool) -> None:
        super().__init__(world, name)
        self.committed = committed
        self.begin_at = dict.fromkeys(world.partitions, 0)

    def live(self, name: str) -> None:
        reading = Reading(self, name, committed=self.committed)
        reading.assign(self.begin_at)
        for _ in self.moments(5, 30):
            begun = self.history.now()
            reading.take(reading.consumer.consume(500, 0.1), begun)
            if self.random.random() < 0.01:
                self._jump(reading)
        self.begin_at = {partition: reading.back_from(partition) for partition in reading.next}
        reading.end()

    def _jump(self, reading: Reading) -> None:
        partition = self.random.choice(list(reading.next))
        place = TopicPartition(*partition, reading.back_from(partition))
        if self.random.random() < 0.5:
            reading.consumer.incremental_unassign([place])
            reading.consumer.incremental_assign([place])
        else:
            self.insist(lambda: reading.consumer.seek(place))
        reading.place([place])


class Member(Worker):
    """A member of a group that commits after each poll; it leaves, crashes and joins again."""

    def __init__(self, world: World, name: str, *, group: str, strategy: str = "range", instance: str = "") -> None:
        super().__init__(world, name)
        self.group = group
        self.settings: dict[str, Any] = {"partition_assignment_strategy": strategy, "session_timeout_ms": SESSION_MS}
        self.settings |= {"heartbeat_interval_ms": 500}
        if instance:
            self.settings["group_instance_id"] = instance

    def live(self, name: str) -> None:
        reading = join(self, name, [NUMBERS], self.group, **self.settings)
        for _ in self.moments(4, 20):
            records = reading.take(reading.gather(50, 0.1), reading.gather_begun)
            if records and self.random.random() < 0.7:
                commit(self, reading, self.group, ends(records))
        reading.end(crash=self.random.random() < 0.3 and not self.stopping.is_set())


def commit(worker: Worker, reading: Reading, group: str, places: list[TopicPartition]) -> None:
    """Commit these offsets, and note what came of it."""
    begun = [worker.history.commit_offset(group, worker.world.partition(place), place.offset) for place in places]
    try:
        answers = reading.consumer.commit(offsets=places, asynchronous=False) or []
    except KafkaException:  # what became of the first try of several is not said
        answers = []
    taken = {(entry.topic, entry.partition) for entry in answers if entry.error is None}
    for place, number in zip(places, begun, strict=True):
        worker.history.offset_commit_ended(number, Outcome.OK if (place.topic, place.partition) in taken else Outcome.UNKNOWN)


def join(worker: Worker, name: str, topics: list[str], group: str, **settings: Any) -> Reading:
    """A consumer that subscribes and starts each partition that it is given at the group's offset, by its own look."""
    reading = Reading(worker, name, group=group, **settings)
    cooperative = "cooperative" in settings.get("partition_assignment_strategy", "")

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        reading.rebalance()
        if reading.closing:  # librdkafka asks no broker for the offsets of a group that it is leaving: `committed` would always time out
            return
        places = reading.committed(partitions) if partitions else []
        (consumer.incremental_assign if cooperative else consumer.assign)(places)
        reading.place(places)

    def on_gone(consumer: Any, partitions: list[TopicPartition]) -> None:
        reading.rebalance()
        for entry in partitions:
            reading.next.pop((entry.topic, entry.partition), None)
            worker.history.position(reading.number, worker.world.partition(entry), NONE)

    reading.consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_gone, on_lost=on_gone)
    return reading


def ends(records: list[Any]) -> list[TopicPartition]:
    """Per partition: the offset behind the last of these records."""
    found: dict[tuple[str, int], int] = {}
    for message in records:
        found[message.topic(), message.partition()] = message.offset() + 1
    return [TopicPartition(*partition, offset) for partition, offset in found.items()]
