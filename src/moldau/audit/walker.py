"""Counting what a fetch brought, batch by batch, by the headers of the events alone.

Left out: markers of transactions, aborted transactions (for a reader of committed records), and records before the offset that was asked
for. Two ways give the same counts: with numpy, where it is installed, all records of a fetch at once; otherwise one by one. A batch that
is damaged raises CorruptBatchError, and nothing of it is counted.
"""

from dataclasses import dataclass
from importlib.util import find_spec

from moldau.audit.events import HeaderReader, SchemaCheck, count_records, count_value
from moldau.audit.tally import Tally
from moldau.client.fetched_batches import VisibleBatches, checked_batches
from moldau.client.partition_requests import FetchedBatches
from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.compression import decompress
from moldau.protocol.records.header import HEADER_SIZE

DECOMPRESSED_BYTES_MAX = 256 << 20
"""More than this out of one batch is refused."""
_FEW_RECORDS = 64
"""So few are counted one by one: numpy costs about as much for one record as for this many."""


@dataclass(frozen=True, slots=True)
class _Section:
    """The records of one whole batch, decompressed, its first offset and its greatest time."""

    offset: int
    records: bytes
    count: int
    timestamp_ms: int
    base_ms: int | None
    """What the records' times are relative to; None: all have the greatest, which a broker has stamped."""


class Walker:
    """Counts fetches of any number of topics. `fast` None: with numpy if it is installed."""

    def __init__(self, is_tracked: SchemaCheck | None = None, *, fast: bool | None = None) -> None:
        self._reader = HeaderReader(is_tracked)
        self.fast = find_spec("numpy") is not None if fast is None else fast
        self.few = _FEW_RECORDS
        """A fetch of no more records is counted one by one."""

    def walk(self, where: TopicPartition, fetched: FetchedBatches, offset: int, into: Tally, seen_ms: int | None = None) -> int:
        """Count the records from `offset` on, fetched at `seen_ms`; the offset to continue from. PeerError and its CorruptBatchError for
        bytes that are damaged.

        What comes before a damaged batch is counted; the error is raised when that batch is the next one.
        """
        sections: list[_Section] = []
        strays: list[tuple[bytes | None, int, int]] = []
        position, visible = offset, VisibleBatches(fetched.aborted)
        try:
            for header, batch in checked_batches(where, fetched, offset):
                if visible.shows(header, batch) and header.record_count:
                    if header.base_offset < offset:
                        records = iterate(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, with_headers=False)
                        strays += [(each.value, header.max_timestamp, each.timestamp) for each in records if each.offset >= offset]
                    else:
                        records_bytes = decompress(batch[HEADER_SIZE:], header.compression, DECOMPRESSED_BYTES_MAX)
                        base_ms = None if header.timestamp_type_is_log_append else header.base_timestamp
                        sections.append(_Section(header.base_offset, records_bytes, header.record_count, header.max_timestamp, base_ms))
                position = header.last_offset + 1
        except PeerError:
            if position == offset:
                raise
        counted, malformed = self._counted(where.topic, sections, seen_ms)
        if malformed is not None:
            position, error = malformed
            if position <= offset:
                raise error
        for value, timestamp_ms, sent_ms in strays:
            count_value(self._reader, where.topic, value, timestamp_ms, counted, sent_ms)
        into.take(counted)
        return position

    def _counted(self, topic: str, sections: list[_Section], seen_ms: int | None) -> tuple[Tally, tuple[int, PeerError] | None]:
        """What is in them, up to the first one whose records are malformed: its offset, and how."""
        counted = Tally(seen_ms)
        try:
            if self.fast and sum(section.count for section in sections) > self.few:
                self._count_together(topic, sections, counted)
            else:
                for section in sections:
                    self._count_one(topic, section, counted)
        except PeerError:
            counted = Tally(seen_ms)
            for section in sections:
                alone = Tally(seen_ms)
                try:
                    self._count_one(topic, section, alone)
                except PeerError as error:
                    return counted, (section.offset, error)
                counted.take(alone)
        return counted, None

    def _count_one(self, topic: str, section: _Section, into: Tally) -> None:
        count_records(section.records, section.count, topic, section.timestamp_ms, section.base_ms, self._reader, into)

    def _count_together(self, topic: str, sections: list[_Section], into: Tally) -> None:
        import numpy as np

        from moldau.audit.vectors import count_spans
        from moldau.protocol.records.vectors import record_spans, spans, varints

        data, starts, limits = record_spans([(section.records, section.count) for section in sections])
        position = starts + 1  # attributes
        delta, position = varints(data, position)
        _, position = varints(data, position)  # offset
        _, position, _ = spans(data, position, limits)  # key
        start, end, _ = spans(data, position, limits)
        counts = [section.count for section in sections]
        stamps = np.repeat(np.array([section.timestamp_ms for section in sections], np.int64), counts)
        sent = np.repeat(np.array([section.base_ms or 0 for section in sections], np.int64), counts) + delta
        if any(section.base_ms is None for section in sections):
            sent = np.where(np.repeat([section.base_ms is None for section in sections], counts), stamps, sent)
        count_spans(data, start, end, stamps, sent, topic, self._reader, into)
