"""The session of the controller ends in the middle of what it was asked for: nothing stays half done, and who asked can ask again."""

from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from support.cluster_world import ClusterWorld

PARTITIONS = 150
"""More than one write makes."""


def world(expires_after_s: float) -> ClusterWorld:
    """The session of the controller, broker 1, ends after that time, and it has another a second later."""
    cluster = ClusterWorld(1, 2, 3)
    session = cluster.processes[1].session
    cluster.clock.call_later(expires_after_s, session.expire)
    cluster.clock.call_later(expires_after_s + 1.0, session.resume)
    return cluster


def create(cluster: ClusterWorld, broker_id: int) -> ErrorCode:
    topic = CreatableTopic("t", PARTITIONS, 3)
    return ErrorCode(cluster.ask(broker_id, CreateTopicsRequest([topic]), 7).topics[0].error_code)


@pytest.mark.parametrize("milliseconds", [2, 5, 7, 9])
def test_who_creates_a_topic_hears_that_another_is_controller_and_it_is_made_as_a_whole(milliseconds: int) -> None:
    cluster = world(milliseconds / 1000)
    first = create(cluster, 1)
    cluster.until(cluster.agrees)
    cluster.advance(1.0)
    assert first is ErrorCode.NOT_CONTROLLER
    assert create(cluster, cluster.controller_id) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    cluster.settle()
    assert cluster.agrees()
    partitions = cluster.broker(1).metadata.topics["t"].partitions
    assert len(partitions) == PARTITIONS
    for each in partitions:
        assert cluster.broker(each.leader).replicas.hosted[TopicPartition("t", each.partition)].is_led


@pytest.mark.parametrize("milliseconds", [2, 4, 6])
def test_a_topic_that_is_created_on_demand_is_created_by_the_next_controller(milliseconds: int) -> None:
    """A client that asks for metadata does not learn who is controller."""
    cluster = world(milliseconds / 1000)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    answers: list[Any] = [cluster.ask(1, request, 12).topics[0]]
    while answers[-1].error_code and len(answers) < 50:
        cluster.settle()
        answers.append(cluster.ask(1, request, 12).topics[0])
    assert {each.error_code for each in answers} <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
    assert (answers[-1].error_code, len(answers[-1].partitions)) == (0, 1)
