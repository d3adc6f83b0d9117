"""The schema of one kind of event: an Avro record with the header in front, and how events of it are written.

    event_schema("schemas/page_view.avsc")                       # a file; more files for the types that it names
    event_schema({"type": "record", "name": "PageView", ...})    # the same as JSON has it
    event_schema(PageView)                                       # a dataclass or a pydantic model

The header is put in front if it is missing. Its bytes are written by the producer, so that here only the rest, the *body*, is encoded.

Schemas that name types of each other's files become one without external references: a name that is defined elsewhere is replaced by its
definition where it is first used; later uses keep the name, as Avro requires. So what is registered needs no references, and its reader
needs no second request to the registry.

fastavro hands a default to a reader as the schema's JSON has it: the text ``"\\x0f"`` for the decimal 1.5, a number for a time. So
each default is written and read once, as an event's own value would be.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType

from moldau.tracking.errors import EventError, SchemaError
from moldau.tracking.header import HEADER_FIELD, HEADER_NAME, HEADER_SCHEMA, full_name, is_header_type, namespace_of
from moldau.tracking.schemas.encoders import UNSURE, encoder_of
from moldau.tracking.schemas.python_values import plain_fields
from moldau.tracking.schemas.validation import Names, complete, defaults_of

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})

Library = dict[str, tuple[Mapping[str, Any], str]]
"""Definitions by full name, and where each comes from, for messages."""


def read_files(paths: Iterable[Path]) -> tuple[list[Mapping[str, Any]], Library]:
    """The schemas of these files, and all of them by name. SchemaError names the file."""
    found: list[Mapping[str, Any]] = []
    library: Library = {}
    for path in paths:
        try:
            schema = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SchemaError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise SchemaError(f"{path}: no JSON: {error}") from None
        for each in schema if isinstance(schema, list) else [schema]:
            if not isinstance(each, dict) or each.get("type") not in _NAMED or not each.get("name"):
                raise SchemaError(f"{path}: a file holds a record, an enum or a fixed type, not {json.dumps(each)[:80]}")
            found.append(each)
            add_to_library(library, each, str(path))
    return found, library


def add_to_library(library: Library, schema: Mapping[str, Any], origin: str) -> None:
    """Add a type under its name. SchemaError if the name is that of another type already."""
    name, _ = _full_name(schema["name"], schema.get("namespace"))
    known = library.setdefault(name, (schema, origin))
    if known[0] != schema:
        raise SchemaError(f"{origin}: type {name} is already defined otherwise in {known[1]}")


def expand(schema: Any, library: Library | None = None) -> Any:
    """A copy of `schema` with every name of the library defined at its first use. SchemaError for a name that is not defined."""
    known = {HEADER_NAME: (HEADER_SCHEMA, "the library"), **(library or {})}
    return _expand(schema, "", known, set())


def refers_to(schema: Any, name: str) -> bool:
    """Whether a type of this full name is called by it anywhere in what `expand` has made."""
    match schema:
        case str():
            return schema == name and schema not in _NAMED
        case list():
            return any(refers_to(each, name) for each in schema)
        case Mapping():
            inside = [schema[part] for part in ("type", "items", "values", "fields") if part in schema]
            return refers_to(inside, name)
        case _:
            return False


def _expand(schema: Any, namespace: str, library: Library, defined: set[str]) -> Any:
    match schema:
        case str() if schema in PRIMITIVES:
            return schema
        case str():
            return _named(schema, namespace, library, defined)
        case list():
            return [_expand(each, namespace, library, defined) for each in schema]
        case Mapping() if schema.get("type") in _NAMED:
            return _definition(schema, namespace, library, defined)
        case Mapping() if schema.get("type") == "array":
            return {**schema, "items": _expand(schema.get("items"), namespace, library, defined)}
        case Mapping() if schema.get("type") == "map":
            return {**schema, "values": _expand(schema.get("values"), namespace, library, defined)}
        case Mapping() if isinstance(schema.get("type"), str) and schema["type"] in PRIMITIVES:
            return dict(schema)
        case Mapping() if "type" in schema:
            return _expand(schema["type"], namespace, library, defined)
        case _:
            raise SchemaError(f"no Avro type: {json.dumps(schema, default=str)[:80]}")


def _named(name: str, namespace: str, library: Library, defined: set[str]) -> Any:
    for full in dict.fromkeys((_full_name(name, namespace)[0], name)):
        if full in defined:
            return full
        if full in library:
            return _definition(library[full][0], "", library, defined)
    raise SchemaError(f"type {_full_name(name, namespace)[0]} is not defined; pass the file that defines it too")


def _definition(schema: Mapping[str, Any], namespace: str, library: Library, defined: set[str]) -> dict[str, Any]:
    """A type with its full name, split into name and namespace, and what it is made of."""
    if not isinstance(schema.get("name"), str):
        raise SchemaError(f"a {schema['type']} has a name: {json.dumps(schema, default=str)[:80]}")
    full, inside = _full_name(schema["name"], schema.get("namespace", namespace))
    if full in defined:
        raise SchemaError(f"type {full} is defined twice")
    defined.add(full)
    made = {**schema, "name": full.rpartition(".")[2]}
    if inside or "namespace" in schema:
        made["namespace"] = inside
    if schema["type"] in ("record", "error"):
        if not isinstance(schema.get("fields"), list):
            raise SchemaError(f"record {full} has no list of fields")
        names = [each.get("name") for each in schema["fields"] if isinstance(each, Mapping)]
        if len(set(names)) != len(names):
            raise SchemaError(f"record {full} has two fields of one name: {', '.join(map(str, names))}")
        made["fields"] = [_field(each, full, inside, library, defined) for each in schema["fields"]]
    return made


def _field(field: Any, record: str, namespace: str, library: Library, defined: set[str]) -> dict[str, Any]:
    if not isinstance(field, Mapping) or "name" not in field or "type" not in field:
        raise SchemaError(f"record {record}: a field has a name and a type: {json.dumps(field, default=str)[:80]}")
    try:
        return {**field, "type": _expand(field["type"], namespace, library, defined)}
    except SchemaError as error:
        raise SchemaError(f"{record}.{field['name']}: {error}") from None


def _full_name(name: str, namespace: str | None) -> tuple[str, str]:
    """The full name and its namespace."""
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{namespace}.{name}", namespace) if namespace else (name, "")


def reading_schema(parsed: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """A copy of a record, as fastavro parsed it, whose defaults are values; `names` are its named types."""
    made: dict[str, Any] = deepcopy(dict(parsed))
    for record in _records(made):
        values = defaults_of(record, names, record["name"])
        for field in record["fields"]:
            if "default" in field:
                field["default"] = _read_back(parsed, field, values[field["name"]])
    return made


def shares_defaults(reading: Mapping[str, Any]) -> bool:
    """Whether events read by this schema may have a list or a dict in common: fastavro hands out the default itself."""
    return any(isinstance(field.get("default"), list | dict) for record in _records(dict(reading)) for field in record["fields"])


def unshared(value: Any) -> Any:
    """A decoded value with lists and dicts of its own."""
    if isinstance(value, dict):
        return {key: unshared(each) for key, each in value.items()}
    return [unshared(each) for each in value] if isinstance(value, list) else value


def _read_back(parsed: Mapping[str, Any], field: Mapping[str, Any], value: Any) -> Any:
    """The value after a trip through Avro, in a record of this field alone, which knows the named types of the whole."""
    alone = {**parsed, "fields": [{"name": field["name"], "type": field["type"]}]}
    written = io.BytesIO()
    schemaless_writer(written, alone, {field["name"]: value})
    written.seek(0)
    found: Any = schemaless_reader(written, alone, None)
    return found[field["name"]]


def _records(schema: Any) -> Iterator[dict[str, Any]]:
    """The records that are defined in a schema, itself among them; fastavro's table of their names has the same ones."""
    if isinstance(schema, list):
        for each in schema:
            yield from _records(each)
    elif isinstance(schema, dict):
        if isinstance(schema.get("fields"), list):
            yield schema
        for part in ("type", "items", "values", "fields"):
            yield from _records(schema.get(part))


class EventSchema:
    """Made by `event_schema`. `name` is the record's full name, `text` the whole as JSON, to be registered."""

    def __init__(self, record: Mapping[str, Any], library: Library | None = None, *, python_type: type | None = None) -> None:
        if not isinstance(record, Mapping) or record.get("type") != "record":
            raise SchemaError(f"an event is a record, not {json.dumps(record, default=str)[:80]}")
        whole = expand(_with_header(record), library)
        self.name = full_name(whole)
        if HEADER_FIELD not in _field_names(record) and refers_to(whole["fields"], self.name):
            raise SchemaError(f"{self.name}: an event does not hold others of its type, which would each have a header; put it in a record")
        self.python_type = python_type
        self.record: Mapping[str, Any] = whole
        self.text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        self._names: dict[str, Any] = {}
        try:
            parsed = parse_schema(deepcopy(whole), named_schemas=self._names)
        except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"{self.name}: {error.__class__.__name__}: {error}") from None
        assert isinstance(parsed, dict), "a record is an object"
        self.parsed: dict[str, Any] = parsed
        self._body = {**parsed, "fields": parsed["fields"][1:]}
        self._short = str(whole["name"])
        self._reading: dict[str, Any] | None = None
        self._size = len(self._body["fields"])
        self._defaults = defaults_of(self._body, self._names, self._short)
        self._encode_dict = encoder_of(self._body, self._names)
        self._encode_own = self._encode_dict if python_type is None else encoder_of(self._body, self._names, python_type)

    @property
    def topic(self) -> str:
        """The default topic of these events: the record's own name."""
        return self._short

    @property
    def reading(self) -> dict[str, Any]:
        """The whole as fastavro wants it of a reader."""
        if self._reading is None:
            self._reading = reading_schema(self.parsed, self._names)
        return self._reading

    def encode(self, event: Any) -> bytes:
        """The body: the event, a dict or an instance of the type that the schema is made from, without its header.

        EventError names the field at fault.
        """
        try:
            if event.__class__ is not dict:
                return self._encode_own(event)
            if len(event) != self._size:
                event = {**self._defaults, **event}
            return self._encode_dict(event)
        except UNSURE:
            return self._encode_slowly(event)

    def _encode_slowly(self, event: Any) -> bytes:
        """The event as it is checked and written without any shortcut; this decides."""
        event = plain_fields(event, self._short)
        if HEADER_FIELD in event:
            raise EventError(f"{self._short}.{HEADER_FIELD}", "is filled in by the producer")
        completed = complete(self._body, event, self._names, self._short)
        out = io.BytesIO()
        try:
            schemaless_writer(out, self._body, completed)
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
            raise EventError(self._short, f"cannot be written: {error}") from error
        return out.getvalue()

    def __repr__(self) -> str:
        return f"<EventSchema {self.name}>"


def event_schema(
    source: "EventSchema | Mapping[str, Any] | str | Path | type", *more: "Mapping[str, Any] | str | Path", name: str | None = None
) -> EventSchema:
    """The schema of events out of an Avro file (a path), a schema as a dict or JSON text, a dataclass, or a pydantic model.

    `more` are schemas of the types that it names. A file of several schemas has the event's last, or `name` is that of the event's.
    SchemaError names file, type or field.
    """
    if isinstance(source, EventSchema):
        return source
    if isinstance(source, type):
        from moldau.tracking.schemas.python_types import record_of

        return EventSchema(record_of(source), python_type=source)
    library: Library = {}
    first = _read(source, library)
    for each in more:
        _read(each, library)
    if name is not None:
        if name not in library:
            raise SchemaError(f"no record {name} among {', '.join(sorted(library))}")
        return EventSchema(library[name][0], library)
    return EventSchema(first[-1], library)


def _read(source: "Mapping[str, Any] | str | Path", library: Library) -> list[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]]
    if isinstance(source, Path) or (isinstance(source, str) and not source.lstrip().startswith(("{", "["))):
        found, _ = read_files([Path(source)])
        origin = str(source)
    else:
        try:
            schema = json.loads(source) if isinstance(source, str) else source
        except ValueError as error:
            raise SchemaError(f"a schema in JSON: {error}") from None
        found, origin = (schema if isinstance(schema, list) else [schema]), "the schema given"
    found = list(found)
    for each in found:
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise SchemaError(f"{origin}: not a named type: {json.dumps(each, default=str)[:80]}")
        add_to_library(library, each, origin)
    return found


def _field_names(record: Mapping[str, Any]) -> list[Any]:
    return [field.get("name") for field in record["fields"] if isinstance(field, Mapping)]


def _with_header(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the header as its first field. SchemaError if a field of that name is something else."""
    fields = record.get("fields")
    if not isinstance(fields, list):
        raise SchemaError(f"record {record.get('name')} has no list of fields")
    names = _field_names(record)
    if HEADER_FIELD not in names:
        return {**record, "fields": [{"name": HEADER_FIELD, "type": HEADER_SCHEMA}, *fields]}
    where = f"{full_name(record)}.{HEADER_FIELD}"
    if not is_header_type(fields[names.index(HEADER_FIELD)].get("type"), namespace_of(record)):
        raise SchemaError(f"{where}: is the header of tracked events (moldau.tracking.EventHeader); give this field another name")
    if names[0] != HEADER_FIELD:
        raise SchemaError(f"{where}: the header is the first field")
    return dict(record)
