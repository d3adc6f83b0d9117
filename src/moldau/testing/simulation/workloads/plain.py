"""Without transactions and groups: idempotent producers, and careless ones that may double and reorder; readers of assigned partitions, of
either isolation level, which go back and forth, and those that read to the end when all is over.
"""

from moldau.model.errors import PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.workloads.recording import RecordedProducer, RecordedReader, ensure_topic, pause

TOPIC, PARTITIONS = "plain", 2


async def write(context: ClientContext) -> None:
    """Send with acks=all, each record once and in order; the producer is killed now and then."""
    await _write(context, idempotent=True)


async def write_carelessly(context: ClientContext) -> None:
    """Send without idempotence."""
    await _write(context, idempotent=False)


async def _write(context: ClientContext, *, idempotent: bool) -> None:
    await ensure_topic(context, TOPIC, PARTITIONS)
    lives = 0
    while context.budget.left > 0:
        lives += 1
        number = context.history.add_producer(f"{context.name}.{lives}", idempotent=idempotent)
        recorded = RecordedProducer(
            context, SimulatedProducer(context, idempotent=idempotent, delivery_timeout_s=context.random.choice((5, 60))), number
        )
        context.history.producer_ready(number)
        is_killed = False
        while not is_killed and context.budget.take():
            sent = []
            for _ in range(context.random.choice((1, 1, 3, 20))):
                partition = TopicPartition(TOPIC, context.random.randrange(PARTITIONS))
                sent.append(recorded.send(partition, key=b"%d" % context.random.randrange(5)))
            is_killed = context.random.random() < 0.01
            if not is_killed and context.random.random() < 0.7:
                for each in sent:
                    await each
            await pause(context)
        if is_killed:
            recorded.producer.crash()
        else:
            await recorded.producer.close()
        context.history.producer_gone(number)


async def read(context: ClientContext) -> None:
    """Poll, and seek to the beginning now and then."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    is_committed = context.random.random() < 0.5
    consumer = SimulatedConsumer(
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
        if context.rack and context.random.random() < 0.2:
            await _go_to_end(consumer, reader, context.random.choice(partitions))
        await pause(context)
    await consumer.close()


async def _go_to_end(consumer: SimulatedConsumer, reader: RecordedReader, partition: TopicPartition) -> None:
    """Read on from the end that the leader shows, which a replica near by may not have yet."""
    try:
        await consumer.seek_to_end(partition)
    except (PeerError, WorldError):
        return  # nothing answers for as long as the client insists
    reader.placed({partition: consumer.positions()[partition]})
