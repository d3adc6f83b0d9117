"""Clients that read and write in one transaction: copiers of a group, exactly once, and feeders of a topic with what they read of it."""

from typing import Any

from confluent_kafka import KafkaException

from moldau.testing.history.history import Outcome
from support.workload.consumers import SESSION_MS, Reading, ends, join
from support.workload.producers import Transactions, send
from support.workload.world import COPIES, NUMBERS, PARTITIONS, Worker, World

COPYING = "copying"


class Copier(Worker):
    """Consume, transform, produce, with the group's offsets in the transaction: each record of the one topic once in the other."""

    def __init__(self, world: World, name: str, *, strategy: str = "range") -> None:
        super().__init__(world, name)
        self.settings = {"partition_assignment_strategy": strategy, "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500}

    def live(self, name: str) -> None:
        mine = Transactions(self, name, self.name, copies_for=COPYING)
        reading = join(self, name, [NUMBERS], COPYING, **self.settings)
        for _ in self.moments(5, 25):
            messages = reading.gather(self.random.choice((5, 50, 200)), 0.1)
            if reading.rebalanced:
                reading.take(messages, reading.gather_begun)
                reading.rewind()
            elif messages and not self._copy(mine, reading, messages):
                break
        mine.close()
        reading.end(crash=self.random.random() < 0.3 and not self.stopping.is_set())

    def _copy(self, mine: Transactions, reading: Reading, messages: list[Any]) -> bool:
        transaction = mine.begin()
        records = reading.take(messages, reading.gather_begun, transaction)
        commit = self.random.random() < 0.9
        try:
            for message in records:
                _, _, original, _ = self.world.row(message)
                send(self, mine.producer, mine.number, message.partition(), topic=COPIES, transaction=transaction, source=original)
            self._send_offsets(mine, reading, records, transaction)
        except KafkaException as failure:
            alive = mine.recover(transaction, failure)
        else:
            alive = mine.end(transaction, commit=commit)
        if alive and self.history.transactions[transaction].reported != Outcome.OK:
            reading.rewind()
        return alive

    def _send_offsets(self, mine: Transactions, reading: Reading, records: list[Any], transaction: int) -> None:
        places = ends(records)
        for place in places:
            self.history.commit_offset(COPYING, self.world.partition(place), place.offset, transaction=transaction)
        member = reading.consumer.consumer_group_metadata()
        self.insist(lambda: mine.producer.send_offsets_to_transaction(places, member, 10))


class Feeder(Worker):
    """Polls the topic by assignment and writes new numbers into it in the same transaction: what it reads decides what others may read."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.begin_at = {(NUMBERS, number): 0 for number in range(PARTITIONS)}

    def live(self, name: str) -> None:
        mine = Transactions(self, name, self.name)
        reading = Reading(self, name)
        reading.assign(self.begin_at)
        for _ in self.moments(5, 25):
            begun = self.history.now()
            messages = reading.consumer.consume(200, 0.02)
            transaction = mine.begin()
            reading.take(messages, begun, transaction)
            try:
                for _ in range(self.random.randrange(1, 4)):
                    send(self, mine.producer, mine.number, self.random.randrange(PARTITIONS), transaction=transaction)
            except KafkaException as failure:
                if not mine.recover(transaction, failure):
                    break
                continue
            if not mine.end(transaction, commit=self.random.random() < 0.9):
                break
        mine.close()
        self.begin_at = {partition: reading.back_from(partition) for partition in reading.next}
        reading.end()
