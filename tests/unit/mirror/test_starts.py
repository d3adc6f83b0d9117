"""Where a partition starts is decided once: what its source takes after that is mirrored, whatever happens before the first record is."""

import asyncio

import pytest

from moldau.mirror.plan.values import MirrorPlan
from moldau.mirror.state.reports import State
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.admin import list_offset
from support.mirror_clusters import EARLIEST, MirrorClusters, run
from support.mirror_running import Running, arrives

O0 = TopicPartition("orders", 0)
LATEST = '\nstart.default = "latest"\n'


async def running_at(clusters: MirrorClusters, plan: MirrorPlan, position: int) -> Running:
    running = Running(clusters, plan)

    def is_there() -> bool:
        return any(row.position == position and row.state is State.MIRRORING for row in running.process.control.rows())

    await clusters.until(is_there)
    return running


async def begin(clusters: MirrorClusters) -> None:
    await clusters.source.create("orders")
    await clusters.source.write(O0, "a", "b")


def test_a_merge_that_has_seen_the_end_of_a_log_mirrors_what_comes_while_no_process_runs() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await begin(clusters)
        plan = clusters.merge(more=LATEST)
        running = await running_at(clusters, plan, 2)
        await asyncio.sleep(1.0)
        await running.stop()
        await clusters.source.write(O0, "c")
        await running_at(clusters, plan, 3)
        await arrives(clusters, "east.orders", "c")

    run(story)


@pytest.mark.parametrize("plan", [MirrorClusters.merge, MirrorClusters.copy])
def test_what_comes_while_the_target_is_away_is_mirrored(plan: object) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await begin(clusters)
        mode = plan(clusters, more=LATEST)  # type: ignore[operator]
        await running_at(clusters, mode, 2)
        clusters.target.kill()
        await clusters.source.write(O0, "c")
        await asyncio.sleep(10.0)
        await clusters.source.write(O0, "d")
        await clusters.target.begin()
        await arrives(clusters, "east.orders" if plan is MirrorClusters.merge else "orders", "c", "d")

    run(story)


def test_a_copy_whose_log_is_empty_again_still_knows_the_epoch_of_its_last_record() -> None:
    """Claim: without it a source that lost records, and wrote others at their offsets, would look as if it had lost none."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders", retention_ms=60_000, segment_ms=10_000, file_delete_delay_ms=0)
        await clusters.source.write(O0, "a", "b")
        first = await running_at(clusters, clusters.copy(), 2)

        async def is_empty() -> bool:
            return await list_offset(clusters.target.brokers, O0, EARLIEST, committed=False) == 2

        async with asyncio.timeout(3600.0):
            while not await is_empty():
                await asyncio.sleep(10.0)
        await first.stop()
        second = await running_at(clusters, clusters.copy(), 2)
        (partition,) = second.process.control.partitions.values()
        position = second.process._readers["source"].position(partition)
        assert position is not None
        assert (position.offset, position.epoch >= 0) == (2, True)

    run(story)
