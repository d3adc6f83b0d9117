"""Librdkafka from our side: its types as ours, its log, its errors logged or raised, questions of consumers, and calls with a time limit.

An error that a consumer reads is news (a topic that does not exist yet, a broker that is away), which is logged, or it ends reading:
ConsumeError with topic, partition and offset.

Of its log lines those about the connection to a broker count as one outage of that broker until it has answered again, or until nothing has
been heard of it for a minute. Those about a producer that is fenced repeat its FencedError, and are left out. Every other line passes; one
that repeats itself does so once a minute.
"""

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.client.failures import ConsumeError, SendError
from moldau.client.message import ConsumedMessage
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message
    from confluent_kafka import TopicPartition as ForeignPartition

log = logging.getLogger("moldau.client")

QUIET_S = 60.0
STILL_AWAY_S = 0.5
"""Messages handed out so soon after a line may have been fetched before the outage, and prove nothing."""
RETRIED = "; the connection is retried"
"""End of the line of a broker that is away. It promises nothing for a message or an event: a call may fail meanwhile."""
_AWAY = re.compile(r"Connect to \S+ failed: |Failed to resolve|Connection setup timed out|Disconnected|timed out|brokers are down")
_FENCED = re.compile(r"fenced by a newer instance|operation with an old epoch|newer producer with the same transactionalId")
"""Of a producer that another one has replaced: its next call raises FencedError, which says so once."""
_BROKER = re.compile(r"([^\s/#]+:\d+)(?:/\S+)?: ")
_DETAILS = re.compile(r" ?\((?:after|while|on) [^)]*\)|\[thrd:[^]]*\]:? ?|\b\d+(?:\.\d+)?\s?ms\b")


class BrokerLog:
    """A logger for librdkafka, of the client `name`; lines go to the logger `to`."""

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic, to: logging.Logger = log) -> None:
        self._name = name
        self._monotonic = monotonic
        self._to = to
        self._away: dict[str, tuple[float, float]] = {}
        """For each broker that is away: since when, and when that was logged last."""
        self._heard_at = 0.0
        self._said: dict[str, float] = {}

    def log(self, level: int, message: str, *arguments: object) -> None:
        """One line of librdkafka's."""
        if level < logging.WARNING:
            self._to.log(level, message, *arguments)
            return
        text = str(arguments[-1]) if arguments else message
        if _FENCED.search(text) is not None:
            self._to.debug(message, *arguments)
            return
        now = self._monotonic()
        if _AWAY.search(text) is None:
            self._pass(level, message, arguments, _DETAILS.sub("", text), now)
            return
        self._heard_at = now
        found = _BROKER.search(_DETAILS.sub("", text))
        if found is None:  # "1/1 brokers are down": each of them has its own line
            self._to.debug(message, *arguments)
            return
        since, last = self._away.get(found[1], (now, now - QUIET_S))
        if now - last >= QUIET_S:
            since = now
            reason = _DETAILS.sub("", text)[found.end() :].rpartition("failed: ")[2].strip().rstrip(":")
            self._to.warning("%s: broker %s is away: %s%s", self._name, found[1], reason, RETRIED)
        else:
            self._to.debug(message, *arguments)
        self._away[found[1]] = (since, now)

    def _pass(self, level: int, message: str, arguments: tuple[object, ...], key: str, now: float) -> None:
        if now - self._said.get(key, now - QUIET_S) >= QUIET_S:
            self._said[key] = now
            self._to.log(level, message, *arguments)
        else:
            self._to.debug(message, *arguments)

    @property
    def any_away(self) -> bool:
        """Whether a broker is away, by the lines so far."""
        return bool(self._away)

    def answered(self) -> None:
        """A broker has answered a request."""
        if not self._away:
            return
        now = self._monotonic()
        if now - self._heard_at >= STILL_AWAY_S:
            since = min(since for since, _ in self._away.values())
            self._to.info("%s: answered again after %.1f s", self._name, now - since)
            self._away.clear()


NEW_TOPIC_WAIT_S = 1.0


def foreign(partitions: Iterable[TopicPartition]) -> "list[ForeignPartition]":
    """Partitions for librdkafka."""
    from confluent_kafka import TopicPartition as ForeignPartition

    return [ForeignPartition(topic, partition) for topic, partition in partitions]


def foreign_offsets(offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str] | None = None) -> "list[ForeignPartition]":
    """Offsets for librdkafka, with the text that is to be kept with some of them; also times, where it asks for those."""
    from confluent_kafka import TopicPartition as ForeignPartition

    if notes is None:
        return [ForeignPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    return [ForeignPartition(*where, offset, metadata=notes.get(where)) for where, offset in offsets.items()]


def ours(partitions: "Iterable[ForeignPartition]") -> list[TopicPartition]:
    """Partitions from librdkafka."""
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def our_offsets(partitions: "Iterable[ForeignPartition]") -> dict[TopicPartition, Offset]:
    """Those that have an offset, out of librdkafka's."""
    return {TopicPartition(each.topic, each.partition): Offset(each.offset) for each in partitions if each.offset >= 0}


def our_message(found: "Message") -> ConsumedMessage:
    """A message of librdkafka that is no error."""
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


def timed_out(reason: str) -> "KafkaError":
    """The error of a wait of our own that timed out."""
    from confluent_kafka import KafkaError

    return KafkaError(KafkaError._TIMED_OUT, reason)


def partition_count(client: Any, topic: str, timeout_s: float) -> int:
    """How many partitions a topic has, asked for now; retried for a moment if it was just created. SendError if it fails."""
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + NEW_TOPIC_WAIT_S
    while True:
        try:
            found = client.list_topics(topic, timeout_s).topics[topic]
        except KafkaException as error:
            raise SendError(topic, None, error.args[0]) from error
        if found.error is None:
            return len(found.partitions)
        passing = found.error.code() in (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
        if not passing or time.monotonic() > deadline:
            raise SendError(topic, None, found.error)
        time.sleep(NEW_TOPIC_WAIT_S / 20)


class ErrorMessages:
    """For one consumer, a member of `group` if there is one."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._missing: set[str] = set()

    def read(self, message: "Message", error: "KafkaError") -> ConsumeError | None:
        """Log the error, or return what ends reading."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
            if topic not in self._missing:
                self._missing.add(topic or "")
                log.warning("consumer: topic %s does not exist yet; retrying", topic)
        elif error.code() == error._MAX_POLL_EXCEEDED:
            log.warning(
                "consumer: group %s continued without this member, which did not poll within max.poll.interval.ms; it rejoins", self._group
            )
        elif error.retriable() or error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN, error._RESOLVE, error._PARTITION_EOF):
            log.info("consumer: %s", error)
        else:
            known = None if partition is None or partition < 0 else partition
            return ConsumeError(topic, known, None if offset is None or offset < 0 else offset, error)
        return None


R = TypeVar("R")

ASK_TIMEOUT_S = 30.0


class ConsumerQueries:
    """Put to `inner`, a consumer of librdkafka. Each is waited for, and a failure is a ConsumeError."""

    def __init__(self, inner: "Consumer") -> None:
        self._inner = inner

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

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, asked for now. ConsumeError."""
        try:
            return partition_count(self._inner, topic, ASK_TIMEOUT_S)
        except SendError as error:
            raise ConsumeError(topic, None, None, error.error) from error

    def _call(self, call: Callable[[], R], where: TopicPartition | None = None) -> R:
        from confluent_kafka import KafkaException

        try:
            return call()
        except KafkaException as error:
            raise self._failure(error, where) from error

    def _failure(self, error: "KafkaException", where: TopicPartition | None = None, offset: int | None = None) -> ConsumeError:
        topic, partition = where or (None, None)
        return ConsumeError(topic, partition, offset, error.args[0])


_STEP_S = 0.05


class BoundedCall:
    """A call of librdkafka that may take long, in a thread of its own: it is waited for with a limit, and Ctrl-C is handled meanwhile.

    Callbacks that librdkafka makes during it go through `call_back` and run in the thread that waits, as callbacks of all other calls do.
    """

    def __init__(self) -> None:
        self._waits = False
        self._left = False
        self._calls: queue.SimpleQueue[tuple[Callable[[], object], Future[None]] | None] = queue.SimpleQueue()

    def call_back(self, call: Callable[[], object]) -> None:
        """Make a callback: at once, or in the thread that waits in `run`; not any more after its wait timed out."""
        if not self._waits:
            call()
            return
        answer: Future[None] = Future()
        self._calls.put((call, answer))
        while not self._left:
            try:
                answer.result(_STEP_S)
            except TimeoutError:
                if not answer.done():
                    continue
                answer.result()  # it may have come just after the wait
            return

    def run(self, work: Callable[[], object], timeout_s: float) -> bool:
        """Call `work` in a thread; whether it ended within `timeout_s`. Its error is raised. After that the thread runs on, a daemon."""
        outcome: Future[None] = Future()

        def do() -> None:
            try:
                work()
            except BaseException as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(None)
            self._calls.put(None)

        deadline = time.monotonic() + timeout_s
        self._waits = True
        threading.Thread(target=do, name="moldau close", daemon=True).start()
        try:
            while True:
                try:
                    asked = self._calls.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    return False
                if asked is None:
                    outcome.result()
                    return True
                call, answer = asked
                try:
                    call()
                except Exception as error:
                    answer.set_exception(error)
                else:
                    answer.set_result(None)
        finally:
            self._left = True
