"""The transactions of a log: the last stable offset, what was aborted, who may begin (KIP-98, KIP-890).

Offsets::

    start_offset       last_stable_offset          high_watermark
         |  decided and safe   |  some of it undecided   |

Readers of committed records get what lies before the last stable offset, and with it a list of the transactions in that stretch that were
aborted, by which they leave records out.

A transaction begins in a partition with its first batch there. Before that the coordinator has to say that the partition is part of the
transaction: `begin_verification` says whether it has to be asked, and `check_first` lets the batch in when it has answered.
"""

from typing import TYPE_CHECKING

from moldau.log.offsets import LogOffsets
from moldau.log.producer_entry import check_first, stale_epoch
from moldau.log.producer_replay import mend
from moldau.log.producer_snapshots import Snapshots
from moldau.log.producer_states import ProducerStates
from moldau.log.reader import LogReader, ReadResult
from moldau.log.segments import Segments

if TYPE_CHECKING:
    from moldau.log.open_transactions import Verification
    from moldau.log.transaction_index import TransactionIndexEntry
    from moldau.protocol.records.header import BatchHeader


class LogTransactions:
    """Invariant: start offset <= last stable offset <= high watermark."""

    __slots__ = ("_offsets", "_producers", "_reader", "_segments", "_snapshots", "_stable_on_disk")

    def __init__(self, offsets: LogOffsets, segments: Segments, producers: ProducerStates, snapshots: Snapshots, reader: LogReader) -> None:
        self._offsets = offsets
        self._segments = segments
        self._producers = producers
        self._snapshots = snapshots
        self._reader = reader
        self._stable_on_disk = offsets.start_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where readers of committed records may read: no transaction that has a record before it is undecided."""
        high_watermark, transactions = self._offsets.high_watermark, self._producers.transactions
        if not transactions.unsettled:
            return high_watermark
        first_unstable = transactions.first_unstable(high_watermark)
        return high_watermark if first_unstable is None else min(high_watermark, max(first_unstable, self._offsets.start_offset))

    @property
    def first_ongoing(self) -> int | None:
        """Where the oldest transaction begins that has no marker."""
        return self._producers.transactions.first_ongoing()

    @property
    def durable_stable_offset(self) -> int:
        """Up to where a crash, too, leaves all records, and all transactions decided as they are."""
        stable, offsets = self.last_stable_offset, self._offsets
        return stable if offsets.flushed_offset >= offsets.log_end_offset else min(stable, self._stable_on_disk)

    def flushed(self, stable_offset: int) -> None:
        """What is on disk makes this the last stable offset."""
        self._stable_on_disk = stable_offset

    def truncated(self, end_offset: int) -> None:
        """The log ends there now."""
        self._stable_on_disk = min(self._stable_on_disk, end_offset)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether a transaction of the producer has begun here, with this epoch if one is given, and has no marker."""
        entry = self._producers.entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and (producer_epoch is None or producer_epoch == entry.epoch)

    def begin_verification(self, header: "BatchHeader", now_ms: int, *, bumps_epoch: bool) -> "Verification | None":
        """The verification by the coordinator whether this transactional batch may begin a transaction here.

        None: one is ongoing, the batch needs no verification. `bumps_epoch`: each transaction of the producer has an epoch of its own.
        PeerError INVALID_PRODUCER_EPOCH.
        """
        producers, producer_id, epoch = self._producers, header.producer_id, header.producer_epoch
        entry = producers.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise stale_epoch(producers.partition, producer_id, entry, epoch)
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        return producers.verifications.begin(producer_id, epoch, header.base_sequence, now_ms, bumps_epoch=bumps_epoch)

    def check_first(self, header: "BatchHeader", verification: "Verification") -> None:
        """Whether a transactional batch that the coordinator allowed may be appended now.

        PeerError: INVALID_TXN_STATE if its transaction has ended meanwhile, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER if it
        overtakes another or, where each transaction has its own epoch, does not begin at 0 though nothing is known of the producer.
        """
        producers, producer_id = self._producers, header.producer_id
        if not self.has_ongoing_transaction(producer_id, header.producer_epoch):
            entry, standing = producers.entries.get(producer_id), producers.verifications.get(producer_id)
            check_first(producers.partition, header, entry, verification, standing)

    def end_verification(self, producer_id: int) -> None:
        """The coordinator has refused, and a retry would not help."""
        self._producers.verifications.end(producer_id)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Producer and first offset of each aborted transaction with a record from `first_offset` to before `end_offset`. StorageError."""
        return [(aborted.producer_id, aborted.first_offset) for aborted in self.aborted_entries(first_offset, end_offset)]

    def aborted_in(self, read: ReadResult, offset: int, limit_offset: int) -> list[tuple[int, int]]:
        """Producer and first offset of each aborted transaction that may be in what `read` gave from `offset` on. StorageError."""
        return [] if read.records is None else self.aborted_transactions(offset, self._reader.end_of(read, limit_offset))

    def aborted_entries(self, first_offset: int, end_offset: int) -> "list[TransactionIndexEntry]":
        """The same, with all that the index has of them. StorageError."""
        found: list[TransactionIndexEntry] = []
        segments = self._segments
        for slot in range(segments.slot_of(first_offset), len(segments)):
            segments.items[slot].check_transactions()
            index = segments.items[slot].transaction_index
            if not (index.stored or index.tail or index.damaged):  # `damaged` is known once `stored` is
                continue
            if index.damaged:
                self._mend(slot)
            overlapping, complete = index.overlapping(first_offset, end_offset)
            found += overlapping
            if complete:
                break
        return found

    def mend_aborted(self, offset: int) -> bool:
        """Rebuild the index that should have an entry for the abort marker at `offset`; whether it has one then. StorageError."""
        slot = self._segments.slot_of(offset)
        self._mend(slot)
        return any(aborted.last_offset == offset for aborted in self._segments.items[slot].transaction_index)

    def _mend(self, slot: int) -> None:
        segment, end_offset = self._segments.items[slot], self._segments.end_of(slot, self._offsets.log_end_offset)
        mend(self._segments, segment, self._snapshots, self._producers.partition, end_offset)
