"""Which batches of a walk belong to aborted transactions, and which markers are not needed any more.

A marker stays as long as the walk has met a batch of its transaction before it: a consumer would have to know what to do with that. Once
there is none, and a delete horizon has passed (readers that are under way may have read the batches before they went), it goes too.
A marker of an aborted transaction that stays needs its entry in the index; Kafka's rules, in `CleanedTransactionMetadata`.

An abort marker after records that no entry names shows that the index has lost one, though what is left of it looks whole: cut between two
entries, say. Going on would let aborted records take the place of committed ones.
"""

from collections.abc import Iterable

from moldau.log.transaction_index import AbortedTransaction
from moldau.protocol.records.control import ControlType
from moldau.protocol.records.header import HEADER_SIZE, BatchHeader
from moldau.protocol.varint import read_varint, read_varlong


class MissingEntryError(Exception):
    """The index of aborted transactions says nothing of the marker at `offset`, which ends what its producer has begun."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Transactions:
    """Of one walk, in the order of offsets, over batches before the last stable offset: none of their transactions is open.

    `kept` collects entries for the index; whoever writes the segment takes them.
    """

    __slots__ = ("_aborting", "_committing", "_due", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction], first_offset: int) -> None:
        """`first_offset`: where the walk begins. Transactions that had ended by then do not count."""
        self._due = sorted((each for each in aborted if each.last_offset >= first_offset), key=lambda each: -each.first_offset)
        self._aborting: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []

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
