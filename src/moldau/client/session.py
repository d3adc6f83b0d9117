"""A consumer of librdkafka, with our messages and errors; a listener is called at rebalances. One thread uses it at a time."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from moldau.client.commits import Commits
from moldau.client.failures import CommitError, ConsumeError
from moldau.client.librdkafka import (
    ASK_TIMEOUT_S,
    BoundedCall,
    BrokerLog,
    ConsumerQueries,
    ErrorMessages,
    foreign,
    foreign_offsets,
    our_message,
    ours,
    timed_out,
)
from moldau.client.message import ConsumedMessage
from moldau.client.settings import CLOSE_TIMEOUT_MS, in_our_words
from moldau.model.extras import MissingExtraError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as Foreign
    from confluent_kafka import TopicPartition as ForeignPartition


class RebalanceListener(Protocol):
    """Called from within `fetch`, `leave`, `assign` and `close` of a session, with partitions that are assigned and revoked."""

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """These are assigned, beside those before."""

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """These go to another member after this returns; what was stored for them is committed then."""

    def lost(self, partitions: list[TopicPartition]) -> None:
        """These belong to another member already."""


log = logging.getLogger("moldau.client")

BEGINNING, END, COMMITTED = -2, -1, -1000
"""Offsets that mean a position, as librdkafka has them."""
_SEEK_PAUSE_S = 0.02
_LEAVE_STEP_S = 0.01
_LEAVE_SHARE = 0.5
"""Of the time of a `close`, how much of it may be spent on leaving; the rest is for the end of librdkafka."""


class Session(ConsumerQueries):
    """A consumer with these settings of librdkafka; connects by itself. ValueError for settings that it does not take.

    `close` waits for `close_timeout_s` unless given a timeout; `leave` waits as long.
    """

    def __init__(self, settings: Mapping[str, Any], group: str | None, close_timeout_s: float = CLOSE_TIMEOUT_MS / 1000) -> None:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as error:
            raise MissingExtraError("a consumer", "confluent-kafka", "client") from error
        self.group = group
        self.commits_by_itself = bool(settings["enable.auto.commit"])
        self.closed = False
        self._subscribed = False
        """Whether rebalances may come."""
        self._calling_back = False
        """Whether the listener is being called: by a poll. Another one within it would abort the process."""
        self._leaving = False
        """Whether we have unsubscribed, and rebalances may still come."""
        self._assign_then: Mapping[TopicPartition, int] | None = None
        """What the listener assigned after it had unsubscribed."""
        self.close_timeout_s = close_timeout_s
        self._reset = settings.get("auto.offset.reset")
        self._brokers = BrokerLog("consumer" if group is None else f"consumer of group {group}")
        self._commits = Commits(group or "")
        self._calls = BoundedCall()
        self._error: ConsumeError | None = None
        self._errors = ErrorMessages(group)
        self._revoked: set[TopicPartition] = set()
        self._to_reread: set[TopicPartition] = set()
        try:
            super().__init__(Consumer({**settings, "on_commit": self._committed}, logger=self._brokers))
        except KafkaException as error:
            raise ValueError(f"consumer: {in_our_words(error.args[0].str())}") from None

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Become a member of the group for these topics; one that begins with ^ is a pattern."""

        def release(partitions: list[TopicPartition], notify: Callable[[list[TopicPartition]], None], *, lost: bool) -> None:
            self._revoked.update(partitions)
            self._to_reread.difference_update(partitions)
            notify(partitions)
            if not lost:
                self._ask_for_commits(at_last=True)
            self._commits.release(partitions, lost=lost)

        def revoked(_: object, partitions: "list[ForeignPartition]") -> None:
            self._call_back(lambda: release(ours(partitions), listener.revoked, lost=False))

        def lost(_: object, partitions: "list[ForeignPartition]") -> None:
            self._call_back(lambda: release(ours(partitions), listener.lost, lost=True))

        def assigned(_: object, partitions: "list[ForeignPartition]") -> None:
            self._call_back(lambda: listener.assigned(ours(partitions)))

        self._subscribed = True
        self._call(lambda: self._inner.subscribe(list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost))
        self._leaving, self._assign_then = False, None

    def _call_back(self, call: Callable[[], object]) -> None:
        """Call the listener."""

        def marked() -> None:
            self._calling_back = True
            try:
                call()
            finally:
                self._calling_back = False

        self._calls.call_back(marked)

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, and no others, from these offsets on; no group decides.

        After a `leave` that has not ended, waits for its end; ConsumeError TIMED_OUT if that takes longer than a `close` may. Called by the
        listener after a `leave`: they are assigned once the group is left.
        """
        self._release_all()
        if self._leaving and self._calling_back:
            self._assign_then = offsets
            return
        if self._leaving and not self._wait_until_left():
            raise ConsumeError(None, None, None, timed_out(f"{self._not_left()}; partitions cannot be assigned before"))
        self._call(lambda: self._inner.assign(foreign_offsets(offsets)))

    def leave(self) -> None:
        """Read nothing any more, and leave the group; the listener is called for what is revoked, and what was stored is committed.

        Waits for that as long as `close` may take, then logs a warning; `fetch` and `assign` continue it. They do so as well if the
        listener calls this, or raises. ConsumeError if librdkafka refuses to unsubscribe.
        """
        self._release_all()
        self._call(self._inner.unsubscribe)
        if not self._subscribed:
            self._call(self._inner.unassign)
            return
        self._leaving, self._assign_then = True, None
        if not self._calling_back and not self._wait_until_left():
            log.warning("consumer: %s; each poll continues to leave", self._not_left())

    def _not_left(self) -> str:
        return f"group {self.group}: this member has not left within {self.close_timeout_s:g} s (close_timeout_ms)"

    def _wait_until_left(self) -> bool:
        """Whether the group is left within the time of a `close`."""
        deadline = time.monotonic() + self.close_timeout_s
        self._continue_leaving(0.0)
        while self._leaving and time.monotonic() < deadline:
            self._continue_leaving(_LEAVE_STEP_S)
        return not self._leaving

    def _continue_leaving(self, timeout_s: float) -> None:
        """Serve librdkafka once, and drop messages: they are of released partitions. Errors are kept for `fetch` to raise.

        A rebalance that is served later would replace what is assigned then. `unsubscribe` queues a revocation; while a rebalance is under
        way, it waits for its end, which may be an assignment. Librdkafka forgets its member id when it has left, or when its assignment
        is lost: what is queued when the id is empty is all that comes, after messages that were queued before it.
        """
        forgotten = not self._inner.memberid()
        found = self._call(lambda: self._inner.poll(timeout_s))
        if found is not None:
            error = found.error()
            if error is not None:
                self._error = self._error or self._errors.read(found, error)
        elif forgotten and self._leaving:
            self._leaving = self._subscribed = False
            offsets, self._assign_then = self._assign_then, None
            if offsets is not None:
                self._call(lambda: self._inner.assign(foreign_offsets(offsets)))
            elif self.assignment():
                self._call(self._inner.unassign)

    def _release_all(self) -> None:
        """Release all partitions; librdkafka commits what was stored when it is asked to."""
        self._ask_for_commits(at_last=True)
        self._commits.release(self.assignment(), lost=False)
        self._to_reread.clear()

    def assignment(self) -> list[TopicPartition]:
        """What is read now."""
        return ours(self._call(self._inner.assignment))

    def stream_of(self, where: TopicPartition) -> None:
        """Streams that it feeds share its partitions out by their number."""

    def fetch(self, count: int, timeout_s: float) -> list[ConsumedMessage]:
        """At most `count` messages that are fetched; the first one is waited for. ConsumeError ends reading.

        All are of assigned partitions, and were fetched since the assignment. None while the group is being left.
        """
        leaving = self._leaving
        if leaving:
            self._continue_leaving(timeout_s)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if leaving:
            return []
        for where in list(self._to_reread):
            self._reread(where)
        first = self._call(lambda: self._inner.poll(timeout_s))
        if first is None:
            return []
        found = [first]
        if count > 1:
            self._revoked.clear()  # what went before the first message came has taken its messages along
            found += self._call(lambda: self._inner.consume(count - 1, 0))
            if self._revoked:
                found = self._without_revoked(found)
        messages = []
        for each in found:
            error_of = each.error()
            if error_of is None:
                messages.append(our_message(each))
            else:
                self._error = self._error or self._errors.read(each, error_of)
        if messages:
            self._brokers.answered()
        elif self._error is not None:
            return self.fetch(count, timeout_s)
        return [] if self._leaving else messages

    def _without_revoked(self, found: "list[Foreign]") -> "list[Foreign]":
        """Drop messages of partitions revoked meanwhile. One that is assigned again is read again: its messages may be older than that."""
        here = [(each.topic(), each.partition()) for each in found]
        self._to_reread |= self._revoked.intersection(self.assignment(), here)
        return [each for each, where in zip(found, here, strict=True) if where not in self._revoked]

    def _reread(self, where: TopicPartition) -> None:
        """Seek to what is committed, or else to where new groups begin. A partition that cannot seek yet has fetched nothing."""
        from confluent_kafka import KafkaException

        start: int | None = self.committed([where]).get(where)
        if start is None and self._reset != "error":  # then librdkafka reports it
            start = BEGINNING if self._reset in ("smallest", "earliest") else END
        try:
            if start is not None:
                self._inner.seek(foreign_offsets({where: start})[0])
        except KafkaException as error:
            if error.args[0].code() != error.args[0]._STATE:
                raise self._failure(error, where, start) from error
        self._to_reread.discard(where)

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Let these be committed, soon or with the next rebalance. Partitions that are no longer assigned are skipped."""
        from confluent_kafka import KafkaException

        self._commits.want(offsets)
        try:
            self._inner.store_offsets(offsets=foreign_offsets(offsets))
            self._ask_for_commits()
        except KafkaException as error:
            if error.args[0].code() != error.args[0]._STATE:
                raise self._failure(error) from error
            self._commits.release(offsets, lost=True)

    def _ask_for_commits(self, *, at_last: bool = False) -> None:
        offsets = self._commits.to_request(at_last=at_last)
        if offsets:
            self._inner.commit(offsets=foreign_offsets(offsets), asynchronous=True)

    def _committed(self, error: "KafkaError | None", partitions: "list[ForeignPartition]") -> None:
        """The outcome of an automatic commit, from librdkafka."""
        if self._commits.reported(error, partitions):
            self._brokers.answered()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit now, and wait for it. CommitError with the first partition and offset that failed.

        Also for an earlier automatic commit that failed, unless this one covers it.
        """
        from confluent_kafka import KafkaException

        if offsets:
            where = next(iter(offsets))
            try:
                results = self._inner.commit(offsets=foreign_offsets(offsets), asynchronous=False)
            except KafkaException as error:
                self._commits.raised(offsets)
                raise CommitError(self.group or "", *where, offsets[where], error.args[0]) from error
            for each in results:
                if each.error is not None:
                    self._commits.raised(offsets)
                    raise CommitError(self.group or "", each.topic, each.partition, each.offset, each.error)
            self._commits.done(offsets)
            if self.commits_by_itself:
                self.store(offsets)  # or librdkafka would commit at the end what was stored before, and go back
            self._commits.done(offsets)
        self._commits.raise_failure()

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Continue reading there. Retries while a partition that was just assigned cannot seek yet. ConsumeError if it is not assigned."""
        from confluent_kafka import KafkaException

        self._commits.moved(where)
        self._to_reread.discard(where)
        deadline = time.monotonic() + ASK_TIMEOUT_S
        while True:
            try:
                self._inner.seek(foreign_offsets({where: offset})[0])
            except KafkaException as error:
                waiting = error.args[0].code() == error.args[0]._STATE and where in self.assignment()
                if not waiting or time.monotonic() > deadline:
                    raise self._failure(error, where, offset) from error
                time.sleep(_SEEK_PAUSE_S)
            else:
                return

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these for now."""
        self._call(lambda: self._inner.pause(foreign(partitions)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch them again."""
        self._call(lambda: self._inner.resume(foreign(partitions)))

    def group_metadata(self) -> Any:
        """Who this is in its group."""
        return self._inner.consumer_group_metadata()

    def close(self, timeout_s: float | None = None) -> None:
        """Leave the group; what was stored is committed. Waits for the brokers with this limit; librdkafka then continues by itself.

        CommitError for what could not be committed, now or before, and for what is not confirmed when the time is over.
        """
        if self.closed:
            return
        self.closed = True
        limit_s = self.close_timeout_s if timeout_s is None else timeout_s
        if not self._calls.run(lambda: self._commit_and_leave(limit_s), limit_s):
            self._commits.raise_failure()
            for where, offset in self._commits.unknown().items():
                raise CommitError(
                    self.group or "", *where, offset, timed_out(f"no answer within {limit_s:g} s; the offset may not be committed")
                )
            setting = " (close_timeout_ms)" if timeout_s is None else ""
            log.warning("consumer: closed; the brokers did not answer within %g s%s", limit_s, setting)
        self._commits.raise_failure()

    def _commit_and_leave(self, limit_s: float) -> None:
        """Librdkafka commits at its end too, but in the middle of a rebalance only after it has left the group, which is refused."""
        from confluent_kafka import KafkaException

        wanted = foreign_offsets(self._commits.wanted())
        if wanted:
            error, results = None, wanted
            try:
                results = self._inner.commit(offsets=wanted, asynchronous=False)
            except KafkaException as exception:
                error = exception.args[0]
            self._calls.call_back(lambda: self._committed(error, results))
        try:
            if self._subscribed:
                self._serve_last_rebalances(limit_s * _LEAVE_SHARE)
        finally:
            self._inner.close()

    def _serve_last_rebalances(self, limit_s: float) -> None:
        """Leave the group, and serve an assignment that is queued: after this there is no other.

        While a rebalance is under way librdkafka leaves at its end. Closed before that it would not leave at all, and the others would
        wait for this member until its session times out. So that end is waited for, `limit_s` at most.

        Librdkafka loses a request of the callback of an assignment that it serves first while it closes, and the callback, which holds the
        interpreter's lock, waits for the answer for ever (librdkafka issues 4527 and 4884).
        """
        from confluent_kafka import KafkaException

        with suppress(KafkaException):  # of a member that was fenced
            self._inner.unsubscribe()
        deadline = time.monotonic() + limit_s
        while self._inner.memberid() and time.monotonic() < deadline:
            self._inner.poll(_LEAVE_STEP_S)
        while self._inner.poll(0) is not None:
            pass
