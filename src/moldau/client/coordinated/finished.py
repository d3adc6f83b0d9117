"""The offsets that a member has finished, and which of them are committed."""

import logging
from collections.abc import Callable, Mapping

from moldau.client.coordinated.offsets import Offsets, OffsetStore
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition

log = logging.getLogger("moldau.client")


class FinishedOffsets:
    """Of the partitions that a member owns, between `begin` and `forget`."""

    def __init__(self, group: str, store: OffsetStore) -> None:
        self._group = group
        self._store = store
        self._finished: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._is_committing = False
        self._waiting: list[Callable[[MoldauError | None], object]] = []
        """Of commits that begin when the one that is made has ended."""
        self._period = 0
        """Counts the calls of `forget`: the outcome of a commit that began before one says nothing after it."""

    def begin(self, committed: Offsets) -> None:
        """Partitions are owned from now on, with these commits of owners before."""
        self._committed = dict(committed)

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All before these offsets is finished."""
        self._finished.update(offsets)

    @property
    def uncommitted(self) -> dict[TopicPartition, int]:
        """What is finished, and not known to be committed."""
        return {where: offset for where, offset in self._finished.items() if self._committed.get(where) != offset}

    def commit(self, done: Callable[[MoldauError | None], object]) -> None:
        """Commit what is not; `done` is called when that has ended, now or later. One commit at a time; the next one has all since."""
        self._waiting.append(done)
        if not self._is_committing:
            self._commit_next()

    def _commit_next(self) -> None:
        waiting, self._waiting = self._waiting, []
        wanted, period = self.uncommitted, self._period

        def ended(error: MoldauError | None) -> None:
            self._is_committing = False
            if error is None and period == self._period:
                self._committed.update(wanted)
            if self._waiting:
                self._commit_next()
            for done in waiting:
                done(error)

        if wanted:
            self._is_committing = True
            self._store.commit(wanted, ended)
        else:
            for done in waiting:
                done(None)

    def log_failure(self, error: MoldauError | None) -> None:
        """Log that a commit that no one waits for has failed, if it has."""
        if error is not None and (open_ := self.uncommitted):
            where, offset = next(iter(open_.items()))
            more = f" (and {len(open_) - 1} more partitions)" if len(open_) > 1 else ""
            log.warning("group %s: partition %s at offset %d not committed%s: %s", self._group, where, offset, more, error)

    def forget(self) -> None:
        """The partitions are not owned any more."""
        self._finished.clear()
        self._committed.clear()
        self._period += 1
