"""What a broker does with LeaderAndIsr, StopReplica and UpdateMetadata that come over a connection."""

from typing import Any

import pytest

from moldau.broker.security import Channel, Operation
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.controller import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from support.broker_world import BrokerWorld

REQUESTS = [(LeaderAndIsrRequest, 7), (StopReplicaRequest, 4), (UpdateMetadataRequest, 8)]
EPOCHS: dict[str, Any] = {"controller_id": 1, "controller_epoch": 9, "broker_epoch": 99}


def lead(topic_id: bytes, name: str = "t", *, leader: int = 0, replicas: tuple[int, ...] = (0,), epoch: int = 5) -> LeaderAndIsrRequest:
    part = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=9,
        leader=leader,
        leader_epoch=epoch,
        isr=list(replicas),
        partition_epoch=3,
        replicas=list(replicas),
    )
    return LeaderAndIsrRequest(**EPOCHS, topic_states=[LeaderAndIsrTopicState(name, topic_id, [part])])


def test_a_later_epoch_is_taken_and_an_earlier_one_answered_with_a_floor_only_where_it_is_needed() -> None:
    world = BrokerWorld()
    topic_id = world.create_topic("t")
    answer = world.connect().ask(lead(topic_id), 7)
    assert (answer.error_code, answer.floors) == (0, [])
    ((part,),) = (topic.partition_errors for topic in answer.topics)
    assert part.error_code == 0
    assert world.partition("t").machine.leader_epoch == 5
    answer = world.connect().ask(lead(topic_id, epoch=2), 7)
    assert [(each.topic_name, each.partition_index, each.leader_epoch) for each in answer.floors] == [("t", 0, 5)]


def test_a_partition_of_a_topic_with_another_id_is_left_as_it_is() -> None:
    world = BrokerWorld()
    world.create_topic("t")
    before = world.partition("t").machine.leader_epoch
    answer = world.connect().ask(lead(b"x" * 16), 7)
    ((part,),) = (topic.partition_errors for topic in answer.topics)
    assert part.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert world.partition("t").machine.leader_epoch == before


def test_a_partition_of_other_brokers_is_not_opened() -> None:
    world = BrokerWorld()
    answer = world.connect().ask(lead(b"x" * 16, leader=3, replicas=(3, 4)), 7)
    assert answer.error_code == 0
    assert TopicPartition("t", 0) not in world.broker.replicas.hosted
    assert world.broker.logs.partitions() == []


@pytest.mark.parametrize(("request_class", "version"), REQUESTS)
def test_only_the_listener_of_brokers_takes_them_where_one_is_named(request_class: Any, version: int) -> None:
    world = BrokerWorld(
        listeners="PLAINTEXT://:9092,INSIDE://:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )
    request = request_class(**EPOCHS)
    assert world.connect().ask(request, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.connect(listener="INSIDE").ask(request, version).error_code == 0


class Nobody:
    """An authorizer that notes what is asked, and allows nothing."""

    def __init__(self) -> None:
        self.asked: list[Operation] = []

    def allows(self, channel: Channel, operation: Operation, topic: str | None = None) -> bool:
        self.asked.append(operation)
        return False


@pytest.mark.parametrize(("request_class", "version"), REQUESTS)
def test_they_need_leave_for_cluster_actions(request_class: Any, version: int) -> None:
    world = BrokerWorld()
    world.broker.pipeline.authorizer = nobody = Nobody()
    assert world.connect().ask(request_class(**EPOCHS), version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert nobody.asked == [Operation.CLUSTER_ACTION]


@pytest.mark.parametrize(("request_class", "version"), REQUESTS)
def test_an_earlier_version_is_refused(request_class: Any, version: int) -> None:
    assert BrokerWorld().connect().ask(request_class(**EPOCHS), version - 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_request_of_a_lost_connection_is_not_applied_after_later_ones() -> None:
    world = BrokerWorld()
    world.create_topic("t")
    assert world.connect().ask(UpdateMetadataRequest(**EPOCHS, sequence=5), 8).error_code == 0
    for sequence in (4, 5):
        late = UpdateMetadataRequest(**EPOCHS, sequence=sequence, deleted_topics=["t"])
        assert world.connect().ask(late, 8).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert "t" in world.broker.metadata.topics
    of_the_next = UpdateMetadataRequest(**{**EPOCHS, "controller_epoch": 10}, sequence=1, deleted_topics=["t"])
    assert world.connect().ask(of_the_next, 8).error_code == 0
    assert "t" not in world.broker.metadata.topics


def test_what_cannot_be_applied_is_refused_whole() -> None:
    world = BrokerWorld()
    world.create_topic("t")
    request = UpdateMetadataRequest(**EPOCHS, topic_states=[UpdateMetadataTopicState("t", bytes(16))], deleted_topics=["t"])
    assert world.connect().ask(request, 8).error_code == ErrorCode.INVALID_REQUEST
    assert "t" in world.broker.metadata.topics
