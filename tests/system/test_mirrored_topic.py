"""Consumers read a mirror's topic, whose batches have the epochs of another cluster, on over the death of a leader and a promotion."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from moldau.client.cluster import Cluster as ClusterClient
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.alter_mirror import AlterMirrorPartition, AlterMirrorRequest, AlterMirrorTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.protocol.versions import VersionRange
from moldau.testing import Cluster

pytestmark = pytest.mark.system

LIMIT_S = 300.0
"""For a busy machine; nothing takes that long."""
BY_NAME = VersionRange(9, 12)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(settings={"replica.lag.time.max.ms": "3000"}, timeout_s=LIMIT_S) as cluster:
        yield cluster


def batch(base_offset: int, epoch: int, *values: bytes) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for number, value in enumerate(values):
        builder.append(1_700_000_000_000, None, value, (), base_offset + number)
    return builder.build()


def mirror(cluster: Cluster, topic: str, *batches: bytes) -> int:
    """Send batches as a mirror does, until the leader is one that knows it; where the log ends then."""
    limit = time.monotonic() + LIMIT_S
    with ClusterClient(cluster.bootstrap_servers) as target:
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, b"".join(batches))])]
        request = ProduceRequest(None, -1, 30_000, data, "a")
        while True:
            answer = target.at_broker(BrokerId(cluster.leader_of(topic)), ApiKey.PRODUCE, request, version=BY_NAME)
            (result,) = answer.responses[0].partition_responses
            if result.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                break
            assert time.monotonic() < limit, result
            time.sleep(0.02)
    assert result.error_code == 0, result
    base_offset: int = result.base_offset
    return base_offset


class Reader:
    """A consumer of a group, which commits what it has read."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        self._consumer.subscribe([topic])

    def read(self, count: int) -> list[tuple[int | None, bytes | None]]:
        found: list[tuple[int | None, bytes | None]] = []
        while len(found) < count:
            message = self._consumer.poll(LIMIT_S)
            assert message is not None
            assert message.error() is None
            found.append((message.offset(), message.value()))
        self._consumer.commit(asynchronous=False)
        return found

    def close(self) -> None:
        self._consumer.close()


def test_a_group_reads_a_mirrored_topic_through_everything(cluster: Cluster) -> None:
    topic = cluster.create_topic("m", config={"mirror.source": "cluster/topic"})
    cluster.wait_until_in_sync(topic)
    assert mirror(cluster, topic, batch(0, 40, b"a", b"b"), batch(10, 57, b"c")) == 11
    reader = Reader(cluster, topic)
    assert reader.read(3) == [(0, b"a"), (1, b"b"), (10, b"c")]
    first = cluster.leader_of(topic)
    cluster.kill(first)
    assert cluster.leader_of(topic) != first
    assert mirror(cluster, topic, batch(10, 57, b"c"), batch(11, 57, b"d"), batch(12, 61, b"e", b"f")) == 14
    assert reader.read(2) == [(11, b"d"), (12, b"e")]
    reader.close()
    reader = Reader(cluster, topic)
    cluster.restart(first)
    cluster.wait_until_in_sync(topic)
    with ClusterClient(cluster.bootstrap_servers) as target:
        request = AlterMirrorRequest(topics=[AlterMirrorTopic(topic, "", [AlterMirrorPartition(0, False, 61, 14)])])
        answer = target.at_controller(ApiKey.ALTER_MIRROR, request, lambda found: found)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "retries": 100})
    failures: list[object] = []
    for value in (b"x", b"y"):
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert failures == [None, None]
    assert reader.read(3) == [(13, b"f"), (14, b"x"), (15, b"y")]
    reader.close()
    cluster.wait_until_in_sync(topic)
