"""Throttles hold back followers that are not in sync, and nothing that is committed waits for them."""

import pytest

from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from support.cluster_world import ClusterWorld

ZERO = TopicPartition("t", 0)
RATE = 20_000
BATCHES, VALUE = 10, bytes(10_000)


def hosted(cluster: ClusterWorld, broker_id: int) -> HostedPartition:
    return cluster.broker(broker_id).replicas.hosted[ZERO]


def produce(cluster: ClusterWorld, leader: int, topic_id: bytes) -> float:
    """With acks=all: the seconds that it took."""
    builder = RecordBatchBuilder()
    builder.append(cluster.clock.time_ms(), None, VALUE)
    data = [TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(0, builder.build())])]
    begun = cluster.clock.monotonic()
    response = cluster.ask(leader, ProduceRequest(None, -1, 30_000, data), 13)
    assert response.responses[0].partition_responses[0].error_code == 0
    return cluster.clock.monotonic() - begun


@pytest.mark.parametrize(
    ("side", "least_s", "most_s"), [("leader", 3.0, 12.0), ("follower", 3.0, 12.0), (None, 0.0, 2.0)], ids=["leader", "follower", "none"]
)
def test_a_follower_that_catches_up_is_held_back_and_the_others_are_not(side: str | None, least_s: float, most_s: float) -> None:
    """Claim: 100 kB at 20 kB a second, of which the first window is free; what the in-sync replicas have is acknowledged all the time."""
    settings = {} if side is None else {f"{side}_replication_throttled_rate": RATE}
    cluster = ClusterWorld(1, 2, 3, replica_lag_time_max_ms=2000, replica_fetch_max_bytes=12_000, **settings)
    configs = {} if side is None else {f"{side}.replication.throttled.replicas": "*"}
    topic_id = cluster.create_topic("t", 1, 3, **configs)
    cluster.settle()
    leader = cluster.partition("t").leader
    away = next(each for each in cluster.processes if each not in (leader, cluster.controller_id))
    cluster.processes[away].hang()
    cluster.until(lambda: produce(cluster, leader, topic_id) < 1.0)
    assert away not in hosted(cluster, leader).machine.isr
    for _ in range(BATCHES):
        assert produce(cluster, leader, topic_id) < 0.5, "the follower that is in sync is never held back"
    cluster.advance(12.0)  # what was fetched by the one in sync counts no more
    cluster.processes[away].resume()
    begun = cluster.clock.monotonic()
    cluster.advance(1.5)
    if side is not None:
        assert hosted(cluster, away).log.log_end_offset < hosted(cluster, leader).log.log_end_offset
        assert produce(cluster, leader, topic_id) < 0.5
        throttle = getattr(cluster.broker(leader if side == "leader" else away).replicas.replication, f"{side}_throttle")
        assert throttle.bytes_per_second > 0
    cluster.until(lambda: away in hosted(cluster, leader).machine.isr)
    assert least_s <= cluster.clock.monotonic() - begun <= most_s
    assert hosted(cluster, away).log.log_end_offset == hosted(cluster, leader).log.log_end_offset
