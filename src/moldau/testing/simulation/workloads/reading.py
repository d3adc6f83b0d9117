"""Readers of assigned partitions: of either isolation level, which go back and forth, and those that read to the end when all is over."""

from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.consumer import Consumer
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.workloads.recording import RecordedReader, ensure_topic, pause
from moldau.testing.simulation.workloads.writing import PARTITIONS, TOPIC


async def read(context: ClientContext) -> None:
    """Poll, and seek to the beginning now and then."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    is_committed = context.random.random() < 0.5
    consumer = Consumer(
        context, isolation_level="read_committed" if is_committed else "read_uncommitted", on_reset=lambda *at: reader.reset(*at)
    )
    reader = RecordedReader(context, consumer, context.name)
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    begin = dict.fromkeys(partitions, 0)
    await consumer.assign(begin)
    reader.placed(begin)
    while context.budget.take():
        await reader.poll(0.5)
        if context.random.random() < 0.1:
            partition = context.random.choice(partitions)
            await consumer.seek(partition, 0)
            reader.placed({partition: 0})
        await pause(context)
    await consumer.close()
