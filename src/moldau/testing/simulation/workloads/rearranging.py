"""An administrator who moves the replicas of the others' topic to other brokers, calls that off, and has preferred replicas lead."""

from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.workloads.plain import PARTITIONS, TOPIC
from moldau.testing.simulation.workloads.recording import ensure_topic, pause

PAUSES = 10
"""Between two of its operations, so that one can come to its end."""


async def rearrange(context: ClientContext) -> None:
    """Move the partitions of the topic of plain records. What a request does is seen by those that write and read."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    admin, random = SimulatedAdmin(context), context.random
    brokers = list(range(1, len(context.servers) + 1))
    replicas = await admin.replicas_of(TopicPartition(TOPIC, 0))
    while context.budget.take():
        partition = TopicPartition(TOPIC, random.randrange(PARTITIONS))
        try:
            match random.randrange(4):
                case 0 | 1:
                    await admin.move_partition(partition, random.sample(brokers, len(replicas)))
                case 2:
                    await admin.move_partition(partition, None)
                case _:
                    await admin.elect_preferred(TOPIC, [partition.partition])
        except PeerError:
            pass  # brokers are away, or nothing is under way
        for _ in range(random.randint(1, PAUSES)):
            await pause(context)
    admin.close()
