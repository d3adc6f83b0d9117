"""Sending messages: to one partition or another, each with a future, all in order.

    with Producer("localhost:9092") as producer:
        producer.send("page-views", b"...", key=b"member 7")
        producer.send("page-views", MessageSet(Message(b"one"), Message(b"two"))).result()

Safe by default: all in-sync replicas acknowledge, and a retried message is stored once. A failure of a message whose delivery was not
read is raised by the next `flush`, which the end of the ``with`` calls. Any thread may send.
"""

import os
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from moldau.client.delivery import SLICE_S, Deliveries, Delivery, DeliveryThread, MessageDefaults, OutgoingMessage, log, outgoing
from moldau.client.failures import PRODUCER_BYTES_MAX, SendError, refused_by_producer
from moldau.client.librdkafka import BrokerLog
from moldau.client.message import Headers, Message, messages_of
from moldau.client.partitioning import PartitionChooser
from moldau.client.settings import Acks, Codec, MessageOptions, in_our_words, producer_settings
from moldau.client.transactions import Transaction, TransactionalConsumer, TransactionalId
from moldau.model.extras import MissingExtraError

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

    from moldau.client.delivery import DeliveryListener
    from moldau.client.partitioning import Partitioner

_FAREWELL_S = 10.0


class Producer:
    """A producer for the cluster that `bootstrap_servers` ("HOST:PORT", several by commas or in a list) belong to. It connects by itself.

    `acks`: who has a message before it counts as delivered: "all" in-sync replicas, the leader (1), none (0). `linger_ms` is how long a
    message waits for others to share a batch. `partitioner` is a function of topic, key and number of partitions; without it keys are
    hashed as all Kafka clients do, and messages without a key are dealt out at random. With a `transactional_id` messages are sent within
    `transaction`, and another producer of that id is fenced off by `init_transactions`, the first transaction, or ``with``.
    `settings` are librdkafka's own. ValueError for invalid arguments.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "moldau",
        acks: Acks = "all",
        compression: Codec = "none",
        linger_ms: float = 5.0,
        delivery_timeout_ms: int = 120_000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        partitioner: "Partitioner | None" = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka import Producer as Inner
        except ImportError as error:
            raise MissingExtraError("a producer", "confluent-kafka", "client") from error
        made = producer_settings(
            bootstrap_servers,
            client_id=client_id,
            acks=acks,
            compression=compression,
            linger_ms=linger_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            settings=settings,
        )
        brokers = BrokerLog(f"producer {client_id}" if transactional_id is None else f"producer {transactional_id}")
        try:
            self._inner = Inner(made, logger=brokers)
        except KafkaException as error:
            raise ValueError(f"producer: {in_our_words(error.args[0].str())}") from None
        self._refusal = KafkaException
        self._message_bytes_max = made.get("message.max.bytes", PRODUCER_BYTES_MAX)
        self._choosing = PartitionChooser(self._inner, partitioner)
        self._reports = DeliveryThread(self._inner, f"{client_id} deliveries", brokers.answered)
        self._identity = TransactionalId(self._inner, self._reports, transactional_id, transaction_timeout_ms, made["bootstrap.servers"])
        self._reports.start()
        self._open = True
        self._sent = 0
        self._farewell = weakref.finalize(self, _say_farewell, self._inner, self._reports, os.getpid())

    @overload
    def send(self, topic: str, value: bytes | str | Message | None, **defaults: Unpack[MessageOptions]) -> Delivery: ...

    @overload
    def send(self, topic: str, value: Iterable[Message | bytes], **defaults: Unpack[MessageOptions]) -> Deliveries: ...

    def send(
        self,
        topic: str,
        value: bytes | str | Message | Iterable[Message | bytes] | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery | Deliveries:
        """Send a value or a message, or a set of them in their order; return at once, unless the queue is full: then wait for room.

        The arguments hold for every message that has none of its own. A message that cannot be sent at all ends its delivery as one
        that failed on its way does. FencedError and ClientError when nothing can be sent any more; RuntimeError for a closed producer,
        and outside of a transaction for one with a transactional id.
        """
        defaults = MessageDefaults(key, headers, partition, timestamp)
        if isinstance(value, Message):
            return self._send(topic, value, defaults)
        if value is None or isinstance(value, bytes | str):
            return self._send(topic, Message(value), defaults)
        if isinstance(value, bytearray | memoryview):
            return self._send(topic, Message(bytes(value)), defaults)
        return Deliveries(self._send(topic, message, defaults) for message in messages_of(value))

    def _send(self, topic: str, message: Message, defaults: MessageDefaults) -> Delivery:
        wanted = self.prepare(topic, message, defaults)
        while not self.offer(wanted):
            self.wait_for_room()
        return wanted.delivery

    def post(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Send within the open transaction without a delivery, at a third of the cost: what fails aborts the transaction, whose commit says
        so. Waits and errors are those of `send`.
        """
        self._check_open()
        while True:
            try:
                self._inner.produce(topic, value, key, partition)
                break
            except BufferError:
                self.wait_for_room()
            except self._refusal as error:
                self._refuse(OutgoingMessage(topic, value, key, partition, {}, Delivery(self._reports)), error)
                break
        self._sent += 1

    def prepare(self, topic: str, message: Message, defaults: MessageDefaults) -> OutgoingMessage:
        """A message with its partition chosen and its delivery made, to be offered."""
        self._check_open()
        wanted = outgoing(topic, message, defaults, Delivery(self._reports))
        if self._choosing.applies(defaults):
            return wanted._replace(partition=self._choosing.choose(topic, wanted.key))
        return wanted

    def offer(self, wanted: OutgoingMessage) -> bool:
        """Queue it; False if there is no room now. What librdkafka refuses has ended."""
        try:
            self._inner.produce(wanted.topic, wanted.value, wanted.key, wanted.partition, **wanted.more)
        except BufferError:
            return False
        except self._refusal as error:
            self._refuse(wanted, error)
        self._sent += 1
        return True

    @property
    def delivery_listener(self) -> "DeliveryListener":
        """The listener of deliveries, for other classes of them than `prepare` makes."""
        return self._reports

    def asks_before_sending(self, topic: str, defaults: MessageDefaults) -> bool:
        """Whether `prepare` would ask the brokers for the topic's partitions."""
        return self._choosing.applies(defaults) and self._choosing.asks(topic)

    def wait_for_room(self) -> None:
        """The queue is full: wait until something has left it, or a moment."""
        self._reports.wait_for_room()

    def _refuse(self, wanted: OutgoingMessage, error: "KafkaException") -> None:
        from confluent_kafka import KafkaError

        cause: KafkaError = error.args[0]
        if cause.code() == KafkaError._FATAL:
            self._reports.broken.wait(1.0)
            raise self._identity.fatal_error(self._reports.fatal or cause) from error
        if cause.code() == KafkaError._STATE and self.transactional_id is not None and self._identity.current is None:
            raise RuntimeError(f"transactional id {self.transactional_id}: send within `with producer.transaction():`") from None
        hint = refused_by_producer(cause.code(), wanted.value, wanted.key, self._message_bytes_max)
        wanted.delivery.refuse(SendError(wanted.topic, None if wanted.partition < 0 else wanted.partition, cause, hint))

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; asked of the brokers once a minute. SendError if there is no such topic."""
        return self._choosing.count(topic)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every message sent so far has ended; with acknowledgements off, until it was sent.

        SendError for the first of those that failed and were not read; TimeoutError after `timeout` seconds.
        """
        self._wait_for_all(timeout)
        self._raise_unseen()

    def _wait_for_all(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while len(self._inner):
            left_s = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
            if left_s <= 0:
                raise TimeoutError(f"{len(self._inner)} messages are still on their way after {timeout} s")
            self._reports.serve(partial(self._inner.flush, max(0.001, left_s)))

    def _raise_unseen(self) -> None:
        failed = self._reports.take_unseen()
        if not failed:
            return
        if self._reports.fatal is not None:
            raise self._identity.fatal_error(self._reports.fatal) from failed[0]
        if len(failed) > 1:
            failed[0].add_note(f"and {len(failed) - 1} more messages")
        raise failed[0]

    @property
    def transactional_id(self) -> str | None:
        """The id under which it sends within transactions; None for a producer without them."""
        return self._identity.name

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id: fence the producer that had it, and end its open transaction. Once is enough.

        TransactionError, also after `timeout` seconds (None: twice the transaction's timeout). ValueError for a producer without an id.
        """
        self._check_open()
        self._identity.take_over(timeout)

    def transaction(self, *consumers: TransactionalConsumer) -> Transaction:
        """All of it or nothing: ``with producer.transaction():`` commits at its end, and aborts where an exception leaves it.

        What the consumers have handed out is committed to their groups with it; if it aborts, they go back to where they were.
        TransactionAbortedError at its end: nothing of it is visible, and it can be repeated; FencedError and TransactionError as
        there. The exceptions of the block itself pass through.
        """
        self._check_open()
        return Transaction(self._identity, self._inner, self._reports, consumers)

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("the producer is closed")

    def statistics(self) -> dict[str, int]:
        """Messages so far: `sent`, of these still `waiting`, and `failed`."""
        return {"sent": self._sent, "waiting": len(self._inner), "failed": self._reports.failures}

    def close(self, timeout: float | None = None) -> None:
        """Flush, and close the connections; an open transaction is aborted. Errors as for `flush`."""
        if not self._open:
            return
        self._open = False
        try:
            if self._identity.current is not None:
                self._identity.current.abort()
            self._wait_for_all(timeout)
            if self.transactional_id is None:  # otherwise its transactions have raised them
                self._raise_unseen()
        finally:
            self._farewell.detach()
            self._reports.stop()

    def abandon(self) -> None:
        """Do not wait for messages on their way, not at the end of the process either; brokers abort an open transaction at its timeout."""
        self._farewell.detach()

    def __len__(self) -> int:
        """Messages still on their way."""
        return len(self._inner)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        if self.transactional_id is not None:
            self.init_transactions()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Flush and close. Where an exception is on its way already, failures are logged."""
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            log.warning("producer: while closing: %s", failure)


def _say_farewell(inner: Any, reports: DeliveryThread, pid: int) -> None:
    """The end of a producer that was not closed: send what is queued, within a limit. In a forked process only the parent can send."""
    if len(inner) and os.getpid() == pid:
        reports.serve(lambda: inner.flush(_FAREWELL_S))
        if len(inner):
            log.warning("producer: %d messages not acknowledged when the producer was dropped; close producers", len(inner))
    reports.stop()
