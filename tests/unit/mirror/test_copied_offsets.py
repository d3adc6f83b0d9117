"""`mirror offsets` of a copy: offsets are the source's, as far as the target has the source's records at them, for good."""

import asyncio

import pytest

from moldau.mirror.promotion import Promotion
from moldau.mirror.translation.groups import read
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.wire.group import GroupMetadata, commit_offsets
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

O0 = TopicPartition("orders", 0)


async def offset_of(clusters: MirrorClusters, committed: int) -> tuple[int | None, str]:
    """Where a group that has committed this in the source continues in the target."""
    await commit_offsets(clusters.source.brokers, GroupMetadata("billing"), {O0: committed})
    async with clusters.operator(clusters.copy()) as operator:
        (found,) = await read(operator, "billing")
    return found.offset, found.reason


async def copied(clusters: MirrorClusters, *values: str) -> None:
    await clusters.source.create("orders")
    await clusters.source.write(O0, *values)
    running = Running(clusters, clusters.copy())
    await arrives(clusters, "orders", *values)
    await running.stop()


@pytest.mark.parametrize("is_written", [False, True])
def test_after_a_promotion_offsets_beyond_the_cut_name_other_records(is_written: bool) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await copied(clusters, "a", "b")
        promotion = Promotion(clusters.target.brokers, None, lambda _: ["orders"])
        await promotion.promote(await promotion.prepare(await promotion.partitions(), 1.0))
        await clusters.source.write(O0, "c", "d")
        if is_written:
            await clusters.target.write(O0, "x", "y", "z")
        assert await offset_of(clusters, 2) == (2, ""), "the same records come before it"
        offset, reason = await offset_of(clusters, 4)
        assert offset is None
        assert ("other records than the source" in reason) is is_written

    run(story)


def test_what_a_failover_would_cut_is_not_mirrored_yet() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await copied(clusters, "a")
        producer = SimulatedTransactionalProducer(clusters.source.simulation.client(), "slow", timeout_s=300.0)
        await producer.init_transactions()
        await producer.begin()
        await producer.send_and_wait("orders", "b", partition=0)
        running = Running(clusters, clusters.copy())
        await asyncio.sleep(12.0)
        assert running.row("orders-0").position == 2
        assert await offset_of(clusters, 1) == (1, "")
        assert await offset_of(clusters, 2) == (None, "orders-0 of source is mirrored up to 1, not up to 2 yet")
        await producer.abort()
        await running.stop()

    run(story)
