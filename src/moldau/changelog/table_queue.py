"""Changes of one table and shard that are read and not applied: a queue in the order of the log, with a count for each commit."""

from collections import deque
from collections.abc import Sequence

from moldau.changelog.arrivals import ChangeRecord, TableRecord, Tombstone
from moldau.changelog.values import Change, Key


class TableQueue:
    """Of the topic `topic`, which is read from `next_offset` on."""

    def __init__(self, topic: str, table: str, next_offset: int) -> None:
        self.topic = topic
        self.table = table
        self.next_offset = next_offset
        self.at_end = False
        """A fetch since the next commit is known has shown that there is nothing more, also of open transactions."""
        self.passed = False
        """While loading: everything up to the target is read."""
        self.last_epoch = self.last_commit = 0
        """Of the last change that was read."""
        self.spilled = 0
        """Changes of the next commit that are in a file."""
        self._spilled_from = 0
        """The offset of the first of them."""
        self._waiting: deque[ChangeRecord] = deque()
        self._held_bytes = 0
        self._counts: dict[int, int] = {}
        self._deleted: Key | None = None
        """The key, if the last record was a deletion."""
        self._seen = False
        """Whether it has read a record."""
        self._first_tombstone: int | None = None
        """Offset of a tombstone that came first of all. Its deletion may have been applied, or be compacted: it is kept for a reload until
        a whole commit after it proves the former."""

    @property
    def held(self) -> int:
        """Changes in memory."""
        return len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """Of their records."""
        return self._held_bytes

    @property
    def position(self) -> int:
        """The first offset that is not applied."""
        if self._first_tombstone is not None:
            return self._first_tombstone
        if self.spilled:
            return self._spilled_from
        return self._waiting[0].offset if self._waiting else self.next_offset

    def append(self, record: ChangeRecord) -> None:
        """Queue a change."""
        self._waiting.append(record)
        self._held_bytes += record.size
        self._counts[record.commit] = self._counts.get(record.commit, 0) + 1
        self.saw(record)

    def saw(self, record: TableRecord) -> None:
        """A record was read."""
        self._seen = True
        if isinstance(record, Tombstone):
            self._deleted = None
        else:
            self.last_epoch, self.last_commit = record.epoch, record.commit
            self._deleted = record.change.key if record.change.after is None else None

    def ends_deletion(self, record: Tombstone) -> bool:
        """Whether it is the tombstone of the deletion before it, which says the same."""
        return self._deleted is not None and record.key == self._deleted

    def hold_first(self, record: Tombstone) -> bool:
        """Whether nothing was read before it."""
        if self._seen:
            return False
        self._first_tombstone = record.offset
        self.saw(record)
        return True

    def fetched(self, next_offset: int, *, at_end: bool) -> None:
        """A fetch was taken as a whole."""
        self.next_offset = next_offset
        self.at_end = self.at_end or at_end

    def count(self, commit: int) -> int:
        """Changes of a commit that are here, or in a file."""
        return self._counts.get(commit, 0)

    def take(self, number: int) -> Sequence[Change]:
        """Changes up to a commit, which is whole; they are no longer here. Those that were spilled are left out."""
        if self.spilled or (self._waiting and self._waiting[0].commit <= number):
            self._first_tombstone = None
        changes = self._remove(number)
        self.spilled = 0
        while self._counts and (commit := next(iter(self._counts))) <= number:
            del self._counts[commit]
        return changes

    def spill(self, number: int) -> Sequence[Change]:
        """Changes up to a commit that is not whole yet, which go to a file and are counted still."""
        if self._waiting and not self.spilled:
            self._spilled_from = self._waiting[0].offset
        changes = self._remove(number)
        self.spilled += len(changes)
        return changes

    def _remove(self, number: int) -> Sequence[Change]:
        changes = []
        while self._waiting and self._waiting[0].commit <= number:
            record = self._waiting.popleft()
            self._held_bytes -= record.size
            changes.append(record.change)
        return changes
