"""Administrators that create, grow, configure, delete and create again topics of their own; and a client that only looks things up."""

from moldau.client.failures import ClientError
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.admin import LATEST, SimulatedAdmin
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.workloads.joining import look_at_offsets
from moldau.testing.simulation.workloads.keeping import LAG_S, KeptError
from moldau.testing.simulation.workloads.plain import PARTITIONS, TOPIC
from moldau.testing.simulation.workloads.recording import ensure_topic, pause


async def administrate(context: ClientContext) -> None:
    """One topic's life after another. Its records are synced before they are acknowledged: the history does not know of it."""
    admin, random = SimulatedAdmin(context), context.random
    topic = f"owned-{context.name}"
    while context.budget.take():
        partitions = random.randint(1, 3)
        await ensure_topic(context, topic, partitions, flush_messages=1)
        await _live(context, admin, topic, partitions)
        try:
            await admin.delete_topic(topic)
        except PeerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise KeptError(f"{topic} was created and is unknown when it is deleted") from error
        await pause(context)
    admin.close()


async def _live(context: ClientContext, admin: SimulatedAdmin, topic: str, partitions: int) -> None:
    """From an empty topic on: records get the offsets from 0, unless the broker has had to forget producers, and stores one twice; and the
    topic has as many partitions as it was given.
    """
    random = context.random
    producer = SimulatedProducer(context, delivery_timeout_s=600.0)
    written, evictions = 0, len(context.history.evictions)
    for _ in range(random.randint(1, 6)):
        if not context.budget.take():
            break
        match random.randrange(3):
            case 0:
                partitions += 1
                await admin.grow_topic(topic, partitions)
            case 1:
                await admin.configure_topic(topic, {"retention.ms": random.choice((None, 600_000_000))})
            case _:
                delivered = await producer.send_and_wait(topic, b"%d" % written, partition=0)
                if delivered.offset is not None and delivered.offset > written and len(context.history.evictions) == evictions:
                    raise KeptError(f"{topic}-0 is new, and its record {written} stands at offset {delivered.offset}")
                written += 1
        await pause(context)
    found = await _count(context, admin, topic, partitions)
    if found != partitions:
        raise KeptError(f"{topic} has {found} partitions, not {partitions}")
    await producer.close()


async def _count(context: ClientContext, admin: SimulatedAdmin, topic: str, expected: int) -> int:
    """How many partitions a topic has. A broker that lags behind the others may know less for a while."""
    until = context.clock.monotonic() + LAG_S
    while True:
        found = await admin.partitions_for(topic)
        if found >= expected or len(context.servers) == 1 or context.clock.monotonic() > until:
            return found
        await admin.brokers.back_off()


async def look(context: ClientContext) -> None:
    """Look at ends in both isolations, at groups' offsets, at epochs and producers."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    admin, history, random = SimulatedAdmin(context), context.history, context.random
    consumers: dict[str, SimulatedConsumer] = {}
    while context.budget.take():
        partition = TopicPartition(TOPIC, random.randrange(PARTITIONS))
        try:
            match random.randrange(4):
                case 0 | 1:
                    begun, is_committed = context.told_of(partition), random.random() < 0.5
                    end = await admin.offset(partition, LATEST, committed=is_committed)
                    history.saw_end(context.partitions.number(*partition), end, begun, committed=is_committed)
                case 2:
                    groups = list(dict.fromkeys(commit.group for commit in history.offset_commits))
                    if groups:
                        group = random.choice(groups)
                        consumer = consumers.setdefault(group, SimulatedConsumer(context, group_id=group))
                        await look_at_offsets(context, consumer, group, [partition])
                case _:
                    await admin.producers(partition)
                    epoch, end = await admin.epoch_end(partition, random.randrange(4))
                    if (epoch < 0) != (end < 0):
                        raise KeptError(f"{partition}: leader epoch {epoch} ends at {end}")
        except (ClientError, PeerError, WorldError):
            pass  # nothing answers for as long as the client insists
        await pause(context)
    for consumer in consumers.values():
        await consumer.close()
    admin.close()
