"""Outcomes of automatic commits: those that librdkafka makes every few seconds, and at the end.

A commit that fails is logged once, with the first partition and its offset; then no more until that partition was committed again. A later
commit of the same partition covers it; what no commit has covered is raised by the next one that is waited for.

By itself librdkafka commits only what is beyond the last commit. After a seek it has to be asked for the first one.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from moldau.client.failures import CommitError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import TopicPartition as ForeignPartition

log = logging.getLogger("moldau.client")


class Commits:
    """Of one member of `group`. librdkafka calls back in the thread that polls it."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._wanted: dict[TopicPartition, int] = {}
        self._revoked: dict[TopicPartition, int] = {}
        """Wanted of partitions that were revoked since: librdkafka commits these with the rebalance."""
        self._done: dict[TopicPartition, int] = {}
        self._failed: dict[TopicPartition, CommitError] = {}
        self._raised: dict[TopicPartition, int] = {}
        self._logged: set[TopicPartition] = set()
        self._sought: set[TopicPartition] = set()
        self._requested: dict[TopicPartition, int] = {}

    def want(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are to be committed; the outcome is unknown yet."""
        self._wanted.update(offsets)
        for where in offsets:
            self._revoked.pop(where, None)

    def moved(self, where: TopicPartition) -> None:
        """A seek has moved this partition, perhaps back."""
        self._sought.add(where)
        self._requested.pop(where, None)
        self._done.pop(where, None)

    def to_request(self, *, at_last: bool = False) -> dict[TopicPartition, int]:
        """What librdkafka has to be asked to commit, since it would not by itself. One commit of a partition is under way at a time.

        `at_last`: there is no later time.
        """
        requested = self._requested
        found = {where: offset for where, offset in self._wanted.items() if where in self._sought and where not in requested}
        if at_last:
            found |= {where: self._wanted[where] for where in requested if self._wanted.get(where, requested[where]) != requested[where]}
        requested.update(found)
        return found

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """These are read by others now. Unless they are lost, what is wanted of them is still being committed."""
        for where in partitions:
            self._sought.discard(where)
            self._requested.pop(where, None)
            offset = self._wanted.pop(where, None)
            if lost:
                self._done.pop(where, None)
            elif offset is not None:
                self._revoked[where] = offset

    def wanted(self) -> dict[TopicPartition, int]:
        """What is to be committed of assigned partitions, and is not yet."""
        return dict(self._wanted)

    def unknown(self) -> dict[TopicPartition, int]:
        """What was to be committed, and has no outcome yet."""
        open_ = self._revoked | self._wanted
        return {where: offset for where, offset in open_.items() if where not in self._failed and self._raised.get(where) != offset}

    def raised(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These were reported as not committed by an exception."""
        self._raised.update(offsets)

    def done(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are committed, and were waited for; librdkafka may commit them once more."""
        for where, offset in offsets.items():
            self._sought.discard(where)
            self._requested.pop(where, None)
            self._confirm(where, offset)

    def _confirm(self, where: TopicPartition, offset: int) -> None:
        for waiting in (self._wanted, self._revoked):
            if waiting.get(where) == offset:
                del waiting[where]
        self._done[where] = offset
        self._failed.pop(where, None)
        self._raised.pop(where, None)
        self._logged.discard(where)

    def reported(self, error: "KafkaError | None", partitions: "Iterable[ForeignPartition]") -> bool:
        """The outcome of a commit of librdkafka; whether all were committed. Offsets below 0 were not part of it."""
        failed: dict[TopicPartition, CommitError] = {}
        for each in partitions:
            if each.offset < 0:
                continue
            where = TopicPartition(each.topic, each.partition)
            asked = self._requested.get(where) == each.offset
            if asked:
                del self._requested[where]
            cause = each.error or error
            if cause is None:
                self._confirm(where, each.offset)
                if asked:
                    self._sought.discard(where)
            elif cause.code() != cause._NO_OFFSET and self._done.get(where) != each.offset:
                failed[where] = CommitError(self._group, *where, each.offset, cause)
        self._failed.update({where: failure for where, failure in failed.items() if self._raised.get(where) != failure.offset})
        news = [failure for where, failure in failed.items() if where not in self._logged]
        if news:
            more = f" (and {len(news) - 1} more partitions)" if len(news) > 1 else ""
            log.warning("consumer: offset not committed: %s%s", news[0], more)
        self._logged.update(failed)
        return not failed

    def raise_failure(self) -> None:
        """CommitError for what was not committed, and by no later commit either; once."""
        if self._failed:
            failures = list(self._failed.values())
            self.raised({where: failure.offset for where, failure in self._failed.items() if failure.offset is not None})
            self._failed.clear()
            if len(failures) > 1:
                failures[0].add_note(f"and {len(failures) - 1} more partitions")
            raise failures[0]
