"""What the target refuses of a merge: of a topic of the mirror's own it is a retry of all partitions, which the status shows."""

import asyncio
import logging
from typing import Any, cast

import pytest

from moldau.mirror.merge.merge import Merge
from moldau.mirror.merge.part import Given
from moldau.mirror.merge.positions import POSITIONS, Key
from moldau.mirror.merge.route import Route
from moldau.mirror.merge.writer import PartitionRefusedError
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.plan.values import Partitioning
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.testing.clock import FakeClock

ORDERS, OTHERS = (SourcePartition("east", bytes(16), topic, 0) for topic in ("orders", "others"))


class Reader:
    """Fetches nothing."""

    def unfollow(self, _partition: SourcePartition) -> None:
        """It does not."""


async def merge_of(halted: list[tuple[SourcePartition, Halt]]) -> Merge:
    async def start() -> Position:
        return Position(0)

    route = Route(Partitioning.SAME, lambda partition: partition.topic, lambda topic: 1)
    outside = cast("Any", None)
    readers = cast("Any", {"east": Reader()})
    merge = Merge(
        "m",
        "1",
        outside,
        "mirror.m.1",
        FakeClock(),
        outside,
        route,
        readers,
        lambda partition, why, _reason: halted.append((partition, why)),
    )
    await merge.give({each: Given(Key("m", "c", each.topic_id, each.number), "target", start) for each in (ORDERS, OTHERS)})
    return merge


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_all_partitions_are_tried_again_where_a_topic_of_the_mirror_itself_refuses(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        halted: list[tuple[SourcePartition, Halt]] = []
        merge = await merge_of(halted)
        merge._failed(PartitionRefusedError(POSITIONS, code, "why"))
        assert not halted
        for each in (ORDERS, OTHERS):
            retry = merge.retry(each)
            assert retry is not None
            assert retry.reason == f"_mirror_positions-0: {code.name.lower()}: why"

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "_mirror_positions-0" in caplog.text


def test_only_what_goes_to_a_partition_halts_where_that_refuses() -> None:
    async def run() -> None:
        halted: list[tuple[SourcePartition, Halt]] = []
        merge = await merge_of(halted)
        merge._failed(PartitionRefusedError(TopicPartition("orders", 0), ErrorCode.INVALID_RECORD, None))
        assert halted == [(ORDERS, Halt.REFUSED)]
        assert merge.retry(OTHERS) is None

    asyncio.run(run())
