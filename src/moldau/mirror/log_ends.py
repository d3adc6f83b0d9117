"""Where the log of a partition ends, and which leader epoch wrote which of its offsets, as its leader knows it."""

from typing import TYPE_CHECKING, NamedTuple

from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from moldau.mirror.reading import ask_leader, check_leader, list_offset
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_lookups import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.wire.brokers import Brokers

INSIST_S = 15.0
EPOCHS_MAX = 100
"""How many epochs of a log are asked for, from its end on: where two logs part is among the last ones."""
_CONSUMER = -1
_WITH_EPOCH = VersionRange(4, 9)
_EPOCH_ENDS = VersionRange(3, 4)


class LogEnd(NamedTuple):
    """The end of a log."""

    epoch: int
    """Its last leader epoch; of a partition that a mirror writes to the last one of the source, -1 while it has no record."""
    last_stable_offset: int
    high_watermark: int
    end_offset: int

    @property
    def is_settled(self) -> bool:
        """Whether the log has nothing that is not committed, or in a transaction that is open."""
        return self.last_stable_offset == self.high_watermark == self.end_offset


class EpochRun(NamedTuple):
    """The offsets that one leader epoch has in a log."""

    epoch: int
    start: int
    end: int


async def look(brokers: "Brokers", partition: "TopicPartition") -> LogEnd:
    """The end of a partition's log. PeerError, WorldError."""

    async def ask() -> LogEnd:
        # in this order each is no more than the next one, whatever is appended meanwhile
        last_stable_offset, _ = await _latest(brokers, partition, READ_COMMITTED)
        high_watermark, epoch = await _latest(brokers, partition, READ_UNCOMMITTED)
        _, end_offset = await _epoch_end(brokers, partition, epoch)
        return LogEnd(epoch, last_stable_offset, high_watermark, max(end_offset, high_watermark))

    return await brokers.insist(ask, INSIST_S)


async def high_watermark(brokers: "Brokers", partition: "TopicPartition") -> int:
    """The offset before which consumers read. PeerError, WorldError."""

    async def ask() -> int:
        return (await _latest(brokers, partition, READ_UNCOMMITTED))[0]

    return await brokers.insist(ask, INSIST_S)


async def epoch_runs(brokers: "Brokers", partition: "TopicPartition") -> list[EpochRun]:
    """The epochs of a partition's log, the oldest first; of more than `EPOCHS_MAX` the last ones. The last one may have no record yet.

    An empty log has one run, of no epoch (-1). PeerError, WorldError.
    """

    async def ask() -> list[EpochRun]:
        start = await list_offset(brokers, partition, EARLIEST)
        end, epoch = await _latest(brokers, partition, READ_UNCOMMITTED)
        ends: list[tuple[int, int]] = []
        while len(ends) <= EPOCHS_MAX:
            found, end_offset = await _epoch_end(brokers, partition, epoch)
            is_oldest = bool(ends) and (end_offset <= start or (len(ends) > 1 and end_offset >= ends[-1][1]))
            if is_oldest or found < 0:
                break  # where the epoch before it ends is where it begins
            ends.append((found, end_offset))
            epoch = found - 1
        if not ends:
            return [EpochRun(-1, start, end)]
        starts = [end_offset for _, end_offset in ends[1:]]
        if len(ends) <= EPOCHS_MAX:
            starts.append(start)
        return [EpochRun(*each) for each in zip((e for e, _ in ends), starts, (o for _, o in ends), strict=False)][::-1]

    return await brokers.insist(ask, INSIST_S)


async def epoch_end(brokers: "Brokers", partition: "TopicPartition", epoch: int) -> int:
    """The offset after the last record of an epoch, or of the newest one before it. PeerError, WorldError."""

    async def ask() -> int:
        return (await _epoch_end(brokers, partition, epoch))[1]

    return await brokers.insist(ask, INSIST_S)


async def _latest(brokers: "Brokers", partition: "TopicPartition", isolation: int) -> tuple[int, int]:
    wanted = ListOffsetsTopic(partition.topic, [ListOffsetsPartition(partition.partition, -1, LATEST)])
    request = ListOffsetsRequest(_CONSUMER, isolation, [wanted])
    response = await ask_leader(brokers, partition, ApiKey.LIST_OFFSETS, request, _WITH_EPOCH)
    (found,) = response.topics[0].partitions
    check_leader(brokers, partition, found.error_code)
    return found.offset, found.leader_epoch


async def _epoch_end(brokers: "Brokers", partition: "TopicPartition", epoch: int) -> tuple[int, int]:
    wanted = OffsetForLeaderTopic(partition.topic, [OffsetForLeaderPartition(partition.partition, -1, epoch)])
    request = OffsetForLeaderEpochRequest(_CONSUMER, [wanted])
    response = await ask_leader(brokers, partition, ApiKey.OFFSET_FOR_LEADER_EPOCH, request, _EPOCH_ENDS)
    (found,) = response.topics[0].partitions
    check_leader(brokers, partition, found.error_code)
    return found.leader_epoch, found.end_offset
