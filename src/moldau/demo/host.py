"""One host: a process that publishes its part of the events as tracked events, those that are not in the topic yet.

It gets its orders as a line of JSON, and reports in lines of JSON: now and then how many events it has sent, at the end what it did.
Each of its runs is a producer instance of its own, with guids of its own. An instance that was killed leaves events in the topic that
no producer has counted; the audit counts them from the log.
"""

import base64
import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.demo.file_input import open_input
from moldau.demo.inputs import LINE_FIELD, BadInputLine, EventInput, InputEvent

if TYPE_CHECKING:
    from moldau.tracking.producer import TrackerProducer
    from moldau.tracking.schemas.event_schema import EventSchema

LINE_HEADER = "line"
REJECT_HEADER = "moldau.bad"
"""Why a record is no event."""
_REPORT_EVERY = 500
_BAD_LINES_SHOWN = 10
_FLUSH_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Orders:
    """What a host is to do. `there` has a bit for each line that the topic holds, in base64."""

    bootstrap: str
    registry: str
    topic: str
    host: int
    file: str | None
    key: str | None
    time: str | None
    compression: str
    there: str
    plant: bool
    """Whether one of its events is to be counted and not sent; it leaves this event out in any case if `planted`."""
    planted: bool
    datacenter: str | None = None
    """Where the host is, if not where the input has it."""
    late: bool | None = None
    """Publish those events alone that are late ones, or that are none; None: all."""

    def to_bytes(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode()


@dataclass(slots=True)
class HostResult:
    """What a host has dealt with, and how much of it it has sent now."""

    read: int = 0
    sent: int = 0
    sent_bytes: int = 0
    bad: int = 0
    bad_shown: list[tuple[int, str]] = field(default_factory=list)
    """The first few bad lines: their numbers, and why."""
    planted_line: int | None = None


def run(orders: bytes) -> None:
    """The whole process. Exit code 1 with a line on standard error for what it cannot do."""
    from moldau.client.failures import ClientError
    from moldau.model.errors import MoldauError
    from moldau.tracking.errors import TrackingError

    try:
        done = publish(Orders(**json.loads(orders)))
    except (ClientError, MoldauError, TrackingError, TimeoutError, ValueError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(1)  # what is on its way is not waited for
    _say(result=asdict(done))


def publish(orders: Orders) -> HostResult:
    """Publish the events that the topic does not hold. SendError, EventError, RegistryError, and the like: the next run continues."""
    source = open_input(Path(orders.file) if orders.file is not None else None, orders.key, orders.time)
    there = base64.b64decode(orders.there)
    publisher = _Publisher(orders, source)
    done, held = HostResult(), None
    for item in source.events(orders.host):
        if orders.late is not None and orders.late != (isinstance(item, InputEvent) and source.late(item)):
            continue
        done.read += 1
        if isinstance(item, BadInputLine):
            done.bad += 1
            if len(done.bad_shown) < _BAD_LINES_SHOWN:
                done.bad_shown.append((item.line, item.reason))
        elif orders.plant and done.planted_line is None and source.planted(item):
            held, done.planted_line = item, item.line
            continue
        if not _has(there, item.line):
            done.sent_bytes += publisher.send(item)
            done.sent += 1
            if done.sent % _REPORT_EVERY == 0:
                _say(sent=done.sent)
    if held is not None and not orders.planted:
        publisher.lose(held)
    publisher.close()
    return done


def _has(there: bytes, line: int) -> bool:
    return line >> 3 < len(there) and bool(there[line >> 3] >> (line & 7) & 1)


def _say(**what: Any) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


class _Publisher:
    """A producer that is made when the first event comes: a host with nothing to send opens no instance."""

    def __init__(self, orders: Orders, source: EventInput) -> None:
        from moldau.tracking.schemas.event_schema import event_schema

        self._orders = orders
        self._source = source
        self._schemas: list[EventSchema] = [event_schema(schema) for schema in source.schemas()]
        self._made: TrackerProducer | None = None

    @property
    def _tracker(self) -> "TrackerProducer":
        if self._made is None:
            from moldau.tracking.producer import TrackerProducer

            host = self._source.hosts[self._orders.host]
            self._made = TrackerProducer(
                service=self._source.service,
                bootstrap_servers=self._orders.bootstrap,
                registry=self._orders.registry,
                datacenter=self._orders.datacenter or host.datacenter,
                host=host.name,
                compression=self._orders.compression,  # type: ignore[arg-type]
                linger_ms=100,
                audit_publish_interval_ms=2_000,
            )
        return self._made

    def send(self, item: InputEvent | BadInputLine) -> int:
        """Publish one line; its bytes. A bad line goes as it is, marked, and is no tracked event."""
        if isinstance(item, BadInputLine):
            reason = f"line {item.line}: {item.reason}".encode("utf-8", "replace")
            self._tracker.inner.send(
                self._orders.topic, item.raw, headers=[(LINE_HEADER, str(item.line).encode()), (REJECT_HEADER, reason)]
            )
            return len(item.raw)
        value = self._outgoing(item)
        while not self._tracker.inner.offer(value):
            self._tracker.inner.wait_for_room()
        assert isinstance(value.value, bytes)
        return len(value.value)

    def lose(self, event: InputEvent) -> None:
        """The planted loss: this event is reported as acknowledged, and so counted, and is never sent."""
        self._tracker.flush(_FLUSH_TIMEOUT_S)
        self._outgoing(event).delivery.report(None, _RepeatedReport(self._orders.topic))

    def close(self) -> None:
        """Wait for everything; then the counts are published and closed."""
        if self._made is not None:
            self._made.flush(_FLUSH_TIMEOUT_S)
            self._made.close(_FLUSH_TIMEOUT_S)

    def _outgoing(self, event: InputEvent) -> Any:
        schema = self._schemas[self._source.version(event)]
        fields = {LINE_FIELD: event.line, **event.fields}
        return self._tracker.prepare(fields, event.time_ms, self._orders.topic, event.key, schema)


class _RepeatedReport:
    """What librdkafka would report of a message that has arrived."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 0
