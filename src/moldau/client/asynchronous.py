"""Producer and consumer for asyncio, with the names of `moldau.client.producer.Producer` and `moldau.client.consumer.Consumer`.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("page-views", b"...", key=b"member 7")   # waits only for room in the queue
        delivered = await delivery

    async with AsyncConsumer("localhost:9092", group_id="billing", topics=["orders"]) as consumer:
        async for message in consumer:
            await charge(message.value)

What may wait for brokers runs in threads; sending does not. A consumer has a thread of its own, in which librdkafka is asked and listeners
of rebalances are called. Its messages are handed out in the loop: one that came for a task that was cancelled waits for the next.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from moldau.client.consumer import Consumer
from moldau.client.delivery import Deliveries, Delivery, MessageDefaults
from moldau.client.message import ConsumedMessage, Delivered, Headers, Message, messages_of
from moldau.client.producer import Producer
from moldau.client.reader import SLICE_S, Listener
from moldau.client.settings import ConsumerOptions, MessageOptions, ProducerOptions
from moldau.client.transactions import Transaction
from moldau.model.identity import TopicPartition

R = TypeVar("R")


async def in_thread(work: Callable[[], R], executor: Executor | None = None) -> R:
    """Do `work` in a thread of `executor` (None: the loop's own), to its end."""
    job = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError:
                continue
        job.exception()  # retrieved: the task ends by its cancellation
        raise


class AsyncProducer:
    """Sends messages; arguments as for `Producer`. One event loop uses it."""

    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **options: Unpack[ProducerOptions]) -> None:
        self._producer = Producer(bootstrap_servers, **options)

    @overload
    async def send(self, topic: str, value: bytes | str | Message | None, **defaults: Unpack[MessageOptions]) -> Delivery: ...

    @overload
    async def send(self, topic: str, value: Iterable[Message | bytes], **defaults: Unpack[MessageOptions]) -> Deliveries: ...

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
        """Send a value or a message, or a set of them; waits for room where the queue is full. ``await`` the result for the outcome."""
        defaults = MessageDefaults(key, headers, partition, timestamp)
        if value is None or isinstance(value, bytes | str | Message):
            return await self._send(topic, value if isinstance(value, Message) else Message(value), defaults)
        return Deliveries([await self._send(topic, message, defaults) for message in messages_of(value)])

    async def send_and_wait(self, topic: str, value: bytes | str | Message | None, **defaults: Unpack[MessageOptions]) -> Delivered:
        """Send one message, and wait until it is in the log. SendError."""
        return await (await self.send(topic, value, **defaults))

    async def _send(self, topic: str, message: Message, defaults: MessageDefaults) -> Delivery:
        producer = self._producer
        if producer.asks_before_sending(topic, defaults):
            await in_thread(lambda: producer.partitions_for(topic))
        wanted = producer.prepare(topic, message, defaults)
        while not producer.offer(wanted):
            await in_thread(producer.wait_for_room)
        return wanted.delivery

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return await in_thread(lambda: self._producer.partitions_for(topic))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every message sent so far has ended. SendError for a failure that was not read, TimeoutError."""
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


class AsyncConsumer:
    """Reads messages; arguments as for `Consumer`. One event loop uses it; its tasks may, one after the other."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        group_id: str | None = None,
        topics: Iterable[str] = (),
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._consumer = Consumer(bootstrap_servers, group_id=group_id, topics=topics, **options)
        self._thread = ThreadPoolExecutor(1, "moldau consumer")
        self._turn = asyncio.Lock()
        self.in_transaction = _TransactionConsumer(self._consumer, self._thread)
        """The consumer as a producer's transaction sees it, from another thread."""

    async def _ask(self, work: Callable[[Consumer], R]) -> R:
        async with self._turn:
            return await in_thread(lambda: work(self._consumer), self._thread)

    async def subscribe(self, topics: Iterable[str], *, on_assign: Listener | None = None, on_revoke: Listener | None = None) -> None:
        """Share these topics with the other members of the group. The listeners are called in the consumer's thread."""
        await self._ask(lambda consumer: consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke))

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | Literal["smallest", "largest"]]) -> None:
        """Read these partitions, from these offsets if they are given."""
        await self._ask(lambda consumer: consumer.assign(partitions))

    async def unsubscribe(self) -> None:
        """Leave the group, or release the assigned partitions."""
        await self._ask(Consumer.unsubscribe)

    async def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return await self._ask(Consumer.assignment)

    async def poll(self, timeout: float | None = None) -> ConsumedMessage | None:
        """The next message; None if there is none within `timeout` seconds. The one before is finished. ConsumeError."""
        found = await self.consume(1, timeout)
        return found[0] if found else None

    async def consume(self, count: int = 500, timeout: float | None = None) -> list[ConsumedMessage]:
        """At most `count` messages that are fetched; the first is waited for as with `poll`. Those before are finished."""
        deadline = None if timeout is None else time.monotonic() + timeout
        reader = self._consumer.reader
        while True:
            async with self._turn:
                if reader.ready:
                    reader.wait(0)
                else:
                    left_s = SLICE_S if deadline is None else max(0.0, min(SLICE_S, deadline - time.monotonic()))
                    await in_thread(lambda: reader.wait(left_s), self._thread)  # noqa: B023
                if reader.buffered or (deadline is not None and time.monotonic() >= deadline):
                    return reader.take_nowait(count)

    def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        """Messages for ever: where there are none, it waits."""
        return self

    async def __anext__(self) -> ConsumedMessage:
        message = await self.poll()
        assert message is not None, "without a timeout there is a message"
        return message

    async def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`."""
        await self._ask(lambda consumer: consumer.pause(*partitions))

    async def resume(self, *partitions: TopicPartition) -> None:
        """Continue with these."""
        await self._ask(lambda consumer: consumer.resume(*partitions))

    async def commit(self, offsets: Mapping[TopicPartition, int] | ConsumedMessage | None = None) -> None:
        """Commit now and wait for it: after everything handed out, or after one message, or these offsets. CommitError."""
        await self._ask(lambda consumer: consumer.commit(offsets))

    async def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What the group has committed in these partitions, None: in those assigned."""
        return await self._ask(lambda consumer: consumer.committed(partitions))

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that messages were handed out of."""
        return self._consumer.positions()

    async def position(self, partition: TopicPartition) -> int:
        """The offset that comes next in a partition that is assigned."""
        return await self._ask(lambda consumer: consumer.position(partition))

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is ahead of its position."""
        return await self._ask(Consumer.lag)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset of an assigned partition."""
        await self._ask(lambda consumer: consumer.seek(partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go back to the first offset, of all assigned partitions where none is named."""
        await self._ask(lambda consumer: consumer.seek_to_beginning(*partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last message, of all assigned partitions where none is named."""
        await self._ask(lambda consumer: consumer.seek_to_end(*partitions))

    async def rewind(self) -> None:
        """Go back to what is committed or finished, or to where reading began."""
        await self._ask(Consumer.rewind)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._ask(lambda consumer: consumer.beginning_offsets(partitions))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last message of each partition that this consumer may see."""
        return await self._ask(lambda consumer: consumer.end_offsets(partitions))

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset of each partition that is not older than a time in ms since 1970; None where no message is that young."""
        return await self._ask(lambda consumer: consumer.offsets_for_times(times))

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return await self._ask(lambda consumer: consumer.partitions_for(topic))

    def statistics(self) -> dict[str, int]:
        """Messages so far: `handed_out`, and `buffered` after them."""
        return self._consumer.statistics()

    async def close(self, timeout: float | None = None) -> None:
        """Commit what is finished, and leave the group; waits for that `timeout` seconds. CommitError."""
        try:
            await self._ask(lambda consumer: consumer.close(timeout))
        finally:
            self._thread.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._ask(lambda consumer: consumer.__exit__(kind, error, trace))
        finally:
            self._thread.shutdown()


class _TransactionConsumer:
    """A consumer in a producer's transaction: calls of any thread are made in its own thread."""

    def __init__(self, consumer: Consumer, thread: ThreadPoolExecutor) -> None:
        self._consumer = consumer
        self._thread = thread

    def check_transactional(self) -> None:
        self._consumer.check_transactional()

    def positions(self) -> Mapping[TopicPartition, int]:
        return self._thread.submit(self._consumer.positions).result()

    def taken_away(self) -> set[TopicPartition]:
        return self._thread.submit(self._consumer.taken_away).result()

    def group_metadata(self) -> Any:
        return self._thread.submit(self._consumer.group_metadata).result()

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._thread.submit(self._consumer.settle, offsets).result()

    def rewind(self) -> None:
        self._thread.submit(self._consumer.rewind).result()
