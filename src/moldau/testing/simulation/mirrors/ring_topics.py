"""Topics that two clusters mirror to each other under the same names, and what writes to them.

Each value begins with the name of its cluster and is written once, so that a record which returns is found wherever it stands. Keys of the
compacted topic belong to one cluster: the order of records of both is another one in each.
"""

from collections.abc import Mapping
from random import Random

from moldau.client.failures import ClientError
from moldau.client.message import Message
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.testing.simulation.mirrors.topics import COMPACTED, DELIVERY_S, FED, KEYS, NEWEST, ended
from moldau.testing.simulation.workloads import Workload
from moldau.testing.simulation.workloads.recording import ensure_topic, pause

RING_CLIENTS = ("feed", "feed", "overwrite", "transact")
RING_COUNTS: Mapping[str, int] = {FED: 2, NEWEST: 1}
RING_TOPIC_OF: Mapping[str, str] = {"feed": FED, "overwrite": NEWEST, "transact": FED}


class RingTopics:
    """What clients of one of the clusters write."""

    def __init__(self, name: str) -> None:
        """`name`: what the values of the cluster begin with."""
        self._name = name
        self._count = 0

    def workload(self, name: str) -> Workload:
        """What a client of this name does."""
        own: Mapping[str, Workload] = {"feed": self.feed, "overwrite": self.overwrite, "transact": self.transact}
        return own[name]

    def _message(self, random: Random) -> Message:
        self._count += 1
        key = None if random.random() < 0.3 else b"%d" % random.randrange(KEYS)
        return Message(f"{self._name}/{self._count}".encode(), key, [("a", b"1")][: random.randrange(2)])

    async def feed(self, context: ClientContext) -> None:
        """Batches without transactions."""
        random = context.random
        producer = SimulatedProducer(context, delivery_timeout_s=DELIVERY_S)
        while context.budget.take():
            partitions = [TopicPartition(FED, random.randrange(RING_COUNTS[FED])) for _ in range(random.choice((1, 3, 8)))]
            await ended([producer.send_nowait(each, self._message(random)) for each in partitions])
            await pause(context)
        await producer.close()

    async def overwrite(self, context: ClientContext) -> None:
        """Values for few keys of the compacted topic."""
        random = context.random
        producer = SimulatedProducer(context, delivery_timeout_s=DELIVERY_S)
        while context.budget.take():
            messages = [self._message(random) for _ in range(random.choice((1, 3, 8)))]
            keyed = [Message(each.value, f"{self._name}{random.randrange(KEYS)}".encode()) for each in messages]
            await ended([producer.send_nowait(TopicPartition(NEWEST, 0), each) for each in keyed])
            await pause(context)
        await producer.close()

    async def transact(self, context: ClientContext) -> None:
        """Transactions, some of which are aborted or left open."""
        random = context.random
        while context.budget.left > 0:
            producer = SimulatedTransactionalProducer(context, context.name, protocol=random.choice((1, 2)), timeout_s=5.0)
            try:
                await producer.init_transactions()
                while context.budget.take():
                    await self._transaction(producer, random)
                    await pause(context)
                    if random.random() < 0.03:
                        break
            except ClientError:
                pass  # another one begins
            producer.crash()
            await pause(context)

    async def _transaction(self, producer: SimulatedTransactionalProducer, random: Random) -> None:
        await producer.begin()
        sent = [
            producer.send_nowait(TopicPartition(FED, random.randrange(RING_COUNTS[FED])), self._message(random))
            for _ in range(random.choice((1, 2, 5)))
        ]
        if random.random() < 0.7:
            await ended(sent)
            await producer.commit()
        else:
            await producer.abort()
            await ended(sent)


async def create_ring_topics(context: ClientContext) -> None:
    """What there is in each of the clusters before the mirrors begin."""
    await ensure_topic(context, FED, RING_COUNTS[FED])
    await ensure_topic(context, NEWEST, RING_COUNTS[NEWEST], delete_retention_ms=86_400_000, **COMPACTED)
