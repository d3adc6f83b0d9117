"""A broker that was not registered while topics were deleted or replicas moved: it serves nothing of them afterwards, and keeps no bytes
under another topic's id.
"""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.cluster import znodes
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Children, Delete, GetChildren, Multi
from moldau.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from moldau.protocol.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.testing.coordination import FakeSession
from support.cluster_world import ClusterWorld

IDS = (1, 2, 3)
AWAY = 3


def create(cluster: ClusterWorld, name: str, *replicas: Sequence[int]) -> bytes:
    topic = CreatableTopic(name, -1, -1, [CreatableReplicaAssignment(index, list(each)) for index, each in enumerate(replicas)])
    (created,) = cluster.ask(cluster.controller_id, CreateTopicsRequest([topic]), 7).topics
    assert created.error_code == 0, created
    cluster.settle()
    topic_id: bytes = created.topic_id
    return topic_id


def delete(cluster: ClusterWorld, name: str) -> None:
    (deleted,) = cluster.ask(cluster.controller_id, DeleteTopicsRequest(topics=[DeleteTopicState(name)]), 6).responses
    assert deleted.error_code == 0
    cluster.settle()


def move(cluster: ClusterWorld, name: str, *replicas: Sequence[int]) -> None:
    """Give partitions other replicas."""
    parts = [ReassignablePartition(index, list(each)) for index, each in enumerate(replicas)]
    answer = cluster.ask(cluster.controller_id, AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name, parts)]), 0)
    assert [each.error_code for topic in answer.responses for each in topic.partitions] == [0] * len(replicas)
    cluster.settle()


def produce(cluster: ClusterWorld, leader: int, topic_id: bytes, value: bytes) -> None:
    builder = RecordBatchBuilder()
    builder.append(cluster.clock.time_ms(), None, value)
    data = [TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(0, builder.build())])]
    answer: Any = cluster.ask(leader, ProduceRequest(None, -1, 30_000, data), 13)
    assert answer.responses[0].partition_responses[0].error_code == 0


def leave(cluster: ClusterWorld, *, restarts: bool) -> None:
    """Broker 3 is registered no more: it has ended, or lives and cannot reach the tree."""
    if restarts:
        cluster.kill(AWAY)
    else:
        cluster.processes[AWAY].session.expire()
    cluster.settle()


def come_back(cluster: ClusterWorld, *, restarts: bool) -> None:
    if restarts:
        cluster.start(AWAY)
    else:
        cluster.processes[AWAY].session.resume()
    cluster.until(lambda: cluster.processes[AWAY].is_serving and cluster.agrees())
    cluster.advance(1.0)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_topic_that_was_deleted_meanwhile_is_not_in_its_metadata(*, restarts: bool) -> None:
    cluster = ClusterWorld(*IDS)
    create(cluster, "gone", (1, 2))
    create(cluster, "stays", (1, 2))
    assert "gone" in cluster.broker(AWAY).metadata.topics
    leave(cluster, restarts=restarts)
    delete(cluster, "gone")
    come_back(cluster, restarts=restarts)
    assert list(cluster.broker(AWAY).metadata.topics) == ["stays"]


@pytest.mark.parametrize("is_notified", [True, False])
def test_a_configuration_that_was_changed_meanwhile_is_obeyed_also_when_its_notification_is_removed(*, is_notified: bool) -> None:
    """R17: notifications are removed after 15 minutes. The broker would lead with a minimum of in-sync replicas that holds no more."""
    cluster = ClusterWorld(*IDS)
    create(cluster, "t", (AWAY, 1, 2))
    leave(cluster, restarts=False)
    edits = [IncrementalAlterableConfig("min.insync.replicas", 0, "2")]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(2, "t", edits)])
    (result,) = cluster.ask(cluster.controller_id, request, 1).responses
    assert result.error_code == 0
    if not is_notified:
        tree = cluster.tree.session()
        tree.submit(GetChildren(znodes.CONFIG_CHANGES), lambda found: remove(tree, found))
    cluster.advance(1.0)
    come_back(cluster, restarts=False)
    assert cluster.broker(AWAY).replicas.hosted[TopicPartition("t", 0)].machine.min_insync_replicas == 2
    assert cluster.broker(AWAY).metadata.topic_config("t") == {"min.insync.replicas": "2"}


def remove(tree: FakeSession, found: object) -> None:
    assert isinstance(found, Children)
    assert found.names
    tree.submit(Multi(tuple(Delete(znodes.config_change(name)) for name in found.names)), lambda _outcome: None)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_replica_that_was_moved_away_meanwhile_is_removed(caplog: pytest.LogCaptureFixture, *, restarts: bool) -> None:
    """R3: with its log, and with a line about it."""
    cluster = ClusterWorld(*IDS)
    produce(cluster, 1, create(cluster, "t", (1, 2, AWAY), (1, 2, AWAY)), b"a")
    leave(cluster, restarts=restarts)
    move(cluster, "t", (1, 2))
    with caplog.at_level(logging.WARNING):
        come_back(cluster, restarts=restarts)
    assert cluster.partition("t").replicas == (1, 2)
    assert cluster.broker(AWAY).logs.partitions() == [TopicPartition("t", 1)], "the other one stays"
    assert list(cluster.broker(AWAY).replicas.hosted) == [TopicPartition("t", 1)]
    assert "log removed, its replica was moved while this broker was not registered: partition=t-0" in caplog.text


@pytest.mark.parametrize("restarts", [True, False])
def test_old_bytes_do_not_come_under_the_id_of_another_topic_of_that_name(*, restarts: bool) -> None:
    """Z21: the replica was moved away first, so that the deletion did not wait for this broker."""
    cluster = ClusterWorld(*IDS)
    produce(cluster, 1, create(cluster, "t", (1, 2, AWAY)), b"old")
    leave(cluster, restarts=restarts)
    move(cluster, "t", (1, 2))
    delete(cluster, "t")
    topic_id = create(cluster, "t", (1, 2))
    produce(cluster, 1, topic_id, b"new")
    come_back(cluster, restarts=restarts)
    assert cluster.broker(AWAY).replicas.hosted == {}
    move(cluster, "t", (1, 2, AWAY))
    cluster.advance(1.0)
    hosted = cluster.broker(AWAY).replicas.hosted[TopicPartition("t", 0)]
    assert (hosted.topic_id, hosted.machine.role) == (topic_id, ReplicaRole.FOLLOWER)
    assert sorted(cluster.partition("t").isr) == [1, 2, AWAY]
    assert hosted.log.log_end_offset == 1
    assert hosted.log.epoch_at(0) == cluster.broker(1).replicas.hosted[TopicPartition("t", 0)].log.epoch_at(0)
    names = cluster.disks[AWAY].list("/data")
    assert len([name for name in names if name.startswith("t-0.") and name.endswith("-stray")]) == 1


def test_the_log_of_a_topic_that_does_not_exist_is_kept_and_not_served(caplog: pytest.LogCaptureFixture) -> None:
    """As where a store is older than the logs."""
    cluster = ClusterWorld(*IDS)
    produce(cluster, 1, create(cluster, "t", (1, 2, AWAY)), b"a")
    leave(cluster, restarts=True)
    move(cluster, "t", (1, 2))
    delete(cluster, "t")
    with caplog.at_level(logging.WARNING):
        come_back(cluster, restarts=True)
    assert cluster.broker(AWAY).logs.partitions() == [TopicPartition("t", 0)]
    assert cluster.broker(AWAY).replicas.hosted == {}
    assert "logs of topics that do not exist are kept, and not served: number=1 partitions=t-0" in caplog.text
