"""Reads partitions for ``moldau consume``: whole batches, each checked, in pieces of columns."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from moldau.cli.output import counted, say
from moldau.client.errors import RequestFailedError, TruncationError
from moldau.client.fetched_batches import BEYOND_BOUND, DAMAGED, UnreadableBatchError, VisibleBatches, checked_batches, next_readable
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, FetchLimits
from moldau.model.errors import BeyondBoundError, ErrorCode, PeerError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import MAX_OFFSET, Columns, decompressed_records, read_columns
from moldau.protocol.records.skim import read_values

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.partition_requests import FetchedBatches
    from moldau.protocol.records.header import BatchHeader

Piece = tuple[TopicPartition, Columns]

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""A batch that would grow beyond this is refused, so that a small one cannot fill the memory."""
PIECE_RECORDS = 4096
"""Small batches are put together until they have this many records: what is done once per piece then costs little per record."""
FETCH_BYTES = 4 * 1024 * 1024
"""Of one partition in one fetch."""


class PartitionReader:
    """Reads from `positions` on, partitions in turn. With `ends` each up to there, else until it is stopped.

    Damage raises UnreadableBatchError with everything before it given out already; `skip_damaged` logs it and continues after it. Of the
    columns of a piece `values_only` fills that one alone, which takes half the time.
    """

    def __init__(
        self,
        cluster: "Cluster",
        positions: Mapping[TopicPartition, Offset],
        ends: Mapping[TopicPartition, Offset],
        *,
        committed_only: bool = False,
        skip_damaged: bool = False,
        values_only: bool = False,
    ) -> None:
        self.positions = dict(positions)
        self.damaged = 0
        """Damaged places that were skipped."""
        self._cluster = cluster
        self._ends = dict(ends)
        self._skip_damaged = skip_damaged
        self._values_only = values_only
        self._limits = FetchLimits(isolation_level=READ_COMMITTED if committed_only else READ_UNCOMMITTED, partition_max_bytes=FETCH_BYTES)
        self._finished: dict[TopicPartition, Offset] = {}
        self._check_ends()
        self._drop_finished()

    def chunks(self) -> Iterator[Iterator[Piece]]:
        """Records as they come, one fetch after the other; where there are ends up to those."""
        while self.positions:
            for where, fetched in self._fetch().items():
                yield self._pieces(where, fetched)
            self._drop_finished()

    def reached(self) -> dict[TopicPartition, Offset]:
        """How far each partition is, those that are read to their end among them; none beyond its end."""
        return self._finished | {where: min(offset, self._ends.get(where, offset)) for where, offset in self.positions.items()}

    def _fetch(self) -> "dict[TopicPartition, FetchedBatches]":
        """One fetch. Where retention has deleted our position, continue at the log start offset with a line about it."""
        try:
            fetched = self._cluster.fetch_many(self.positions, self._limits)
        except RequestFailedError as error:
            where = error.subject
            if not isinstance(where, TopicPartition) or isinstance(error, TruncationError):
                raise
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._catch_up(where)
            elif error.code is ErrorCode.CORRUPT_MESSAGE:
                self._meet_damage(UnreadableBatchError(where, self.positions[where], None, "its broker refuses to send it"))
            else:
                raise
            return {}
        # The next fetch begins after the partitions that gave something in this one, so that none is starved by the byte limit.
        for where in [where for where, got in fetched.items() if got.records]:
            self.positions[where] = self.positions.pop(where)
        return fetched

    def _pieces(self, where: TopicPartition, fetched: "FetchedBatches") -> Iterator[Piece]:
        """What a fetch brought of one partition. Where damage is in it, what is before; the next fetch then begins there."""
        begun = self.positions[where]
        visible, piece = VisibleBatches(fetched.aborted), Columns()
        try:
            for header, batch in checked_batches(where, fetched, begun):
                self._read(where, header, batch, visible, piece)
                self.positions[where] = Offset(header.last_offset + 1)
                if len(piece.values) >= PIECE_RECORDS or (piece.values and header.compression):
                    yield where, piece
                    piece = Columns()
        except UnreadableBatchError as error:
            if self.positions[where] == begun:
                self._meet_damage(error)
        if piece.values:
            yield where, piece

    def _read(self, where: TopicPartition, header: "BatchHeader", batch: memoryview, visible: VisibleBatches, into: Columns) -> None:
        """UnreadableBatchError where the checksum is right and the records are not; `into` is then as it was."""
        size, first, end = len(into.values), self.positions[where], self._ends.get(where, MAX_OFFSET)
        try:
            if not visible.shows(header, batch):
                return
            if not self._values_only:
                read_columns(batch, into, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, first_offset=first, end_offset=end)
            elif first <= header.base_offset and header.last_offset < end:
                data = decompressed_records(batch, header, DECOMPRESSED_BYTES_MAX)
                read_values(data, header.record_count, into.values.append)
            else:
                part = Columns()
                read_columns(batch, part, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, first_offset=first, end_offset=end)
                into.values += part.values
        except PeerError as error:
            into.cut(size, sys.maxsize)
            fault = BEYOND_BOUND if isinstance(error, BeyondBoundError) else DAMAGED
            raise UnreadableBatchError(where, max(header.base_offset, first), header.last_offset + 1, error.message, fault) from error

    def _meet_damage(self, found: UnreadableBatchError) -> None:
        """At the position of its partition: raise it, or continue where the partition can be read again."""
        if not self._skip_damaged:
            raise found
        where, begun = found.partition, self.positions[found.partition]
        following = found.next_offset or next_readable(self._cluster, where, begun)
        self.damaged += 1
        say(f"{found.message}; {counted(following - begun, 'offset')} skipped, continuing at {following}", err=True)
        self.positions[where] = Offset(following)

    def _catch_up(self, where: TopicPartition) -> None:
        asked = self.positions[where]
        first = self._cluster.list_offsets({where: EARLIEST})[where].offset
        end = self._cluster.list_offsets({where: LATEST})[where].offset
        if asked > end:
            raise _beyond_end(where, asked, first, end)
        click.echo(f"partition {where}: records before offset {first} no longer exist, continuing there (asked for {asked})", err=True)
        self.positions[where] = first

    def _check_ends(self) -> None:
        """A position beyond the end would be finished at once, and look like an empty partition."""
        for where, end in self._ends.items():
            if self.positions[where] > end:
                first = self._cluster.list_offsets({where: EARLIEST})[where].offset
                raise _beyond_end(where, self.positions[where], first, end)

    def _drop_finished(self) -> None:
        for where, end in self._ends.items():
            if self.positions.get(where, -1) >= end:
                del self.positions[where]
                self._finished[where] = end


def _beyond_end(where: TopicPartition, asked: int, first: int, end: int) -> click.ClickException:
    return click.ClickException(f"partition {where} has offsets {first} to {end}, not {asked}")
