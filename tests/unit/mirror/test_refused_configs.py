"""A configuration that the target refuses is named, and the others of the topic, and other topics, are set (mission F3)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from moldau.mirror.following.config_sync import ConfigSync
from moldau.mirror.inventory import MIRROR_SOURCE, Inventory
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.state.following import RefusedConfig
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from moldau.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from moldau.testing.clock import FakeClock

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers

PLAN = parse_plan(
    """
name = "m"
mode = "copy"
source.bootstrap.servers = "a:1"
target.bootstrap.servers = "b:1"
topics.include = [".*"]
""",
    "m.toml",
)


class Cluster:
    """Topics with configurations, of which the cluster refuses some names, or all of a topic to one without rights."""

    def __init__(self, cluster_id: str, refused: frozenset[str] = frozenset(), denied: frozenset[str] = frozenset()) -> None:
        self.topics: dict[str, dict[str, str]] = {}
        self._id = cluster_id
        self._refused = refused
        self._denied = denied

    async def insist(self, act: Callable[[], Awaitable[Any]], limit_s: float) -> Any:
        return await act()

    async def controller(self) -> "Cluster":
        return self

    def forget_topic(self, name: str) -> None:
        pass

    def learn(self, found: Any) -> None:
        pass

    learn_brokers = learn

    async def send(self, api_key: ApiKey, request: Any, **_: object) -> Any:
        return await self.ask(api_key, request)

    async def ask(self, api_key: ApiKey, request: Any, **_: object) -> Any:
        match api_key:
            case ApiKey.METADATA:
                partitions = [MetadataResponsePartition()]
                topics = [MetadataResponseTopic(name=name, topic_id=bytes(16), partitions=partitions) for name in self.topics]
                return MetadataResponse(cluster_id=self._id, topics=topics)
            case ApiKey.CREATE_TOPICS:
                (topic,) = request.topics
                configs = {each.name: each.value for each in topic.configs}
                if error := self._error(topic.name, configs):
                    return CreateTopicsResponse(topics=[CreatableTopicResult(topic.name, error_code=error)])
                if not request.validate_only:
                    self.topics[topic.name] = configs
                return CreateTopicsResponse(topics=[CreatableTopicResult(topic.name)])
            case ApiKey.DESCRIBE_CONFIGS:
                return DescribeConfigsResponse(results=[self._described(each) for each in request.resources])
            case ApiKey.INCREMENTAL_ALTER_CONFIGS:
                (resource,) = request.resources
                changes = {each.name: each.value for each in resource.configs}
                error = self._error(resource.resource_name, changes)
                if not error:
                    merged = self.topics[resource.resource_name] | changes
                    self.topics[resource.resource_name] = {name: value for name, value in merged.items() if value is not None}
                return IncrementalAlterConfigsResponse(
                    responses=[AlterConfigsResourceResponse(error_code=error, resource_name=resource.resource_name)]
                )
        raise AssertionError(api_key)

    def _error(self, topic: str, configs: dict[str, Any]) -> int:
        if topic in self._denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_CONFIG if self._refused & configs.keys() else 0

    def _described(self, resource: Any) -> DescribeConfigsResult:
        configs = self.topics[resource.resource_name]
        rows = [DescribeConfigsResourceResult(name, value, config_source=1) for name, value in configs.items()]
        return DescribeConfigsResult(resource_name=resource.resource_name, configs=rows)


def test_a_refused_configuration_is_named_and_the_others_are_set() -> None:
    source, target = Cluster("east"), Cluster("west", frozenset({"remote.storage.enable"}), frozenset({"denied"}))
    settings = {"remote.storage.enable": "true", "retention.ms": "5", "segment.ms": "6"}
    source.topics = {name: dict(settings) for name in ("clicks", "orders")}
    brokers = {"source": cast("Brokers", source)}

    async def run() -> list[RefusedConfig]:
        inventory = Inventory(PLAN, cast("Brokers", target), brokers, FakeClock())
        # made without what the target refuses, and with all else
        await inventory.look()
        assert [sorted(target.topics[name].keys() - {MIRROR_SOURCE}) for name in ("clicks", "orders")] == [
            ["retention.ms", "segment.ms"]
        ] * 2
        assert inventory.problems == {}
        sync = ConfigSync(PLAN, cast("Brokers", target), brokers, inventory, FakeClock())
        source.topics["orders"] |= {"retention.ms": "7", "max.message.bytes": "8"}
        del source.topics["orders"]["segment.ms"]
        target._denied = frozenset({"clicks"})
        source.topics["clicks"]["retention.ms"] = "9"
        await sync.round()
        return sync.refused

    refused = asyncio.run(run())
    set_there = {name: value for name, value in target.topics["orders"].items() if name != MIRROR_SOURCE}
    assert set_there == {"retention.ms": "7", "max.message.bytes": "8"}
    assert [each[:2] for each in refused] == [("clicks", "remote.storage.enable,retention.ms"), ("orders", "remote.storage.enable")]
    assert "topic authorization failed" in refused[0].reason.replace("_", " ")
    assert "invalid_config" in refused[1].reason


def test_a_copy_that_cannot_be_one_is_not_made() -> None:
    """Claim: without `mirror.source` a topic is none of a copy: where the target does not know it, nothing is made."""
    source, target = Cluster("east"), Cluster("west", frozenset({MIRROR_SOURCE}))
    source.topics = {"orders": {}}

    async def run() -> Inventory:
        inventory = Inventory(PLAN, cast("Brokers", target), {"source": cast("Brokers", source)}, FakeClock())
        await inventory.look()
        return inventory

    inventory = asyncio.run(run())
    assert target.topics == {}
    assert len(inventory.problems) == 1
