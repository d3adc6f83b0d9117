"""A round over the configurations of several sources: one that is away holds up no other."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.mirror import target_topics
from moldau.mirror.following.config_sync import ConfigSync
from moldau.mirror.partitions import SourcePartition
from moldau.mirror.plan.file import parse_plan
from moldau.model.errors import PeerError, WorldError
from moldau.testing.clock import FakeClock

PLAN = """
name = "m"
mode = "merge"
naming = "source.topic"
sources.east.bootstrap.servers = "east:9092"
sources.west.bootstrap.servers = "west:9092"
target.bootstrap.servers = "target:9092"
topics.include = ["orders"]
"""


def test_the_topics_of_a_source_after_one_that_is_away_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[str, dict[str, str | None]]] = []

    async def configs_of_all(cluster: object, topics: Iterable[str]) -> dict[str, dict[str, str] | PeerError]:
        if cluster == "east":
            raise WorldError("east:9092: connection refused", retriable=True)
        return {topic: {"retention.ms": "1"} if cluster == "west" else {} for topic in topics}

    async def alter_configs(_target: object, topic: str, changes: dict[str, str | None]) -> None:
        changed.append((topic, changes))

    monkeypatch.setattr(target_topics, "configs_of_all", configs_of_all)
    monkeypatch.setattr(target_topics, "alter_configs", alter_configs)
    partitions = [SourcePartition(source, bytes(16), "orders", 0) for source in ("east", "west")]
    inventory = SimpleNamespace(partitions=partitions, target_topic=lambda each: f"{each.source}.{each.topic}")
    sources = {"east": "east", "west": "west"}
    sync = ConfigSync(parse_plan(PLAN, "m.toml"), cast("Any", "target"), cast("Any", sources), cast("Any", inventory), FakeClock())
    with pytest.raises(WorldError, match="east:9092"):
        asyncio.run(sync.round())
    assert changed == [("west.orders", {"retention.ms": "1"})]
