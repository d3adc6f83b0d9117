"""One producer instance: the guids that it gives, the counts of what the brokers acknowledged, and their publication in the audit topic.

A count matches the log. So an event is counted when all in-sync replicas have acknowledged it, and never before. One that was certainly
refused (too large, no such topic) is not counted. Whether one that timed out is in the log is unknown: then the instance is *uncertain*.
It is never closed, and another instance takes over; the audit treats an instance that is open and silent as incomplete and counts it from
the log itself, and never as a duplication.

Counts are published every few seconds and at the end. Each increment is one record with a guid of its own; it is kept until the brokers
have acknowledged it, and sent again under the same guid if they have not. An instance opens before its first event, and closes when all
its events have ended and all its counts are published.
"""

import atexit
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from moldau.client.delivery import Delivery, DeliveryListener
from moldau.client.failures import ClientError, SendError
from moldau.client.message import Delivered
from moldau.client.producer import Producer
from moldau.tracking.audit_record import AUDIT_TOPIC, PRODUCER_TIER, AuditRecord, Kind, new_guid
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import NOTHING, Count, CountKey, RunningCount, window_start
from moldau.tracking.header import INSTANCE_BYTES

CERTAINLY_REFUSED: Final = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "UNKNOWN_TOPIC",
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_PARTITION",
        "TOPIC_EXCEPTION",
        "TOPIC_AUTHORIZATION_FAILED",
        "INVALID_ARG",
        "PURGE_QUEUE",
    }
)
"""Failures after which a message is not in any log, by their names."""

Increment = tuple[str, int, Count]
"""Topic, start of the window, and what was counted since the last time."""


class Instance:
    """Counts of one instance. Any thread may count."""

    def __init__(self, random_bytes: bytes | None = None) -> None:
        self._prefix = os.urandom(INSTANCE_BYTES) if random_bytes is None else random_bytes
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, int], RunningCount] = {}
        self._ended = 0
        self._retired = False
        self._begun: int | None = None
        self.total = NOTHING
        """All that was taken so far."""
        self.uncertain = 0
        """Events that may be in the log or not."""
        self.usable = False
        """Whether more events may be of this instance: it is open, and certain of its counts."""

    @property
    def name(self) -> str:
        """16 hex digits."""
        return self._prefix.hex()

    def next_guid(self) -> bytes | None:
        """The guid of the next event, which has begun; None if it is retired: another instance has to give it."""
        number = next(self._numbers)
        if self._retired:
            with self._lock:
                if self._begun is None or number < self._begun:
                    self._ended += 1
            return None
        return self._prefix + number.to_bytes(8, "big")

    def delivered(self, topic: str, time_ms: int, value_bytes: int, guid_hash: int) -> None:
        """An event is in the log."""
        key = (topic, window_start(time_ms))
        with self._lock:
            self._ended += 1
            running = self._counts.get(key)
            if running is None:
                running = self._counts[key] = RunningCount()
            running.add(time_ms, value_bytes, guid_hash)

    def failed(self, error: SendError) -> None:
        """An event was given up."""
        with self._lock:
            self._ended += 1
            if error.name not in CERTAINLY_REFUSED:
                self.uncertain += 1
                self.usable = False

    def take(self) -> list[Increment]:
        """What was counted since the last time, by topic and window."""
        with self._lock:
            taken, self._counts = self._counts, {}
        increments = [(topic, start, running.frozen()) for (topic, start), running in taken.items()]
        for _, _, count in increments:
            self.total += count
        return increments

    def abandoned(self) -> None:
        """An event that has begun was never sent."""
        with self._lock:
            self._ended += 1

    def retire(self) -> None:
        """No event begins any more; those that have begun will end."""
        self.usable = False
        self._retired = True
        with self._lock:
            if self._begun is None:
                self._begun = next(self._numbers)

    @property
    def all_ended(self) -> bool:
        """Whether it is retired, and every event of it has ended."""
        return self._begun is not None and self._ended >= self._begun

    @property
    def finished(self) -> bool:
        """Whether all have ended, and nothing is left to take."""
        with self._lock:  # an event that is just being delivered has ended before it is counted
            return self.all_ended and not self._counts


class CountedDelivery(Delivery):
    """An event on its way; counted when it is delivered, before its callbacks are called."""

    __slots__ = ("_guid_hash", "_instance", "_time_ms", "_topic", "_value_bytes")

    def __init__(self, listener: DeliveryListener, instance: Instance, topic: str, time_ms: int, value_bytes: int, guid_hash: int) -> None:
        Delivery.__init__(self, listener)
        self._instance = instance
        self._topic = topic
        self._time_ms = time_ms
        self._value_bytes = value_bytes
        self._guid_hash = guid_hash

    def abandon(self) -> None:
        """It will not be sent."""
        self._instance.abandoned()

    def _end(self, delivered: Delivered | None, error: SendError | None) -> None:
        if error is None:
            self._instance.delivered(self._topic, self._time_ms, self._value_bytes, self._guid_hash)
        else:
            self._instance.failed(error)
        Delivery._end(self, delivered, error)


log = logging.getLogger("moldau.tracking")

ORIGIN_TEXT_MAX: Final = 1_000
FAREWELL_S: Final = 10.0
STRAGGLERS_S: Final = 2.0
TRIES: Final = 2
"""How often counts that do not arrive are sent at the end."""
PAUSE_S: Final = 0.05

_exiting = threading.Event()


@cache
def watch_for_the_end() -> None:
    """Notice the end of the process before open producers are ended: called when the first one is made."""
    atexit.register(_exiting.set)


class Origin(NamedTuple):
    """Where events come from."""

    datacenter: str
    service: str
    host: str

    def check(self) -> None:
        """ValueError for what is no text, or empty, or too long: each event has all of it."""
        for name, text in self._asdict().items():
            if not isinstance(text, str) or not text or len(text) > ORIGIN_TEXT_MAX:
                raise ValueError(f"{name} is text of 1 to {ORIGIN_TEXT_MAX} characters, not {text!r}")


class CountPublisher:
    """Of all instances of one producer, the present one and those before it, over the producer's own connection.

    `prepare_topic` is called before anything is published for the first time.
    """

    def __init__(self, producer: Producer, origin: Origin, interval_ms: int, prepare_topic: Callable[[], None]) -> None:
        self._producer = producer
        self._origin = origin
        self._interval_s = interval_ms / 1000
        self._prepare_topic = prepare_topic
        self._instances: list[Instance] = []
        self._unconfirmed: list[tuple[AuditRecord, Delivery | None]] = []
        self._publishing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.published = 0
        """Records so far."""

    def open(self, instance: Instance) -> None:
        """Publish its opening, and wait until that is in the log. SendError, RequestFailedError, ConnectionLostError."""
        if self._thread is None:
            self._prepare_topic()
        self._send(self._record("open", instance)).result()
        with self._publishing:
            self._instances.append(instance)
        instance.usable = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="moldau tracking counts", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.publish()
            except (ClientError, RuntimeError) as error:
                log.warning(
                    "tracking: counts of service %s on %s not published, retrying: %s", self._origin.service, self._origin.host, error
                )

    def publish(self) -> None:
        """Send what was counted since the last time, and again what did not arrive. ClientError once nothing can be sent any more."""
        with self._publishing:
            for instance in self._instances:
                for topic, start, count in instance.take():
                    self._unconfirmed.append((self._counts(instance, topic, start, count), None))
            self._instances = [each for each in self._instances if not each.finished]
            for index, (record, delivery) in enumerate(self._unconfirmed):
                if delivery is None or (delivery.done() and delivery.exception() is not None):
                    self._unconfirmed[index] = (record, self._send(record))
            self._unconfirmed = [each for each in self._unconfirmed if each[1] is None or not each[1].done() or each[1].exception()]

    def _send(self, record: AuditRecord) -> Delivery:
        delivery = self._producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)
        delivery.add_done_callback(lambda _: None)  # its failure is looked at here, and not raised by a flush of events
        self.published += 1
        return delivery

    def end(self, timeout_s: float | None = None) -> None:
        """Flush the events, publish the rest, close the instances that are certain of their counts, and the producer.

        SendError for events that failed, TimeoutError, ClientError: instances that could not be closed are counted from the log.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ending = list(self._instances)
        for instance in ending:
            instance.retire()
        failure: SendError | None = None
        try:
            try:
                self._producer.flush(_left(deadline))
            except SendError as error:
                failure = error
            _wait_for_stragglers(ending)
            self._publish_all(deadline)
            self._close_instances(ending, deadline)
        except (ClientError, TimeoutError) as error:
            if failure is not None:
                error.add_note(f"and before that an event failed: {failure}")
            raise
        finally:
            self._producer.close(_left(deadline))
        if failure is not None:
            raise failure

    def _publish_all(self, deadline: float | None) -> None:
        """Until all of it has arrived; without a deadline `TRIES` times, each of which the producer itself has tried for its own limit.

        Raises if records have not arrived then, with the number of their events: their instance stays open, and is counted from the log.
        """
        for number in itertools.count(1):
            self.publish()
            failed: list[tuple[AuditRecord, SendError]] = []
            for record, delivery in self._unconfirmed:
                error = None if delivery is None else delivery.exception(_left(deadline))
                if error is not None:
                    failed.append((record, error))
            if not failed:
                return
            if number >= TRIES if deadline is None else time.monotonic() >= deadline:
                failure = failed[0][1]
                events = sum(record.count.count for record, _ in failed)
                failure.add_note(
                    f"so the counts of {events} events of service {self._origin.service} on {self._origin.host} are not published"
                )
                raise failure
            time.sleep(PAUSE_S)

    def _close_instances(self, instances: list[Instance], deadline: float | None) -> None:
        for instance in instances:
            if instance.uncertain or not instance.finished:
                log.warning(
                    "tracking: instance %s of service %s on %s stays open: whether some of its events are in the log is unknown",
                    *(instance.name, self._origin.service, self._origin.host),
                )
            else:
                self._send(self._record("close", instance, instance.total)).result(_left(deadline))

    def farewell(self) -> None:
        """The end of a producer that was not closed, within a limit.

        Any thread may collect garbage, perhaps one that is delivering or publishing: so another thread does it, except at the
        end of the process, when no thread can be started any more.
        """
        if not _exiting.is_set():
            threading.Thread(target=self._say_farewell, name="moldau tracking farewell").start()
        else:
            self._say_farewell()

    def _say_farewell(self) -> None:
        try:
            self.end(FAREWELL_S)
        except (ClientError, TimeoutError, RuntimeError) as error:
            log.warning("tracking: producer of service %s on %s was not closed, and its end failed: %s", *self._origin[1:], error)

    def _counts(self, instance: Instance, topic: str, start: int, count: Count) -> AuditRecord:
        key = CountKey(topic, start, *self._origin, instance.name)
        return AuditRecord("counts", new_guid(), now_ms(), PRODUCER_TIER, key, count)

    def _record(self, kind: Kind, instance: Instance, count: Count = NOTHING) -> AuditRecord:
        return AuditRecord(kind, new_guid(), now_ms(), PRODUCER_TIER, CountKey("", 0, *self._origin, instance.name), count)


def _wait_for_stragglers(instances: list[Instance]) -> None:
    """Other threads may be about to send what they have begun."""
    limit = time.monotonic() + STRAGGLERS_S
    while not all(instance.all_ended for instance in instances) and time.monotonic() < limit:
        time.sleep(0.01)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.001, deadline - time.monotonic())
