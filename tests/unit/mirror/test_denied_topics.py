"""A source that does not know its topics for a moment has not deleted them: a broker that has just started knows none."""

import asyncio
from typing import Any

import pytest

from moldau.mirror.state.reports import State
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from support.mirror_clusters import MirrorClusters, answering, run
from support.mirror_running import Running, arrives

O0 = TopicPartition("orders", 0)


def without_topics(response: Any) -> Any:
    for each in response.topics:
        each.error_code, each.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
    return response


def test_a_topic_is_not_deleted_that_is_not_known_for_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        running = Running(clusters, clusters.merge())
        await arrives(clusters, "east.orders", "a")
        reader = running.process._readers["east"]
        with monkeypatch.context() as patch:
            patch.setattr(reader.brokers, "ask", answering(reader.brokers, {ApiKey.METADATA: without_topics}))
            reader.find_leader("orders")
            await asyncio.sleep(2.0)
        await clusters.source.write(O0, "b")
        await arrives(clusters, "east.orders", "a", "b")
        assert running.row("orders-0").state is State.MIRRORING
        await running.stop()

    run(story)


def test_a_topic_that_is_not_known_for_longer_is_deleted() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        running = Running(clusters, clusters.merge())
        await arrives(clusters, "east.orders", "a")
        await clusters.source.delete("orders")
        await clusters.until(lambda: running.row("orders-0").state is State.DELETED)
        await running.stop()

    run(story)
