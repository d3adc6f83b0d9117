"""Sends to the controller, on another broker, what this broker itself needs of it: topics that are created on demand, configurations,
that its leaderships move before it stops, that it does not get what it fetches from a leader, and leader epochs of mirrors' partitions.

A request is repeated while the controller is not known, is not reached or has moved, until its time is over. Should this broker become
controller meanwhile, it carries the request out itself.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from moldau.broker.peers.connection import PeerCallError
from moldau.cluster.controller.requests import (
    AlterConfig,
    AlteredConfig,
    AlterMirrors,
    ConfigOperation,
    ConfigTarget,
    CreateTopics,
    PlannedTopic,
    ReportLeader,
    Request,
    ShutDownBroker,
    TopicSpec,
)
from moldau.model.errors import ErrorCode, PeerError, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.alter_mirror import AlterMirrorPartition, AlterMirrorRequest, AlterMirrorResponse, AlterMirrorTopic
from moldau.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from moldau.protocol.messages.controller import ControlledShutdownRequest, ControlledShutdownResponse
from moldau.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from moldau.broker.peers.connection import PeerConnection
    from moldau.broker.peers.connections import Connect
    from moldau.cluster.snapshot import BrokerInfo
    from moldau.ports.clock import Clock

IN_FLIGHT_MAX = 100
AGAIN_S = 0.1
_TOPIC, _BROKER = 2, 4
_OPERATIONS = {operation: number for number, operation in enumerate(ConfigOperation)}
Done = Callable[[Any], object]


class ControllerForwarder:
    """See the module."""

    def __init__(
        self,
        connect: "Connect",
        controller: "Callable[[], BrokerInfo | None]",
        own: "Callable[[], Callable[[Request, Done], object] | None]",
        clock: "Clock",
    ) -> None:
        """`controller` gives the other broker that is controller, None as long as it is not known; `own` what asks this broker if that is
        it.
        """
        self._connect = connect
        self._controller = controller
        self._own = own
        self._clock = clock
        self._connection: PeerConnection | None = None
        self._is_closed = False

    def ask(self, request: Request, done: Done, timeout_s: float) -> None:
        """Have the controller carry out a request; `done` with its outcome, as of `ClusterMembership.ask`, later.

        REQUEST_TIMED_OUT where it is not reached in time; a change may have been made. Of a changed configuration it is not known what was
        set before and after.
        """
        api_key, message = _message_of(request)
        self._send(request, api_key, message, done, self._clock.monotonic() + timeout_s)

    def close(self) -> None:
        """The broker stops."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()

    def _send(self, request: Request, api_key: ApiKey, message: Any, done: Done, deadline_s: float) -> None:
        left_s = deadline_s - self._clock.monotonic()
        if self._is_closed or left_s <= 0:
            done(PeerError(ErrorCode.REQUEST_TIMED_OUT, "the controller is not reached; the change may still be made"))
            return

        def again() -> None:
            self._clock.call_later(AGAIN_S, partial(self._send, request, api_key, message, done, deadline_s))

        def answered_here(outcome: Any) -> None:
            if isinstance(outcome, PeerError) and outcome.code is ErrorCode.NOT_CONTROLLER:  # resigned meanwhile
                again()
            else:
                done(outcome)

        own = self._own()
        if own is not None:
            own(request, answered_here)
            return

        def answered(outcome: Any) -> None:
            if isinstance(outcome, PeerCallError) or _is_elsewhere(outcome):
                again()
            else:
                done(_outcome_of(request, outcome))

        controller = self._controller()
        if controller is None:
            again()
        else:
            self._connection_to(controller).request(api_key, message, answered, timeout_s=left_s)

    def _connection_to(self, broker: "BrokerInfo") -> "PeerConnection":
        """The open connection, unless it leads to another address."""
        address = broker.endpoints[0][1:]
        if self._connection is None or self._connection.address != address:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._connect(broker, "forwarding", in_flight_max=IN_FLIGHT_MAX)
        return self._connection


def _message_of(request: Request) -> tuple[ApiKey, Any]:
    if isinstance(request, CreateTopics):
        topics = [_topic(spec) for spec in request.topics]
        return ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, validate_only=request.validate_only)
    if isinstance(request, ShutDownBroker):
        return ApiKey.CONTROLLED_SHUTDOWN, ControlledShutdownRequest(request.broker_id, request.broker_epoch)
    if isinstance(request, ReportLeader):
        leader_id, reporter_id, reporter_epoch = request
        message = ControlledShutdownRequest(leader_id, reporter_id=reporter_id, reporter_epoch=reporter_epoch)
        return ApiKey.CONTROLLED_SHUTDOWN, message
    if isinstance(request, AlterMirrors):
        topics_altered: dict[str, AlterMirrorTopic] = {}
        for (name, index), altered in request.partitions.items():
            topic = topics_altered.setdefault(name, AlterMirrorTopic(name, request.sources.get(name, ""), []))
            topic.partitions.append(AlterMirrorPartition(index, *altered))
        return ApiKey.ALTER_MIRROR, AlterMirrorRequest(topics=list(topics_altered.values()))
    assert isinstance(request, AlterConfig), "clients send these to the controller themselves"
    type_, name = _resource(request.resource)
    if request.replaces:
        values = [AlterableConfig(edit.name, edit.text) for edit in request.edits]
        return ApiKey.ALTER_CONFIGS, AlterConfigsRequest([AlterConfigsResource(type_, name, values)], request.validate_only, True)
    edits = [IncrementalAlterableConfig(edit.name, _OPERATIONS[edit.operation], edit.text) for edit in request.edits]
    resources = [IncrementalAlterConfigsResource(type_, name, edits)]
    return ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources, request.validate_only, True)


def _topic(spec: TopicSpec) -> CreatableTopic:
    return CreatableTopic(
        spec.name,
        spec.partitions,
        spec.replication_factor,
        [CreatableReplicaAssignment(index, list(replicas)) for index, replicas in spec.assignments],
        [CreatableTopicConfig(*each) for each in spec.configs],
    )


def _resource(target: ConfigTarget) -> tuple[int, str]:
    if target.topic is not None:
        return _TOPIC, target.topic
    return _BROKER, "" if target.broker_id is None else str(target.broker_id)


def _is_elsewhere(response: Any) -> bool:
    """Whether another broker is controller by now."""
    if isinstance(response, ControlledShutdownResponse | AlterMirrorResponse):
        return response.error_code == ErrorCode.NOT_CONTROLLER
    results = response.topics if isinstance(response, CreateTopicsResponse) else response.responses
    return any(each.error_code == ErrorCode.NOT_CONTROLLER for each in results)


def _outcome_of(request: Request, response: Any) -> Any:
    if isinstance(response, ControlledShutdownResponse):
        if response.error_code:
            return PeerError(known_error(response.error_code), "refused by the controller")
        return [TopicPartition(each.topic_name, each.partition_index) for each in response.remaining_partitions]
    if isinstance(response, AlterMirrorResponse):
        if response.error_code:
            return PeerError(known_error(response.error_code), response.error_message or "")
        return {
            TopicPartition(topic.name, each.partition_index): PeerError(known_error(each.error_code), each.error_message or "")
            if each.error_code
            else None
            for topic in response.topics
            for each in topic.partitions
        }
    missing = PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer does not say what has become of it")
    if isinstance(request, CreateTopics):
        outcomes: dict[str, Any] = {spec.name: missing for spec in request.topics}
        return outcomes | {each.name: _created(each) for each in response.topics if each.name in outcomes}
    for result in response.responses:
        return PeerError(known_error(result.error_code), result.error_message or "") if result.error_code else AlteredConfig({}, {}, None)
    return missing


def _created(result: CreatableTopicResult) -> PlannedTopic | PeerError:
    if result.error_code:
        return PeerError(known_error(result.error_code), result.error_message or "")
    configs = {each.name: each.value or "" for each in result.configs or ()}
    return PlannedTopic(result.name, result.topic_id, [()] * result.num_partitions, configs, None)
