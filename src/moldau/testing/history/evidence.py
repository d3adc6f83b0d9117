"""What a history proves: which value stands at which offset, what was seen by whom, what must have been committed.

**Must have committed**: a send that was acknowledged and whose transaction, if any, was reported as committed; or any send of a transaction
of which a trace was seen: one of its values by a read_committed reader, or its group offset. An unknown outcome becomes known so.

**Losses.** What a power cut legally removed counts as unknown, and sightings of it are kept apart from those of the log that followed. Each
loss ends one log and begins another, which agree up to `Loss.from_offset`. A record says itself in which it was written: by its leader
epoch. An acknowledgement has none, and its answer may arrive after the cut; so it counts as written in the earliest log that is possible,
the one that was there when its send began. A record that was fetched before the cut may be polled after it, so the time of a poll says
nothing.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import repeat
from math import inf

from moldau.testing.history.history import NONE, History, Loss, Outcome, Reader
from moldau.testing.history.kinds import Anomaly, Kind


class Losses:
    """The losses of a history, by partition and in the order of time."""

    def __init__(self, history: History) -> None:
        self._of: dict[int, list[Loss]] = {}
        for loss in sorted(history.losses, key=lambda loss: loss.at):
            self._of.setdefault(loss.partition, []).append(loss)
        self._state: dict[tuple[bool, str], list[float]] = {}
        for state in sorted(history.state_losses, key=lambda state: state.at):
            self._state.setdefault((state.is_group, state.name), []).append(state.at)

    def of(self, partition: int) -> list[Loss]:
        """Those of a partition, by time."""
        return self._of.get(partition, [])

    def removal(self, partition: int, offset: int, begun: float, epoch: int = NONE) -> int:
        """Which loss of its partition may have removed a record: its place in `of`; NONE if the record is still there.

        `begun` is the begin of its send. Without an epoch the record may also be one of a later log: all that is certain is NONE.
        """
        losses = self._of.get(partition)
        if losses is None:
            return NONE
        first = sum(loss.at <= begun if epoch == NONE else loss.epoch < epoch for loss in losses)
        return next((place for place in range(first, len(losses)) if losses[place].from_offset <= offset), NONE)

    def reuses_epoch(self, partition: int, offset: int, begun: float, epoch: int) -> bool:
        """Whether a record that was sent after a loss stands at a lost offset with an epoch of the lost log."""
        lost = (loss for loss in self._of.get(partition, ()) if loss.at <= begun and loss.from_offset <= offset)
        return epoch != NONE and any(epoch <= loss.epoch for loss in lost)

    def unchanged_before(self, partition: int, offset: int, epoch: int) -> int:
        """`offset`, or the least that was lost since a record of this leader epoch.

        There a reader may have passed markers of the log before, and the records of then are not those of now.
        """
        return min([offset, *(loss.from_offset for loss in self._of.get(partition, ()) if loss.epoch >= epoch)])

    def moved_position(self, partition: int, offset: int, at: float) -> bool:
        """Whether a position that a reader had reached may have been after the end of the log since."""
        return any(loss.at <= at and loss.from_offset < offset for loss in self._of.get(partition, ()))

    def group_since(self, group: str, at: float) -> float:
        """The last loss of a group's offsets up to a time; -inf if there was none."""
        times = self._state.get((True, group), [])
        place = bisect_right(times, at)
        return times[place - 1] if place else -inf

    def lost_group(self, group: str) -> bool:
        """Whether offsets of this group were lost, ever."""
        return (True, group) in self._state

    def transactional_id_after(self, transactional_id: str, at: float) -> float:
        """The first loss of a transactional id's state at or after a time; inf if there was none."""
        return next((loss for loss in self._state.get((False, transactional_id), ()) if loss >= at), inf)

    def epoch_lost(self, history: History, producer: int) -> float:
        """The first loss since which a producer may share its epoch with another one of its transactional id; inf if there was none.

        That is one that may have lost its epoch, so that the next one gets the same, or the epoch of one that was not gone when it came.
        """
        this = history.producers[producer]
        since = min(
            other.begun_at
            for other in history.producers
            if other.transactional_id == this.transactional_id and other.begun_at <= this.begun_at <= other.gone_at
        )
        return self.transactional_id_after(this.transactional_id, since)

    def broken_transactions(self, history: History) -> set[int]:
        """Transactions that a loss may have torn, or ended otherwise than was answered: their outcome proves nothing.

        Those of producers that may share an epoch with another one since a loss of their id's state, and those that were begun before
        a loss of that, of a partition that they wrote to, or of a group that they committed for.
        A marker may be lost where the transaction's records are not.
        """
        if not history.losses and not history.state_losses:
            return set()
        found = {number for number, entry in enumerate(history.transactions) if self.epoch_lost(history, entry.producer) != inf}
        sends = history.sends
        for partition, transaction in zip(sends.partition, sends.transaction, strict=True):
            if transaction != NONE and self.of(partition) and history.transactions[transaction].begun <= self.of(partition)[-1].at:
                found.add(transaction)
        for commit in history.offset_commits:
            if commit.transaction != NONE and self.group_since(commit.group, inf) >= history.transactions[commit.transaction].begun:
                found.add(commit.transaction)
        return found


SEEN = 1
SEEN_COMMITTED = 2
OFFSETS_SPARE = 1_000_000
"""Offsets that markers and aborted or unacknowledged sends may use up beside those of the known ones."""


class Evidence:
    """Made once per history; the checks read it."""

    def __init__(self, history: History) -> None:
        self.history = history
        values, partitions = len(history.sends), len(history.partitions)
        self.offsets_limit = 4 * values + OFFSETS_SPARE
        """Beyond this an offset is nonsense."""
        self.losses = Losses(history)
        self.broken = self.losses.broken_transactions(history)
        """Transactions that losses may have torn: nothing is proved by them or of them."""
        self.reported = array("b", history.sends.outcome)
        """Per value: what its producer was answered, UNKNOWN where the record may have been lost since."""
        self.stored = [array("q") for _ in range(partitions)]
        """Per partition: the value at each offset, or NONE; of the last log."""
        self.removed: dict[tuple[int, int, int], int] = {}
        """Per partition, loss and offset: the value that was there."""
        self.place = array("q", repeat(NONE, values))
        """Per value: its offset in the partition it was sent to, the first that became known."""
        self.further: dict[int, list[int]] = {}
        """Per value that may stand at several offsets: those that became known later, in any order."""
        self.seen = bytearray(values)
        """Per value: SEEN, SEEN_COMMITTED."""
        self.polled_to = [NONE] * partitions
        """Per partition: the greatest offset that a read_committed reader was given."""
        self.contradictions: list[Anomaly] = []
        """What came to light on the way: A3, A4, A13 and values that no producer sent."""
        self.transaction_outcome = [
            Outcome.UNKNOWN if number in self.broken and entry.commit_asked != inf else entry.outcome
            for number, entry in enumerate(history.transactions)
        ]
        self.transaction_known_at = [
            entry.ended if outcome == Outcome.OK else inf
            for entry, outcome in zip(history.transactions, self.transaction_outcome, strict=True)
        ]
        """From when on it is certain that the transaction was committed."""
        self.proved_by_offset: set[int] = set()
        """Transactions of which a group's offset was seen."""
        self._take_acknowledgements()
        self._take_polls()
        self._take_offsets()
        self.visible = self._judge()
        """Per value: 1 if it must have committed or was seen by a read_committed reader."""

    def _take_acknowledgements(self) -> None:
        sends, producers = self.history.sends, self.history.producers
        asks = [entry.durable for entry in producers]
        for value, outcome in enumerate(sends.outcome):
            if outcome == Outcome.OK and asks[sends.producer[value]]:
                offset = sends.offset[value]
                if self.losses.removal(sends.partition[value], offset, sends.begun[value]) != NONE:
                    self.reported[value] = Outcome.UNKNOWN
                elif 0 <= offset < self.offsets_limit:
                    self._put(sends.partition[value], offset, value, "acknowledged")
                else:
                    self._found(Kind.SPURIOUS_OFFSET, f"acknowledged at offset {offset}: {self.describe(value)}")

    def _take_polls(self) -> None:
        history = self.history
        sent_to, in_transaction = history.sends.partition, history.sends.transaction
        seen, stored, values = self.seen, self.stored, len(history.sends)
        lossy = [bool(self.losses.of(partition)) for partition in range(len(history.partitions))]
        for reader in history.readers:
            flag = SEEN | SEEN_COMMITTED if reader.committed else SEEN
            columns = (reader.partition, reader.offset, reader.value, reader.epoch, reader.poll)
            for partition, offset, value, epoch, poll in zip(*columns, strict=True):
                if poll == NONE:
                    continue
                if not 0 <= value < values or sent_to[value] != partition:
                    self._found_phantom(reader.name, partition, offset, value, reader.poll_ended[poll])
                    continue
                if not 0 <= offset < self.offsets_limit:
                    at = reader.poll_ended[poll]
                    self._found(Kind.SPURIOUS_OFFSET, f"{reader.name} polled at offset {offset}, {at:.3f} s: {self.describe(value)}")
                    continue
                here = stored[partition]
                if lossy[partition] and self._is_removed(reader, partition, offset, value, epoch, poll):
                    seen[value] |= flag
                    continue
                if offset >= len(here) or here[offset] != value:
                    self._put(partition, offset, value, f"polled by {reader.name} at {reader.poll_ended[poll]:.3f} s")
                if seen[value] & flag != flag:
                    seen[value] |= flag
                    transaction = in_transaction[value]
                    if transaction != NONE and reader.committed:
                        self._prove(transaction, reader.poll_ended[poll])
                if reader.committed and offset > self.polled_to[partition]:
                    self.polled_to[partition] = offset

    def _is_removed(self, reader: Reader, partition: int, offset: int, value: int, epoch: int, poll: int) -> bool:
        """Whether a polled record is of a log that a power cut ended; then it is noted there."""
        begun = self.history.sends.begun[value]
        how = f"polled by {reader.name} at {reader.poll_ended[poll]:.3f} s"
        if self.losses.reuses_epoch(partition, offset, begun, epoch):
            where = f"offset {offset} of {self.name(partition)} was lost and written again with leader epoch {epoch}"
            self._found(Kind.REUSED_EPOCH, f"{where}, {how}: {self.describe(value)}")
            return False
        place = self.losses.removal(partition, offset, begun, epoch)
        if place == NONE:
            return False
        if epoch != NONE and (other := self.removed.setdefault((partition, place, offset), value)) != value:
            where = f"offset {offset} of {self.name(partition)} before a power cut"
            self._found(Kind.INCONSISTENT_OFFSET, f"{where} is {how} as {self.describe(value)}; it is {self.describe(other)}")
        return True

    def _take_offsets(self) -> None:
        """A group's offset that only one transaction can have committed proves that transaction."""
        history = self.history
        committers: dict[tuple[str, int, int], set[int]] = {}
        for commit in history.offset_commits:
            committers.setdefault((commit.group, commit.partition, commit.offset), set()).add(commit.transaction)
        for sight in history.offsets_seen:
            found = committers.get((sight.group, sight.partition, sight.offset))
            if found is not None and len(found) == 1:
                (transaction,) = found
                if transaction != NONE and transaction not in self.broken:
                    self.proved_by_offset.add(transaction)
                    self._prove(transaction, sight.ended)

    def _prove(self, transaction: int, at: float) -> None:
        """A trace of a transaction was seen at this time: it was committed before, unless that is certainly not so."""
        if transaction in self.broken:
            return
        if self.transaction_outcome[transaction] == Outcome.UNKNOWN:
            self.transaction_outcome[transaction] = Outcome.OK
        self.transaction_known_at[transaction] = min(self.transaction_known_at[transaction], at)

    def _put(self, partition: int, offset: int, value: int, how: str) -> None:
        """`value` stands at `offset`: note it, or what contradicts it."""
        here = self.stored[partition]
        if offset >= len(here):
            here.extend(repeat(NONE, offset + 1 - len(here)))
        other = here[offset]
        if other == NONE:
            here[offset] = value
        elif other != value:
            kind = Kind.SPURIOUS_OFFSET if how == "acknowledged" and offset == 0 else Kind.INCONSISTENT_OFFSET
            self._found(kind, f"offset {offset} of {self.name(partition)} is {how} as {self.describe(value)}; it is {self.describe(other)}")
            return
        if self.place[value] == NONE:
            self.place[value] = offset
        elif self.place[value] == offset:
            return
        elif not self.is_once(value):
            self.further.setdefault(value, []).append(offset)
        else:
            self._found(Kind.DUPLICATE, f"also at offset {offset} of {self.name(partition)} ({how}): {self.describe(value)}")

    def _found_phantom(self, reader: str, partition: int, offset: int, value: int, at: float) -> None:
        what = f"; {self.describe(value)}" if 0 <= value < len(self.history.sends) else ""
        text = f"{reader} polled value {value} at offset {offset} of {self.name(partition)}, {at:.3f} s: no producer sent it there{what}"
        self._found(Kind.PHANTOM, text)

    def _found(self, kind: Kind, text: str) -> None:
        self.contradictions.append(Anomaly(kind, text))

    def _judge(self) -> bytearray:
        visible = bytearray(len(self.history.sends))
        in_transaction = self.history.sends.transaction
        for value, flags in enumerate(self.seen):
            if (flags & SEEN_COMMITTED and in_transaction[value] not in self.broken) or self.outcome(value) == Outcome.OK:
                visible[value] = 1
        return visible

    # What the checks ask

    def outcome(self, value: int) -> Outcome:
        """Whether a value must be there (OK), must not be (FAILED), or may be."""
        reported = self.reported[value]
        transaction = self.history.sends.transaction[value]
        if transaction == NONE or reported == Outcome.FAILED:
            return Outcome(reported)
        return self.transaction_outcome[transaction]

    def is_once(self, value: int) -> bool:
        """Whether the value is stored once, however often it was sent."""
        sends = self.history.sends
        idempotent = self.history.producers[sends.producer[value]].idempotent
        return idempotent and not self.evicted_between(sends.begun[value], sends.ended[value])

    def evicted_between(self, begun: float, ended: float) -> bool:
        """Whether a broker forgot a producer then, at the bound of all of them."""
        evictions = self.history.evictions
        first = bisect_left(evictions, begun, key=lambda eviction: eviction.at)
        return first < len(evictions) and evictions[first].at <= ended

    def places(self, value: int) -> list[int]:
        """The offsets at which the value is known to stand, in their order; one at most if it is stored once."""
        place = self.place[value]
        return [] if place == NONE else sorted((place, *self.further.get(value, ())))

    def must_be_kept(self, value: int) -> bool:
        """Whether the broker promised to keep the value."""
        sends = self.history.sends
        return self.outcome(value) == Outcome.OK and self.history.producers[sends.producer[value]].durable

    def between(self, partition: int, begin: int, end: int, *, committed: bool) -> Iterator[int]:
        """The values known to stand at offsets from `begin` to `end` (without that), as a reader of this isolation has to be given them."""
        visible = self.visible
        for value in self.stored[partition][begin:end]:
            if value != NONE and (not committed or visible[value]):
                yield value

    # Words for reports

    def name(self, partition: int) -> str:
        """As topic-number."""
        return self.history.partitions[partition]

    def describe(self, value: int) -> str:
        """A value with all that is known of it."""
        sends = self.history.sends
        outcome = Outcome(sends.outcome[value])
        text = f"value {value} sent to {self.name(sends.partition[value])} by {self.history.producers[sends.producer[value]].name}"
        text += f" at {sends.begun[value]:.3f} s, {outcome.name}"
        if outcome == Outcome.OK:
            text += f" offset {sends.offset[value]}"
        if outcome != Outcome.UNKNOWN:
            text += f" at {sends.ended[value]:.3f} s"
        if self.place[value] != NONE:
            text += f", stored at {self.place[value]}"
        if (transaction := sends.transaction[value]) != NONE:
            text += f", {self.describe_transaction(transaction)}"
        return text

    def describe_transaction(self, transaction: int) -> str:
        """A transaction with what its producer knew of it."""
        entry = self.history.transactions[transaction]
        text = f"transaction {transaction} of {self.history.producers[entry.producer].name} begun {entry.begun:.3f} s"
        if entry.commit_asked != inf:
            text += f", commit asked {entry.commit_asked:.3f} s"
        if entry.ended != inf:
            text += f", {'committed' if entry.reported == Outcome.OK else 'aborted'} {entry.ended:.3f} s"
        return text
