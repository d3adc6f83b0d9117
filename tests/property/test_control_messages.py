"""What a controller sends to a broker is the same after its way over the wire."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.metadata.control_messages import VERSIONS, led_of, led_response, reply_of, request_of, stopped_of, update_of
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
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import LogCut, TopicPartition
from moldau.model.steps import drain
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from moldau.protocol.messages.controller import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text("abc", min_size=1, max_size=3)
IDS = st.binary(min_size=16, max_size=16).filter(any)
BROKERS = st.lists(INT32, max_size=4).map(tuple)
CUTS = st.none() | st.builds(LogCut, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))


def infos(index: int) -> st.SearchStrategy[PartitionInfo]:
    return st.builds(PartitionInfo, st.just(index), INT32, INT32, BROKERS, BROKERS, INT32, BROKERS, BROKERS, st.booleans(), CUTS)


LED = st.builds(LedPartition, NAMES, IDS, INT32.flatmap(infos), st.booleans())
TOPICS = st.builds(TopicInfo, NAMES, IDS, st.integers(0, 4).flatmap(lambda count: st.tuples(*map(infos, range(count)))))
ENDPOINTS = st.builds(Endpoint, NAMES, NAMES, st.integers(1, 65535))
INFOS = st.builds(BrokerInfo, INT32, st.lists(ENDPOINTS, min_size=1, max_size=3).map(tuple), st.none() | NAMES)
CONTROLS: st.SearchStrategy[Control] = st.one_of(
    st.builds(LeaderAndIsr, INT32, st.lists(LED, max_size=5).map(tuple)),
    st.builds(
        StopReplica,
        INT32,
        st.lists(
            st.builds(StoppedTopic, NAMES, st.none() | IDS, st.integers(0, 3))
            | st.builds(StoppedTopic, NAMES, IDS, st.just(4), st.lists(st.integers(0, 3), unique=True).map(tuple)),
            max_size=4,
        ).map(tuple),
        st.booleans(),
    ),
    st.builds(
        UpdateMetadata,
        INT32,
        INT32,
        st.lists(INFOS, max_size=3).map(tuple),
        st.lists(TOPICS, max_size=3).map(tuple),
        st.lists(NAMES, max_size=3).map(tuple),
        st.none() | st.lists(st.builds(AssignedTopic, IDS, st.lists(INT32, max_size=3).map(tuple)), max_size=3).map(tuple),
    ),
)
READERS: dict[ApiKey, Any] = {ApiKey.LEADER_AND_ISR: led_of, ApiKey.STOP_REPLICA: stopped_of, ApiKey.UPDATE_METADATA: update_of}


def comparable(control: Any) -> Any:
    """With topics, which are equal only to themselves, as tuples."""
    if not isinstance(control, UpdateMetadata):
        return control
    return [*control[:3], [(topic.name, topic.topic_id, topic.partitions) for topic in control.topics], *control[4:]]


@given(CONTROLS, INT32, INT64)
def test_a_statement_is_the_same_after_its_way(control: Control, controller_id: int, broker_epoch: int) -> None:
    api_key, request = request_of(control, controller_id, broker_epoch)
    version = VERSIONS[api_key].max
    received = decode(type(request), version, memoryview(encode(request, version)))
    assert received.broker_epoch == broker_epoch
    assert comparable(drain(READERS[api_key](received))) == comparable(control)


@given(st.dictionaries(st.builds(TopicPartition, NAMES, INT32), INT32, max_size=3))
def test_floors_are_the_same_after_their_way(floors: dict[TopicPartition, int]) -> None:
    response = led_response((), ControlReply(floors), ErrorCode.NONE)
    received = decode(LeaderAndIsrResponse, 7, memoryview(encode(response, 7)))
    assert reply_of(received) == ControlReply(floors)


def test_a_partition_of_another_topic_id_has_its_error_in_the_response() -> None:
    partitions = [LedPartition("t", b"i" * 16, PartitionInfo(index, 1, 0, (1,), (1,), 0), False) for index in range(2)]
    response = led_response(partitions, ControlReply(inconsistent=(TopicPartition("t", 1),)), ErrorCode.NONE)
    (topic,) = response.topics
    assert [(each.partition_index, each.error_code) for each in topic.partition_errors] == [(0, 0), (1, ErrorCode.INCONSISTENT_TOPIC_ID)]


def test_partitions_that_are_offline_are_the_same_after_their_way() -> None:
    partitions = [LedPartition("t", b"i" * 16, PartitionInfo(index, 1, 0, (1,), (1,), 0), False) for index in range(3)]
    reply = ControlReply(offline=((b"i" * 16, 0), (b"i" * 16, 2)))
    response = led_response(partitions, reply, ErrorCode.NONE)
    assert reply_of(decode(LeaderAndIsrResponse, 7, memoryview(encode(response, 7)))) == reply


@pytest.mark.parametrize("code", [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH])
def test_a_refusal_for_its_epoch_is_stale(code: ErrorCode) -> None:
    assert reply_of(UpdateMetadataResponse(code)) == ControlReply(is_stale=True)


def test_another_error_is_no_reply() -> None:
    with pytest.raises(PeerError) as error:
        reply_of(UpdateMetadataResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert error.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def part(index: int, **more: Any) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(partition_index=index, **more)


@pytest.mark.parametrize(
    "request_",
    [
        UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState("t", b"i" * 16, [part(1)])]),
        UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState("t", b"i" * 16, [part(0), part(0)])]),
        UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState("t", bytes(16), [part(0)])]),
        UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(1)]),
        StopReplicaRequest(topic_states=[StopReplicaTopicState("t", [StopReplicaPartitionState(3)])]),
        StopReplicaRequest(topic_states=[StopReplicaTopicState("t", [StopReplicaPartitionState(3)], b"i" * 16, 3)]),
        StopReplicaRequest(topic_states=[StopReplicaTopicState("t", [StopReplicaPartitionState(0, -1, True)])]),
    ],
    ids=["partition missing", "partition twice", "no id", "broker without address", "some partitions", "beyond the topic", "one deleted"],
)
def test_what_is_not_whole_is_refused(request_: UpdateMetadataRequest | StopReplicaRequest) -> None:
    read = update_of if isinstance(request_, UpdateMetadataRequest) else stopped_of
    with pytest.raises(PeerError) as error:
        drain(read(request_))  # type: ignore[arg-type]
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_a_long_request_is_read_in_steps() -> None:
    control = LeaderAndIsr(1, tuple(LedPartition("t", b"i" * 16, PartitionInfo(index, 1, 0, (1,), (1,), 0), True) for index in range(1000)))
    _, request = request_of(control, 1, 1)
    assert isinstance(request, LeaderAndIsrRequest)
    assert len(list(led_of(request))) == 10
