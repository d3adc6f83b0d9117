"""Clients that send: idempotent, careless, and in transactions, with zombies among them."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import confluent_kafka

from moldau.testing.history.history import NONE, Outcome
from support.workload.java_producer import JavaProducer, JavaProducers
from support.workload.world import GIVE_UP_S, NUMBERS, PARTITIONS, Worker, World, error_of

WINDOW = 300
TRANSACTION_LIMIT_MS = 8_000


class Sender(Worker):
    """Sends numbers to all partitions; without idempotence it may double and reorder them."""

    def __init__(self, world: World, name: str, *, idempotent: bool = True, per_second: int = 300) -> None:
        super().__init__(world, name)
        self.idempotent = idempotent
        self.pause_s = 20 / per_second

    def live(self, name: str) -> None:
        number = self.history.add_producer(name, idempotent=self.idempotent)
        producer = confluent_kafka.Producer(self.world.settings(enable_idempotence=self.idempotent, acks="all", linger_ms=2))
        for _ in self.moments(3, 20):
            for _ in range(self.random.randrange(40)):
                if len(producer) < WINDOW:
                    send(self, producer, number, self.random.randrange(PARTITIONS))
            producer.poll(0)
            time.sleep(self.pause_s)
        if self.random.random() < 0.7 or self.stopping.is_set():
            assert producer.flush(GIVE_UP_S) == 0, f"{name}: {len(producer)} sends do not end"
        self.history.producer_gone(number)


def send(
    worker: Worker, producer: Any, number: int, partition: int, *, topic: str = NUMBERS, transaction: int = NONE, source: int = NONE
) -> int:
    """Send the next value and note what comes of it; the value."""
    value = worker.history.send(number, worker.world.partitions[topic, partition], transaction=transaction, source=source)
    producer.produce(topic, b"%d" % value, partition=partition, on_delivery=partial(_delivered, worker, value))
    return value


def _delivered(worker: Worker, value: int, error: confluent_kafka.KafkaError | None, message: Any) -> None:
    if error is None:
        worker.history.send_ended(value, Outcome.OK, message.offset())
    elif error.code() == confluent_kafka.KafkaError._PURGE_QUEUE:
        worker.history.send_ended(value, Outcome.FAILED)
    else:
        worker.history.send_ended(value, Outcome.UNKNOWN)


def _is_fatal(error: confluent_kafka.KafkaError) -> bool:
    """Whether the producer can do nothing more. `produce` says so by the code alone."""
    return bool(error.fatal()) or error.code() == confluent_kafka.KafkaError._FATAL


class Transactions:
    """A transactional producer instance with its part of the history."""

    def __init__(
        self, worker: Worker, name: str, transactional_id: str, *, copies_for: str = "", java: JavaProducers | None = None
    ) -> None:
        self.worker = worker
        self.history = worker.history
        self.number = self.history.add_producer(name, transactional_id=transactional_id, copies_for=copies_for)
        settings = worker.world.settings(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_LIMIT_MS, linger_ms=2)
        # else `send_offsets_to_transaction` may wait for ever, see `moldau.client.settings.producer_settings`
        settings |= {"metadata.recovery.strategy": "none", "connections.max.idle.ms": 2000}
        self.producer: Any = (
            JavaProducer(java, name, transactional_id, TRANSACTION_LIMIT_MS) if java is not None else confluent_kafka.Producer(settings)
        )
        worker.insist(lambda: self.producer.init_transactions(10))
        self.history.producer_ready(self.number)

    def begin(self) -> int:
        """Its number in the history."""
        self.producer.begin_transaction()
        return self.history.begin(self.number)

    def carry_out(self, send_records: Callable[[int], object]) -> bool:
        """One transaction, whose records are sent by a function that is given its number; whether the producer can go on. One in five is
        aborted.
        """
        transaction = self.begin()
        try:
            send_records(transaction)
        except confluent_kafka.KafkaException as failure:
            return self.recover(transaction, failure)
        return self.end(transaction, commit=self.worker.random.random() < 0.8)

    def end(self, transaction: int, *, commit: bool) -> bool:
        """Commit or abort, insisting; whether the producer can go on."""
        try:
            if commit:
                self.history.ask_commit(transaction)
                self.worker.insist(lambda: self.producer.commit_transaction(10))
                self.history.transaction_ended(transaction, Outcome.OK)
            else:
                self._abort(transaction)
        except confluent_kafka.KafkaException as failure:
            return self.recover(transaction, failure)
        return True

    def recover(self, transaction: int, failure: confluent_kafka.KafkaException) -> bool:
        """After an error within a transaction: abort it, if that is possible; whether the producer can go on."""
        error = error_of(failure)
        if error.txn_requires_abort():
            try:
                self._abort(transaction)
            except confluent_kafka.KafkaException as second:
                error = error_of(second)
            else:
                return True
        assert _is_fatal(error), f"a transaction cannot be ended: {error}"
        return False

    def _abort(self, transaction: int) -> None:
        self.worker.insist(lambda: self.producer.abort_transaction(10))
        self.history.transaction_ended(transaction, Outcome.FAILED)

    def close(self) -> None:
        """Give it up as a crash does; what it has open is left to its successor or to the time limit."""
        self.history.producer_gone(self.number)
        if isinstance(self.producer, JavaProducer):
            self.producer.close()
        del self.producer


class TransactionalSender(Worker):
    """Transactions over several partitions: committed, aborted, left open; and a successor that takes over in the middle of one."""

    def __init__(self, world: World, name: str, java: JavaProducers | None = None) -> None:
        super().__init__(world, name)
        self.java = java

    def live(self, name: str) -> None:
        mine = Transactions(self, name, self.name, java=self.java)
        for _ in self.moments(2, 10):
            if not mine.carry_out(partial(self._fill, mine)):
                break
        else:
            match self.random.randrange(3):
                case 0:  # its successor aborts what is open
                    self._fill(mine, mine.begin())
                case 1 if not self.stopping.is_set():
                    self._be_succeeded(mine, name)
        mine.close()

    def _fill(self, mine: Transactions, transaction: int) -> None:
        for _ in range(self.random.choice((1, 2, 5, 20))):
            send(self, mine.producer, mine.number, self.random.randrange(PARTITIONS), transaction=transaction)
        mine.producer.poll(0)
        time.sleep(self.random.choice((0, 0, 0.01, 0.05)))

    def _be_succeeded(self, mine: Transactions, name: str) -> None:
        """A second instance takes the transactional id; the first, which does not know, goes on to send and commit."""
        transaction = mine.begin()
        self._fill(mine, transaction)
        heir = Transactions(self, f"{name}, heir", self.name, java=self.java)
        try:
            self._fill(mine, transaction)
        except confluent_kafka.KafkaException as failure:  # a record of before, which was sent again, has been refused already
            if not _is_fatal(error_of(failure)):
                raise
        assert not mine.end(transaction, commit=True), f"{name} committed after another had taken its transactional id"
        last = heir.begin()
        self._fill(heir, last)
        heir.end(last, commit=True)
        heir.close()
