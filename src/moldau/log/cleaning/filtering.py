"""What becomes of a batch: it stays as it is, stays with fewer records or none, or goes. Decides and builds; reads and writes nothing.

A batch goes when no record of it stays, unless it is needed for what its header says:

* the last batch of a producer with state: it has the sequence that the next one must follow;
* the last batch of a group of segments: the new segment ends where the old ones did, and after a crash that shows which segments
  it replaces (Kafka keeps the last one of the whole pass);
* the first batch of a leader epoch: a replica that is made later learns from it where the epoch begins. From a later one it would take the
  records that an earlier leader had in that place, and which were never committed, for the epoch before's (Kafka keeps none).

In a batch with fewer records, or with a delete horizon, what is kept is copied, in stretches where it can be. Offsets never change, so base
offset and last offset delta stay, also where the first or the last record goes, and with them the last sequence of the producer. Timestamps
are deltas to the base timestamp, which stays too; a delete horizon takes its place (KIP-534), and only then every record is rewritten.

Transactions: a marker stays as long as the walk has met a batch of its transaction before it: a consumer would have to know what to do with
that. Once there is none, and a delete horizon has passed (readers that are under way may have read the batches before they went), it goes
too. A marker of an aborted transaction that stays needs its entry in the index; Kafka's rules, in `CleanedTransactionMetadata`. An abort
marker after records that no entry names shows that the index has lost one, though what is left of it looks whole: cut between two entries,
say. To continue would let aborted records replace committed ones.
"""

from collections.abc import Iterable

from moldau.log.cleaning.key_map import REPLACED, TOMBSTONE, KeyMap, UnreadableRecordsError
from moldau.log.cleaning.task import PassDone, ProducerEnd
from moldau.log.transaction_index import TransactionIndexEntry
from moldau.model.errors import CorruptBatchError, ProtocolError
from moldau.protocol.records.builder import assemble
from moldau.protocol.records.compression import compress, decompress
from moldau.protocol.records.control import ControlType
from moldau.protocol.records.header import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
)
from moldau.protocol.records.walk import long_varint
from moldau.protocol.varint import read_varint, read_varlong, uvarint, varlong


class MissingEntryError(Exception):
    """The index of aborted transactions says nothing of the marker at `offset`, which ends what its producer has begun."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class TransactionFilter:
    """Of one walk, in the order of offsets, over batches before the last stable offset: none of their transactions is open.

    `kept` collects entries for the index; the writer of the segment takes them.
    """

    __slots__ = ("_aborting", "_committing", "_due", "kept")

    def __init__(self, aborted: Iterable[TransactionIndexEntry], first_offset: int) -> None:
        """`first_offset`: where the walk begins. Transactions that had ended by then do not count."""
        self._due = sorted((each for each in aborted if each.last_offset >= first_offset), key=lambda each: -each.first_offset)
        self._aborting: dict[int, tuple[TransactionIndexEntry, bool]] = {}
        self._committing: set[int] = set()
        self.kept: list[TransactionIndexEntry] = []

    def pass_data(self, header: BatchHeader) -> bool:
        """Take note of a batch of records; whether its transaction was aborted."""
        if self._due:
            self._begin_until(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborting.get(header.producer_id)
        if found is None:
            self._committing.add(header.producer_id)
            return False
        self._aborting[header.producer_id] = found[0], True
        return True

    def pass_marker(self, header: BatchHeader, kind: int | None) -> bool:
        """Take note of a control batch; whether it may go. `kind` is that of its record, None if it was emptied. MissingEntryError."""
        self._begin_until(header.last_offset)
        if kind is None:
            return True
        if kind == ControlType.ABORT:
            aborted, met = self._aborting.pop(header.producer_id, (None, False))
            if aborted is None and header.producer_id in self._committing:
                raise MissingEntryError(header.base_offset)
            if aborted is not None and met:
                self.kept.append(aborted)
            return not met
        if kind == ControlType.COMMIT:
            met = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not met
        return False

    def _begin_until(self, offset: int) -> None:
        while self._due and self._due[-1].first_offset <= offset:
            aborted = self._due.pop()
            self._aborting.setdefault(aborted.producer_id, (aborted, False))


def marker_kind(data: bytes, position: int) -> int:
    """What the one record of the control batch at `position` says: a :class:`ControlType`, or another number. ProtocolError."""
    at = read_varint(data, position + HEADER_SIZE)[1] + 1
    at = read_varlong(data, at)[1]
    at = read_varint(data, at)[1]
    length, at = read_varint(data, at)
    return int.from_bytes(data[at + 2 : at + 4], "big") if length >= 4 else -1


NO_TIMESTAMP = -1
TIMESTAMP_MAX = 2**63 - 1
_REPLACED = bytes([REPLACED])
_TOMBSTONE = bytes([TOMBSTONE])


def select(records: bytes, position: int, end: int, states: bytes | bytearray, *, with_timestamps: bool) -> tuple[list[bytes], int]:
    """The records that are not replaced, in stretches, and the largest of their timestamp deltas (0 unless asked for).

    UnreadableRecordsError where the records are not as many as there are `states`, or do not end at `end`.
    """
    stretches: list[bytes] = []
    start, newest = -1, None
    p = position
    try:
        for state in states:
            n = records[p]
            if n < 0x80:
                q = p + 1
            elif records[p + 1] < 0x80:
                n += (records[p + 1] << 7) - 0x80
                q = p + 2
            else:
                n, q = long_varint(records, p)
            if state == REPLACED:
                if start >= 0:
                    stretches.append(records[start:p])
                    start = -1
            else:
                if start < 0:
                    start = p
                if with_timestamps:
                    t = records[q + 1]
                    if t >= 0x80:
                        t = long_varint(records, q + 1)[0]
                    t = ~(t >> 1) if t & 1 else t >> 1
                    if newest is None or t > newest:
                        newest = t
            p = q + (n >> 1)
    except IndexError:
        p = -1
    if p != end:
        raise UnreadableRecordsError
    if start >= 0:
        stretches.append(records[start:end])
    return stretches, newest or 0


def shift_timestamps(records: bytes, shift: int) -> bytes:
    """Records whose timestamp deltas are `shift` larger. UnreadableRecordsError."""
    shifted: list[bytes] = []
    position = 0
    try:
        while position < len(records):
            size, body = read_varint(records, position)
            delta, rest = read_varlong(records, body + 1)
            position = body + size
            if not rest <= position <= len(records):
                raise UnreadableRecordsError
            encoded = varlong(delta + shift)
            shifted += (uvarint((1 + len(encoded) + position - rest) << 1), records[body : body + 1], encoded, records[rest:position])
    except ProtocolError as error:
        raise UnreadableRecordsError from error
    return b"".join(shifted)


def rebuilt(header: BatchHeader, records: bytes, count: int, newest_delta: int, horizon_ms: int | None) -> bytearray:
    """The batch of `header` with these `count` records instead. `newest_delta`: the largest timestamp delta in them.

    With `horizon_ms` that is the base timestamp from now on. UnreadableRecordsError.
    """
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if not attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = base_timestamp + newest_delta
    if horizon_ms is not None:
        if not attributes & LOG_APPEND_TIME_BIT:  # else the deltas are not looked at
            records = shift_timestamps(records, base_timestamp - horizon_ms)
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
    payload = compress(records, attributes & COMPRESSION_MASK)
    return assemble(
        header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=count,
        ),
        payload,
    )


def emptied(header: BatchHeader) -> bytearray:
    """The batch without records: what is left are its offsets and its producer's sequence."""
    return assemble(
        header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD,
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


class BatchFilter:
    """Shown every batch of the segments that are cleaned, in the order of offsets.

    Batches before `first_dirty` are judged by key; from there to before `map_end` by the states that the map noted in the same order; those
    after it stay. `unreadable`: base offsets of batches whose records cannot be walked; they stay.
    """

    def __init__(
        self,
        key_map: KeyMap,
        transactions: TransactionFilter,
        producers: Iterable[ProducerEnd],
        unreadable: set[int],
        *,
        first_dirty: int,
        map_end: int,
        now_ms: int,
        delete_retention_ms: int,
        decompressed_bytes_max: int,
        counts: PassDone,
    ) -> None:
        self._map = key_map
        self._transactions = transactions
        self._producers = {each.producer_id: each for each in producers}
        self._unreadable = unreadable
        self._first_dirty = first_dirty
        self._map_end = map_end
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, TIMESTAMP_MAX)
        self._decompressed_bytes_max = decompressed_bytes_max
        self._counts = counts
        self._epoch = -1
        """The latest leader epoch."""
        self._next = 0
        """The next batch in the map."""
        self._number = 0
        """Of its first record."""

    def pass_batch(self, data: bytes, at: int, header: BatchHeader, *, last: bool) -> bytearray | bool:
        """What becomes of the batch `at` this place: True, it stays; False, it goes; or what takes its place. `last`: of its group."""
        bounds = last or header.partition_leader_epoch > self._epoch
        self._epoch = max(self._epoch, header.partition_leader_epoch)
        if header.is_control:
            return self._pass_marker(data, at, header, bounds)
        aborted = self._transactions.pass_data(header)
        states = self._states(data, at, header, aborted)
        count = header.record_count
        self._counts.records_read += count
        if not count:
            return self._is_needed(header, bounds)
        if aborted:
            return self._is_needed(header, bounds) and emptied(header)
        if states is None:
            self._counts.records_kept += count
            return True
        if header.has_delete_horizon and header.base_timestamp <= self._now_ms:
            states = states.replace(_TOMBSTONE, _REPLACED)
        kept = count - states.count(REPLACED)
        if not kept:
            return self._is_needed(header, bounds) and emptied(header)
        self._counts.records_kept += kept
        horizon_ms = self._horizon_ms if TOMBSTONE in states and not header.has_delete_horizon else None
        if kept == count and horizon_ms is None:
            return True
        try:
            return self._rebuild(data, at, header, states, kept, horizon_ms)
        except UnreadableRecordsError:
            self._counts.batches_unreadable += 1
            self._counts.records_kept += count - kept
            return True

    def _pass_marker(self, data: bytes, at: int, header: BatchHeader, bounds: bool) -> bytearray | bool:
        try:
            may_go = self._transactions.pass_marker(header, marker_kind(data, at) if header.record_count else None)
            if not header.record_count:
                return self._is_needed(header, bounds)
            if not may_go or (header.has_delete_horizon and header.base_timestamp > self._now_ms):
                return True
            if header.has_delete_horizon:
                return self._is_needed(header, bounds) and emptied(header)
            records = data[at + HEADER_SIZE : at + header.size]
            return rebuilt(header, records, header.record_count, header.max_timestamp - header.base_timestamp, self._horizon_ms)
        except (ProtocolError, UnreadableRecordsError):
            self._counts.batches_unreadable += 1
            return True

    def _states(self, data: bytes, at: int, header: BatchHeader, aborted: bool) -> bytes | bytearray | None:
        """Of the records of the batch; None if they do not depend on their keys."""
        offset, count = header.base_offset, header.record_count
        offsets = self._map.batch_offsets
        if self._next < len(offsets) and offsets[self._next] == offset:
            first = self._number
            self._next += 1
            self._number += count
            return None if offset in self._unreadable else self._map.states[first : self._number]
        if offset >= self._map_end or not count or aborted:
            return None
        assert header.last_offset < self._first_dirty, f"the batch at offset {offset} is missing in the map"
        try:
            return self._map.judge_batch(*records_of(data, at, header, self._decompressed_bytes_max), count)
        except UnreadableRecordsError:
            self._counts.batches_unreadable += 1
            return None

    def _rebuild(
        self, data: bytes, at: int, header: BatchHeader, states: bytes | bytearray, kept: int, horizon_ms: int | None
    ) -> bytearray:
        records, start, end = records_of(data, at, header, self._decompressed_bytes_max)
        stretches, newest = select(records, start, end, states, with_timestamps=not header.timestamp_type_is_log_append)
        return rebuilt(header, b"".join(stretches), kept, newest, horizon_ms)

    def _is_needed(self, header: BatchHeader, bounds: bool) -> bool:
        producer = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if producer is None:
            return bounds
        if producer.last_offset >= 0:
            return bounds or header.last_offset == producer.last_offset
        return bounds or (header.is_control and header.producer_epoch == producer.epoch)


def records_of(data: bytes, at: int, header: BatchHeader, decompressed_bytes_max: int) -> tuple[bytes, int, int]:
    """Where the records of the batch `at` this place are: bytes, start and end. UnreadableRecordsError."""
    start, end = at + HEADER_SIZE, at + header.size
    if not header.compression:
        return data, start, end
    try:
        records = decompress(memoryview(data)[start:end], header.compression, decompressed_bytes_max)
    except CorruptBatchError as error:
        raise UnreadableRecordsError from error
    return records, 0, len(records)
