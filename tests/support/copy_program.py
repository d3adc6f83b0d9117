"""A program that copies a topic exactly once, as an application would be written with confluent-kafka.

    python copy_program.py BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID

Consume, transform, produce; the group's offsets are part of each transaction. It never ends by itself: exit code FENCED says that another
producer has taken its transactional id, BROKEN that it cannot go on and wants to be started again. `tests/conformance/java/Copy.java` is
the same with the Java client.
"""

import os
import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

FENCED = 3
BROKEN = 4
BATCH = 100
IMPATIENT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "metadata.recovery.strategy": "none", "log_level": 0}
"""Without the recovery of metadata: when all brokers are away it forgets them, and `send_offsets_to_transaction` waits for a forgotten one,
for ever (librdkafka issues 5456 and 5511).
"""


class Copier:
    """One consumer and one transactional producer."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
        self.target = target
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, **IMPATIENT}
        self.producer = confluent_kafka.Producer({**settings, "transactional.id": transactional_id, "linger.ms": 0})
        insist(lambda: self.producer.init_transactions(30))
        consuming = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consuming |= {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 50}
        self.consumer = confluent_kafka.Consumer({**settings, **consuming})
        self.consumer.subscribe([source], on_revoke=self.forget, on_lost=self.forget)
        self.found: list[Any] = []

    def forget(self, *_: object) -> None:
        """The partitions go to somebody else, with what was polled of them."""
        self.found.clear()

    def step(self) -> None:
        """Copy what there is, in one transaction."""
        self.found.clear()
        until = time.monotonic() + 0.1
        while len(self.found) < BATCH and (message := self.consumer.poll(max(until - time.monotonic(), 0))) is not None:
            if message.error() is None:
                self.found.append(message)
        if not self.found:
            return
        try:
            self._copy()
        except KafkaException as failure:
            error = failure.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            insist(lambda: self.producer.abort_transaction(30))
            self._rewind()

    def _copy(self) -> None:
        self.producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for message in self.found:
            self.producer.produce(self.target, b"copy of " + message.value(), partition=message.partition())
            ends[message.topic(), message.partition()] = message.offset() + 1
        offsets = [TopicPartition(*partition, offset) for partition, offset in ends.items()]
        member = self.consumer.consumer_group_metadata()
        insist(lambda: self.producer.send_offsets_to_transaction(offsets, member, 30))
        insist(lambda: self.producer.commit_transaction(30))

    def _rewind(self) -> None:
        """Back to what the group has committed: the consumer does not know that its transaction was aborted."""
        for place in insist(lambda: self.consumer.committed(self.consumer.assignment(), 10)):
            place.offset = max(place.offset, 0)
            insist(lambda place=place: self.consumer.seek(place))


def insist(act: Any) -> Any:
    """Again, while the error says so."""
    while True:
        try:
            return act()
        except KafkaException as failure:
            error = failure.args[0]
            if error.fatal() or error.txn_requires_abort() or not error.retriable():
                raise


def main() -> None:
    """Copy until something is wrong for good."""
    try:
        copier = Copier(*sys.argv[1:])
        print("ready", flush=True)
        while True:
            copier.step()
    except KafkaException as failure:
        print(failure, flush=True)
        fenced = failure.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        os._exit(FENCED if fenced else BROKEN)


if __name__ == "__main__":
    main()
