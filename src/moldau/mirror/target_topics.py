"""The target's topics: made where they are missing, grown where the source has more partitions."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.model.errors import ErrorCode, PeerError, known_error
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from moldau.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

INSIST_S = 60.0
TIMEOUT_MS = 10_000
ANY_FACTOR = -1
"""The target's own default."""
_TOPIC = 2
_TOPICS_PER_REQUEST = 1000
_SET, _DELETE = 0, 1
_DYNAMIC_TOPIC_CONFIG = 1
"""The source of a configuration that was set for the topic."""


class WantedTopic(NamedTuple):
    """A topic that the target has to have."""

    name: str
    partitions: int
    configs: Mapping[str, str]


async def configs_of(brokers: "Brokers", topic: str, excluded: frozenset[str]) -> dict[str, str]:
    """The configurations that were set for a topic, but for some. PeerError, WorldError."""

    async def ask() -> dict[str, str]:
        found = (await configs_of_all(brokers, [topic]))[topic]
        if isinstance(found, PeerError):
            raise found
        return found

    configs = await brokers.insist(ask, INSIST_S)
    return {name: value for name, value in configs.items() if name not in excluded}


async def configs_of_all(
    brokers: "Brokers", topics: Sequence[str], names: Sequence[str] | None = None
) -> dict[str, dict[str, str] | PeerError]:
    """The configurations that were set for topics, those with these names or all; or why a topic's cannot be had. Asked once.

    PeerError, WorldError.
    """
    found: dict[str, dict[str, str] | PeerError] = {}
    for first in range(0, len(topics), _TOPICS_PER_REQUEST):
        some = topics[first : first + _TOPICS_PER_REQUEST]
        request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC, topic, None if names is None else list(names)) for topic in some])
        for result in (await brokers.ask(ApiKey.DESCRIBE_CONFIGS, request)).results:
            found[result.resource_name] = _configs_in(result)
    return found


def _configs_in(result: Any) -> dict[str, str] | PeerError:
    if result.error_code:
        return _error(result, f"configurations of topic {result.resource_name}")
    return {each.name: each.value for each in result.configs if each.config_source == _DYNAMIC_TOPIC_CONFIG and each.value is not None}


async def alter_configs(brokers: "Brokers", topic: str, changes: Mapping[str, str | None]) -> PeerError | None:
    """Change configurations of a topic, all or none; None deletes one. Why the target refuses it; WorldError."""
    configs = [IncrementalAlterableConfig(name, _DELETE if value is None else _SET, value) for name, value in changes.items()]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(_TOPIC, topic, configs)])
    response = await brokers.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, timeout_s=TIMEOUT_MS / 1000)
    (found,) = response.responses
    return _error(found, f"topic {topic}") if found.error_code else None


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


async def accepted_configs(brokers: "Brokers", topic: WantedTopic) -> dict[str, str]:
    """Those configurations of a topic that the target takes one by one, where it refuses all of them together. PeerError, WorldError."""
    found: dict[str, str] = {}
    for name, value in topic.configs.items():
        wanted = CreatableTopic(topic.name, topic.partitions, ANY_FACTOR, [], [CreatableTopicConfig(name, value)])
        request = CreateTopicsRequest([wanted], TIMEOUT_MS, validate_only=True)
        (answer,) = (await _at_controller(brokers, ApiKey.CREATE_TOPICS, request)).topics
        if answer.error_code == ErrorCode.INVALID_CONFIG:
            _LOG.warning("topic is made without a configuration: topic=%s config=%s reason=%s", topic.name, name, answer.error_message)
        else:
            found[name] = value
    return found


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
        raise _error(found, f"topic {topic}")


def _error(found: Any, subject: str) -> PeerError:
    error = known_error(found.error_code)
    return PeerError(error, f"{subject}: {error.name.lower()}" + (f": {found.error_message}" if found.error_message else ""))
