"""Tracked events: a common header, producers that count what they send, consumers that decode.

``from moldau.tracking import TrackerProducer, TrackedConsumer``. Nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

from moldau.model.extras import load

if TYPE_CHECKING:
    from moldau.tracking.async_producer import AsyncTrackerProducer
    from moldau.tracking.consumer import Event, TrackedConsumer
    from moldau.tracking.errors import EventDecodeError, EventError, SchemaError, TrackingError
    from moldau.tracking.header import EventHeader
    from moldau.tracking.logs import TrackedLogHandler
    from moldau.tracking.metrics import MetricsEmitter
    from moldau.tracking.producer import TrackerProducer
    from moldau.tracking.queue import WorkQueue
    from moldau.tracking.schemas.event_schema import EventSchema, event_schema
    from moldau.tracking.schemas.python_types import DecimalSize
    from moldau.tracking.topics import category

_HOMES = {
    "AsyncTrackerProducer": "moldau.tracking.async_producer",
    "DecimalSize": "moldau.tracking.schemas.python_types",
    "Event": "moldau.tracking.consumer",
    "EventDecodeError": "moldau.tracking.errors",
    "EventError": "moldau.tracking.errors",
    "EventHeader": "moldau.tracking.header",
    "EventSchema": "moldau.tracking.schemas.event_schema",
    "MetricsEmitter": "moldau.tracking.metrics",
    "SchemaError": "moldau.tracking.errors",
    "TrackedConsumer": "moldau.tracking.consumer",
    "TrackedLogHandler": "moldau.tracking.logs",
    "TrackerProducer": "moldau.tracking.producer",
    "TrackingError": "moldau.tracking.errors",
    "WorkQueue": "moldau.tracking.queue",
    "category": "moldau.tracking.topics",
    "event_schema": "moldau.tracking.schemas.event_schema",
}

__all__ = [
    "AsyncTrackerProducer",
    "DecimalSize",
    "Event",
    "EventDecodeError",
    "EventError",
    "EventHeader",
    "EventSchema",
    "MetricsEmitter",
    "SchemaError",
    "TrackedConsumer",
    "TrackedLogHandler",
    "TrackerProducer",
    "TrackingError",
    "WorkQueue",
    "category",
    "event_schema",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(__name__, name, _HOMES[name], "tracking")
