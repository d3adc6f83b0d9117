"""A consumer of librdkafka: messages as ours, errors as ours, rebalances told to a listener. One thread uses it at a time.

A message of librdkafka that is an error is either news (a topic that is not there yet, a broker that is away), which is logged, or ends
reading: ConsumeError with topic, partition and offset.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from moldau.client.failures import CommitError, ConsumeError
from moldau.client.librdkafka import foreign, foreign_offsets, our_offsets, ours
from moldau.client.message import ConsumedMessage
from moldau.client.settings import MISSING
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import Message as Foreign

R = TypeVar("R")
log = logging.getLogger("moldau.client")

BEGINNING, END, COMMITTED = -2, -1, -1000
"""Offsets that stand for a place, as librdkafka has them."""
ASK_TIMEOUT_S = 30.0
_SEEK_PAUSE_S = 0.02


class RebalanceListener(Protocol):
    """Who is told, from within `Session.fetch` and `Session.close`, which partitions are ours."""

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """These are ours now, beside those before."""

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """These go to somebody else after this returns; what was stored for them is committed then."""

    def lost(self, partitions: list[TopicPartition]) -> None:
        """These belong to somebody else already."""


class Session:
    """A consumer with these settings of librdkafka; connects by itself. ValueError for settings that it does not take."""

    def __init__(self, settings: Mapping[str, Any], group: str | None) -> None:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as error:
            raise ImportError(MISSING) from error
        try:
            self._inner = Consumer(dict(settings), logger=log)
        except KafkaException as error:
            raise ValueError(f"consumer: {error.args[0].str()}") from None
        self.group = group
        self.commits_by_itself = bool(settings["enable.auto.commit"])
        self._error: ConsumeError | None = None
        self._missing: set[str] = set()
        self.closed = False

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Become a member of the group for these topics; one that begins with ^ is a pattern."""
        self._call(
            lambda: self._inner.subscribe(
                list(topics),
                on_assign=lambda _, partitions: listener.assigned(ours(partitions)),
                on_revoke=lambda _, partitions: listener.revoked(ours(partitions)),
                on_lost=lambda _, partitions: listener.lost(ours(partitions)),
            )
        )

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, and no others, from these offsets on; no group decides."""
        self._call(lambda: self._inner.assign(foreign_offsets(offsets)))

    def leave(self) -> None:
        """Read nothing any more."""
        self._call(self._inner.unsubscribe)
        self._call(self._inner.unassign)

    def assignment(self) -> list[TopicPartition]:
        """What is read now."""
        return ours(self._call(self._inner.assignment))

    def fetch(self, count: int, timeout_s: float) -> list[ConsumedMessage]:
        """The messages that are there, at most `count`; the first one is waited for. ConsumeError ends reading."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        first = self._call(lambda: self._inner.poll(timeout_s))
        if first is None:
            return []
        found = [first, *self._call(lambda: self._inner.consume(count - 1, 0))] if count > 1 else [first]
        messages = []
        for each in found:
            error_of = each.error()
            if error_of is None:
                messages.append(_message(each))
            else:
                self._take_error(each, error_of)
        if self._error is not None and not messages:
            return self.fetch(count, timeout_s)
        return messages

    def _take_error(self, message: "Foreign", error: "KafkaError") -> None:
        """News are logged; the first error that ends reading is kept until the messages before it are handed out."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
            if topic not in self._missing:
                self._missing.add(topic or "")
                log.warning("consumer: topic %s is not there; it is waited for", topic)
        elif error.code() == error._MAX_POLL_EXCEEDED:
            log.warning("consumer: group %s has gone on without this member, which asked for nothing in time; it joins again", self.group)
        elif error.retriable() or error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN, error._RESOLVE, error._PARTITION_EOF):
            log.info("consumer: %s", error)
        elif self._error is None:
            known = None if partition is None or partition < 0 else partition
            self._error = ConsumeError(topic, known, None if offset is None or offset < 0 else offset, error)

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Let these be committed, soon or with the next rebalance. Partitions that are not ours any more are passed over."""
        from confluent_kafka import KafkaException

        try:
            self._inner.store_offsets(offsets=foreign_offsets(offsets))
        except KafkaException as error:
            if error.args[0].code() != error.args[0]._STATE:
                raise self._failure(error) from error

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit now, and wait for it. CommitError with the first partition and offset that failed."""
        from confluent_kafka import KafkaException

        where = next(iter(offsets))
        try:
            results = self._inner.commit(offsets=foreign_offsets(offsets), asynchronous=False)
        except KafkaException as error:
            raise CommitError(self.group or "", *where, offsets[where], error.args[0]) from error
        for each in results:
            if each.error is not None:
                raise CommitError(self.group or "", each.topic, each.partition, each.offset, each.error)
        if self.commits_by_itself:
            self.store(offsets)  # or librdkafka would commit at the end what was stored before, and go back

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed; partitions without are left out."""
        wanted = foreign(partitions)
        return our_offsets(self._call(lambda: self._inner.committed(wanted, ASK_TIMEOUT_S))) if wanted else {}

    def bounds(self, where: TopicPartition) -> tuple[Offset, Offset]:
        """First offset and end of a partition; the end is that of what this consumer may see."""
        first, end = self._call(lambda: self._inner.get_watermark_offsets(foreign([where])[0], ASK_TIMEOUT_S), where)
        return Offset(first), Offset(end)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """The first offset of each partition that is not older than a time in ms; left out where there is none."""
        wanted = foreign_offsets(times)
        if not wanted:
            return {}
        found = self._call(lambda: self._inner.offsets_for_times(wanted, ASK_TIMEOUT_S))
        for each in found:
            if each.error is not None:
                raise ConsumeError(each.topic, each.partition, None, each.error)
        return our_offsets(found)

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Go on reading there. A partition that was just assigned is waited for until it can be told. ConsumeError if it is not ours."""
        from confluent_kafka import KafkaException

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

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, asked for now. ConsumeError."""
        from moldau.client.failures import SendError
        from moldau.client.librdkafka import partition_count

        try:
            return partition_count(self._inner, topic, ASK_TIMEOUT_S)
        except SendError as error:
            raise ConsumeError(topic, None, None, error.error) from error

    def close(self) -> None:
        """Leave the group; what was stored is committed."""
        if not self.closed:
            self._inner.close()
            self.closed = True

    def _call(self, call: Callable[[], R], where: TopicPartition | None = None) -> R:
        from confluent_kafka import KafkaException

        try:
            return call()
        except KafkaException as error:
            raise self._failure(error, where) from error

    def _failure(self, error: "KafkaException", where: TopicPartition | None = None, offset: int | None = None) -> ConsumeError:
        topic, partition = where or (None, None)
        return ConsumeError(topic, partition, offset, error.args[0])


def _message(found: "Foreign") -> ConsumedMessage:
    timestamp = found.timestamp()[1]
    headers: Sequence[tuple[str, bytes | None]] = found.headers() or ()  # type: ignore[assignment]
    return ConsumedMessage(
        found.value(),
        found.key(),
        headers,
        None if timestamp < 0 else timestamp,
        found.topic() or "",
        found.partition() or 0,
        found.offset() or 0,
    )
