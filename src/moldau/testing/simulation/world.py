"""What a test of a program gets: a simulated broker, its faults, and clients, in virtual time."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.simulation import Simulation


class World:
    """A broker, its faults, and clients, in virtual time. What a test awaits of it passes at once."""

    def __init__(self, simulation: Simulation, nemesis: Nemesis) -> None:
        self.simulation = simulation
        self._nemesis = nemesis
        self._tasks: list[asyncio.Task[None]] = []

    # Clients

    def producer(self, *, transactional_id: str | None = None, **options: Any) -> Any:
        """A producer with the methods of `moldau.client.AsyncProducer`; with a `transactional_id` one with its transactions."""
        context = self.simulation.client("producer")
        return (
            SimulatedProducer(context, **options)
            if transactional_id is None
            else SimulatedTransactionalProducer(context, transactional_id, **options)
        )

    def consumer(self, *, group: str | None = None, topics: Iterable[str] = (), **options: Any) -> SimulatedConsumer:
        """A consumer with the methods of `moldau.client.AsyncConsumer`."""
        return SimulatedConsumer(self.simulation.client("consumer"), group_id=group, topics=topics, **options)

    async def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Create a topic. Its configurations have underscores for dots."""
        admin = SimulatedAdmin(self.simulation.client("admin"))
        try:
            await admin.create_topic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        finally:
            admin.close()

    async def read(self, topic: str, *, committed: bool = True) -> list[bytes | None]:
        """The values of a topic, partition by partition, from the beginning up to the end."""
        consumer = SimulatedConsumer(
            self.simulation.client("reader"), isolation_level="read_committed" if committed else "read_uncommitted"
        )
        try:
            partitions = [TopicPartition(topic, number) for number in range(await consumer.partitions_for(topic))]
            await consumer.assign(await consumer.beginning_offsets(partitions))
            ends = await consumer.end_offsets(partitions)
            found = []
            while any(consumer.next_offset(partition) < end for partition, end in ends.items()):
                found += await consumer.consume(1000, 1.0)
            return [message.value for message in sorted(found, key=lambda message: (message.partition, message.offset))]
        finally:
            await consumer.close()

    # Time and faults

    def start(self, work: Coroutine[Any, Any, None], name: str = "task") -> "asyncio.Task[None]":
        """Run a coroutine beside the test. What it raises fails the test."""
        task = self.simulation.start(work, name)
        self._tasks.append(task)
        return task

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await self.simulation.sleep(seconds)
        self.check()

    async def heal(self) -> None:
        """No more faults; what can be repaired is, and the broker serves. Connections that are dead stay dead."""
        self._nemesis.heal()
        host = self.simulation.host
        while host.process is None or not host.process.is_serving:
            await self.sleep(0.1)

    def check(self) -> None:
        """Raise what a started coroutine has raised."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
