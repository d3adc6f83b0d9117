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

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.protocol.records.header import BatchHeader
    from moldau.protocol.records.record import Record
    from moldau.wire.brokers import Brokers

INSIST_S = 60.0
_CONSUMER = -1
_BYTES = 4 * 1024 * 1024
_WAIT_MS = 100
_DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
_BY_NAME = VersionRange(4, 12)
_LIST_OFFSETS = VersionRange(4, 9)


async def list_offset(brokers: "Brokers", partition: "TopicPartition", time: int, *, committed: bool = False) -> int:
    """The offset that a partition has for a time, or for LATEST or EARLIEST; -1 if no record is that young. PeerError, WorldError."""

    async def ask() -> int:
        wanted = ListOffsetsPartition(partition.partition, -1, time)
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        request = ListOffsetsRequest(_CONSUMER, isolation, [ListOffsetsTopic(partition.topic, [wanted])])
        response = await _ask(brokers, partition, ApiKey.LIST_OFFSETS, request, _LIST_OFFSETS)
        (found,) = response.topics[0].partitions
        _check(brokers, partition, found.error_code)
        return int(found.offset)

    return await brokers.insist(ask, INSIST_S)


async def last_epoch(brokers: "Brokers", partition: "TopicPartition", end: int) -> int:
    """The leader epoch of the batch that ends before `end`; -1 if it cannot be read any more. PeerError, WorldError."""
    fetched = await _fetch(brokers, partition, end - 1, READ_UNCOMMITTED)
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
        fetched = await _fetch(brokers, partition, position, isolation)
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


async def _fetch(brokers: "Brokers", partition: "TopicPartition", position: int, isolation: int) -> Any:
    async def ask() -> Any:
        wanted = FetchPartition(partition.partition, -1, position, -1, -1, _BYTES)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_BYTES,
            isolation_level=isolation,
            topics=[FetchTopic(partition.topic, partitions=[wanted])],
        )
        response = await _ask(brokers, partition, ApiKey.FETCH, request, _BY_NAME)
        check(response.error_code, partition)
        (found,) = response.responses[0].partitions
        _check(brokers, partition, found.error_code)
        return found

    return await brokers.insist(ask, INSIST_S)


async def _ask(brokers: "Brokers", partition: "TopicPartition", api_key: ApiKey, request: Any, version: VersionRange) -> Any:
    connection = await brokers.connection(await brokers.leader(partition))
    return await connection.send(api_key, request, timeout_s=5.0, version=version)


def _check(brokers: "Brokers", partition: "TopicPartition", code: int) -> None:
    if code:
        brokers.forget_topic(partition.topic)
    check(code, partition)
