"""A single broker answers requests to elect leaders and to move replicas, in every version, and refuses what it cannot do."""

import pytest

from moldau.cluster.controller.requests import TopicSpec
from moldau.protocol.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from support.administered import Administered, code


@pytest.fixture
def broker() -> Administered:
    broker = Administered()
    broker.create(TopicSpec("t", 2))
    return broker


@pytest.mark.parametrize("version", range(3))
def test_a_leader_that_is_the_preferred_one_needs_no_election(broker: Administered, version: int) -> None:
    wanted = [TopicPartitions("t", [1, 7]), TopicPartitions("no", [0])]
    for election_type in (0, 1) if version else (0,):
        answer = broker.ask(ElectLeadersRequest(election_type, wanted), version, ElectLeadersResponse)
        found = [
            (each.topic, result.partition_id, code(result.error_code))
            for each in answer.replica_election_results
            for result in each.partition_result
        ]
        assert found == [
            ("t", 1, "ELECTION_NOT_NEEDED"),
            ("t", 7, "UNKNOWN_TOPIC_OR_PARTITION"),
            ("no", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
    everything = broker.ask(ElectLeadersRequest(0, None), version, ElectLeadersResponse)
    assert (everything.error_code, everything.replica_election_results) == (0, [])


def test_another_kind_of_election_is_refused(broker: Administered) -> None:
    assert code(broker.ask(ElectLeadersRequest(7, None), 2, ElectLeadersResponse).error_code) == "INVALID_REQUEST"


@pytest.mark.parametrize("version", range(2))
def test_replicas_go_nowhere_but_to_live_brokers(broker: Administered, version: int) -> None:
    partitions = [ReassignablePartition(0, [0]), ReassignablePartition(1, [0, 5]), ReassignablePartition(7, None)]
    again = ReassignablePartition(1, [0])
    for asked, expected in (
        (partitions, ["NONE", "INVALID_REPLICA_ASSIGNMENT", "UNKNOWN_TOPIC_OR_PARTITION"]),
        ([ReassignablePartition(0, None)], ["NO_REASSIGNMENT_IN_PROGRESS"]),
        ([again, again], ["INVALID_REQUEST"]),
    ):
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", asked)])
        answer = broker.ask(request, version, AlterPartitionReassignmentsResponse)
        assert code(answer.error_code) == "NONE"
        assert [code(each.error_code) for topic in answer.responses for each in topic.partitions] == expected
    for topics in (None, [ListPartitionReassignmentsTopics("t", [0, 1])]):
        listed = broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0, ListPartitionReassignmentsResponse)
        assert (listed.error_code, listed.topics) == (0, [])
