"""The part of a log that knows transactions: markers, the last stable offset, what was aborted, who may begin (KIP-98, KIP-890).

Offsets::

    start_offset       last_stable_offset          high_watermark
         |  decided and safe   |  some of it undecided   |

Readers of committed records get what lies before the last stable offset, and with it a list of the transactions in that stretch that were
aborted, by which they leave records out.

A transaction begins in a partition with its first batch there. Before that the coordinator has to say that the partition is part of the
transaction: `begin_verification` says whether it has to be asked, and `check_first` lets the batch in when it has answered.
"""

import logging
from typing import TYPE_CHECKING

from moldau.log.growing import AppendResult, GrowingLog
from moldau.log.producer_rules import check_first, stale_epoch
from moldau.protocol.records.header import read_header

if TYPE_CHECKING:
    from moldau.log.transaction_index import AbortedTransaction
    from moldau.log.verifications import Verification
    from moldau.protocol.records.control import EndTxnMarker
    from moldau.protocol.records.header import BatchHeader


_LOG = logging.getLogger(__name__)


class TransactionalLog(GrowingLog):
    """Invariant: start offset <= last stable offset <= high watermark."""

    __slots__ = ()

    @property
    def last_stable_offset(self) -> int:
        """Up to where readers of committed records may read: no transaction that has a record before it is undecided."""
        high_watermark = self.high_watermark
        if not self.unsettled:
            return high_watermark
        first_unstable = self._producers.transactions.first_unstable(high_watermark)
        return high_watermark if first_unstable is None else min(high_watermark, max(first_unstable, self.start_offset))

    def append_marker_as_leader(
        self, producer_id: int, producer_epoch: int, marker: "EndTxnMarker", now_ms: int, *, transaction_version: int
    ) -> AppendResult:
        """Stage the control batch that ends the producer's transaction here; without one it is written all the same and ends nothing.

        PeerError: INVALID_PRODUCER_EPOCH for a marker of an earlier transaction, TRANSACTION_COORDINATOR_FENCED for one of an earlier
        coordinator; nothing was staged. StorageError: see `append_as_leader`.
        """
        from moldau.protocol.records.control import ControlType, encode_end_txn_marker

        self._producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, transaction_version)
        data = encode_end_txn_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms)
        batch = memoryview(bytearray(data))
        result = self.append_as_leader(batch, read_header(batch)._replace(producer_id=-1), now_ms)  # it has no sequence to be checked
        self._producers.stage_marker(
            producer_id,
            producer_epoch,
            marker.coordinator_epoch,
            result.base_offset,
            now_ms,
            now_ms,
            abort=marker.type is ControlType.ABORT,
        )
        return result

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether a transaction of the producer has begun here, with this epoch if one is given, and has no marker."""
        entry = self._producers.entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and (producer_epoch is None or producer_epoch == entry.epoch)

    def begin_verification(self, header: "BatchHeader", now_ms: int, *, bumps_epoch: bool) -> "Verification | None":
        """What stands for the question to the coordinator whether this transactional batch may begin a transaction here.

        None: one is ongoing, the batch needs no leave. `bumps_epoch`: each transaction of the producer has an epoch of its own.
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
        """The coordinator's answer was no, for good."""
        self._producers.verifications.end(producer_id)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Producer and first offset of each aborted transaction with a record from `first_offset` to before `end_offset`. StorageError."""
        return [(aborted.producer_id, aborted.first_offset) for aborted in self.aborted_entries(first_offset, end_offset)]

    def aborted_entries(self, first_offset: int, end_offset: int) -> "list[AbortedTransaction]":
        """The same, with all that the index has of them. StorageError."""
        found: list[AbortedTransaction] = []
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
        """Make the index anew that should have an entry for the abort marker at `offset`; whether it has one then. StorageError."""
        slot = self._segments.slot_of(offset)
        self._mend(slot)
        return any(aborted.last_offset == offset for aborted in self._segments.items[slot].transaction_index)

    def _mend(self, slot: int) -> None:
        from moldau.log.transaction_mending import mend

        segment = self._segments.items[slot]
        mend(self._segments, segment, self._snapshots, self._producers.partition, self.log_end_offset, self._now_ms)
