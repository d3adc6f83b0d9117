"""A broker that stops in order hands its leaderships over first; then it leaves the tree, so that others need not wait for its session."""

import pytest

from moldau.broker.metadata.membership import LINGER_S
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.controller import ControlledShutdownRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from support.cluster_world import ClusterWorld

PARTITIONS = 6


def cluster_of_three() -> ClusterWorld:
    cluster = ClusterWorld(1, 2, 3, min_insync_replicas=2)
    cluster.create_topic("t", PARTITIONS)
    cluster.until(cluster.agrees)
    return cluster


def leaders(cluster: ClusterWorld, on: int) -> list[int]:
    return [cluster.partition("t", index, on=on).leader for index in range(PARTITIONS)]


def produce(cluster: ClusterWorld, index: int = 0) -> int:
    info = cluster.partition("t", index)
    builder = RecordBatchBuilder()
    builder.append(cluster.clock.time_ms(), None, b"x")
    topic = cluster.broker(info.leader).metadata.topics["t"]
    data = TopicProduceData(topic_id=topic.topic_id, partition_data=[PartitionProduceData(index, builder.build())])
    code: int = cluster.ask(info.leader, ProduceRequest(None, -1, 30_000, [data]), 13).responses[0].partition_responses[0].error_code
    return code


def test_leaders_are_elsewhere_and_in_sync_sets_smaller_within_a_tenth_of_a_second_while_it_serves() -> None:
    cluster = cluster_of_three()
    stopping = next(each for each in cluster.processes if each != cluster.controller_id)
    assert stopping in leaders(cluster, cluster.controller_id)
    hand_over = cluster.broker(stopping).membership.hand_over()
    assert hand_over is not None
    cluster.advance(0.1)
    others = [each for each in cluster.processes if each != stopping]
    for each in others:
        assert stopping not in leaders(cluster, each)
        assert all(stopping not in cluster.partition("t", index, on=each).isr for index in range(PARTITIONS))
    assert not hand_over.is_over, "clients that ask it learn of the new leaders"
    cluster.advance(5.0)
    assert hand_over.is_over
    assert all(stopping not in cluster.partition("t", index).isr for index in range(PARTITIONS)), "a late fetch brings it back (Z14)"
    assert cluster.broker(stopping).replicas.hosted == {}
    assert [produce(cluster, index) for index in range(PARTITIONS)] == [0] * PARTITIONS


def test_when_it_is_controller_another_one_is_at_once_which_knows_that_it_is_no_broker_any_more() -> None:
    cluster = cluster_of_three()
    first = cluster.controller_id
    cluster.processes[first].session.close = lambda done=None: None  # type: ignore[method-assign]
    cluster.stop(first)
    assert cluster.controller_id != first
    assert sorted(cluster.broker(cluster.controller_id).metadata.brokers) == [each for each in (1, 2, 3) if each != first]
    assert first not in leaders(cluster, cluster.controller_id)
    cluster.skip(20.0)
    assert cluster.controller_id != first
    assert [produce(cluster, index) for index in range(PARTITIONS)] == [0] * PARTITIONS


def test_it_comes_back_clean_and_in_sync_and_all_can_stop_one_after_the_other() -> None:
    cluster = cluster_of_three()
    for broker_id in (1, 2, 3):
        assert produce(cluster) == 0
        cluster.stop(broker_id)
        assert produce(cluster) == 0
        cluster.start(broker_id)
        cluster.until(lambda: cluster.agrees() and all(len(cluster.partition("t", index).isr) == 3 for index in range(PARTITIONS)))
    ends = {cluster.broker(each).replicas.hosted[TopicPartition("t", 0)].log.log_end_offset for each in cluster.processes}
    assert ends == {6}
    for broker_id in (3, 2, 1):
        before = cluster.clock.monotonic()
        cluster.stop(broker_id)
        assert cluster.clock.monotonic() - before < 0.5 + LINGER_S, "it waits for no broker that could help"


def test_a_stop_without_tree_or_controller_ends_in_half_of_the_time_of_a_stop() -> None:
    cluster = cluster_of_three()
    controller = cluster.controller_id
    cluster.kill(controller, expires=False)
    left = next(iter(cluster.processes))
    cluster.processes[left].session.suspend()
    before = cluster.clock.monotonic()
    cluster.stop(left)
    assert 4.9 < cluster.clock.monotonic() - before < 5.5


def test_a_broker_alone_does_not_ask() -> None:
    assert ClusterWorld(1).broker(1).membership.hand_over() is None
    cluster = ClusterWorld(1, 2, controlled_shutdown_enable=False)
    assert cluster.broker(1).membership.hand_over() is None


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_brokers_of_kafka_ask_in_every_version(version: int) -> None:
    cluster = cluster_of_three()
    controller = cluster.controller_id
    stopping = next(each for each in cluster.processes if each != controller)
    epoch = cluster.broker(stopping).applier.broker_epoch

    def ask(to: int, broker_id: int, broker_epoch: int = -1) -> tuple[int, list[int]]:
        answer = cluster.ask(to, ControlledShutdownRequest(broker_id, broker_epoch), version)
        return answer.error_code, [each.partition_index for each in answer.remaining_partitions]

    assert ask(stopping, stopping) == (ErrorCode.NOT_CONTROLLER, [])
    assert ask(controller, 9) == (ErrorCode.BROKER_NOT_AVAILABLE, [])
    assert ask(controller, stopping, epoch + 1 if version >= 2 else -1) == (ErrorCode.STALE_BROKER_EPOCH if version >= 2 else 0, [])
    assert ask(controller, stopping, epoch) == (0, [])
    last = next(each for each in cluster.processes if each not in (controller, stopping))
    assert ask(controller, last) == (0, [])
    assert ask(controller, controller) == (0, list(range(PARTITIONS))), "no other one is left"
