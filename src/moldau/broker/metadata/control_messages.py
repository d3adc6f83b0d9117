"""What a controller sends to brokers, as the protocol's requests and back.

The requests are Kafka's LeaderAndIsr, StopReplica and UpdateMetadata in their newest versions; what these cannot say travels in tagged
fields of ours, see :mod:`moldau.protocol.messages.controller`. Values are made of requests in steps, since a peer can make them long.
"""

from collections.abc import Generator, Mapping, Sequence
from itertools import groupby
from typing import Any, assert_never

from moldau.cluster.control import (
    AssignedTopic,
    Control,
    ControlReply,
    LeaderAndIsr,
    LedPartition,
    StoppedTopic,
    StopReplica,
    UpdateMetadata,
)
from moldau.cluster.snapshot import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from moldau.model.errors import ErrorCode, PeerError, known_error
from moldau.model.identity import ID_BYTES, LogCut, TopicPartition
from moldau.model.steps import Pause
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.controller import (
    LeaderAndIsrFloor,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    UpdateMetadataAssignedTopic,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from moldau.protocol.messages.controller import LogCut as LogCutMessage
from moldau.protocol.versions import VersionRange

VERSIONS = {
    ApiKey.LEADER_AND_ISR: VersionRange(7, 7),
    ApiKey.STOP_REPLICA: VersionRange(4, 4),
    ApiKey.UPDATE_METADATA: VersionRange(8, 8),
}
"""Those that carry everything."""
PARTITIONS_PER_STEP = 100
NO_ID = bytes(ID_BYTES)
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1
TYPE_FULL = 2
"""As Kafka has it: topics that are not in it do not exist."""
ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
Values = Generator[Pause, None, Any]


# Requests


def request_of(control: Control, controller_id: int, broker_epoch: int) -> tuple[ApiKey, ControlRequest]:
    """The request that says the same to one incarnation of a broker."""
    match control:
        case LeaderAndIsr(epoch, partitions):
            states = [
                LeaderAndIsrTopicState(name, topic_id, [_led(each, epoch) for each in some])
                for (name, topic_id), some in groupby(partitions, lambda each: (each.topic, each.topic_id))
            ]
            return ApiKey.LEADER_AND_ISR, LeaderAndIsrRequest(controller_id, False, epoch, broker_epoch, topic_states=states)
        case StopReplica(epoch, topics, deletes):
            stopped = [_stopped(each, deletes=deletes) for each in topics]
            request = StopReplicaRequest(controller_id, False, epoch, broker_epoch, topic_states=stopped, deletes_topics=deletes)
            return ApiKey.STOP_REPLICA, request
        case UpdateMetadata(epoch, sender_id, brokers, topics, deleted, everything):
            return ApiKey.UPDATE_METADATA, UpdateMetadataRequest(
                controller_id=sender_id,
                type=0 if everything is None else TYPE_FULL,
                controller_epoch=epoch,
                broker_epoch=broker_epoch,
                topic_states=[_served(each, epoch) for each in topics],
                live_brokers=[_broker(each) for each in brokers],
                deleted_topics=list(deleted),
                assigned_topics=[UpdateMetadataAssignedTopic(topic_id, list(indexes)) for topic_id, indexes in everything or ()],
            )
        case _:
            assert_never(control)


def _led(led: LedPartition, epoch: int) -> LeaderAndIsrPartitionState:
    info = led.info
    return LeaderAndIsrPartitionState(
        partition_index=info.partition,
        controller_epoch=epoch,
        leader=info.leader,
        leader_epoch=info.leader_epoch,
        isr=list(info.isr),
        partition_epoch=info.state_version,
        replicas=list(info.replicas),
        is_new=led.is_new,
        elr=list(info.elr),
        last_known_elr=list(info.last_known_elr),
        is_mirror=info.is_mirror,
        cut=_cut(info),
    )


def _stopped(topic: StoppedTopic, *, deletes: bool) -> StopReplicaTopicState:
    epoch = EPOCH_DURING_DELETE if deletes else NO_EPOCH
    indexes = range(topic.partitions) if topic.only is None else topic.only
    states = [StopReplicaPartitionState(index, epoch, deletes) for index in indexes]
    total = -1 if topic.only is None else topic.partitions
    return StopReplicaTopicState(topic.name, states, topic.topic_id or NO_ID, total)


def _served(topic: TopicInfo, epoch: int) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(
        topic.name,
        topic.topic_id,
        [
            UpdateMetadataPartitionState(
                partition_index=each.partition,
                controller_epoch=epoch,
                leader=each.leader,
                leader_epoch=each.leader_epoch,
                isr=list(each.isr),
                zk_version=each.state_version,
                replicas=list(each.replicas),
                elr=list(each.elr),
                last_known_elr=list(each.last_known_elr),
                is_mirror=each.is_mirror,
                cut=_cut(each),
            )
            for each in topic.partitions
        ],
    )


def _cut(info: PartitionInfo) -> LogCutMessage | None:
    return None if info.cut is None else LogCutMessage(*info.cut)


def _broker(info: BrokerInfo) -> UpdateMetadataBroker:
    endpoints = [UpdateMetadataEndpoint(each.port, each.host, each.listener) for each in info.endpoints]
    return UpdateMetadataBroker(info.broker_id, endpoints=endpoints, rack=info.rack)


# Values


def led_of(request: LeaderAndIsrRequest) -> Values:
    """A `LeaderAndIsr`, in steps. PeerError INVALID_REQUEST."""
    partitions: list[LedPartition] = []
    for topic in request.topic_states:
        _check_id(topic.topic_name, topic.topic_id)
        for each in topic.partition_states:
            info = _info(each, each.partition_epoch)
            partitions.append(LedPartition(topic.topic_name, topic.topic_id, info, each.is_new))
            if not len(partitions) % PARTITIONS_PER_STEP:
                yield None
    return LeaderAndIsr(request.controller_epoch, tuple(partitions))


def stopped_of(request: StopReplicaRequest) -> Values:
    """A `StopReplica`, in steps. INVALID_REQUEST where it names some partitions of a topic only without saying so."""
    deletes = request.deletes_topics
    topics = []
    for topic in request.topic_states:
        states = topic.partition_states
        is_part = topic.partitions_total >= 0
        indexes = tuple(state.partition_index for state in states)
        if any(state.delete_partition != deletes for state in states) or (not is_part and indexes != tuple(range(len(states)))):
            raise _malformed(topic.topic_name)
        if is_part and not all(0 <= index < topic.partitions_total for index in indexes):
            raise _malformed(topic.topic_name)
        topic_id = None if topic.topic_id == NO_ID else topic.topic_id
        partitions = topic.partitions_total if is_part else len(states)
        topics.append(StoppedTopic(topic.topic_name, topic_id, partitions, indexes if is_part else None))
        yield None
    return StopReplica(request.controller_epoch, tuple(topics), deletes)


def update_of(request: UpdateMetadataRequest) -> Values:
    """An `UpdateMetadata`, in steps. INVALID_REQUEST for topics that are not whole, and for brokers without an address."""
    topics = []
    for topic in request.topic_states:
        _check_id(topic.topic_name, topic.topic_id)
        infos: list[PartitionInfo] = []
        for index, each in enumerate(topic.partition_states):
            if each.partition_index != index:
                raise _malformed(topic.topic_name)
            infos.append(_info(each, each.zk_version))
            if not len(infos) % PARTITIONS_PER_STEP:
                yield None
        topics.append(TopicInfo(topic.topic_name, topic.topic_id, tuple(infos)))
        yield None
    brokers = []
    for broker in request.live_brokers:
        endpoints = tuple(Endpoint(each.listener, each.host, each.port) for each in broker.endpoints)
        if not endpoints:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"broker {broker.id} has no address")
        brokers.append(BrokerInfo(broker.id, endpoints, broker.rack))
        yield None
    everything = None
    if request.type == TYPE_FULL:
        assigned: list[AssignedTopic] = []
        for one in request.assigned_topics:
            assigned.append(AssignedTopic(one.topic_id, tuple(one.partitions)))
            if not len(assigned) % PARTITIONS_PER_STEP:
                yield None
        everything = tuple(assigned)
    deleted = tuple(request.deleted_topics)
    return UpdateMetadata(request.controller_epoch, request.controller_id, tuple(brokers), tuple(topics), deleted, everything)


def _info(state: LeaderAndIsrPartitionState | UpdateMetadataPartitionState, version: int) -> PartitionInfo:
    isr, replicas, elr, known = map(tuple, (state.isr, state.replicas, state.elr, state.last_known_elr))
    cut = None if state.cut is None else LogCut(state.cut.epoch, state.cut.offset)
    where = state.partition_index, state.leader, state.leader_epoch
    return PartitionInfo(*where, isr, replicas, version, elr, known, state.is_mirror, cut)


def _check_id(name: str, topic_id: bytes) -> None:
    if topic_id == NO_ID:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"topic '{name}' is sent without its id")


def _malformed(name: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_REQUEST, f"partitions of topic '{name}' are missing or not in order")


# Responses


def led_response(partitions: Sequence[LedPartition], reply: ControlReply, error: ErrorCode) -> LeaderAndIsrResponse:
    """The answer to a LeaderAndIsr request; `error` is that of all of it."""
    if error:
        return LeaderAndIsrResponse(error)
    errors: dict[tuple[bytes, int], ErrorCode] = dict.fromkeys(reply.offline, ErrorCode.KAFKA_STORAGE_ERROR)
    unlike = dict.fromkeys(reply.inconsistent)
    for each in partitions:
        if TopicPartition(each.topic, each.info.partition) in unlike:
            errors[each.topic_id, each.info.partition] = ErrorCode.INCONSISTENT_TOPIC_ID
    topics = [
        LeaderAndIsrTopicError(topic_id, [_partition_error(each, errors) for each in some])
        for topic_id, some in groupby(partitions, lambda each: each.topic_id)
    ]
    floors = [LeaderAndIsrFloor(*each, epoch) for each, epoch in reply.floors.items()]
    return LeaderAndIsrResponse(topics=topics, floors=floors)


def _partition_error(led: LedPartition, errors: Mapping[tuple[bytes, int], ErrorCode]) -> LeaderAndIsrPartitionError:
    code = errors.get((led.topic_id, led.info.partition), ErrorCode.NONE)
    return LeaderAndIsrPartitionError(partition_index=led.info.partition, error_code=code)


_STALE = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)


def reply_of(response: LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse) -> ControlReply:
    """What a broker has answered. PeerError for an error that is its, not the epochs'."""
    if response.error_code in _STALE:
        return ControlReply(is_stale=True)
    if response.error_code:
        raise PeerError(known_error(response.error_code), f"error {response.error_code}")
    if isinstance(response, LeaderAndIsrResponse):
        offline = tuple(
            (topic.topic_id, each.partition_index)
            for topic in response.topics
            for each in topic.partition_errors
            if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        )
        floors = {TopicPartition(each.topic_name, each.partition_index): each.leader_epoch for each in response.floors}
        return ControlReply(floors, offline=offline)
    return ControlReply()
