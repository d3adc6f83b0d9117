"""What has become of commits that nobody waits for: those that librdkafka makes every few seconds, and at the end.

A commit that fails is logged once, with the first partition and its offset; then no more until that partition was committed again. It is
made up for by a later commit of the same partition; what nothing has made up for is raised by the next one that somebody waits for.

By itself librdkafka commits only what is beyond the last commit. Behind a seek it has to be asked for the first one.
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
    """Of one member of `group`. Told by librdkafka in the thread that asks it."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._wanted: dict[TopicPartition, int] = {}
        self._going: dict[TopicPartition, int] = {}
        """Wanted of partitions that have gone since: librdkafka commits these on their way out."""
        self._done: dict[TopicPartition, int] = {}
        self._failed: dict[TopicPartition, CommitError] = {}
        self._raised: dict[TopicPartition, int] = {}
        self._complained_of: set[TopicPartition] = set()
        self._sought: set[TopicPartition] = set()
        self._asked_for: dict[TopicPartition, int] = {}

    def want(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are to be committed; nobody knows yet whether they were."""
        self._wanted.update(offsets)
        for where in offsets:
            self._going.pop(where, None)

    def moved(self, where: TopicPartition) -> None:
        """A seek has moved this one, back perhaps."""
        self._sought.add(where)
        self._asked_for.pop(where, None)
        self._done.pop(where, None)

    def to_ask_for(self, *, at_last: bool = False) -> dict[TopicPartition, int]:
        """What librdkafka has to be asked to commit, for it would not by itself. One commit of a partition is under way at a time.

        `at_last`: there is no later time.
        """
        asked_for = self._asked_for
        found = {where: offset for where, offset in self._wanted.items() if where in self._sought and where not in asked_for}
        if at_last:
            found |= {where: self._wanted[where] for where in asked_for if self._wanted.get(where, asked_for[where]) != asked_for[where]}
        asked_for.update(found)
        return found

    def let_go(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """These are read by others now. If they are not lost, what is wanted of them is being committed still."""
        for where in partitions:
            self._sought.discard(where)
            self._asked_for.pop(where, None)
            offset = self._wanted.pop(where, None)
            if lost:
                self._done.pop(where, None)
            elif offset is not None:
                self._going[where] = offset

    def wanted(self) -> dict[TopicPartition, int]:
        """What is to be committed of partitions that are ours, and is not yet."""
        return dict(self._wanted)

    def unknown(self) -> dict[TopicPartition, int]:
        """What was to be committed, and has not been heard of."""
        open_ = self._going | self._wanted
        return {where: offset for where, offset in open_.items() if where not in self._failed and self._raised.get(where) != offset}

    def raised(self, offsets: Mapping[TopicPartition, int]) -> None:
        """An exception has said already that these were not committed."""
        self._raised.update(offsets)

    def done(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are committed, and were waited for; librdkafka may be told to commit them once more."""
        for where, offset in offsets.items():
            self._sought.discard(where)
            self._asked_for.pop(where, None)
            self._confirm(where, offset)

    def _confirm(self, where: TopicPartition, offset: int) -> None:
        for waiting in (self._wanted, self._going):
            if waiting.get(where) == offset:
                del waiting[where]
        self._done[where] = offset
        self._failed.pop(where, None)
        self._raised.pop(where, None)
        self._complained_of.discard(where)

    def told(self, error: "KafkaError | None", partitions: "Iterable[ForeignPartition]") -> bool:
        """Librdkafka has committed these offsets, or has failed to; whether all were. Offsets below 0 were not committed at all."""
        failed: dict[TopicPartition, CommitError] = {}
        for each in partitions:
            if each.offset < 0:
                continue
            where = TopicPartition(each.topic, each.partition)
            asked = self._asked_for.get(where) == each.offset
            if asked:
                del self._asked_for[where]
            cause = each.error or error
            if cause is None:
                self._confirm(where, each.offset)
                if asked:
                    self._sought.discard(where)
            elif cause.code() != cause._NO_OFFSET and self._done.get(where) != each.offset:
                failed[where] = CommitError(self._group, *where, each.offset, cause)
        self._failed.update({where: failure for where, failure in failed.items() if self._raised.get(where) != failure.offset})
        news = [failure for where, failure in failed.items() if where not in self._complained_of]
        if news:
            more = f" (and {len(news) - 1} more partitions)" if len(news) > 1 else ""
            log.warning("consumer: offset not committed: %s%s", news[0], more)
        self._complained_of.update(failed)
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
