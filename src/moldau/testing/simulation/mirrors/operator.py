"""Promotes a copy while everything goes wrong, as an operator does who repeats the command until it has succeeded; then clients write.

What was promoted, and where, is in the outcomes: a command that failed may have been carried out, with its cut.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.client.failures import SendError
from moldau.client.message import Message
from moldau.mirror.promotion import Promotion, State
from moldau.model.errors import PeerError, WorldError
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.mirrors.topics import DELIVERY_S, KEYS
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.workloads.recording import pause
from moldau.wire.brokers import Brokers

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition

VALUE = b"client/"
"""What values of the target's clients begin with."""
LIMITS_S = 0.1, 10.0
"""How long a command waits for logs to stand still: also so short that the mirror brings more between the look and the cut."""
WRITES = 5, 40


class Promoter:
    """See the module."""

    def __init__(self, target: Simulation, topics: Mapping[str, int]) -> None:
        self.cuts: dict[TopicPartition, list[int]] = {}
        """The offsets at which a promotion was asked for, the last one last."""
        self.promoted: dict[TopicPartition, int] = {}
        """Where clients write, as the command has said."""
        self.written: dict[TopicPartition, dict[int, bytes]] = {}
        """What clients of the target have written, as far as it was acknowledged."""
        self._target = target
        self._topics = topics
        self._context = target.client("operator")
        self._count = 0

    async def promote(self, delay_s: float) -> None:
        """Wait for so long, promote all partitions, and write to them."""
        await self._target.sleep(delay_s)
        brokers = Brokers(self._context)
        promotion = Promotion(brokers, None, lambda names: [name for name in names if name in self._topics])
        while not await self._one(promotion):
            await pause(self._context)
        brokers.close()
        await self.write(list(self.cuts))

    async def _one(self, promotion: Promotion) -> bool:
        """One command; whether everything is promoted."""
        try:
            partitions = await promotion.partitions()
            ready = [
                each for each in await promotion.prepare(partitions, self._context.random.choice(LIMITS_S)) if each.state is State.READY
            ]
            for each in ready:
                self.cuts.setdefault(each.partition, []).append(each.offset)
            outcomes = await promotion.promote(ready) if ready else []
        except (PeerError, WorldError):
            return False
        for each in outcomes:
            if each.state is State.PROMOTED:
                self.promoted[each.partition] = each.offset
        return len(outcomes) == len(partitions) and all(each.state is State.PROMOTED for each in outcomes)

    async def write(self, partitions: Sequence["TopicPartition"]) -> None:
        """What clients do in the target."""
        context = self._context
        producer = SimulatedProducer(context, delivery_timeout_s=DELIVERY_S)
        for _ in range(context.random.randint(*WRITES) if partitions else 0):
            partition = context.random.choice(partitions)
            self._count += 1
            value = VALUE + b"%d" % self._count
            message = Message(value, b"%d" % context.random.randrange(KEYS))
            try:
                delivered = await producer.send_and_wait(partition.topic, message, partition=partition.partition)
            except SendError:
                continue
            assert delivered.offset is not None, "it was acknowledged"
            self.written.setdefault(partition, {})[delivered.offset] = value
            await pause(context)
        await producer.close()
