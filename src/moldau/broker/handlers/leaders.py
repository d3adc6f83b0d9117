"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: which replicas lead, and where they are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from moldau.broker.handlers.services import AdminServices
from moldau.broker.request import Reply, Request
from moldau.cluster.controller.requests import AlterReassignments, ElectLeaders, ListReassignments, OngoingReassignment
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from moldau.broker.metadata.admin import ClusterAdmin


class Services(AdminServices, Protocol):
    """What these handlers use of the broker."""

    @property
    def admin(self) -> "ClusterAdmin":
        """Submits changes to the controller."""


PREFERRED = 0
UNCLEAN = 1
FIRST_WITH_ERROR = 1
"""ElectLeaders has a code for the whole request from this version on."""


def elect_leaders(services: Services, message: ElectLeadersRequest, request: Request, reply: Reply) -> Steps:
    """Have preferred leaders elected, or leaders of partitions that have none. INVALID_REQUEST for another kind of election.

    Codes by partition: those of :class:`moldau.cluster.controller.leadership.Leadership`.
    """
    if message.election_type not in (PREFERRED, UNCLEAN):
        reply(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    wanted = None
    if message.topic_partitions is not None:
        wanted = [TopicPartition(topic.topic, index) for topic in message.topic_partitions for index in topic.partitions]
    is_unclean = message.election_type == UNCLEAN
    outcomes = yield from services.admin.submit(ElectLeaders(wanted, is_unclean), timeout_ms=message.timeout_ms)
    if isinstance(outcomes, PeerError):
        results = _by_topic(dict.fromkeys(wanted or (), outcomes)) if request.api_version < FIRST_WITH_ERROR else {}
        code = outcomes.code
    else:
        results, code = _by_topic(outcomes), ErrorCode.NONE
        for partition, error in outcomes.items():
            if error is None:
                services.admin_log.note(request, "leader elected", partition=partition, unclean=is_unclean)
    reply(
        ElectLeadersResponse(
            error_code=code,
            replica_election_results=[
                ReplicaElectionResult(name, [PartitionResult(index, *_code_and_text(error)) for index, error in some.items()])
                for name, some in results.items()
            ],
        )
    )


def alter_partition_reassignments(services: Services, message: AlterPartitionReassignmentsRequest, request: Request, reply: Reply) -> Steps:
    """Begin, replace or cancel moves of replicas; codes as :class:`moldau.cluster.controller.reassignments.Reassignments`.

    INVALID_REQUEST for a partition that is named twice.
    """
    targets: dict[TopicPartition, list[int] | None] = {}
    twice: dict[TopicPartition, PeerError] = {}
    for topic in message.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if partition in targets:
                twice[partition] = PeerError(ErrorCode.INVALID_REQUEST, f"partition {partition} is named twice in one request")
            targets[partition] = each.replicas
    once = {partition: replicas for partition, replicas in targets.items() if partition not in twice}
    asked = AlterReassignments(once, message.allow_replication_factor_change)
    outcomes = yield from services.admin.submit(asked, timeout_ms=message.timeout_ms)
    if isinstance(outcomes, PeerError):
        reply(AlterPartitionReassignmentsResponse(error_code=outcomes.code, error_message=outcomes.message))
        return
    for partition, error in outcomes.items():
        if error is None:
            services.admin_log.note(request, "replicas reassigned", partition=partition, replicas=once[partition])
    reply(
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=message.allow_replication_factor_change,
            responses=[
                ReassignableTopicResponse(
                    name, [ReassignablePartitionResponse(index, *_code_and_text(error)) for index, error in some.items()]
                )
                for name, some in _by_topic({**outcomes, **twice}).items()
            ],
        )
    )


def list_partition_reassignments(services: Services, message: ListPartitionReassignmentsRequest, request: Request, reply: Reply) -> Steps:
    """The moves that are under way, of some partitions or of all (null)."""
    wanted = None
    if message.topics is not None:
        wanted = dict.fromkeys(TopicPartition(topic.name, index) for topic in message.topics for index in topic.partition_indexes)
    outcomes = yield from services.admin.submit(ListReassignments(wanted), timeout_ms=message.timeout_ms)
    if isinstance(outcomes, PeerError):
        reply(ListPartitionReassignmentsResponse(error_code=outcomes.code, error_message=outcomes.message))
        return
    reply(
        ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(name, [_described(index, each) for index, each in some.items()])
                for name, some in _by_topic(outcomes).items()
            ]
        )
    )


def _described(index: int, move: OngoingReassignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(index, list(move.replicas), list(move.adding), list(move.removing))


T = TypeVar("T")


def _by_topic(outcomes: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    by_topic: dict[str, dict[int, T]] = {}
    for partition, outcome in outcomes.items():
        by_topic.setdefault(partition.topic, {})[partition.partition] = outcome
    return by_topic


def _code_and_text(error: PeerError | None) -> tuple[int, str | None]:
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)


HANDLERS: dict[ApiKey, Any] = {
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
}
