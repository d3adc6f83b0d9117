"""CreateTopics, DeleteTopics, CreatePartitions."""

from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.services import AdminServices, ConfigServices, MetadataServices
from moldau.broker.request import Reply, Request
from moldau.cluster.controller.requests import DeletedTopic, GrowthSpec, PlannedTopic, TopicChoice, TopicSpec
from moldau.cluster.snapshot import twice
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import format_id
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import element_writer
from moldau.protocol.codec.encoded import EncodedArray
from moldau.protocol.messages.topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from moldau.broker.metadata.admin import ClusterAdmin


class Services(AdminServices, ConfigServices, MetadataServices, Protocol):
    """What these handlers use of the broker."""

    @property
    def admin(self) -> "ClusterAdmin":
        """Submits changes to the controller."""


NO_ID = bytes(16)
FIRST_BY_ID = 6
"""DeleteTopics names topics by id from this version on."""
FIRST_WITH_DISABLED = 3
"""DeleteTopics knows TOPIC_DELETION_DISABLED from this version on."""


def create_topics(services: Services, message: CreateTopicsRequest, request: Request, reply: Reply) -> Steps:
    """Create topics, each for itself; codes as `ClusterAdmin.create`."""
    specs = [
        TopicSpec(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(each.partition_index, each.broker_ids) for each in topic.assignments],
            [(each.name, each.value) for each in topic.configs],
        )
        for topic in message.topics
    ]

    def note(topic: PlannedTopic) -> None:
        services.admin_log.note(request, "topic created", topic=topic.name, partitions=len(topic.replicas), configs=topic.configs)

    only = message.validate_only
    outcomes = yield from services.admin.create(specs, note, validate_only=only, waits=not only, timeout_ms=message.timeout_ms)
    results = EncodedArray(element_writer(CreateTopicsResponse, CreatableTopicResult, request.api_version))
    for name, outcome in outcomes.items():
        results.append(_created(services, name, outcome, only))
        yield None
    reply(CreateTopicsResponse(topics=results.as_list()))


def _created(services: Services, name: str, outcome: PlannedTopic | PeerError, validate_only: bool) -> CreatableTopicResult:
    if isinstance(outcome, PeerError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message, configs=[])
    from moldau.broker.configs import topic_view

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
            for each in topic_view(services.config.topic(outcome.configs), None)
        ],
    )


def delete_topics(services: Services, message: DeleteTopicsRequest, request: Request, reply: Reply) -> Steps:
    """Delete topics by name or by id, each for itself.

    Codes: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST for a topic named twice, by both, or not at all,
    TOPIC_DELETION_DISABLED, POLICY_VIOLATION for a protected topic, NOT_CONTROLLER.
    """
    by_id = request.api_version >= FIRST_BY_ID
    wanted = message.topics if by_id else [DeleteTopicState(name=name) for name in message.topic_names]
    if not services.config.boolean("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED if request.api_version >= FIRST_WITH_DISABLED else ErrorCode.INVALID_REQUEST
        error = PeerError(code, "topics cannot be deleted here: delete.topic.enable is false")
        reply(DeleteTopicsResponse(responses=[_not_deleted(each.name, each.topic_id, error) for each in wanted]))
        return
    results: list[DeletableTopicResult] = []
    chosen: dict[str | bytes | None, list[TopicChoice]] = {}
    for each in wanted:
        try:
            choice = _chosen(services, each)
            chosen.setdefault(choice.topic_id if choice.name is None else choice.name, []).append(choice)
        except PeerError as error:
            results.append(_not_deleted(each.name, each.topic_id, error))
        yield None
    once = [choices[0] for choices in chosen.values() if len(choices) == 1]

    def note(topic: DeletedTopic) -> None:
        services.admin_log.note(request, "topic deleted", topic=topic.name, partitions=topic.partitions)

    outcomes = yield from services.admin.delete(once, note, timeout_ms=message.timeout_ms)
    for choices in chosen.values():
        choice = max(choices, key=lambda each: each.topic_id or NO_ID)  # one with the id, if there is one
        outcome = twice(_shown(choice)) if len(choices) > 1 else outcomes[choice]
        if isinstance(outcome, PeerError):
            results.append(_not_deleted(choice.name, choice.topic_id or NO_ID, outcome))
        else:
            results.append(DeletableTopicResult(name=outcome.name, topic_id=outcome.topic_id))
    reply(DeleteTopicsResponse(responses=results))


def _shown(choice: TopicChoice) -> str:
    return format_id(choice.topic_id or NO_ID) if choice.name is None else choice.name


def _chosen(services: Services, wanted: DeleteTopicState) -> TopicChoice:
    """With the name where this broker knows it. The controller decides whether there is such a topic: what this broker knows may be old."""
    if wanted.topic_id == NO_ID:
        if wanted.name is None:
            raise PeerError(ErrorCode.INVALID_REQUEST, "a topic is named neither by name nor by id")
        return TopicChoice(wanted.name)
    if wanted.name is not None:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"topic '{wanted.name}' is named both by name and by id")
    known = services.metadata.topics_by_id.get(wanted.topic_id)
    return TopicChoice(None if known is None else known.name, wanted.topic_id)


def _not_deleted(name: str | None, topic_id: bytes, error: PeerError) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)


def create_partitions(services: Services, message: CreatePartitionsRequest, request: Request, reply: Reply) -> Steps:
    """Add partitions to topics, each for itself; codes as `ClusterAdmin.grow`."""
    specs = [
        GrowthSpec(topic.name, topic.count, None if topic.assignments is None else [each.broker_ids for each in topic.assignments])
        for topic in message.topics
    ]

    def note(spec: GrowthSpec) -> None:
        services.admin_log.note(request, "partitions added", topic=spec.name, partitions=spec.total)

    outcomes = yield from services.admin.grow(specs, note, validate_only=message.validate_only, timeout_ms=message.timeout_ms)
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
