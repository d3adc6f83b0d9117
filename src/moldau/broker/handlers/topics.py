"""CreateTopics, DeleteTopics, CreatePartitions."""

from collections import Counter
from typing import TYPE_CHECKING

from moldau.broker.config_views import topic_view
from moldau.broker.protected_topics import check_unprotected
from moldau.broker.request import Reply, Request
from moldau.broker.topics import GrowthSpec, TopicSpec, twice, unknown_topic
from moldau.cluster.registry import NewTopic
from moldau.cluster.snapshot import TopicInfo
from moldau.log.topic_ids import format_id
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.encoded import EncodedArray
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult
from moldau.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

NO_ID = bytes(16)
FIRST_BY_ID = 6
"""DeleteTopics names topics by id from this version on."""
FIRST_WITH_DISABLED = 3
"""DeleteTopics knows TOPIC_DELETION_DISABLED from this version on."""


def create_topics(broker: "Broker", request: CreateTopicsRequest, context: Request, reply: Reply) -> Steps:
    """Create topics, each for itself; codes as `Topics.create`. All is done when the answer goes out: `timeout_ms` is not needed."""
    specs = [
        TopicSpec(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(each.partition_index, each.broker_ids) for each in topic.assignments],
            [(each.name, each.value) for each in topic.configs],
        )
        for topic in request.topics
    ]

    def note(topic: NewTopic) -> None:
        broker.admin_log.note(context, "topic created", topic=topic.name, partitions=len(topic.replicas), configs=topic.configs)

    outcomes = yield from broker.topics.create(specs, note, validate_only=request.validate_only)
    results = EncodedArray(CreateTopicsResponse, CreatableTopicResult, context.api_version)
    for name, outcome in outcomes.items():
        results.append(_created(broker, name, outcome, request.validate_only))
        yield None
    reply(CreateTopicsResponse(topics=results.as_list()))


def _created(broker: "Broker", name: str, outcome: NewTopic | PeerError, validate_only: bool) -> CreatableTopicResult:
    if isinstance(outcome, PeerError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message, configs=[])
    return CreatableTopicResult(
        name=name,
        topic_id=NO_ID if validate_only else outcome.topic_id,
        num_partitions=len(outcome.replicas),
        replication_factor=len(outcome.replicas[0]),
        configs=[
            CreatableTopicConfigs(
                name=each.definition.name,
                value=each.text,
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=each.definition.sensitive,
            )
            for each in topic_view(broker.config.topic(outcome.configs), None)
        ],
    )


def delete_topics(broker: "Broker", request: DeleteTopicsRequest, context: Request, reply: Reply) -> Steps:
    """Delete topics by name or by id, each for itself.

    Codes: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST for a topic named twice, by both, or not at all,
    TOPIC_DELETION_DISABLED, POLICY_VIOLATION for a protected topic.
    """
    by_id = context.api_version >= FIRST_BY_ID
    wanted = request.topics if by_id else [DeleteTopicState(name=name) for name in request.topic_names]
    if not broker.config.boolean("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED if context.api_version >= FIRST_WITH_DISABLED else ErrorCode.INVALID_REQUEST
        error = PeerError(code, "topics cannot be deleted here: delete.topic.enable is false")
        reply(DeleteTopicsResponse(responses=[_not_deleted(each.name, each.topic_id, error) for each in wanted]))
        return
    results: list[DeletableTopicResult] = []
    found: Counter[TopicInfo] = Counter()
    for each in wanted:
        try:
            topic = _find(broker, each)
            check_unprotected(broker.config, topic.name, "delete it")
            found[topic] += 1
        except PeerError as error:
            results.append(_not_deleted(each.name, each.topic_id, error))
        yield None
    once = [topic for topic, times in found.items() if times == 1]

    def note(topic: TopicInfo) -> None:
        broker.admin_log.note(context, "topic deleted", topic=topic.name, partitions=len(topic.partitions))

    failures = yield from broker.topics.delete(once, note)
    for topic, times in found.items():
        problem = failures[topic.name] if times == 1 else twice(topic.name)
        if problem is None:
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
        else:
            results.append(_not_deleted(topic.name, topic.topic_id, problem))
    reply(DeleteTopicsResponse(responses=results))


def _find(broker: "Broker", wanted: DeleteTopicState) -> TopicInfo:
    snapshot = broker.registry.snapshot
    if wanted.topic_id != NO_ID:
        if wanted.name is not None:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"topic '{wanted.name}' is named both by name and by id")
        topic = snapshot.topics_by_id.get(wanted.topic_id)
        if topic is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {format_id(wanted.topic_id)}")
        return topic
    if wanted.name is None:
        raise PeerError(ErrorCode.INVALID_REQUEST, "a topic is named neither by name nor by id")
    topic = snapshot.topics.get(wanted.name)
    if topic is None:
        raise unknown_topic(wanted.name)
    return topic


def _not_deleted(name: str | None, topic_id: bytes, error: PeerError) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)


def create_partitions(broker: "Broker", request: CreatePartitionsRequest, context: Request, reply: Reply) -> Steps:
    """Add partitions to topics, each for itself; codes as `Topics.grow`."""
    specs = [
        GrowthSpec(topic.name, topic.count, None if topic.assignments is None else [each.broker_ids for each in topic.assignments])
        for topic in request.topics
    ]

    def note(spec: GrowthSpec) -> None:
        broker.admin_log.note(context, "partitions added", topic=spec.name, partitions=spec.total)

    outcomes = yield from broker.topics.grow(specs, note, validate_only=request.validate_only)
    reply(
        CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name, ErrorCode.NONE if error is None else error.code, None if error is None else error.message)
                for name, error in outcomes.items()
            ]
        )
    )


HANDLERS = {
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
}
