"""Puts what a client does into the history: sends with their outcomes, what is read, where a reader stands."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from moldau.client.failures import ClientError
from moldau.client.message import Message as Outgoing
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.testing.history.history import NONE, NOT_OURS, Outcome
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.cause import took_effect_perhaps
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.fetching import SimulatedMessage
from moldau.testing.simulation.clients.producer import SimulatedProducer

PAUSE_S = 0.2
"""Mean time between two operations of a client."""


async def ensure_topic(context: ClientContext, topic: str, partitions: int, **configs: object) -> None:
    """Create a topic unless it is there. Configurations have underscores for dots."""
    admin = SimulatedAdmin(context)
    try:
        await admin.create_topic(topic, partitions, {key.replace("_", "."): value for key, value in configs.items()})
    except PeerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    finally:
        admin.close()


async def pause(context: ClientContext) -> None:
    """Do nothing for a while."""
    await asyncio.sleep(context.random.expovariate(1 / PAUSE_S))


def outcome_of(error: BaseException | None) -> Outcome:
    """What is certain after an error, or after none."""
    if error is None:
        return Outcome.OK
    return Outcome.UNKNOWN if took_effect_perhaps(error) or not isinstance(error, ClientError) else Outcome.FAILED


class RecordedProducer:
    """A producer whose sends are in the history."""

    def __init__(self, context: ClientContext, producer: SimulatedProducer, number: int) -> None:
        self.producer = producer
        self.number = number
        self._context = context

    def send(
        self, partition: TopicPartition, *, key: bytes | None = None, transaction: int = NONE, source: int = NONE
    ) -> "asyncio.Future[object]":
        """Send the next value; what this returns is done when its outcome is in the history."""
        history = self._context.history
        value = history.send(self.number, self._context.partitions.number(*partition), transaction=transaction, source=source)
        try:
            delivery = self.producer.send_nowait(partition, Outgoing(b"%d" % value, key))
        except ClientError:
            history.send_ended(value, Outcome.FAILED)
            raise
        ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def done(future: "asyncio.Future[object]") -> None:
            if future.cancelled():
                ended.cancel()
                return
            error = future.exception()
            offset = NONE if error is not None else future.result().offset  # type: ignore[attr-defined]
            outcome = outcome_of(error)
            if outcome is not Outcome.UNKNOWN:
                history.send_ended(value, outcome, offset)
            if not ended.done():
                ended.set_result(error)

        delivery.add_done_callback(done)  # type: ignore[arg-type]
        return ended


class RecordedReader:
    """What a consumer of assigned partitions is given, in the history."""

    def __init__(self, context: ClientContext, consumer: SimulatedConsumer, name: str, *, group: str = "") -> None:
        self.consumer = consumer
        self._context = context
        self.number = context.history.add_reader(name, committed=consumer.is_committed, group=group)

    def placed(self, positions: Mapping[TopicPartition, int]) -> None:
        """The consumer was placed there."""
        for partition, offset in positions.items():
            self._context.history.position(self.number, self._context.partitions.number(*partition), offset)

    def reset(self, partition: TopicPartition, offset: int) -> None:
        """The broker said that the position is out of range; what it is now is not known."""
        number = self._context.partitions.number(*partition)
        self._context.history.told_out_of_range(self.number, number, offset)
        self._context.history.position(self.number, number, NONE)

    async def poll(self, timeout_s: float, *, transaction: int = NONE) -> list[SimulatedMessage]:
        """Read what is there."""
        begun = self._context.history.now()
        found = await self.consumer.consume(500, timeout_s)
        self.take(begun, found, transaction=transaction)
        return found

    def take(self, begun: float, found: Sequence[SimulatedMessage], *, transaction: int = NONE) -> None:
        """Note what a poll that began then has given."""
        rows = [
            (self._context.partitions.number(each.topic, each.partition), each.offset, value_of(each), each.leader_epoch) for each in found
        ]
        self._context.history.polled(self.number, begun, rows, transaction=transaction)
        for partition, offset in {TopicPartition(each.topic, each.partition): each.offset for each in found}.items():
            self._context.on_read(partition, offset)


def value_of(message: SimulatedMessage) -> int:
    """The number of the send that a record is from."""
    return int(message.value) if message.value is not None and message.value.isdigit() else NOT_OURS


async def drain(context: ClientContext, partitions: Iterable[TopicPartition], *, committed: bool) -> None:
    """Read partitions from their beginning to the end that they have now."""
    consumer = SimulatedConsumer(context, isolation_level="read_committed" if committed else "read_uncommitted")
    reader = RecordedReader(context, consumer, context.name)
    try:
        places = await consumer.beginning_offsets(list(partitions))
        await consumer.assign(places)
        reader.placed(places)
        ends = await consumer.end_offsets(list(places))
        found: list[SimulatedMessage] = []
        while found or any(consumer.next_offset(partition) < end for partition, end in ends.items()):
            found = await reader.poll(0.2)
    finally:
        await consumer.close()
