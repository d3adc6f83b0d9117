"""Publishes events that can be traced: checked against their schema, with the common header, and counted for the audit.

    with TrackerProducer(service="shop", bootstrap_servers="localhost:9092", registry="http://localhost:8081") as tracker:
        tracker.declare("schemas/page_view.avsc", topic="page-views")
        tracker.track({"page": "/index", "member": 7}, topic="page-views")
        tracker.track(OrderPlaced(order=17), time=placed_at)          # a dataclass: its schema and its topic by its name

Every event is acknowledged by all in-sync replicas, once, and is counted then; see `instance` for what a count means. A producer belongs to
the process that made it: after a fork, make another one. Any thread may track.
"""

import os
import socket
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from moldau.client.delivery import ANY_PARTITION, Delivery, OutgoingMessage
from moldau.client.producer import Producer
from moldau.client.settings import Codec, bootstrap_text
from moldau.topology.values import CategoryName
from moldau.tracking.audit_record import ensure_audit_topic
from moldau.tracking.checksum import guid_hash
from moldau.tracking.clock import now_ms
from moldau.tracking.errors import EventError
from moldau.tracking.header import HEADER_FIELD, TIME_MAX_MS, TIME_MIN_MS
from moldau.tracking.instance import CountedDelivery, CountPublisher, Instance, Origin, log, watch_for_the_end
from moldau.tracking.places import DATACENTER_VARIABLE, DEFAULT_CATEGORY, NOT_GIVEN, NotGiven, TopologySource, connection_of
from moldau.tracking.routes import EventRoute, Routes, SchemaRegistry, SchemaSource, SubjectNaming, open_registry
from moldau.tracking.schemas.encoders import varint_encoder
from moldau.tracking.schemas.event_schema import EventSchema, event_schema
from moldau.tracking.topics import category as kind_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def event_time_ms(given: datetime | int, path: str) -> int:
    """A time with its zone, or milliseconds since 1970, as the latter; parts of a millisecond are cut off. EventError."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise EventError(path, f"{given.isoformat()} has no time zone; datetime.now(UTC) has one")
        time_ms = (given - _EPOCH) // _MILLISECOND
    elif not isinstance(given, int) or isinstance(given, bool):
        raise EventError(path, f"needs a datetime with its zone or milliseconds since 1970, not {given!r}")
    else:
        time_ms = given
    if not TIME_MIN_MS <= time_ms <= TIME_MAX_MS:
        raise EventError(path, f"{time_ms} ms since 1970 is not in the years 1 to 9999")
    return time_ms


def time_bytes(time_ms: int) -> bytes:
    """As Avro writes a long: zigzag, then 7 bits to a byte, the lowest first."""
    return varint_encoder()((time_ms << 1) ^ (time_ms >> 63))


def text_bytes(text: str) -> bytes:
    """As Avro writes a string: its length in bytes, then UTF-8."""
    encoded = text.encode()
    return time_bytes(len(encoded)) + encoded


AUDIT_PUBLISH_INTERVAL_MS: Final = 5_000


class TrackerProducer:
    """Events of one `service` on one `host` (default: this one's name) in one `datacenter` (default: $MOLDAU_DATACENTER, or "local").

    `registry` is a URL, or a client. In place of both, `topology`, a file of tiers (default: $MOLDAU_TOPOLOGY), has them for `category`
    (default: "tracking") in the data centre; without a file they are on this host.

    `schemas` declares schemas by topic; see `declare`. `subject_naming` "topic" (one kind of event per topic), "record" or "topic-record".
    With `auto_register` off, a schema has to be registered already. With `create_topics` a topic that is missing is made before its first
    event, as its category wants it; without, that is left to the brokers. `audit_publish_interval_ms` is how often counts are published
    while they change. `settings` are librdkafka's own. ValueError for invalid arguments.
    """

    def __init__(
        self,
        *,
        service: str,
        bootstrap_servers: str | Sequence[str] | NotGiven = NOT_GIVEN,
        registry: str | SchemaRegistry | NotGiven = NOT_GIVEN,
        topology: TopologySource | None = None,
        category: CategoryName | None = None,
        datacenter: str | None = None,
        host: str | None = None,
        schemas: Mapping[str, SchemaSource] | None = None,
        subject_naming: SubjectNaming = "topic",
        auto_register: bool = True,
        create_topics: bool = True,
        audit_publish_interval_ms: int = AUDIT_PUBLISH_INTERVAL_MS,
        compression: Codec = "none",
        linger_ms: float = 5.0,
        delivery_timeout_ms: int = 120_000,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.origin = Origin(datacenter or os.environ.get(DATACENTER_VARIABLE) or "local", service, host or socket.gethostname())
        self.origin.check()
        if audit_publish_interval_ms < 1:
            raise ValueError(f"audit.publish.interval.ms is at least 1, not {audit_publish_interval_ms}")
        servers, schemas_at = connection_of(bootstrap_servers, registry, topology, category, datacenter)
        brokers = bootstrap_text(servers)
        opened, close_registry = open_registry(schemas_at)
        ensure = (lambda topic, kind: kind.ensure(brokers, topic)) if create_topics else None
        of_topics = kind_of(category or DEFAULT_CATEGORY)
        self._routes = Routes(opened, subject_naming, auto_register=auto_register, ensure_topic=ensure, category=of_topics)
        for topic, source in (schemas or {}).items():
            self.declare(source, topic=topic)
        self._producer = Producer(
            servers,
            client_id=f"{service} tracking",
            compression=compression,
            linger_ms=linger_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            settings=settings,
        )
        self._counts = CountPublisher(self._producer, self.origin, audit_publish_interval_ms, lambda: ensure_audit_topic(brokers))
        self._header_text = text_bytes(self.origin.service) + text_bytes(self.origin.host) + text_bytes(self.origin.datacenter)
        self._instance = Instance()
        self._opening = threading.Lock()
        self._last_time = (0, time_bytes(0))
        self._over: str | None = None
        self._farewell = weakref.finalize(self, _say_farewell, self._counts, close_registry)
        watch_for_the_end()
        self._close_registry = close_registry
        _of_this_process.add(self)

    def declare(
        self, source: SchemaSource, *more: Mapping[str, Any] | str, topic: str | None = None, kind: CategoryName | None = None
    ) -> EventSchema:
        """The schema of events: an Avro file, a schema as a dict or JSON text, a dataclass, a pydantic model; see `event_schema`.

        Its events go to `topic` (None: one with the name of the record), which is made, if it is missing, as one of the category `kind`
        (None: that of the producer). Declared for several topics, they go to that of `track`. SchemaError names file, type or field;
        ValueError for a name that no topic of events can have.
        """
        schema = event_schema(source, *more)
        self._routes.declare(schema, topic, None if kind is None else kind_of(kind))
        return schema

    def track(
        self,
        event: Any,
        time: datetime | int | None = None,
        topic: str | None = None,
        key: bytes | str | None = None,
        *,
        schema: EventSchema | None = None,
    ) -> Delivery:
        """Publish an event: a dict (of `topic`'s schema, or of `schema`), or an instance of a dataclass or model. Returns at once.

        `time` is when it happened: with a time zone, or in ms since 1970; None: now. EventError names the field at fault; then nothing is
        sent, and nothing counted; so for ValueError and TypeError, of a topic, a key, a time or a schema that cannot be meant. The first
        event of a topic asks the brokers and the registry: WorldError where none answers; then the event is not kept, and `track` may be
        called again. What fails later is raised by the delivery, or by `flush`, and is not counted.
        """
        wanted = self.prepare(event, time, topic, key, schema)
        try:
            while not self._producer.offer(wanted):
                self._producer.wait_for_room()
        except BaseException:
            self.abandon(wanted)
            raise
        return wanted.delivery

    @staticmethod
    def abandon(wanted: OutgoingMessage) -> None:
        """What was prepared is not offered, or was not taken: it does not count as on its way any more."""
        assert isinstance(wanted.delivery, CountedDelivery)
        wanted.delivery.abandon()

    def prepare(
        self, event: Any, time: datetime | int | None, topic: str | None, key: bytes | str | None, schema: EventSchema | None
    ) -> OutgoingMessage:
        """An event with its header, ready to be offered; as `track`."""
        self._check_open()
        if key is not None and not isinstance(key, (bytes, str)):
            raise TypeError(f"key is bytes or text, not {key!r} ({type(key).__name__})")
        route = self._routes.find(event.__class__ if schema is None else schema, topic)
        body = route.schema.encode(event)
        tracked_ms = now_ms()
        time_ms = tracked_ms if time is None else event_time_ms(time, f"{route.schema.topic}.{HEADER_FIELD}.time")
        prefix = route.prefix or self._routes.prefix(route)
        instance = self._instance
        while not instance.usable or (guid := instance.next_guid()) is None:
            instance = self._open()
        last = self._last_time
        if last[0] != time_ms:
            last = self._last_time = (time_ms, time_bytes(time_ms))
        value = b"".join((prefix, last[1], self._header_text, guid, body))
        delivery = CountedDelivery(self._producer.delivery_listener, instance, route.topic, time_ms, len(value), guid_hash(guid))
        more = {"on_delivery": delivery.report, "timestamp": tracked_ms}
        return OutgoingMessage(route.topic, value, key, ANY_PARTITION, more, delivery)

    def _open(self) -> Instance:
        """An instance that may have events: the first one, or one after another that is no longer certain of its counts."""
        with self._opening:
            self._check_open()
            if not self._instance.usable:
                if self._instance.uncertain:
                    log.warning(
                        "tracking: service %s on %s begins a new instance: instance %s is uncertain of its counts",
                        *self.origin[1:],
                        self._instance.name,
                    )
                    self._instance.retire()
                    self._instance = Instance()
                self._counts.open(self._instance)
            return self._instance

    def _check_open(self) -> None:
        if self._over is not None:
            raise RuntimeError(self._over)

    def asks_before_tracking(self, event: Any, topic: str | None, schema: EventSchema | None) -> bool:
        """Whether `prepare` would wait for the brokers or the registry."""
        route: EventRoute = self._routes.find(event.__class__ if schema is None else schema, topic)
        return route.prefix is None or not self._instance.usable

    @property
    def inner(self) -> Producer:
        """What it sends with."""
        return self._producer

    @property
    def instance(self) -> str:
        """Whom the guids of its events name now, as 16 hex digits."""
        return self._instance.name

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every event so far has ended. SendError for a failure that was not read, TimeoutError."""
        self._producer.flush(timeout)

    def publish_counts(self) -> None:
        """Publish now what was counted since the last time; it happens by itself every few seconds."""
        self._counts.publish()

    def statistics(self) -> dict[str, int]:
        """So far: events `failed` and still `waiting`, and `audit_records` published."""
        found = self._producer.statistics()
        return {"waiting": found["waiting"], "failed": found["failed"], "audit_records": self._counts.published}

    def close(self, timeout: float | None = None) -> None:
        """Flush, publish the counts, close them, and close the connections. Errors as for `flush`, and TimeoutError."""
        if self._over is not None:
            return
        self._over = "the producer of tracked events is closed"
        self._farewell.detach()
        try:
            self._counts.end(timeout)
        finally:
            self._routes.close(self._close_registry)

    def forget(self) -> None:
        """This is a forked process: the connections and the instance belong to the parent."""
        self._over = "a producer of tracked events belongs to the process that made it: after a fork, make another one"
        self._farewell.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. Where an exception is on its way already, failures are logged."""
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            log.warning("tracking: while closing: %s", failure)


def _say_farewell(counts: CountPublisher, close_registry: Callable[[], None]) -> None:
    """The end of a producer that was not closed."""
    counts.farewell()
    close_registry()


_of_this_process: "weakref.WeakSet[TrackerProducer]" = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_of_this_process):
        producer.forget()
    _of_this_process.clear()


os.register_at_fork(after_in_child=_after_fork)
