"""What the target gets of a source's batch: the batch as it is where that is possible, else its records one by one."""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from moldau.mirror.fetched import Batch
from moldau.model.errors import CorruptBatchError, PeerError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
    peek_header,
    stamp_crc,
)
from moldau.protocol.records.record import Record

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Of a batch whose records are taken one by one."""
JOINED_RECORDS, JOINED_BYTES = 8, 16 * 1024
"""A batch with so few records costs less joined to another than as a batch of its own, here and in the target; and how large they become
together.
"""
_MODULUS = 1 << 31


class Run(NamedTuple):
    """Records with offsets one after the other, in the source and in the target."""

    first: int
    """Offset in the source."""
    records: int
    """How many."""


class Outgoing:
    """A batch for a partition of the target. `data` is without base offset, producer and checksum until `stamp`."""

    __slots__ = ("base_offset", "count", "data", "header", "origins", "runs", "target")

    def __init__(
        self, target: TopicPartition, data: memoryview, header: BatchHeader, runs: list[Run], origins: tuple[str, ...] = ()
    ) -> None:
        """`origins`: ids of the clusters that the records were in before the source."""
        self.target = target
        self.data = data
        self.header = header
        self.runs = runs
        self.origins = origins
        self.count = header.record_count
        self.base_offset = -1
        """In the target, once it is known."""

    def stamp(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Make it a batch of a transactional producer, in place."""
        attributes = self.header.attributes & COMPRESSION_MASK | TRANSACTIONAL_BIT
        header = self.header._replace(
            base_offset=0,
            partition_leader_epoch=-1,
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        self.data[:HEADER_SIZE] = pack_header(header)
        stamp_crc(self.data)


def next_sequence(sequence: int, count: int) -> int:
    """The sequence after so many records."""
    return (sequence + count) % _MODULUS


def passes_whole(header: BatchHeader, position: int) -> bool:
    """Whether a batch may be produced as it is: no record is missing, each has its own time, and all are to be mirrored."""
    return (
        header.record_count == header.last_offset_delta + 1
        and header.base_offset >= position
        and not header.timestamp_type_is_log_append
        and not header.has_delete_horizon
    )


def whole(batch: Batch, target: TopicPartition, origins: tuple[str, ...] = ()) -> Outgoing:
    """A batch that passes as it is."""
    header, data = batch
    return Outgoing(target, data, header, [Run(header.base_offset, header.record_count)], origins)


def joined(batches: Sequence[Outgoing], apart: Container[TopicPartition]) -> list[Outgoing]:
    """The same records with small batches of one target and one chain put together, as long as they are next to each other; those for the
    partitions in `apart` stay as they are. Batches that cannot be read stay, too: the target finds that.
    """
    found: list[Outgoing] = []
    run: list[Outgoing] = []
    size = 0
    for each in batches:
        is_small = len(each.data) <= JOINED_BYTES and each.count <= JOINED_RECORDS and not each.header.compression
        if run and not (is_small and size + len(each.data) <= JOINED_BYTES and _are_alike(run[0], each)):
            found += _one(run)
            run, size = [], 0
        if is_small and each.target not in apart:
            run.append(each)
            size += len(each.data)
        else:
            found.append(each)
    return found + _one(run)


def _are_alike(one: Outgoing, other: Outgoing) -> bool:
    return one.target == other.target and one.origins == other.origins


def _one(batches: list[Outgoing]) -> list[Outgoing]:
    if len(batches) < 2:
        return batches
    builder, runs = RecordBatchBuilder(), list[Run]()
    try:
        for each in batches:
            for record in iterate(each.data, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                builder.append(record.timestamp, record.key, record.value, record.headers)
            for run in each.runs:
                _add(runs, run)
    except (CorruptBatchError, PeerError):
        return batches
    built = memoryview(bytearray(builder.build()))
    return [Outgoing(batches[0].target, built, peek_header(built), runs, batches[0].origins)]


def _add(runs: list[Run], run: Run) -> None:
    if runs and runs[-1].first + runs[-1].records == run.first:
        runs[-1] = Run(runs[-1].first, runs[-1].records + run.records)
    else:
        runs.append(run)


def by_record(
    batch: Batch, position: int, target_of: Callable[[Record], TopicPartition], origins: tuple[str, ...] = ()
) -> Iterable[Outgoing]:
    """The records of a batch from a position on, in a batch for each target. CorruptBatchError, PeerError: they cannot be read."""
    header, data = batch
    builders: dict[TopicPartition, tuple[RecordBatchBuilder, list[Run]]] = {}
    for record in iterate(data, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
        if record.offset < position:
            continue
        target = target_of(record)
        found = builders.get(target)
        if found is None:
            found = builders[target] = RecordBatchBuilder(compression=Compression(header.compression)), []
        builder, runs = found
        builder.append(record.timestamp, record.key, record.value, record.headers)
        _add(runs, Run(record.offset, 1))
    for target, (builder, runs) in builders.items():
        built = memoryview(bytearray(builder.build()))
        yield Outgoing(target, built, peek_header(built), runs, origins)
