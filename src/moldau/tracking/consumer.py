"""Reads tracked events: decoded with the writer's schema into the reader's.

    with TrackedConsumer("localhost:9092", "http://localhost:8081", group_id="billing", topics=["orders"], reader=Order) as consumer:
        for event in consumer:
            charge(event.value, event.header.time)

Groups, offsets and places in the log are those of `moldau.client.consumer.Consumer`, which is at hand as `consumer.messages`: an event is
finished when the next one is asked for. One thread uses it at a time.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from moldau.client.consumer import Consumer
from moldau.client.message import ConsumedMessage
from moldau.client.settings import ConsumerOptions
from moldau.model.identity import TopicPartition
from moldau.tracking.decoding import EventDecoder, UndecodableEventError, WriterSchemas
from moldau.tracking.errors import EventDecodeError
from moldau.tracking.header import EventHeader
from moldau.tracking.registry_port import SchemaRegistry, open_registry
from moldau.tracking.routes import SchemaSource
from moldau.tracking.schemas.event_schema import event_schema

OnError = Callable[[EventDecodeError, ConsumedMessage], object]


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it stands in a log. `value` is a dict, or an instance of the reader's type; without the header."""

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
    """A consumer of tracked events. `bootstrap`, `group_id`, `topics` and the options are those of `Consumer`; `registry` a URL or client.

    `reader` is what events are wanted as: a schema, a file, a dataclass or a pydantic model; `readers` says it by topic; without either
    they are dicts as they were written. `on_error` is handed what cannot be decoded, and reading goes on behind it; without it,
    EventDecodeError is raised, and asking again goes on behind the record. Whatever else is raised on the way to an event, by the registry
    that is away or by `on_error` itself, leaves the consumer where it was: that record is not handed out, and comes again.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] = "localhost:9092",
        registry: str | SchemaRegistry = "http://localhost:8081",
        *,
        group_id: str | None = None,
        topics: Iterable[str] = (),
        reader: SchemaSource | None = None,
        readers: Mapping[str, SchemaSource] | None = None,
        on_error: OnError | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        opened, self._close_registry = open_registry(registry)
        writers = WriterSchemas(opened)
        self._general = EventDecoder(writers, None if reader is None else event_schema(reader))
        self._decoders = {topic: EventDecoder(writers, event_schema(source)) for topic, source in (readers or {}).items()}
        self._on_error = on_error
        self.undecodable = 0
        """Records so far that were no events."""
        self.messages = Consumer(bootstrap, group_id=group_id, topics=topics, **options)

    def poll(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there is none within `timeout` seconds. The one before is finished. EventDecodeError, ConsumeError.

        Where the registry cannot be asked, that is raised, and the same record comes the next time, unless a seek goes elsewhere.
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

    def commit(self, behind: Event | None = None) -> None:
        """Commit now: behind everything handed out, or behind one event. CommitError says topic, partition and offset."""
        if behind is None:
            self.messages.commit()
        else:
            self.messages.commit({TopicPartition(behind.topic, behind.partition): behind.offset + 1})

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
