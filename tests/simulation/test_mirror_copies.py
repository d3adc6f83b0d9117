"""A copy on the simulator: a partition that was promoted is found out, and a broker that was killed meanwhile cuts its log in its start."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from moldau.mirror.altering import Alteration, alter
from moldau.mirror.partitions import Halt
from moldau.model.identity import LogCut, TopicPartition
from moldau.testing.simulation.broker_judge import BrokerJudge
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.mirrors.work import Progress, Sharing, WorkPlan
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_view import partitions_in
from moldau.testing.simulation.workloads.recording import ensure_topic
from moldau.wire.brokers import Brokers

pytestmark = pytest.mark.system
TOPIC = "orders"


def run(source: Simulation, target: Simulation, host: MirrorHost, story: Coroutine[Any, Any, None]) -> None:
    """Then end both clusters, and the mirror before them."""
    try:
        source.run(story)
    finally:
        host.may_start = lambda _host: False
        host.end()
        target.close()
        source.close()


def test_a_process_that_begins_after_clients_have_written_to_a_promoted_partition_says_that_it_was_promoted() -> None:
    """Claim: it does not ask the source for the epoch of the target's clients for ever. The other partition is copied on."""
    source = Simulation(Options(1))
    target = Simulation(Options(2), name="target-", beside=source)
    host = MirrorHost("mirror", WorkPlan("1", {TOPIC: 2}, sharing=Sharing.COPY), source, target)

    async def write(cluster: Simulation, count: int, partition: int) -> None:
        async with SimulatedProducer(cluster.client()) as producer:
            for _ in range(count):
                await producer.send_and_wait(TOPIC, b"x", partition=partition)

    def stands(number: int) -> Progress | None:
        work = None if host.process is None else host.process.work
        return None if work is None else next((each for key, each in work.progress().items() if key.number == number), None)

    async def main() -> None:
        source.host.start()
        target.host.start()
        await ensure_topic(source.client(), TOPIC, 2)
        await write(source, 3, 0)
        await write(source, 3, 1)
        host.start()
        await source.until(lambda: stands(0) == (3, None) and stands(1) == (3, None))
        host.may_start = lambda _host: False
        host.end()
        cut = {TopicPartition(TOPIC, 0): Alteration(is_mirror=False, cut=LogCut(0, 3))}
        assert await alter(Brokers(target.client()), cut) == {}
        await write(target, 2, 0)
        await write(source, 5, 0)
        await write(source, 5, 1)
        host.start()
        await source.until(lambda: stands(0) == (None, Halt.PROMOTED) and stands(1) == (8, None))

    run(source, target, host, main())


def test_a_broker_that_is_killed_once_a_cut_is_stored_cuts_in_its_start() -> None:
    """Claim: and the judge of its crashes takes that for no loss."""
    source = Simulation(Options(1))
    target = Simulation(Options(2, tree_latency_s=0.02, settings={"log.flush.interval.messages": 1}), name="target-", beside=source)
    judge = BrokerJudge(target)
    host = MirrorHost("mirror", WorkPlan("1", {TOPIC: 1}, sharing=Sharing.COPY), source, target)
    partition = TopicPartition(TOPIC, 0)

    def written(*_: object) -> None:
        if any(each.state is not None and each.state.cut is not None for each in partitions_in(target.tree)):
            target.tree.nodes.on_written.remove(written)
            target.clock.call_later(0.0, target.host.kill)

    def end() -> int:
        broker = target.host.broker
        hosted = None if broker is None else broker.replicas.hosted.get(partition)
        return -1 if hosted is None else hosted.log.log_end_offset

    async def main() -> None:
        source.host.start()
        target.host.start()
        await ensure_topic(source.client(), TOPIC, 1)
        async with SimulatedProducer(source.client()) as producer:
            for _ in range(3):
                await producer.send_and_wait(TOPIC, b"x", partition=0)
        host.start()
        await source.until(lambda: end() == 3)
        host.may_start = lambda _host: False
        host.end()
        target.tree.nodes.on_written.append(written)
        altering = asyncio.ensure_future(alter(Brokers(target.client()), {partition: Alteration(is_mirror=False, cut=LogCut(0, 2))}))
        await source.until(lambda: target.host.process is None)
        target.host.start()
        await source.until(lambda: end() == 2)
        assert await altering == {}
        judge.finish()

    run(source, target, host, main())
