"""The producer behind ``moldau produce``: confluent-kafka with bounded memory and an account of what failed.

librdkafka queues up to `QUEUE_RECORDS_MAX` records or `QUEUE_KIB_MAX`; when it is full we wait for deliveries instead of reading on.
Only failures are reported back (`delivery.report.only.error`), which saves a Python call for every record that went well; what was
accepted, less what failed and what was left at the end, was delivered. With a transactional id all of it is one transaction, which
is committed at the end, or aborted. Which line a record came from is kept for those of `LARGE_BYTES` and more, of which it may be asked.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from moldau.cli.output import say
from moldau.cli.produce_too_large import LARGE_BYTES, TooLarge
from moldau.cli.produce_waiting import Waiting
from moldau.client.failures import LIMITS, size_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from moldau.cli.input_records import InputRecord
    from moldau.client.transactions import Transaction

QUEUE_RECORDS_MAX = 200_000
QUEUE_KIB_MAX = 128 * 1024
LINGER_MS = 20
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
POLL_EVERY = 1024
"""Records between looks for failures."""
FAILURES_TOLD = 10
ANY_PARTITION = -1
FLUSH_SLICE_S = 0.2
"""Ctrl-C is not heard while librdkafka waits, so it waits in slices."""

TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow by default: a file takes as long as it takes."""


class Sender:
    """Sends records to one topic. `accepted` were handed to librdkafka, `failed` of them came back."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        settings: Mapping[str, str | int | bool],
        *,
        headers: Mapping[str, str],
        partition: int | None,
        timeout_s: float,
        transactional_id: str | None = None,
    ) -> None:
        from confluent_kafka import Producer

        self.accepted = 0
        self.failed = 0
        self.too_large = TooLarge(bootstrap, topic, MESSAGE_BYTES_MAX)
        self.tell: Callable[[str], object] = partial(say, err=True)
        """What is called with a line about brokers that acknowledge nothing."""
        self._waiting = Waiting(f"topic {topic}" if partition is None else f"partition {topic}-{partition}", timeout_s)
        self._failures: Counter[tuple[int, str]] = Counter()
        self._topic = topic
        self._timeout_s = timeout_s
        self._partition = ANY_PARTITION if partition is None else partition
        self._headers: list[tuple[str, str | bytes | None]] = [(name, value.encode()) for name, value in headers.items()]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "moldau-cli",
                "partitioner": "murmur2_random",
                "linger.ms": LINGER_MS,
                "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
                "queue.buffering.max.kbytes": QUEUE_KIB_MAX,
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "message.timeout.ms": int(timeout_s * 1000),
                "delivery.report.only.error": True,
                "log_level": 4,
                "logger": self._waiting.logger,
                "on_delivery": self._on_delivery,
                **settings,
                **_transactional(transactional_id),
            }
        )
        self.transactional = transactional_id is not None
        self._transaction: Transaction | None = None
        if transactional_id is not None:
            self._begin(transactional_id, bootstrap)

    def _begin(self, transactional_id: str, bootstrap: str) -> None:
        from moldau.client.delivery_thread import DeliveryThread
        from moldau.client.transactions import Transaction, TransactionalId

        reports = DeliveryThread(self._producer, "unused")  # we take them ourselves
        owner = TransactionalId(self._producer, reports, transactional_id, TRANSACTION_TIMEOUT_MS, bootstrap)
        owner.take_over(self._timeout_s)
        self._transaction = Transaction(owner, self._producer, reports, ())
        self._transaction.begin()

    def send(self, record: "InputRecord") -> None:
        """Queue one record, waiting for room where there is none. A record that librdkafka refuses counts as failed."""
        from confluent_kafka import KafkaError, KafkaException

        small = len(record.value) + len(record.key or b"") < LARGE_BYTES
        report = None if small else partial(self._on_delivery, line=record.line)
        while True:
            try:
                self._producer.produce(self._topic, record.value, record.key, self._partition, on_delivery=report, headers=self._headers)
                break
            except BufferError:
                self._producer.poll(0.1)
                self._look(len(self._producer))
            except KafkaException as error:
                cause = error.args[0]
                assert isinstance(cause, KafkaError)
                self._count(self._partition, cause)
                if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    self.too_large.by_producer(record.line, size_of(record.value, record.key))
                break
        self.accepted += 1
        if not self.accepted % POLL_EVERY:
            self._producer.poll(0)

    def give_up(self) -> None:
        """Wait no longer for what is not acknowledged: whether it arrives is not known, and it counts as failed."""
        left = len(self._producer)
        self.failed += left
        self._failures[ANY_PARTITION, "not waited for"] += left

    def finish(self) -> None:
        """Wait for all deliveries; each has its time limit, so this ends. KeyboardInterrupt may end it before."""
        deadline = time.monotonic() + self._timeout_s + 5
        left = 1
        while left and time.monotonic() < deadline:
            left = self._producer.flush(FLUSH_SLICE_S)
            self._look(left)
        if left:
            self.failed += left
            self._failures[ANY_PARTITION, "no answer in time"] += left

    def _look(self, left: int) -> None:
        said = self._waiting.look(self.delivered - left, left)
        if said is not None:
            self.tell(said)

    def end_transaction(self, *, commit: bool) -> None:
        """Commit what was sent, or undo it, if it was sent in a transaction. ClientError says why that cannot be done."""
        if self._transaction is not None:
            if commit:
                self._transaction.commit()
            else:
                self._transaction.abort()

    @property
    def delivered(self) -> int:
        """Records that the broker has (with acks 0: that were sent)."""
        return self.accepted - self.failed

    def failures(self) -> Iterator[str]:
        """A line for each kind of failure, the most frequent first."""
        for (partition, reason), count in self._failures.most_common(FAILURES_TOLD):
            where = self._topic if partition == ANY_PARTITION else f"{self._topic}-{partition}"
            yield f"{where}: {count:,} not delivered: {reason}"
        if len(self._failures) > FAILURES_TOLD:
            yield f"and {len(self._failures) - FAILURES_TOLD} other kinds of failure"

    def _on_delivery(self, error: "KafkaError | None", message: "Message", line: int | None = None) -> None:
        if error is not None:
            partition = message.partition()
            self._count(ANY_PARTITION if partition is None else partition, error)
            if error.code() in LIMITS:
                self.too_large.by_broker(error.code(), line, size_of(message.value(), message.key()))

    def _count(self, partition: int, error: "KafkaError") -> None:
        self.failed += 1
        self._failures[partition, f"{error.name().strip('_')}: {error.str()}"] += 1


def _transactional(name: str | None) -> dict[str, str | int]:
    return {} if name is None else {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
