"""A producer for asyncio, with the names of `moldau.client.producer.Producer`.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("page-views", b"...", key=b"member 7")   # waits only for room in the queue
        stands_at = await delivery

What may wait for brokers runs in threads; sending does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, overload

from moldau.client.delivery import Deliveries, Delivery, Rest
from moldau.client.message import Delivered, Headers, Message, messages_of
from moldau.client.producer import Producer
from moldau.client.settings import ProducerOptions
from moldau.client.threaded import in_thread
from moldau.client.transactions import Transaction
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.client.async_consumer import AsyncConsumer


class AsyncProducer:
    """Sends messages; arguments as for `Producer`. One event loop uses it."""

    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **options: Unpack[ProducerOptions]) -> None:
        self._producer = Producer(bootstrap_servers, **options)

    @overload
    async def send(
        self,
        topic: str,
        value: bytes | str | Message | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery: ...

    @overload
    async def send(
        self,
        topic: str,
        value: Iterable[Message | bytes],
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Deliveries: ...

    async def send(
        self,
        topic: str,
        value: bytes | str | Message | Iterable[Message | bytes] | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery | Deliveries:
        """Send a value or a message, or a set of them; waits for room where the queue is full. ``await`` what it gives for the outcome."""
        rest = Rest(key, headers, partition, timestamp)
        if value is None or isinstance(value, bytes | str | Message):
            return await self._send(topic, value if isinstance(value, Message) else Message(value), rest)
        return Deliveries([await self._send(topic, message, rest) for message in messages_of(value)])

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | str | Message | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivered:
        """Send one message, and wait until it stands in the log. SendError."""
        return await (await self.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp))

    async def _send(self, topic: str, message: Message, rest: Rest) -> Delivery:
        producer = self._producer
        if producer.asks_before_sending(topic, rest):
            await in_thread(lambda: producer.partitions_for(topic))
        wanted = producer.prepare(topic, message, rest)
        while not producer.offer(wanted):
            await in_thread(producer.wait_for_room)
        return wanted.delivery

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return await in_thread(lambda: self._producer.partitions_for(topic))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every message sent so far has ended. SendError for a failure nobody has asked about, TimeoutError."""
        await in_thread(lambda: self._producer.flush(timeout))

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id."""
        await in_thread(lambda: self._producer.init_transactions(timeout))

    def transaction(self, *consumers: "AsyncConsumer") -> "AsyncTransaction":
        """All of it or nothing: ``async with producer.transaction():``; see `Producer.transaction`."""
        return AsyncTransaction(self._producer.transaction(*(each.in_transaction for each in consumers)))

    def statistics(self) -> dict[str, int]:
        """Messages so far: `sent`, of these still `waiting`, and `failed`."""
        return self._producer.statistics()

    async def close(self, timeout: float | None = None) -> None:
        """Flush, and close the connections; an open transaction is aborted."""
        await in_thread(lambda: self._producer.close(timeout))

    async def __aenter__(self) -> Self:
        await in_thread(self._producer.__enter__)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await in_thread(lambda: self._producer.__exit__(kind, error, trace))


class AsyncTransaction:
    """One transaction; it commits at the end of the ``async with``, and aborts where an exception, a cancellation too, leaves it."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def commit_offsets(self, consumer: "AsyncConsumer", offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit with the transaction where the consumer's group reads next."""
        await in_thread(lambda: self._transaction.commit_offsets(consumer.in_transaction, offsets))

    async def __aenter__(self) -> Self:
        await in_thread(self._transaction.__enter__)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await in_thread(lambda: self._transaction.__exit__(kind, error, trace))
