"""The target's topics: made where they are missing, grown where the source has more partitions."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.model.errors import ErrorCode, PeerError, known_error
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from moldau.wire.brokers import check

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

INSIST_S = 60.0
TIMEOUT_MS = 10_000
ANY_FACTOR = -1
"""The target's own default."""
_TOPIC = 2
_DYNAMIC_TOPIC_CONFIG = 1
"""The source of a configuration that was set for the topic."""


class WantedTopic(NamedTuple):
    """A topic that the target has to have."""

    name: str
    partitions: int
    configs: Mapping[str, str]


async def configs_of(brokers: "Brokers", topic: str, excluded: frozenset[str]) -> dict[str, str]:
    """The configurations that were set for a topic of the source. PeerError, WorldError."""

    async def ask() -> dict[str, str]:
        request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC, topic)])
        response = await brokers.ask(ApiKey.DESCRIBE_CONFIGS, request)
        (found,) = response.results
        check(found.error_code, f"configurations of {topic}")
        return {
            each.name: each.value
            for each in found.configs
            if each.config_source == _DYNAMIC_TOPIC_CONFIG and each.value is not None and each.name not in excluded
        }

    return await brokers.insist(ask, INSIST_S)


async def create(brokers: "Brokers", topic: WantedTopic) -> None:
    """Make a topic; one that exists is left as it is. PeerError with the target's reason, WorldError."""

    async def ask() -> None:
        configs = [CreatableTopicConfig(name, value) for name, value in sorted(topic.configs.items())]
        request = CreateTopicsRequest([CreatableTopic(topic.name, topic.partitions, ANY_FACTOR, [], configs)], TIMEOUT_MS)
        (found,) = (await _at_controller(brokers, ApiKey.CREATE_TOPICS, request)).topics
        if found.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            _check(found, topic.name)
            if not found.error_code:
                _LOG.info("topic made in the target: topic=%s partitions=%d", topic.name, topic.partitions)

    await brokers.insist(ask, INSIST_S)
    brokers.forget_topic(topic.name)


async def grow(brokers: "Brokers", topic: str, partitions: int) -> None:
    """Have a topic so many partitions. PeerError with the target's reason, WorldError."""

    async def ask() -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic(topic, partitions)], TIMEOUT_MS)
        (found,) = (await _at_controller(brokers, ApiKey.CREATE_PARTITIONS, request)).results
        _check(found, topic)

    await brokers.insist(ask, INSIST_S)
    brokers.forget_topic(topic)
    _LOG.info("topic has grown in the target: topic=%s partitions=%d", topic, partitions)


async def _at_controller(brokers: "Brokers", api_key: ApiKey, request: Any) -> Any:
    connection = await brokers.controller()
    return await connection.send(api_key, request, timeout_s=TIMEOUT_MS / 1000 + 5)


def _check(found: Any, topic: str) -> None:
    if found.error_code:
        error = known_error(found.error_code)
        raise PeerError(error, f"topic {topic}: {error.name.lower()}" + (f": {found.error_message}" if found.error_message else ""))
