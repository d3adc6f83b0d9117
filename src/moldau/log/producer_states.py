"""What a partition remembers of its producers: of each its last batches, and where its transaction began (KIP-98).

Batches and markers are noted when they are staged, if :mod:`moldau.log.producer_entry` lets them in; `undo` takes back those whose write
failed.

A snapshot holds only each producer's last batch (the file is Kafka's), yet a producer may send up to five again after a restart. So when
a batch would be refused, the batches before the snapshot are looked up in the log, once (`look_back`).
Expiry goes by the time of the append, not by the records' timestamps as in Kafka: else a producer that writes events of years ago
would lose its state at the next check. A producer whose transaction is ongoing never expires. How many are remembered, over all
partitions, is bounded (:mod:`moldau.log.producer_bound`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from moldau.log.open_transactions import UnsettledTransactions, Verifications
from moldau.log.producer_bound import BUSY, GONE, ProducerBound
from moldau.log.producer_entry import (
    BATCHES_KEPT,
    NO_SEQUENCE,
    SEQUENCE_MASK,
    ProducerEntry,
    StoredBatch,
    check_epoch,
    check_given,
    check_marker,
    check_overtaking,
    check_repeated,
    out_of_order,
    outside_transaction,
)
from moldau.log.transaction_index import TransactionIndexEntry
from moldau.model.errors import ErrorCode, PeerError
from moldau.ports.probe import reached
from moldau.protocol.records.header import BatchHeader

_Before = tuple[int, ProducerEntry | None, int, tuple[StoredBatch, ...], int, int]


class ProducerView(NamedTuple):
    """One idempotent producer, for a person."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


class ProducerStates:
    """All producers of one partition, by id."""

    __slots__ = (
        "_aborted",
        "_bound",
        "_looked_back",
        "_undo",
        "_undo_transactions",
        "entries",
        "look_back",
        "partition",
        "transactions",
        "verifications",
    )

    def __init__(self, partition: str, bound: ProducerBound | None = None) -> None:
        self.partition = partition
        self._bound = ProducerBound() if bound is None else bound
        self.entries: dict[int, ProducerEntry] = {}
        self.transactions = UnsettledTransactions()
        self.verifications = Verifications(self._bound)
        self.look_back: Callable[[], dict[int, ProducerEntry]] | None = None
        """Finds the state before the snapshot that `entries` come from."""
        self._looked_back: Callable[[], dict[int, ProducerEntry]] | None = None
        """The same once it was called, as long as an undo may take away what it found."""
        self._undo: list[_Before] = []
        self._undo_transactions: list[tuple[ProducerEntry, int, int]] = []
        """What staging changed of transactions: whose, its start and its coordinator's epoch before."""
        self._aborted: list[TransactionIndexEntry] = []
        """Transactions whose abort markers are staged."""

    @property
    def most(self) -> int:
        """How many can be remembered, of all partitions."""
        return self._bound.limit

    def load(self, entries: dict[int, ProducerEntry]) -> None:
        """Begin with these, from a snapshot; the bound may leave some of them out."""
        self._drop_all()
        for producer_id, entry in sorted(entries.items(), key=_by_timestamp):
            self.entries[producer_id] = entry
            self._bound.admit(self, producer_id, entry, entry.seen_ms, always=True)
        self.transactions.restart([entry.transaction_start for entry in entries.values() if entry.transaction_start >= 0])

    def stage(
        self, producer_id: int, epoch: int, sequence: int, delta: int, offset: int, timestamp: int, now_ms: int, transactional: int = 0
    ) -> StoredBatch | None:
        """Note a batch that is about to be stored at `offset`, or find the one that it repeats. PeerError."""
        entry = self.entries.get(producer_id)
        if entry is None:
            self._check_unknown(producer_id, epoch, sequence, now_ms)
            entry = self._remember(producer_id, epoch, now_ms)
            self.verifications.end(producer_id)
            self._undo.append((producer_id, None, 0, (), 0, 0))
        elif epoch == entry.epoch and sequence == entry.next_sequence:
            if entry.transaction_start >= 0 and not transactional:
                raise outside_transaction(self.partition, producer_id, entry)
            self._undo.append((producer_id, entry, epoch, entry.batches, sequence, entry.timestamp))
        else:
            repeated = self._repeated_or_refused(producer_id, entry, epoch, sequence, delta)
            if repeated is not None:
                if transactional:
                    check_repeated(self.partition, producer_id, entry, repeated)
                return repeated
            if entry.transaction_start >= 0 and not transactional:
                raise outside_transaction(self.partition, producer_id, entry)
            self._undo.append((producer_id, entry, entry.epoch, entry.batches, entry.next_sequence, entry.timestamp))
            if epoch != entry.epoch:
                entry.bump(epoch)
        entry.note(sequence, delta, offset, timestamp)
        entry.seen_ms = now_ms
        if transactional and entry.transaction_start < 0:
            self._undo_transactions.append((entry, -1, entry.coordinator_epoch))
            entry.transaction_start = offset
            self.transactions.begin(offset)
            self.verifications.end(producer_id)
        return None

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int) -> None:
        """Whether a marker may end what the producer has begun, in transactions of this version. PeerError."""
        entry = self.entries.get(producer_id)
        if entry is not None:
            check_marker(self.partition, producer_id, entry, epoch, coordinator_epoch, version)

    def stage_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, now_ms: int, *, abort: bool
    ) -> None:
        """Note a marker that `check_marker` took and that is about to be stored at `offset`."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._remember(producer_id, epoch, now_ms, always=True)
            self._undo.append((producer_id, None, 0, (), 0, 0))
        else:
            self._undo.append((producer_id, entry, entry.epoch, entry.batches, entry.next_sequence, entry.timestamp))
        self._undo_transactions.append((entry, entry.transaction_start, entry.coordinator_epoch))
        aborted = self._end(producer_id, entry, epoch, coordinator_epoch, offset, timestamp, abort=abort)
        entry.seen_ms = now_ms
        if aborted is not None:
            self._aborted.append(aborted)
        self.verifications.marked(producer_id, epoch)

    def commit(self) -> Sequence[TransactionIndexEntry]:
        """What was staged is written; the transactions that were aborted by it."""
        self._undo.clear()
        self._looked_back = None
        if not self._undo_transactions:
            return ()
        self._undo_transactions.clear()
        aborted, self._aborted = self._aborted, []
        return aborted

    def undo(self) -> None:
        """What was staged was not written: go back to the state before."""
        for entry, start, coordinator_epoch in reversed(self._undo_transactions):
            if entry.transaction_start >= 0:
                self.transactions.forget(entry.transaction_start)
            elif start >= 0:
                self.transactions.resume(start)
            entry.transaction_start, entry.coordinator_epoch = start, coordinator_epoch
        self._undo_transactions.clear()
        self._aborted.clear()
        while self._undo:
            producer_id, before, epoch, batches, next_sequence, timestamp = self._undo.pop()
            if before is None:
                undone = self.entries.get(producer_id)
                self.forget(producer_id)
                if undone is not None and undone.batches:
                    self.refused(producer_id, undone.epoch, undone.batches[0].first_sequence, undone.seen_ms)
            else:
                before.epoch, before.batches, before.next_sequence, before.timestamp = epoch, batches, next_sequence, timestamp
        if self._looked_back is not None:
            self.look_back, self._looked_back = self._looked_back, None

    def refused(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> None:
        """A batch was refused with a retriable error: if its producer is unknown, no batch after it is taken before it."""
        if producer_id >= 0 and sequence >= 0 and producer_id not in self.entries:
            self.verifications.begin(producer_id, epoch, sequence, now_ms, bumps_epoch=None)

    def replay(self, header: BatchHeader, now_ms: int, marker: tuple[int, bool] | None = None) -> TransactionIndexEntry | None:
        """Note a batch of a producer that is in the log already, by recovery or copied from the leader: no rule applies any more.

        Of what this broker has asked the coordinator while it led, that is settled which the leader has taken or ended meanwhile.

        `marker`, in a control batch: the coordinator's epoch, and whether it aborts. The transaction that it aborted.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        if header.is_control and marker is None:  # another kind, or one of which compaction has left nothing
            return None
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._remember(producer_id, epoch, now_ms, always=True)
            self.verifications.end(producer_id)
        entry.seen_ms = now_ms
        if marker is not None:
            coordinator_epoch, abort = marker
            self.verifications.marked(producer_id, epoch)
            return self._end(producer_id, entry, epoch, coordinator_epoch, header.base_offset, header.max_timestamp, abort=abort)
        if epoch != entry.epoch:
            entry.bump(epoch)
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = header.base_offset
            self.transactions.begin(header.base_offset)
            self.verifications.end(producer_id)
        entry.note(header.base_sequence, header.last_offset_delta, header.base_offset, header.max_timestamp)
        return None

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have not appended for `expiration_ms`; how many."""
        idle = [
            producer_id
            for producer_id, entry in self.entries.items()
            if now_ms - entry.seen_ms >= expiration_ms and entry.transaction_start < 0
        ]
        for producer_id in idle:
            self.forget(producer_id)
        self.verifications.expire(now_ms, expiration_ms)
        return len(idle)

    def last_use(self, producer_id: int, state: object) -> int:
        """As :meth:`moldau.log.producer_bound.ProducerMemory.last_use`."""
        entry = self.entries.get(producer_id)
        if entry is None or entry is not state:
            return GONE
        if entry.transaction_start >= 0 or self._undo_transactions:
            return BUSY
        return max(entry.timestamp, 0) if self._bound.is_loading else entry.seen_ms

    def forget(self, producer_id: int) -> None:
        """Forget one, if it is remembered."""
        if self.entries.pop(producer_id, None) is not None:
            self._bound.released()

    def views(self) -> list[ProducerView]:
        """All of them, for DescribeProducers."""
        return [_view(*each) for each in self.entries.items()]

    def view(self, producer_id: int) -> ProducerView | None:
        """One of them, if it is remembered."""
        entry = self.entries.get(producer_id)
        return None if entry is None else _view(producer_id, entry)

    def ends(self) -> list[tuple[int, int, int]]:
        """Id, offset of the last record (-1 for none) and epoch of each."""
        return [
            (producer_id, entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in self.entries.items()
        ]

    def clear(self) -> None:
        """Forget every producer."""
        self._drop_all()
        self.transactions.restart([])
        self.verifications.clear()
        self.look_back = self._looked_back = None
        self._undo.clear()
        self._undo_transactions.clear()
        self._aborted.clear()

    def _check_unknown(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> None:
        """A batch of a producer that is not known may be taken. PeerError."""
        try:
            given = self._bound.epoch_given(producer_id)
        except PeerError:
            self.refused(producer_id, epoch, sequence, now_ms)
            raise
        check_given(self.partition, producer_id, epoch, given)
        check_overtaking(self.partition, producer_id, epoch, sequence, self.verifications.get(producer_id))

    def _remember(self, producer_id: int, epoch: int, now_ms: int, *, always: bool = False) -> ProducerEntry:
        """A producer that is not known. PeerError POLICY_VIOLATION at the bound, unless `always`."""
        entry = ProducerEntry(epoch, now_ms)
        if not self._bound.admit(self, producer_id, entry, now_ms, always=always):
            raise PeerError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.partition}: no room for producer {producer_id}: all producers have open transactions; producer.ids.max is"
                f" {self._bound.limit}",
            )
        self.entries[producer_id] = entry
        return entry

    def _drop_all(self) -> None:
        self._bound.released(len(self.entries))
        self.entries.clear()

    def _end(
        self, producer_id: int, entry: ProducerEntry, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, abort: bool
    ) -> TransactionIndexEntry | None:
        """A marker at `offset` ends the transaction of `entry`, if there is one; that transaction if it is aborted."""
        if epoch != entry.epoch:
            entry.bump(epoch)
        entry.timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        first_offset, entry.transaction_start = entry.transaction_start, -1
        if first_offset < 0:
            return None
        self.transactions.end(first_offset, offset)
        if not abort:
            return None
        first_ongoing = self.transactions.first_ongoing()
        return TransactionIndexEntry(producer_id, first_offset, offset, offset + 1 if first_ongoing is None else first_ongoing)

    def _prepend(self, earlier: dict[int, ProducerEntry]) -> None:
        """Complete the last five of each producer with batches that come directly before those known."""
        for producer_id, entry in self.entries.items():
            found = earlier.get(producer_id)
            if found is None or found.epoch != entry.epoch:
                continue
            batches = entry.batches
            for batch in reversed(found.batches):
                follows = bool(batches) and (batch.last_sequence + 1) & SEQUENCE_MASK == batches[0].first_sequence
                if follows and batch.last_offset < batches[0].first_offset:
                    batches = (batch, *batches)
            entry.batches = batches[-BATCHES_KEPT:]

    def _repeated_or_refused(self, producer_id: int, entry: ProducerEntry, epoch: int, sequence: int, delta: int) -> StoredBatch | None:
        """The batch that one which is not next in sequence repeats, None for one that begins a newer epoch. PeerError."""
        check_epoch(self.partition, producer_id, entry, epoch, sequence)
        if epoch > entry.epoch:
            check_given(self.partition, producer_id, epoch, self._bound.epoch_given(producer_id))
            return None
        if sequence == NO_SEQUENCE:
            return None
        repeated = entry.find(sequence, delta)
        if repeated is None and self.look_back is not None:
            look_back, self.look_back = self.look_back, None
            self._looked_back = look_back if self._undo else None
            reached("producers: looked back into the log for a batch")
            self._prepend(look_back())
            repeated = entry.find(sequence, delta)
        if repeated is None:
            raise out_of_order(self.partition, producer_id, entry, sequence)
        reached("producers: found a repeated batch")
        return repeated


def _by_timestamp(item: tuple[int, ProducerEntry]) -> int:
    return item[1].timestamp


def _view(producer_id: int, entry: ProducerEntry) -> ProducerView:
    return ProducerView(producer_id, entry.epoch, entry.last_sequence, entry.timestamp, entry.coordinator_epoch, entry.transaction_start)
