"""A partition whose start cannot be found out holds up nothing but itself, and says why."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moldau.mirror import starts
from moldau.mirror.partitions import Position
from moldau.mirror.state.reports import State
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

O0, C0 = TopicPartition("orders", 0), TopicPartition("clicks", 0)


@pytest.mark.parametrize("error", [WorldError("partition clicks-0 has no leader", retriable=True), ValueError("planted")])
def test_others_are_mirrored_while_the_source_does_not_say_where_a_partition_starts(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    position_of: Callable[..., Awaitable[Position]] = starts.position_of
    is_away = [True]

    async def failing(brokers: Any, partition: TopicPartition, *others: Any, **options: Any) -> Position:
        if is_away[0] and partition == C0:
            raise error
        return await position_of(brokers, partition, *others, **options)

    monkeypatch.setattr(starts, "position_of", failing)

    async def story(clusters: MirrorClusters) -> None:
        for topic in ("orders", "clicks"):
            await clusters.source.create(topic)
        for each in (O0, C0):
            await clusters.source.write(each, "a")
        running = Running(clusters, clusters.merge())
        await arrives(clusters, "east.orders", "a")
        await asyncio.sleep(5.0)
        row = running.row("clicks-0")
        assert row.state is State.RETRYING
        assert row.reason in (str(error), "a bug, of which the log has more")
        assert running.row("orders-0").state is State.MIRRORING
        await clusters.source.write(O0, "b")
        await arrives(clusters, "east.orders", "a", "b")
        is_away[0] = False
        await arrives(clusters, "east.clicks", "a")
        await clusters.until(lambda: running.row("clicks-0").state is State.MIRRORING)
        await running.stop()

    run(story)
