"""A new leader may not know yet how much is committed: it says so, and gives no consumer reason to go back (KIP-207, KIP-320)."""

from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.protocol.messages.offset_lookups import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from support.replica_world import ReplicaWorld, fetched, produced

OLD_EPOCH = 5


def failed_over() -> ReplicaWorld:
    """A record is acknowledged and shown; its leader is gone, and the next one has it and does not show it yet."""
    world = ReplicaWorld(3)
    world.lead(1)
    assert world.epoch == OLD_EPOCH
    client = world.append(1, b"x")
    world.run()
    assert produced(client) == [(0, 0)]
    assert fetched(world.client(1)).high_watermark == 1
    world.kill(1)
    world.lead(2, isr=(2, 3))
    assert (world.hosted(2).log.log_end_offset, world.machine(2).high_watermark) == (1, 0)
    return world


def listed(world: ReplicaWorld, timestamp: int, version: int = 7) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    found: Any = world.client(2).ask(ListOffsetsRequest(topics=[ListOffsetsTopic("t", [wanted])]), version)
    answer = found.topics[0].partitions[0]
    return answer.error_code, answer.offset


@pytest.mark.parametrize("timestamp", [-1, 1 << 60])
@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE), (7, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_the_latest_offset_is_not_available_until_the_followers_have_fetched(timestamp: int, version: int, code: ErrorCode) -> None:
    world = failed_over()
    assert listed(world, timestamp, version) == (code, -1)
    assert listed(world, -2, version) == (0, 0), "the earliest is"
    world.run(0.1)
    assert listed(world, timestamp, version) == (0, 1 if timestamp == -1 else -1)


def test_a_record_that_is_shown_is_found_by_time_meanwhile() -> None:
    world = ReplicaWorld(3)
    world.lead(1)
    world.append(1, b"x")
    world.run(1.0)
    world.append(1, b"y")
    world.run()
    world.kill(1)
    world.lead(2, isr=(2, 3))
    assert world.machine(2).high_watermark == 1
    assert listed(world, 0) == (0, 0)
    assert listed(world, -1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("before", [1, -1])
def test_records_that_were_acknowledged_are_deleted_once_the_followers_have_fetched(before: int) -> None:
    """OFFSET_OUT_OF_RANGE would be final to the client, which has an acknowledgement of the record."""
    world = failed_over()
    world.gone(1)
    assert deleted(world, before) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert deleted(world, 0) == (0, 0)
    assert deleted(world, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert deleted(world, before) == (0, 1)


def deleted(world: ReplicaWorld, before: int) -> tuple[int, int]:
    """The answer, which comes when the followers have deleted, too."""
    client = world.client(2)
    client.send(DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, before)])], 30_000), 2)
    world.run(1.0)
    (answer,) = (each.body.topics[0].partitions[0] for each in client.answers())
    return answer.error_code, answer.low_watermark


def test_a_consumer_that_has_read_the_record_is_not_called_truncated() -> None:
    world = failed_over()
    wanted = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, world.epoch, OLD_EPOCH)])
    answer = world.client(2).ask(OffsetForLeaderEpochRequest(topics=[wanted]), 4).topics[0].partitions[0]
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, OLD_EPOCH, 1)
    found = fetched(world.client(2), 1)
    assert (found.error_code, bytes(found.records)) == (0, b"")
