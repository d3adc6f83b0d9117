"""Where an auditor goes on in partitions that go, come back, or are made anew under the same name."""

import time
from typing import Any

import pytest

from moldau.audit.reading import Reading
from moldau.client.errors import failure
from moldau.client.metadata import NO_TOPIC_ID, PartitionMetadata, TopicMetadata
from moldau.client.partition_requests import Fetched, ListedOffset
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId, Offset, TimestampMs, TopicPartition

T0 = TopicPartition("t", 0)
ME = BrokerId(1)
FIRST = 3


class Cluster:
    """One topic, or none; every partition begins at offset 3."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id: bytes | None = topic_id
        self.error = ErrorCode.NONE
        self.is_known = False

    def topics(self) -> list[TopicMetadata]:
        if self.topic_id is None:
            return []
        partition = PartitionMetadata(0, ME, 0, (ME,), (ME,), (), ErrorCode.NONE)
        return [TopicMetadata("t", self.topic_id, False, (partition,), self.error)]

    def list_offsets(self, wanted: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, ListedOffset]:
        return {where: ListedOffset(Offset(FIRST), TimestampMs(-1), 0) for where in wanted}

    def fetch_many(self, positions: dict[TopicPartition, int], _: Any) -> dict[TopicPartition, Fetched]:
        if self.is_known:
            return {where: Fetched(memoryview(b""), Offset(50), Offset(50), Offset(FIRST)) for where in positions}
        raise failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, T0)

    def forget_topic(self, name: str) -> None:
        assert name == "t"


def reading(cluster: Cluster, committed: dict[TopicPartition, int] | None = None) -> Reading:
    made: Any = cluster
    found = Reading(made, None, committed or {})
    found.discover()
    return found


@pytest.mark.parametrize("how", ["not listed", "listed with an error", "not known to the leader"])
def test_a_topic_that_brokers_do_not_know_for_a_moment_is_not_counted_again(how: str) -> None:
    """By its id it is the same topic: from its beginning, everything counted would be counted twice."""
    cluster = Cluster(b"1" * 16)
    found = reading(cluster)
    assert found.positions == {T0: FIRST}
    found.positions[T0] = 50
    if how == "not listed":
        cluster.topic_id = None
        found.discover()
    elif how == "listed with an error":
        cluster.error = ErrorCode.LEADER_NOT_AVAILABLE
        found.discover()
    else:
        assert found.fetch(wait=False) == {}
    assert found.positions == {}
    cluster.topic_id, cluster.error = b"1" * 16, ErrorCode.NONE
    found.discover()
    assert found.positions == {T0: 50}


def test_a_topic_that_is_made_anew_is_counted_from_its_beginning() -> None:
    cluster = Cluster(b"1" * 16)
    found = reading(cluster, {T0: 40})
    assert found.positions == {T0: 40}
    cluster.topic_id = None
    found.discover()
    cluster.topic_id = b"2" * 16
    found.discover()
    assert found.positions == {T0: FIRST}


def test_without_ids_nobody_can_know() -> None:
    """Brokers older than topic ids: as if it were made anew."""
    cluster = Cluster(NO_TOPIC_ID)
    found = reading(cluster, {T0: 40})
    cluster.topic_id = None
    found.discover()
    cluster.topic_id = NO_TOPIC_ID
    found.discover()
    assert found.positions == {T0: FIRST}


def test_everything_is_counted_only_up_to_when_partitions_were_looked_for() -> None:
    """A topic that is made behind that may have events; and of one that was let go of nobody knows."""
    cluster = Cluster(b"1" * 16)
    before_ms = int(time.time() * 1000)
    found = reading(cluster)
    after_ms = int(time.time() * 1000)
    cluster.is_known = True
    assert found.fetch(wait=False)
    assert found.caught_up_at(after_ms) is None
    found.positions[T0] = 50
    told_ms = found.caught_up_at(after_ms + 60_000)
    assert told_ms is not None
    assert before_ms <= told_ms <= after_ms
    assert found.caught_up_at(before_ms - 1) == before_ms - 1
    cluster.is_known = False
    found.fetch(wait=False)
    assert found.caught_up_at(after_ms) is None
    found.discover()
    cluster.is_known = True
    found.fetch(wait=False)
    assert found.positions == {T0: 50}
    assert found.caught_up_at(after_ms + 60_000) is not None
