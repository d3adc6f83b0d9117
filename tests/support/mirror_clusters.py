"""A source and a target of one broker each, in memory and in virtual time, for the parts of a mirror between them.

async def story(clusters: MirrorClusters) -> None:
    await clusters.source.create("orders")
    async with clusters.operator(clusters.merge()) as operator: ...

run(story)
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from moldau.mirror.operator import Operator
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.plan.values import MirrorPlan
from moldau.mirror.reading import read_batches
from moldau.mirror.state.board import process_key
from moldau.mirror.state.reports import Process, Row, chunks_of, process_value
from moldau.mirror.state.topic import STATE, KeyValue, append, create
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.testing.simulation.clients.admin import SimulatedAdmin, list_offset
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.process import PORT
from moldau.testing.simulation.simulation import Simulation
from moldau.wire.brokers import Brokers

MERGE = """
name = "{name}"
mode = "merge"
naming = "source.topic"
sources.east.bootstrap.servers = "{source}"
target.bootstrap.servers = "{target}"
topics.include = ["orders.*", "clicks"]
"""
COPY = """
name = "{name}"
mode = "copy"
source.bootstrap.servers = "{source}"
target.bootstrap.servers = "{target}"
topics.include = ["orders.*", "clicks"]
"""
EARLIEST, LATEST = -2, -1
LIMIT_S = 60.0


class MirrorCluster:
    """One of the two."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.brokers = self.connect()

    @property
    def servers(self) -> str:
        """For the file of a mirror."""
        return f"{self.simulation.host.name}:{PORT}"

    def connect(self) -> Brokers:
        """One more client."""
        return Brokers(self.simulation.client())

    async def begin(self) -> None:
        """Start the broker, and wait until it serves."""
        self.simulation.host.start()
        await self.simulation.until(lambda: (process := self.simulation.host.process) is not None and process.is_serving, LIMIT_S)

    def kill(self) -> None:
        """End the broker."""
        self.simulation.host.kill()

    async def create(self, topic: str, partitions: int = 1, **configs: object) -> bytes:
        """Make a topic; its id. Configurations have underscores for dots."""
        admin = SimulatedAdmin(self.simulation.client())
        await admin.create_topic(topic, partitions, {name.replace("_", "."): value for name, value in configs.items()})
        admin.close()
        self.brokers.forget_topic(topic)
        return (await self.brokers.topic(topic)).topic_id

    async def configure(self, topic: str, **configs: object) -> None:
        """Set configurations of a topic; they have underscores for dots."""
        admin = SimulatedAdmin(self.simulation.client())
        await admin.configure_topic(topic, {name.replace("_", "."): value for name, value in configs.items()})
        admin.close()

    async def delete(self, topic: str) -> None:
        """Delete a topic."""
        admin = SimulatedAdmin(self.simulation.client())
        await admin.delete_topic(topic)
        admin.close()
        self.brokers.forget_topic(topic)

    async def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        admin = SimulatedAdmin(self.simulation.client())
        await admin.delete_records(partition, before)
        admin.close()

    async def write(self, partition: TopicPartition, *values: str) -> None:
        """Write records, each in a batch of its own."""
        producer = SimulatedProducer(self.simulation.client())
        for value in values:
            await producer.send_and_wait(partition.topic, value, partition=partition.partition)
        await producer.close()

    async def values(self, partition: TopicPartition) -> list[str]:
        """The committed records; none where the topic does not exist."""
        try:
            start, end = [await list_offset(self.brokers, partition, each, committed=True) for each in (EARLIEST, LATEST)]
        except PeerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return []
        batches = read_batches(self.brokers, partition, start, end, 1)
        return [(record.value or b"").decode() async for _, records in batches for record in records]

    async def state(self, *records: KeyValue) -> None:
        """Write records of `_mirror_state`."""
        await create(self.brokers)
        await append(self.brokers, STATE, records, self.simulation.clock.time_ms())


class MirrorClusters:
    """See the module."""

    def __init__(self) -> None:
        first = Simulation(Options(1))
        self.source = MirrorCluster(first)
        self.target = MirrorCluster(Simulation(Options(2), name="target-", beside=first))
        self.clock = first.clock

    def _plan(self, text: str, name: str, more: str) -> MirrorPlan:
        return parse_plan(text.format(name=name, source=self.source.servers, target=self.target.servers) + more, "mirror.toml")

    def merge(self, name: str = "m", more: str = "") -> MirrorPlan:
        """A merge of `orders.*` and `clicks`, whose source is `east`; `more` lines of its file."""
        return self._plan(MERGE, name, more)

    def copy(self, name: str = "m", more: str = "") -> MirrorPlan:
        """A copy of the same."""
        return self._plan(COPY, name, more)

    @asynccontextmanager
    async def operator(self, plan: MirrorPlan, timeout_s: float = 10.0) -> AsyncIterator[Operator]:
        """A client of an operator."""
        operator = Operator(plan, "me", timeout_s, self.source.simulation.client("operator").network, self.clock)
        try:
            yield operator
        finally:
            operator.close()

    async def report(self, *rows: Row, instance: str = "1") -> None:
        """Have a process of the mirror `m` report these."""
        chunks = chunks_of(rows)
        process = Process(instance, self.clock.time_ms(), 0, "host", 1, len(chunks), 1, 0, 0)
        records: list[KeyValue] = [(process_key("m", instance, number), chunk) for number, chunk in enumerate(chunks)]
        await self.target.state(*records, (process_key("m", instance), process_value(process)))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let virtual time pass."""
        await self.source.simulation.until(is_so, LIMIT_S)

    async def eventually(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """The same, for what has to be asked for."""
        async with asyncio.timeout(LIMIT_S):
            while not await is_so():
                await asyncio.sleep(0.5)


def run(story: Callable[[MirrorClusters], Coroutine[Any, Any, None]]) -> None:
    """Tell a story, once both brokers serve."""
    clusters = MirrorClusters()

    async def tell() -> None:
        for each in (clusters.source, clusters.target):
            await each.begin()
        await story(clusters)

    try:
        clusters.source.simulation.run(tell())
    finally:
        for each in (clusters.target, clusters.source):
            each.simulation.close()


def answering(brokers: Brokers, by_key: Mapping[ApiKey, Callable[[Any], Any]]) -> Callable[..., Awaitable[Any]]:
    """A `Brokers.ask` whose responses to some requests are altered, or are errors that are raised."""
    ask = brokers.ask

    async def altered(api_key: ApiKey, message: Any, **options: Any) -> Any:
        response = await ask(api_key, message, **options)
        return by_key[api_key](response) if api_key in by_key else response

    return altered
