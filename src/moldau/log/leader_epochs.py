"""Which leadership wrote which offsets of a partition (KIP-101, ``docs/formats/leader-epoch-checkpoint.md``).

An entry says: the leader of this epoch wrote its first record at this offset. Followers and consumers ask where an epoch ends, to find
out whether what they have read was lost in the meantime.

A leader knows where its own epoch begins as soon as it leads (`begin_term`), so that a follower which asks before the first record is not
sent away (KAFKA-10706). The epoch becomes an entry with its first record; the file gets it with the next flush, always before the recovery
point passes that record. Entries that a crash takes are rebuilt from the batches after the recovery point, which carry their epoch.
"""

from bisect import bisect_right

from moldau.log.checkpoints import format_lines, is_number, parse_lines
from moldau.log.damage import DamagedFileError

_EPOCHS_END = 2**31 - 1


class LeaderEpochs:
    """Invariant: in `entries` both epochs and start offsets rise. `changed` says that the file is out of date.

    `term`: the epoch that this broker leads with and where it begins, as long as no record was written in it; newer than all entries.
    """

    __slots__ = ("changed", "entries", "term")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = []
        self.term: tuple[int, int] | None = None
        for epoch, start_offset in entries or ():
            self.assign(epoch, start_offset)
        self.changed = False

    @property
    def latest(self) -> int:
        """The newest epoch with a record, -1 without any."""
        return self.entries[-1][0] if self.entries else -1

    def begin_term(self, epoch: int, log_end_offset: int) -> bool:
        """This broker leads with `epoch` from now on; whether that has no record yet."""
        self.term = (epoch, log_end_offset) if epoch > self.latest else None
        return self.term is not None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` has its first record at `start_offset`; entries that contradict it go."""
        entries = self.entries
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
            return
        self.term = None
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.changed = True

    def end_offset_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The newest epoch up to the asked one that has records or is led with, and the offset after its last one; ``(-1, -1)`` if unknown.

        With entries (0, 0), (2, 10) and a log that ends at 15: epoch 2 gives (2, 15), 1 and 0 give (0, 10), 3 gives (-1, -1). Once this
        broker leads with epoch 5, that gives (5, 15), and 3 gives (2, 15).
        """
        entries = self.entries if self.term is None else [*self.entries, self.term]
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return -1, -1
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        above = bisect_right(entries, epoch, key=_epoch_of)
        found = entries[above - 1][0] if above else epoch
        return found, entries[above][1]

    def end_up_to(self, epoch: int, log_end_offset: int) -> int:
        """The offset after the last record of `epoch` or an earlier one; those of an unknown epoch count as earlier."""
        above = bisect_right(self.entries, epoch, key=_epoch_of)
        return self.entries[above][1] if above < len(self.entries) else log_end_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 if that is unknown."""
        entries = self.entries
        if entries and offset >= entries[-1][1]:  # nearly always the newest is asked for
            return entries[-1][0]
        below = bisect_right(entries, offset, key=_start_of)
        return entries[below - 1][0] if below else -1

    def truncate_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now, and is not led until the next `begin_term`."""
        self.term = None
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()
            self.changed = True

    def truncate_start(self, start_offset: int) -> None:
        """The log starts at `start_offset` now: the epoch that wrote it starts there, older ones go."""
        below = bisect_right(self.entries, start_offset, key=_start_of)
        if below and (below > 1 or self.entries[0][1] != start_offset):
            self.entries[:below] = [(self.entries[below - 1][0], start_offset)]
            self.changed = True

    def take_from(self, other: "LeaderEpochs") -> None:
        """Know of each epoch what another log with the same records does. Compaction may have removed an epoch's first records, or all:
        what is known without them cannot be had from batches.
        """
        if self.entries != other.entries:
            self.entries = list(other.entries)
            self.changed = True

    def clear(self) -> None:
        """Forget every epoch."""
        self.changed = self.changed or bool(self.entries)
        self.entries.clear()
        self.term = None

    def encode(self) -> bytes:
        """The file's bytes."""
        return format_lines(f"{epoch} {start}" for epoch, start in self.entries)


def decode_leader_epochs(data: bytes, path: str) -> LeaderEpochs:
    """The entries in a file's bytes. DamagedFileError names the line."""
    entries: list[tuple[int, int]] = []
    for number, line in enumerate(parse_lines(data, path), 3):
        words = line.split()
        if len(words) != 2 or not all(map(is_number, words)):
            raise DamagedFileError(path, f"line {number}", f"{line!r} is not an epoch and an offset")
        entry = (int(words[0]), int(words[1]))
        if entry[0] >= _EPOCHS_END:
            raise DamagedFileError(path, f"line {number}", f"{words[0]} is no epoch")
        if entries and not (entry[0] > entries[-1][0] and entry[1] > entries[-1][1]):
            raise DamagedFileError(path, f"line {number}", f"{line!r} does not rise above the line before")
        entries.append(entry)
    return LeaderEpochs(entries)


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]
