"""Topics of mirrors, read up to where they end now; and what else is asked about one partition."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from moldau.client.fetched_batches import VisibleBatches
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, AbortedRecords
from moldau.model.errors import CorruptBatchError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.records.batch import batches, iterate
from moldau.protocol.records.header import verify_crc
from moldau.protocol.versions import VersionRange
from moldau.wire.brokers import check
from moldau.wire.connection import RequestLostError

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.protocol.records.header import BatchHeader
    from moldau.protocol.records.record import Record
    from moldau.wire.brokers import Brokers

INSIST_S = 60.0
_CONSUMER = -1
_BYTES = 4 * 1024 * 1024
_WAIT_S = 0.1
_DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
_BY_NAME = VersionRange(4, 12)
_LIST_OFFSETS = VersionRange(4, 9)


async def list_offset(brokers: "Brokers", partition: "TopicPartition", time: int, *, committed: bool = False) -> int:
    """The offset that a partition has for a time, or for LATEST or EARLIEST; -1 if no record is that young. PeerError, WorldError."""

    async def ask() -> int:
        return (await ask_offset(brokers, partition, time, committed=committed))[0]

    return await brokers.insist(ask, INSIST_S)


async def list_end(brokers: "Brokers", partition: "TopicPartition") -> tuple[int, int]:
    """The high watermark of a partition, and its leader epoch: of a mirror's partition that of its log, -1 if it never had a record.

    PeerError, WorldError.
    """
    return await brokers.insist(lambda: ask_offset(brokers, partition, LATEST, committed=False), INSIST_S)


async def ask_offset(brokers: "Brokers", partition: "TopicPartition", time: int, *, committed: bool) -> tuple[int, int]:
    """The same, and its leader epoch, asked for once."""
    wanted = ListOffsetsTopic(partition.topic, [ListOffsetsPartition(partition.partition, -1, time)])
    request = ListOffsetsRequest(_CONSUMER, READ_COMMITTED if committed else READ_UNCOMMITTED, [wanted])
    response = await ask_leader(brokers, partition, ApiKey.LIST_OFFSETS, request, _LIST_OFFSETS)
    (found,) = response.topics[0].partitions
    check_leader(brokers, partition, found.error_code)
    return int(found.offset), int(found.leader_epoch)


async def last_epoch(brokers: "Brokers", partition: "TopicPartition", end: int) -> int:
    """The leader epoch of the batch that ends before `end`; -1 if it cannot be read any more. PeerError, WorldError."""
    fetched = await fetch_from(brokers, partition, end - 1, READ_UNCOMMITTED)
    return max(
        (header.partition_leader_epoch for header, _ in batches(memoryview(fetched.records or b"")) if header.base_offset < end), default=-1
    )


async def read_to_end(brokers: "Brokers", partition: "TopicPartition") -> AsyncIterator["Record"]:
    """The committed records of a partition, up to where it ends now: transactions that are open before that are waited for.

    PeerError, CorruptBatchError among them; WorldError.
    """
    end = await list_offset(brokers, partition, LATEST)
    start = await list_offset(brokers, partition, EARLIEST)
    async for _, records in read_batches(brokers, partition, start, end, READ_COMMITTED):
        for record in records:
            yield record


async def read_batches(
    brokers: "Brokers", partition: "TopicPartition", start: int, end: int, isolation: int
) -> AsyncIterator[tuple["BatchHeader", list["Record"]]]:
    """The batches between two offsets that readers of this isolation see, with their records. Waits for them. Errors as `read_to_end`."""
    position = start
    while position < end:
        fetched = await fetch_from(brokers, partition, position, isolation)
        visible = VisibleBatches(AbortedRecords(each.producer_id, each.first_offset) for each in fetched.aborted_transactions or ())
        for header, batch in batches(memoryview(fetched.records or b"")):
            if header.base_offset >= end:
                return
            if not verify_crc(batch):
                raise CorruptBatchError(f"{partition}: the batch at offset {header.base_offset} has a wrong checksum")
            if visible.shows(header, batch):
                records = iterate(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX)
                yield header, [record for record in records if record.offset >= position]
            position = max(position, header.last_offset + 1)


async def read_next(brokers: "Brokers", partition: "TopicPartition", position: int, wait_s: float) -> tuple[list["Record"], int]:
    """The records at a position, once there are any or the wait is over, and the position after them. All are taken for committed.

    It has a connection of its own, on which it may wait. PeerError, CorruptBatchError among them; WorldError.
    """
    fetched = await _fetch_once(brokers, partition, position, READ_UNCOMMITTED, wait_s, "tail")
    found: list[Record] = []
    for header, batch in batches(memoryview(fetched.records or b"")):
        if not verify_crc(batch):
            raise CorruptBatchError(f"{partition}: the batch at offset {header.base_offset} has a wrong checksum")
        found += (each for each in iterate(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX) if each.offset >= position)
        position = max(position, header.last_offset + 1)
    return found, position


async def fetch_from(brokers: "Brokers", partition: "TopicPartition", position: int, isolation: int = READ_COMMITTED) -> Any:
    """What one request has of a partition from a position on, perhaps nothing. PeerError, WorldError."""
    return await brokers.insist(lambda: _fetch_once(brokers, partition, position, isolation), INSIST_S)


async def _fetch_once(
    brokers: "Brokers", partition: "TopicPartition", position: int, isolation: int, wait_s: float = _WAIT_S, purpose: str = ""
) -> Any:
    wanted = FetchPartition(partition.partition, -1, position, -1, -1, _BYTES)
    request = FetchRequest(
        max_wait_ms=round(wait_s * 1000),
        min_bytes=1,
        max_bytes=_BYTES,
        isolation_level=isolation,
        topics=[FetchTopic(partition.topic, partitions=[wanted])],
    )
    response = await ask_leader(brokers, partition, ApiKey.FETCH, request, _BY_NAME, purpose)
    check(response.error_code, partition)
    (found,) = response.responses[0].partitions
    check_leader(brokers, partition, found.error_code)
    return found


async def ask_leader(
    brokers: "Brokers", partition: "TopicPartition", api_key: ApiKey, request: Any, version: VersionRange, purpose: str = ""
) -> Any:
    """Ask the leader of a partition once; where it does not answer, the next request looks for another. PeerError, RequestLostError.

    `purpose`: of the connection.
    """
    address = await brokers.leader(partition)
    try:
        connection = await brokers.connection(address, purpose)
        return await connection.send(api_key, request, timeout_s=5.0, version=version)
    except RequestLostError:
        brokers.forget_topic(partition.topic)
        raise


def check_leader(brokers: "Brokers", partition: "TopicPartition", code: int) -> None:
    """PeerError for an error of a leader, after which the next request looks for another."""
    if code:
        brokers.forget_topic(partition.topic)
    check(code, partition)
