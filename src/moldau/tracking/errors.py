"""Errors of events and of schemas of events; each names the place."""

from moldau.model.errors import MoldauError


class TrackingError(MoldauError):
    """Root of what is raised about tracked events."""


class SchemaError(TrackingError):
    """A schema that events cannot have; the message names the file, the type or the field."""


class EventError(TrackingError):
    """An event that does not fit its schema. `path` is the field at fault: "PageView.visitor.country"; nothing was sent or counted."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class EventDecodeError(TrackingError):
    """A record that cannot be read as an event; names topic, partition, offset, and the schema id where there is one."""

    def __init__(self, topic: str, partition: int, offset: int, schema_id: int | None, reason: str) -> None:
        schema = "" if schema_id is None else f", schema id {schema_id}"
        super().__init__(f"partition {topic}-{partition} at offset {offset}{schema}: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.schema_id = schema_id
        self.reason = reason
