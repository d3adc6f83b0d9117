"""Metadata: brokers, topics, leaders. A topic that a client asks about by name may be created for it."""

from collections.abc import Generator, Iterable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.broker.handlers.services import AdminServices, ConfigServices, MetadataServices, PartitionServices
from moldau.broker.request import Reply, Request
from moldau.broker.security import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from moldau.cluster.snapshot import INTERNAL_TOPICS, TopicInfo, unknown_topic
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause, Steps
from moldau.model.topic_names import check_name
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.metadata.admin import ClusterAdmin
    from moldau.cluster.controller.requests import PlannedTopic
    from moldau.cluster.snapshot import BrokerInfo


class Addresses(ConfigServices, MetadataServices, Protocol):
    """What names the brokers of the cluster."""


class TopicView(MetadataServices, PartitionServices, Protocol):
    """What says of a topic which of its partitions are served."""


class Services(AdminServices, Addresses, TopicView, Protocol):
    """What these handlers use of the broker."""

    def departed_brokers(self) -> "list[BrokerInfo]":
        """Those that were live until a few seconds ago."""

    @property
    def admin(self) -> "ClusterAdmin":
        """Creates topics that are missing."""


FIRST_BY_ID = 12
"""From this version on a topic may be asked for by its id."""
FIRST_WITH_LISTENERS = 6
"""From this version on a client knows LISTENER_NOT_FOUND."""
NO_ID = bytes(16)
NO_LEADER = -1

Described = Generator[Pause, None, list[MetadataResponseTopic]]


class WithoutListener(NamedTuple):
    """Live brokers that lack the listener which a client came in by, and the code for partitions that one of them leads."""

    brokers: frozenset[int]
    code: ErrorCode


def describe_metadata(services: Services, message: MetadataRequest, request: Request, reply: Reply) -> Steps:
    """Tell of all topics (null, or an empty list in version 0), or of some. To a client that looks for the leaders of some, brokers that
    have just departed are listed for a while: others, as administrators, want to know which are live.

    Codes by topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST for an id in a version that
    knows none and for neither name nor id, and those of creating a topic.
    """
    code = ErrorCode.LISTENER_NOT_FOUND if request.api_version >= FIRST_WITH_LISTENERS else ErrorCode.LEADER_NOT_AVAILABLE
    without = WithoutListener(brokers_without_listener(services, request), code)
    if message.topics is None or (not message.topics and request.api_version == 0):
        topics = []
        for topic in services.metadata.topics.values():
            topics.append(describe(services, topic, without))
            yield None
    else:
        topics = yield from _some(services, message.topics, request, without, may_create=message.allow_auto_topic_creation)
    if message.include_topic_authorized_operations:
        topics = [_with_operations(topic) for topic in topics]
    snapshot = services.metadata
    departed = services.departed_brokers() if message.topics else ()
    reply(
        MetadataResponse(
            brokers=[MetadataResponseBroker(*each) for each in broker_addresses(services, request, departed)],
            cluster_id=snapshot.cluster_id,
            controller_id=snapshot.controller_id,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if message.include_cluster_authorized_operations else NOT_ASKED,
        )
    )


def broker_addresses(
    services: Addresses, request: Request, departed: "Iterable[BrokerInfo]" = ()
) -> list[tuple[int, str, int, str | None]]:
    """Number, host, port and rack of every live broker, and of those departed, that has the client's listener, as clients of that listener
    reach it."""
    listener, host, port = request.channel.advertised
    addresses = [(services.broker_id, host, port, services.config.optional_string("broker.rack"))]
    for each in chain(services.metadata.brokers.values(), departed):
        endpoint = None if each.broker_id == services.broker_id else each.endpoint(listener)
        if endpoint is not None:
            addresses.append((each.broker_id, endpoint.host, endpoint.port, each.rack))
    return addresses


def brokers_without_listener(services: Addresses, request: Request) -> frozenset[int]:
    """Live brokers that clients of this client's listener cannot reach."""
    listener = request.channel.advertised.listener
    brokers = services.metadata.brokers.values()
    return frozenset(each.broker_id for each in brokers if each.broker_id != services.broker_id and each.endpoint(listener) is None)


def describe(services: TopicView, topic: TopicInfo, without: WithoutListener) -> MetadataResponseTopic:
    """What clients receive of a topic that exists.

    It depends on nothing but the topic's entry in the snapshot, and is kept with that entry; only where a partition is not served, its disk
    having failed, or its leader lacks the client's listener, a copy says so.
    """
    built = topic.built
    if built is None:
        built = topic.built = _build(topic)
    assert isinstance(built, MetadataResponseTopic)
    if len(services.partitions) < services.metadata.partition_count:
        built = _with_offline(services, built)
    return _without_listener(built, without) if without.brokers else built


def _build(topic: TopicInfo) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=info.partition,
                leader_id=info.leader,
                leader_epoch=info.leader_epoch,
                replica_nodes=list(info.replicas),
                isr_nodes=list(info.isr),
            )
            for info in topic.partitions
        ],
    )


def _with_offline(services: TopicView, built: MetadataResponseTopic) -> MetadataResponseTopic:
    assert built.name is not None
    served = services.partitions_of(built.name.encode(), by_id=False)
    if len(served) == len(built.partitions):
        return built
    partitions = [
        each if each.partition_index in served or each.leader_id != services.broker_id else _offline(each, services.broker_id)
        for each in built.partitions
    ]
    return MetadataResponseTopic(name=built.name, topic_id=built.topic_id, is_internal=built.is_internal, partitions=partitions)


def _offline(partition: MetadataResponsePartition, broker_id: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.partition_index,
        leader_id=NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replica_nodes,
        isr_nodes=partition.isr_nodes,
        offline_replicas=[broker_id],
    )


def _without_listener(built: MetadataResponseTopic, without: WithoutListener) -> MetadataResponseTopic:
    partitions = [_unreachable(each, without) for each in built.partitions]
    return MetadataResponseTopic(name=built.name, topic_id=built.topic_id, is_internal=built.is_internal, partitions=partitions)


def _unreachable(partition: MetadataResponsePartition, without: WithoutListener) -> MetadataResponsePartition:
    offline = [replica for replica in partition.replica_nodes if replica in without.brokers]
    leader_is_missing = partition.leader_id in without.brokers
    if not offline and not leader_is_missing:
        return partition
    return MetadataResponsePartition(
        error_code=without.code if leader_is_missing else partition.error_code,
        partition_index=partition.partition_index,
        leader_id=NO_LEADER if leader_is_missing else partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replica_nodes,
        isr_nodes=partition.isr_nodes,
        offline_replicas=[*partition.offline_replicas, *offline],
    )


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _some(
    services: Services, wanted: list[MetadataRequestTopic], request: Request, without: WithoutListener, *, may_create: bool
) -> Described:
    names: dict[str, None] = {}
    by_id: dict[tuple[bytes, str | None], MetadataResponseTopic] = {}  # each once, however often it is asked for
    snapshot = services.metadata
    for each in wanted:
        yield None
        asks_by_id = each.topic_id != NO_ID
        if request.api_version < FIRST_BY_ID and (asks_by_id or each.name is None):
            by_id[each.topic_id, each.name] = _failed(each.name or "", ErrorCode.INVALID_REQUEST, each.topic_id)
        elif asks_by_id:
            topic = snapshot.topics_by_id.get(each.topic_id)
            unknown = _failed(None, ErrorCode.UNKNOWN_TOPIC_ID, each.topic_id)
            by_id[each.topic_id, None] = unknown if topic is None else describe(services, topic, without)
        elif each.name is None:
            by_id[NO_ID, None] = _failed(None, ErrorCode.INVALID_REQUEST)
        else:
            names[each.name] = None
    by_name = yield from _by_name(services, list(names), without, request if may_create else None)
    return [*by_id.values(), *by_name]


def _by_name(services: Services, names: list[str], without: WithoutListener, creator: Request | None) -> Described:
    """Topics by their names; those that are missing are made where there is a `creator`."""
    missing = [name for name in names if name not in services.metadata.topics]
    errors: dict[str, PeerError | None] = {}
    if missing and creator is not None:

        def note(topic: "PlannedTopic") -> None:
            services.admin_log.note(creator, "topic auto-created", topic=topic.name, partitions=len(topic.replicas))

        errors = yield from services.admin.create_for_client(missing, note)
    described = []
    for name in names:
        error = errors.get(name)
        topic = services.metadata.topics.get(name)
        if topic is not None:
            described.append(describe(services, topic, without))
        else:
            described.append(_failed(name, (error or why_missing(name)).code))
        yield None
    return described


def why_missing(name: str) -> PeerError:
    """The error for a topic that is not there: its name cannot be one, or it just is not."""
    try:
        check_name(name)
    except PeerError as error:
        return error
    return unknown_topic(name)


def _failed(name: str | None, code: ErrorCode, topic_id: bytes = NO_ID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS)


HANDLERS = {
    ApiKey.METADATA: describe_metadata,
}
