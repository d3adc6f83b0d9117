"""LeaderAndIsr, StopReplica, UpdateMetadata: what the controller sends to this broker. ControlledShutdown: what brokers ask it.

All are taken on the listener that brokers use, where one is named (`inter.broker.listener.name`). What the controller sends is applied one
after the other in the order in which it comes; each message is answered when it is applied. A message of an earlier controller, or to an
earlier registration of this broker, is refused; one to a later registration than this broker knows is taken (the controller learns of it
first).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from moldau.broker.handlers.services import ConfigServices
from moldau.broker.metadata.control_messages import VERSIONS, led_of, led_response, stopped_of, update_of
from moldau.broker.request import Reply, Request
from moldau.broker.security import may_be_broker
from moldau.cluster.control import Control, ControlReply
from moldau.cluster.controller.requests import ReportLeader, ShutDownBroker
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.controller import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    RemainingPartition,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

if TYPE_CHECKING:
    from moldau.broker.metadata.applier import MetadataApplier
    from moldau.broker.metadata.control_messages import Values
    from moldau.broker.metadata.membership import ClusterMembership


class Services(ConfigServices, Protocol):
    """What these handlers use of the broker."""

    @property
    def applier(self) -> "MetadataApplier":
        """Applies what the controller sends."""

    @property
    def membership(self) -> "ClusterMembership":
        """The way to the controller, where that is this broker."""


def leader_and_isr(services: Services, message: LeaderAndIsrRequest, request: Request, reply: Reply) -> Steps:
    """Lead and follow partitions. Codes: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH; by partition INCONSISTENT_TOPIC_ID."""

    def response(control: Any, outcome: ControlReply, code: ErrorCode) -> LeaderAndIsrResponse:
        return led_response(() if control is None else control.partitions, outcome, code)

    yield from _apply(services, message, led_of(message), request, response, reply)


def stop_replica(services: Services, message: StopReplicaRequest, request: Request, reply: Reply) -> Steps:
    """Stop serving topics, and delete what there is of them, or keep it. Codes: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""

    def response(_control: Any, _outcome: ControlReply, code: ErrorCode) -> StopReplicaResponse:
        topics = () if code else message.topic_states
        parts = [StopReplicaPartitionError(topic.topic_name, each.partition_index) for topic in topics for each in topic.partition_states]
        return StopReplicaResponse(code, parts)

    yield from _apply(services, message, stopped_of(message), request, response, reply)


def update_metadata(services: Services, message: UpdateMetadataRequest, request: Request, reply: Reply) -> Steps:
    """Answer clients by this from now on. Codes: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""

    def response(_control: Any, _outcome: ControlReply, code: ErrorCode) -> UpdateMetadataResponse:
        return UpdateMetadataResponse(code)

    yield from _apply(services, message, update_of(message), request, response, reply)


def controlled_shutdown(services: Services, message: ControlledShutdownRequest, request: Request, reply: Reply) -> None:
    """Move leaderships away from a broker that is about to stop; the response has the partitions that it still leads. Or note that another
    broker gets nothing from it.

    Codes: NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
    """
    try:
        _check_listener(services, request)
    except PeerError as error:
        reply(ControlledShutdownResponse(error.code))
        return

    def done(outcome: Any) -> None:
        if isinstance(outcome, PeerError):
            reply(ControlledShutdownResponse(outcome.code))
        else:
            reply(ControlledShutdownResponse(remaining_partitions=[RemainingPartition(*each) for each in outcome]))

    if message.reporter_id >= 0:
        services.membership.ask(ReportLeader(message.broker_id, message.reporter_id, message.reporter_epoch), done)
    else:
        services.membership.ask(ShutDownBroker(message.broker_id, message.broker_epoch), done)


def _apply(
    services: Services,
    message: Any,
    values: "Values",
    request: Request,
    response: Callable[[Control | None, ControlReply, ErrorCode], Any],
    reply: Reply,
) -> Steps:
    try:
        _check(services, request)
        control: Control = yield from values
    except PeerError as error:
        reply(response(None, ControlReply(), error.code))
        return

    def done(outcome: ControlReply) -> None:
        reply(response(control, outcome, _code(services, control) if outcome.is_stale else ErrorCode.NONE))

    services.applier.apply_received(message.broker_epoch, control, message.sequence, done)


def _check(services: Services, request: Request) -> None:
    """As `_check_listener`; UNSUPPORTED_VERSION for a version without topic ids."""
    _check_listener(services, request)
    if not VERSIONS[ApiKey(request.api_key)].includes(request.api_version):
        raise PeerError(ErrorCode.UNSUPPORTED_VERSION, "this version does not carry all that brokers send")


def _check_listener(services: Services, request: Request) -> None:
    """PeerError CLUSTER_AUTHORIZATION_FAILED for another listener than that of brokers."""
    if not may_be_broker(services.config, request.channel):
        raise PeerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"brokers do not use the listener {request.channel.listener}")


def _code(services: Services, control: Control) -> ErrorCode:
    """Why a message was too late."""
    is_over = control.controller_epoch < services.applier.controller_epoch
    return ErrorCode.STALE_CONTROLLER_EPOCH if is_over else ErrorCode.STALE_BROKER_EPOCH


HANDLERS = {
    ApiKey.LEADER_AND_ISR: leader_and_isr,
    ApiKey.STOP_REPLICA: stop_replica,
    ApiKey.UPDATE_METADATA: update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown,
}
