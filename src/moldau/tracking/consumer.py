"""Reads tracked events: decoded with the writer's schema into the reader's.

    with TrackedConsumer("localhost:9092", "http://localhost:8081", group_id="billing", topics=["orders"], reader=Order) as consumer:
        for event in consumer:
            charge(event.value, event.header.time)

Groups, offsets and positions in the log are those of `moldau.client.consumer.Consumer`, available as `consumer.messages`: an event is
finished when the next one is asked for. The registry is asked for the schema of an id once: it never changes. One thread uses a consumer at
a time.
"""

import io
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, Unpack

from fastavro import parse_schema
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from moldau.client.consumer import Consumer
from moldau.client.message import ConsumedMessage
from moldau.client.settings import ConsumerOptions
from moldau.model.identity import TopicPartition
from moldau.registry.client_errors import UnknownSchemaError
from moldau.registry.untrusted_avro import Read, checked_schema
from moldau.registry.wire import WireFormatError, unframe
from moldau.topology.values import CategoryName
from moldau.tracking.errors import EventDecodeError, TrackingError
from moldau.tracking.header import HEADER_FIELD, EventHeader, is_tracked_schema, read_header
from moldau.tracking.places import NOT_GIVEN, NotGiven, TopologySource, connection_of
from moldau.tracking.routes import SchemaRegistry, SchemaSource, open_registry
from moldau.tracking.schemas.event_schema import EventSchema, event_schema, shares_defaults, unshared
from moldau.tracking.schemas.python_values import Build, builder_of

REASON_MAX: Final = 300


class UndecodableEventError(TrackingError):
    """Bytes that are no event; `schema_id` where they have one."""

    def __init__(self, schema_id: int | None, reason: str) -> None:
        super().__init__(reason)
        self.schema_id = schema_id


class EventDecoder:
    """Decodes the events of one reader: `reader` is their schema for the reader, None: the writer's."""

    def __init__(self, writers: "WriterSchemas", reader: EventSchema | None) -> None:
        self._writers = writers
        self._reader = reader
        self._readers: dict[int, Any] = {}
        self._build: Build | None = None
        if reader is not None and reader.python_type is not None:
            self._build = builder_of(reader.python_type)
        elif reader is not None and shares_defaults(reader.reading):
            self._build = unshared

    def decode(self, value: bytes | None) -> tuple[int, EventHeader, Any]:
        """The id of the schema, the header and the rest. UndecodableEventError; errors of the registry."""
        if value is None:
            raise UndecodableEventError(None, "a tombstone is no event")
        try:
            schema_id, body = unframe(value)
        except WireFormatError as error:
            raise UndecodableEventError(None, str(error)) from error
        writer, read = self._writers.of(schema_id)
        header = read_header(value)
        if header is None:
            raise UndecodableEventError(schema_id, "the bytes do not begin with the header of an event")
        source = io.BytesIO(body)
        try:
            found: Any = read(source, writer, self._wanted(schema_id, writer))
            left = len(body) - source.tell()
            if left:
                raise UndecodableEventError(schema_id, f"{left} bytes are left over")
            del found[HEADER_FIELD]
        except SchemaResolutionError as error:
            reason = str(error).partition("'__fastavro_parsed__'")[0][:REASON_MAX]
            raise UndecodableEventError(schema_id, f"the reader's schema cannot read what was written: {reason}") from error
        except RecursionError as error:
            raise UndecodableEventError(schema_id, "the event has too many levels") from error
        except (EOFError, ValueError, TypeError, LookupError, OverflowError, ArithmeticError) as error:
            if isinstance(error, EOFError) or _runs_out(body, writer, read):
                raise UndecodableEventError(schema_id, "the value ends in the middle of the event") from error
            raise UndecodableEventError(schema_id, f"{type(error).__name__}: {error}") from error
        if self._build is None:
            return schema_id, header, found
        try:
            return schema_id, header, self._build(found)
        except (
            Exception
        ) as error:  # of the reader's own type, which may raise anything: a record that it refuses is skipped, not read for ever
            raise UndecodableEventError(schema_id, f"{type(error).__name__}: {error}") from error

    def _wanted(self, schema_id: int, writer: Any) -> Any:
        """The reader's schema for one writer's. The name of the writer's record does not matter: the reader's has it as an alias."""
        if self._reader is None:
            return None
        found = self._readers.get(schema_id)
        if found is None:
            names = [writer["name"], writer["name"].rpartition(".")[2]]
            wanted = self._reader.reading
            found = self._readers[schema_id] = {**wanted, "aliases": [*wanted.get("aliases", ()), *names]}
        return found


class _ExhaustionProbe(io.BytesIO):
    """Records whether more was read than it has."""

    ran_out = False

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.ran_out = self.ran_out or len(found) < (size or 0)
        return found


def _runs_out(body: bytes | memoryview, writer: Any, read: Read) -> bool:
    """Whether bytes that cannot be decoded are too few; fastavro has several errors for that, each of which may mean something else."""
    source = _ExhaustionProbe(body)
    try:
        read(source, writer, None)
    except (EOFError, ValueError, TypeError, LookupError, OverflowError, ArithmeticError):
        return source.ran_out
    return False


class WriterSchemas:
    """Schemas of ids, as fastavro has them."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._parsed: dict[int, tuple[Any, Read]] = {}
        self._refused: dict[int, str] = {}

    def of(self, schema_id: int) -> tuple[Any, Read]:
        """The schema of an id, and what reads by it. UndecodableError if there is none, or it is not one of tracked events."""
        found = self._parsed.get(schema_id)
        if found is None:
            if schema_id in self._refused:
                raise UndecodableEventError(schema_id, self._refused[schema_id])
            found = self._parsed[schema_id] = self._ask(schema_id)
        return found

    def _refuse(self, schema_id: int, reason: str) -> UndecodableEventError:
        """Refuse for good: the schema of an id does not change."""
        self._refused[schema_id] = reason
        return UndecodableEventError(schema_id, reason)

    def _ask(self, schema_id: int) -> tuple[Any, Read]:
        try:
            registered = self._registry.schema(schema_id)
        except UnknownSchemaError as error:
            raise UndecodableEventError(schema_id, "the registry does not know this schema id") from error
        if registered.type != "AVRO":
            raise self._refuse(schema_id, f"the schema is {registered.type}, not AVRO")
        names: dict[str, Any] = {}
        try:
            for each in self._registry.referenced(registered):
                parse_schema(json.loads(each.text), named_schemas=names)
            schema = json.loads(registered.text)
            found = checked_schema(parse_schema(schema, named_schemas=names), names)
        except (SchemaParseException, UnknownType, ValueError) as error:
            raise self._refuse(schema_id, f"the schema cannot be read: {error}") from error
        if not isinstance(schema, Mapping) or not is_tracked_schema(schema):
            raise self._refuse(schema_id, "the schema is not one of tracked events: it has no header in front")
        return found


OnError = Callable[[EventDecodeError, ConsumedMessage], object]


@dataclass(frozen=True, slots=True)
class Event:
    """An event in a log. `value` is a dict, or an instance of the reader's type; without the header."""

    header: EventHeader
    value: Any
    topic: str
    partition: int
    offset: int
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int | None
    schema_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


class TrackedConsumer:
    """A consumer of tracked events. `bootstrap_servers`, `group_id`, `topics` and the options are those of `Consumer`; `registry` a URL or
    client. In place of both, `topology`, a file of tiers (default: $MOLDAU_TOPOLOGY), has them for `category` (default: "tracking") in
    `datacenter` (default: $MOLDAU_DATACENTER): its local cluster, or with `aggregate` that of all data centres.

    `reader` is the form of events: a schema, a file, a dataclass or a pydantic model; `readers` are the forms by topic; without either
    they are dicts as they were written. `on_error` receives what cannot be decoded, and reading continues after it; without it,
    EventDecodeError is raised, and the next call continues after the record. Any other error on the way to an event, of the registry
    that does not answer or of `on_error` itself, leaves the consumer where it was: that record is not handed out, and is read again.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | NotGiven = NOT_GIVEN,
        registry: str | SchemaRegistry | NotGiven = NOT_GIVEN,
        *,
        topology: TopologySource | None = None,
        category: CategoryName | None = None,
        datacenter: str | None = None,
        aggregate: bool = False,
        group_id: str | None = None,
        topics: Iterable[str] = (),
        reader: SchemaSource | None = None,
        readers: Mapping[str, SchemaSource] | None = None,
        on_error: OnError | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        servers, schemas_at = connection_of(bootstrap_servers, registry, topology, category, datacenter, aggregate=aggregate)
        opened, self._close_registry = open_registry(schemas_at)
        writers = WriterSchemas(opened)
        self._general = EventDecoder(writers, None if reader is None else event_schema(reader))
        self._decoders = {topic: EventDecoder(writers, event_schema(source)) for topic, source in (readers or {}).items()}
        self._on_error = on_error
        self.undecodable = 0
        """Records so far that were no events."""
        self.messages = Consumer(servers, group_id=group_id, topics=topics, **options)

    def poll(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there is none within `timeout` seconds. The one before is finished. EventDecodeError, ConsumeError.

        RegistryUnavailableError if the registry does not answer; the same record comes the next time, unless a seek moves the consumer.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = self.messages.poll(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if message is None:
                return None
            try:
                event = self._event(message)
            except EventDecodeError:
                raise
            except BaseException:
                self.messages.reader.put_back(message)
                raise
            if event is not None:
                return event

    def _event(self, message: ConsumedMessage) -> Event | None:
        decoder = self._decoders.get(message.topic, self._general)
        try:
            schema_id, header, value = decoder.decode(message.value)
        except UndecodableEventError as error:
            failure = EventDecodeError(message.topic, message.partition, message.offset, error.schema_id, str(error))
            if self._on_error is None:
                self.undecodable += 1
                raise failure from error
            self._on_error(failure, message)
            self.undecodable += 1
            return None
        return Event(
            header,
            value,
            message.topic,
            message.partition,
            message.offset,
            message.key,
            message.headers or (),
            message.timestamp,
            schema_id,
        )

    def __iter__(self) -> Self:
        """Events for ever: where there are none, it waits."""
        return self

    def __next__(self) -> Event:
        event = self.poll()
        assert event is not None, "without a timeout there is an event"
        return event

    def commit(self, event: Event | None = None) -> None:
        """Commit now: after everything handed out, or after one event. CommitError names topic, partition and offset."""
        if event is None:
            self.messages.commit()
        else:
            self.messages.commit({TopicPartition(event.topic, event.partition): event.offset + 1})

    def close(self) -> None:
        """Commit what is finished, and leave the group."""
        try:
            self.messages.close()
        finally:
            self._close_registry()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. Where an exception is on its way already, a failure is logged."""
        try:
            self.messages.__exit__(kind, error, trace)
        finally:
            self._close_registry()
