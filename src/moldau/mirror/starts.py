"""Where a partition of which nothing has been mirrored begins."""

from typing import TYPE_CHECKING, assert_never

from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.mirror.partitions import Position
from moldau.mirror.plan.start import FromOffset, FromTime, LogBound, StartPoint
from moldau.mirror.reading import list_offset

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.wire.brokers import Brokers


async def position_of(brokers: "Brokers", partition: "TopicPartition", start: StartPoint, *, committed: bool) -> Position:
    """The position that a start means now. PeerError, WorldError."""
    match start:
        case LogBound.EARLIEST:
            return Position(await list_offset(brokers, partition, EARLIEST))
        case LogBound.LATEST:
            return Position(await list_offset(brokers, partition, LATEST, committed=committed))
        case FromTime(timestamp_ms):
            found = await list_offset(brokers, partition, timestamp_ms, committed=committed)
            return Position(found if found >= 0 else await list_offset(brokers, partition, LATEST, committed=committed))
        case FromOffset(offset):
            return Position(max(offset, await list_offset(brokers, partition, EARLIEST)))
        case _:
            assert_never(start)
