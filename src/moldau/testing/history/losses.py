"""Which log a sighting belongs to, where power cuts have legally removed the end of a partition.

Each loss ends one log and begins another, which agree up to `Loss.from_offset`. A record says itself in which it was written: by its leader
epoch. An acknowledgement has none, and its answer may arrive after the cut; so it counts as written in the earliest log that is possible,
the one that was there when its send began. A record that was fetched before the cut may be polled after it, so the time of a poll says
nothing.
"""

from bisect import bisect_right
from math import inf

from moldau.testing.history.history import NONE, History, Loss


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
        """Transactions that a loss may have torn, or ended otherwise than was answered: nobody may rely on their outcome.

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
