"""One producer instance: the guids that it gives, and the counts of what the brokers have acknowledged.

A count must say what the log has. So an event is counted when all in-sync replicas have acknowledged it, and never before. One that was
certainly refused (too large, no such topic) is not counted. Of one whose time ran out nobody knows whether it is in the log: then the
instance is *uncertain*. It is never closed, and another instance goes on; the audit takes an instance that is open and silent for
incomplete and counts it from the log itself, and never for a duplication.
"""

import itertools
import os
import threading
from typing import Final

from moldau.client.delivery import Delivery, Keeper
from moldau.client.failures import SendError
from moldau.client.message import Delivered
from moldau.tracking.counts import NOTHING, Count, RunningCount, window_start
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
        """Events of which nobody knows whether they are in the log."""
        self.usable = False
        """Whether more events may be of this instance: it is open, and certain of its counts."""

    @property
    def name(self) -> str:
        """16 hex digits."""
        return self._prefix.hex()

    def next_guid(self) -> bytes | None:
        """The guid of the next event, which has begun; None if it is retired: another instance has to be asked."""
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
    """An event on its way; counted when it is delivered, before anybody hears of it."""

    __slots__ = ("_guid_hash", "_instance", "_time_ms", "_topic", "_value_bytes")

    def __init__(self, keeper: Keeper, instance: Instance, topic: str, time_ms: int, value_bytes: int, guid_hash: int) -> None:
        Delivery.__init__(self, keeper)
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
