"""Events out of framed values: decoded with their writer's schema, as their reader wants them.

The schema of an id is asked for once: it never changes.
"""

import io
import json
from collections.abc import Mapping
from typing import Any, Final

from fastavro import parse_schema
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from moldau.registry.client_errors import UnknownSchemaError
from moldau.registry.untrusted_avro import Read, checked_schema
from moldau.registry.wire import WireFormatError, unframe
from moldau.tracking.errors import TrackingError
from moldau.tracking.header import HEADER_FIELD, EventHeader, is_tracked_schema, read_header
from moldau.tracking.registry_port import SchemaRegistry
from moldau.tracking.schemas.event_schema import EventSchema, shares_defaults, unshared
from moldau.tracking.schemas.python_values import Build, builder_of

REASON_MAX: Final = 300


class UndecodableEventError(TrackingError):
    """Bytes that are no event; `schema_id` where they have one."""

    def __init__(self, schema_id: int | None, reason: str) -> None:
        super().__init__(reason)
        self.schema_id = schema_id


class EventDecoder:
    """Decodes the events of one reader: `reader` is the schema that they are wanted in, None: as they were written."""

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
        """The id of the schema, the header and the rest. UndecodableError; what the registry raises when it cannot be asked."""
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
        except Exception as error:  # of the reader's own type, whatever it does: a record that it refuses is passed over, not met for ever
            raise UndecodableEventError(schema_id, f"{type(error).__name__}: {error}") from error

    def _wanted(self, schema_id: int, writer: Any) -> Any:
        """The reader's schema for one writer's. What the writer called its record is no matter: the reader's has it as an alias."""
        if self._reader is None:
            return None
        found = self._readers.get(schema_id)
        if found is None:
            names = [writer["name"], writer["name"].rpartition(".")[2]]
            wanted = self._reader.reading
            found = self._readers[schema_id] = {**wanted, "aliases": [*wanted.get("aliases", ()), *names]}
        return found


class _Watched(io.BytesIO):
    """Knows whether somebody wanted more than there is."""

    ran_out = False

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.ran_out = self.ran_out or len(found) < (size or 0)
        return found


def _runs_out(body: bytes | memoryview, writer: Any, read: Read) -> bool:
    """Whether bytes that cannot be decoded are too few; fastavro has several errors for that, each of which may mean something else."""
    source = _Watched(body)
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
        """For good: what an id stands for does not change."""
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
