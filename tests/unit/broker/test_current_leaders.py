"""A broker that is asked for what another one leads names that one, with its address (KIP-951): clients need not ask for metadata first."""

from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from support.cluster_world import ClusterWorld


@pytest.fixture
def cluster() -> ClusterWorld:
    made = ClusterWorld(1, 2, 3)
    made.create_topic("t", 1, replication_factor=2)
    made.until(made.agrees)
    return made


def produce(cluster: ClusterWorld, broker_id: int, version: int) -> Any:
    builder = RecordBatchBuilder()
    builder.append(cluster.clock.time_ms(), None, b"x")
    topic_id = cluster.broker(broker_id).metadata.topics["t"].topic_id
    data = TopicProduceData("t" if version < 13 else "", topic_id, [PartitionProduceData(0, builder.build())])
    return cluster.ask(broker_id, ProduceRequest(None, -1, 30_000, [data]), version)


def fetch(cluster: ClusterWorld, broker_id: int, version: int, *, epoch: int = -1) -> Any:
    topic_id = cluster.broker(broker_id).metadata.topics["t"].topic_id
    wanted = FetchTopic(topic="t" if version < 13 else "", topic_id=topic_id, partitions=[FetchPartition(0, epoch, 0)])
    return cluster.ask(broker_id, FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1000, topics=[wanted]), version)


def elsewhere(cluster: ClusterWorld) -> list[int]:
    """A follower, and a broker that has no replica."""
    info = cluster.partition("t", 0)
    return [each for each in (1, 2, 3) if each != info.leader]


def addresses(response: Any) -> list[tuple[int, str, int]]:
    return [(each.node_id, each.host, each.port) for each in response.node_endpoints]


@pytest.mark.parametrize("version", [10, 12, 13])
def test_the_leader_is_named_to_a_producer(cluster: ClusterWorld, version: int) -> None:
    leader = cluster.partition("t", 0)
    for asked in elsewhere(cluster):
        response = produce(cluster, asked, version)
        result = response.responses[0].partition_responses[0]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (leader.leader, leader.leader_epoch)
        assert addresses(response) == [(leader.leader, f"b{leader.leader}", 9092)]


@pytest.mark.parametrize("version", [16, 17])
def test_the_leader_is_named_to_a_consumer(cluster: ClusterWorld, version: int) -> None:
    leader = cluster.partition("t", 0)
    for asked in elsewhere(cluster):
        response = fetch(cluster, asked, version)
        result = response.responses[0].partitions[0]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (leader.leader, leader.leader_epoch)
        assert addresses(response) == [(leader.leader, f"b{leader.leader}", 9092)]


def test_versions_without_addresses_have_no_leader_either(cluster: ClusterWorld) -> None:
    asked = elsewhere(cluster)[0]
    response = produce(cluster, asked, 9)
    assert response.responses[0].partition_responses[0].current_leader is None
    assert response.node_endpoints == []
    response = fetch(cluster, asked, 15)
    assert response.responses[0].partitions[0].current_leader is None
    assert response.node_endpoints == []


def test_after_another_leader_is_elected_the_former_one_names_it(cluster: ClusterWorld) -> None:
    former = cluster.partition("t", 0).leader
    assert produce(cluster, former, 13).responses[0].partition_responses[0].error_code == 0
    hand_over = cluster.broker(former).membership.hand_over()
    assert hand_over is not None
    cluster.until(lambda: cluster.partition("t", 0, on=former).leader != former)
    leader = cluster.partition("t", 0, on=former)
    response = produce(cluster, former, 13)
    result = response.responses[0].partition_responses[0]
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (leader.leader, leader.leader_epoch)


def test_a_leader_names_no_other(cluster: ClusterWorld) -> None:
    """As where a client has heard of a later epoch than the broker: it is not known who leads in that."""
    leader = cluster.partition("t", 0)
    for epoch in (leader.leader_epoch + 1, leader.leader_epoch - 1):
        response = fetch(cluster, leader.leader, 17, epoch=max(epoch, 0))
        assert response.responses[0].partitions[0].current_leader is None
        assert response.node_endpoints == []


def test_a_partition_without_a_leader_has_none_to_name(cluster: ClusterWorld) -> None:
    info = cluster.partition("t", 0)
    outsider = next(each for each in (1, 2, 3) if each not in info.replicas)
    for each in info.replicas:
        cluster.kill(each)
    cluster.until(lambda: outsider in cluster.processes and cluster.partition("t", 0, on=outsider).leader == -1)
    response = produce(cluster, outsider, 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.responses[0].partition_responses[0].current_leader is None
