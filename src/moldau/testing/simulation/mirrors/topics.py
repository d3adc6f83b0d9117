"""The topics of a source that are mirrored, what writes to them, and what was acknowledged there.

Each record has a value of its own in its topic. `plain` is that of the workloads whose history is judged; the others are written here: with
keys, headers and times, and such as lose records by retention, by compaction, and by being deleted and created again.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random

from moldau.client.failures import SendError
from moldau.client.message import Message
from moldau.mirror.merge.announcements import PRODUCERS
from moldau.mirror.merge.positions import POSITIONS
from moldau.mirror.merge.runs import OFFSETS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.compression import Compression
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.producer import Delivery, SimulatedProducer
from moldau.testing.simulation.workloads import WORKLOADS, Workload
from moldau.testing.simulation.workloads.keeping import SMALL
from moldau.testing.simulation.workloads.plain import PARTITIONS, TOPIC
from moldau.testing.simulation.workloads.recording import ensure_topic, pause

FED, RETAINED, NEWEST, RENEWED = "fed", "deleted", "compacted", "renewed"
COUNTS: Mapping[str, int] = {TOPIC: PARTITIONS, FED: 2, RETAINED: 1, NEWEST: 1, RENEWED: 1}
"""Topics, and how many partitions each has."""
TOPIC_OF: Mapping[str, str] = {"feed": FED, "retain": RETAINED, "overwrite": NEWEST, "renew": RENEWED}
"""By the names of clients; all others write to `plain`."""
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, **SMALL}
"""As often as it can be."""
KEYS = 6
DELIVERY_S = 600.0


class MirroredTopics:
    """See the module."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, dict[bytes, int]] = defaultdict(dict)
        """Offsets by value, of topics whose records are synced before their acknowledgement; of a topic that was created again those of all
        its lives.
        """
        self.deletions = 0
        """How often a topic was about to be deleted."""
        self._count = 0

    def workload(self, name: str) -> Workload:
        """What a client of this name does."""
        own: Mapping[str, Workload] = {"feed": self.feed, "retain": self.retain, "overwrite": self.overwrite, "renew": self.renew}
        return own[name] if name in own else WORKLOADS[name]

    def _value(self, prefix: str = "") -> bytes:
        self._count += 1
        return f"{prefix}{self._count}".encode()

    async def _send(self, producer: SimulatedProducer, partition: TopicPartition, message: Message) -> int:
        delivered = await producer.send_and_wait(partition.topic, message, partition=partition.partition)
        offset = -1 if delivered.offset is None else delivered.offset
        if offset >= 0:
            assert isinstance(message.value, bytes)
            self.acknowledged[partition.topic][message.value] = offset
        return offset

    async def feed(self, context: ClientContext) -> None:
        """Batches of records with keys, headers and times."""
        random = context.random
        await ensure_topic(context, FED, COUNTS[FED])
        compression = random.choice((Compression.NONE, Compression.NONE, Compression.GZIP))
        producer = SimulatedProducer(context, idempotent=random.random() < 0.7, delivery_timeout_s=DELIVERY_S, compression=compression)
        while context.budget.take():
            sent = []
            for _ in range(random.choice((1, 3, 8))):
                partition = TopicPartition(FED, random.randrange(COUNTS[FED]))
                sent.append(producer.send_nowait(partition, self._message(random, context.clock.time_ms())))
            await ended(sent)
            await pause(context)
        await producer.close()

    def _message(self, random: Random, now_ms: int) -> Message:
        key = None if random.random() < 0.3 else b"%d" % random.randrange(KEYS)
        headers = [("a", b"%d" % random.randrange(100)), ("b", None), ("a", b"")][: random.randrange(4)]
        return Message(self._value(), key, headers, now_ms - random.randrange(10_000) if random.random() < 0.3 else None)

    async def retain(self, context: ClientContext) -> None:
        """Write, and delete from the front, by request or by size."""
        random, partition = context.random, TopicPartition(RETAINED, 0)
        by_size = random.random() < 0.5
        await ensure_topic(context, RETAINED, 1, retention_bytes=600 if by_size else -1, **SMALL)
        producer, admin = SimulatedProducer(context, delivery_timeout_s=DELIVERY_S), SimulatedAdmin(context)
        end = 0
        while context.budget.take():
            for _ in range(random.choice((1, 1, 4))):
                end = max(end, await self._send(producer, partition, Message(self._value())) + 1)
            if not by_size and random.random() < 0.08:
                before = max(end - random.choice((0, 0, 3, 10, 30)), 0)
                try:
                    await admin.delete_records(partition, before)
                except PeerError as error:
                    if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:  # of a leader that is none any more
                        raise
            await pause(context)
        await producer.close()
        admin.close()

    async def overwrite(self, context: ClientContext) -> None:
        """Write values and tombstones for few keys to a compacted topic."""
        random, partition = context.random, TopicPartition(NEWEST, 0)
        await ensure_topic(context, NEWEST, 1, delete_retention_ms=86_400_000, **COMPACTED)
        producer = SimulatedProducer(context, delivery_timeout_s=DELIVERY_S)
        while context.budget.take():
            values = [None if random.random() < 0.1 else self._value() for _ in range(random.choice((1, 3, 8)))]
            await ended([producer.send_nowait(partition, Message(value, b"%d" % random.randrange(KEYS))) for value in values])
            await pause(context)
        await producer.close()

    async def renew(self, context: ClientContext) -> None:
        """One topic's life after another: it is deleted, and created again."""
        random, partition = context.random, TopicPartition(RENEWED, 0)
        admin, lives = SimulatedAdmin(context), 0
        while True:
            lives += 1
            await ensure_topic(context, RENEWED, 1, flush_messages=1)
            producer = SimulatedProducer(context, delivery_timeout_s=DELIVERY_S)
            for _ in range(random.randint(5, 60)):
                if not context.budget.take():
                    break
                await self._send(producer, partition, Message(self._value(f"{lives}/")))
                await pause(context)
            await producer.close()
            if not context.budget.take():
                break
            self.deletions += 1
            await admin.delete_topic(RENEWED)
            for _ in range(random.choice((0, 0, 3, 20))):
                await pause(context)
        admin.close()


async def ended(sent: Iterable[Delivery]) -> None:
    """Wait until each has ended, in whatever way."""
    for each in sent:
        with suppress(SendError):
            await each


def life_of(value: bytes | None) -> int:
    """Which life of a topic that is created again a value is from."""
    return int((value or b"0").split(b"/")[0])


async def create_topics(target: ClientContext, *, compacts_positions: bool) -> None:
    """What there is in the target before the mirror begins."""
    for topic, partitions in COUNTS.items():
        await ensure_topic(target, topic, partitions)
    await ensure_topic(target, POSITIONS.topic, 1, **(COMPACTED if compacts_positions else {}))
    await ensure_topic(target, PRODUCERS.topic, 1)
    await ensure_topic(target, OFFSETS.topic, 1)
