"""A registry for tests of decoders: schemas by number, in memory. The real one has tests of its own."""

import io
import json
from typing import Any

import fastavro

from moldau.registry.client import Reference, RegisteredSchema, SubjectVersion, UnknownSchemaError
from moldau.registry.wire import frame


class MemoryRegistry:
    """Gives what was put in; counts how often it was asked for an id."""

    def __init__(self) -> None:
        self.schemas: dict[int, RegisteredSchema] = {}
        self.versions: dict[str, list[SubjectVersion]] = {}
        self.asked: list[int] = []
        self.failure: Exception | None = None

    def add(self, schema: Any, subject: str = "events-value", references: tuple[Reference, ...] = (), kind: str = "AVRO") -> int:
        """The id of a schema, which becomes the subject's newest."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = len(self.schemas) + 1
        self.schemas[number] = RegisteredSchema(number, kind, text, references)
        versions = self.versions.setdefault(subject, [])
        versions.append(SubjectVersion(subject, len(versions) + 1, number, kind, text, references))
        return number

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if self.failure is not None:
            raise self.failure
        if schema_id not in self.schemas:
            raise UnknownSchemaError(schema_id)
        return self.schemas[schema_id]

    def latest(self, subject: str) -> SubjectVersion:
        return self.versions[subject][-1]

    def version(self, subject: str, version: int) -> SubjectVersion:
        return self.versions[subject][version - 1]

    def referenced(self, schema: RegisteredSchema | SubjectVersion) -> list[SubjectVersion]:
        found: list[SubjectVersion] = []
        for each in schema.references:
            version = self.versions[each.subject][each.version - 1]
            found += [*self.referenced(version), version]
        return found

    def close(self) -> None:
        pass

    def framed(self, schema_id: int, event: Any) -> bytes:
        """The event, written with a schema without references."""
        return frame(schema_id, encoded(json.loads(self.schemas[schema_id].text), event))


def encoded(schema: Any, event: Any) -> bytes:
    """Avro binary."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, event)
    return stream.getvalue()
