"""Keys and values in a registry's wire format as JSON texts, for ``moldau consume --registry``.

Each is decoded with the schema that it carries the id of; a schema is asked for and compiled once. One line each:

* Avro: fields as they are, without the names of union branches; bytes as everywhere in JSON output, a string where they are UTF-8, else
  ``{"base64": "..."}``; dates and times in ISO 8601, decimals as strings. So are floats that JSON does not have ("NaN", "Infinity").
  The guid of a tracked event is in hex digits, as ``moldau audit report --missing`` names it.
* JSON Schema: the text as it was sent, on one line. It is not validated.
* Protobuf: its own JSON mapping, with the names of the fields as the schema has them.
"""

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.output import say
from moldau.cli.output_records import json_bytes
from moldau.model.extras import MissingExtraError
from moldau.registry.wire import WireFormatError, unframe

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.protocol.records.batch import Columns
    from moldau.registry.client import RegisteredSchema, RegistryClient

ToJson = Callable[[memoryview], str]
"""From what follows the schema id; raises what it likes for bytes that are none."""


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=lambda value: _plain(value)).encode


class UndecodableValueError(ValueError):
    """Bytes that do not fit their schema, or that carry no schema."""


class ValueDecoder:
    """Decodes with the schemas of a registry."""

    def __init__(self, registry: "RegistryClient") -> None:
        self._registry = registry
        self._known: dict[int, ToJson | UndecodableValueError] = {}

    def decode(self, data: bytes | None) -> bytes | None:
        """The JSON text; None for None. UndecodableError; what the registry's client raises when it cannot be asked."""
        if data is None:
            return None
        try:
            schema_id, body = unframe(data)
        except WireFormatError as error:
            raise UndecodableValueError(str(error)) from error
        to_json = self._known.get(schema_id)
        if to_json is None:
            to_json = self._known[schema_id] = self._compiled(schema_id)
        if isinstance(to_json, UndecodableValueError):
            raise to_json
        try:
            return to_json(body).encode()
        except Exception as error:  # of three libraries and of hostile bytes: whatever it is, this value does not fit its schema
            raise UndecodableValueError(f"schema id {schema_id}: {type(error).__name__}: {error}") from error

    def _compiled(self, schema_id: int) -> "ToJson | UndecodableValueError":
        from moldau.registry.client_errors import UnknownSchemaError

        try:
            schema = self._registry.schema(schema_id)
        except UnknownSchemaError:
            return UndecodableValueError(f"the registry does not know schema id {schema_id}")
        try:
            match schema.type:
                case "JSON":
                    return _json_line
                case "AVRO":
                    return _avro(schema, self._registry)
                case "PROTOBUF":
                    return _protobuf(schema, self._registry)
                case other:
                    return UndecodableValueError(f"schema id {schema_id} is of language {other}")
        except ImportError as error:
            raise MissingExtraError("decoding Avro and Protobuf", error.name or str(error), "registry") from error
        except ValueError as error:
            return UndecodableValueError(f"schema id {schema_id} cannot be read: {error}")


class ColumnDecoder:
    """Decodes columns of records in place; `wanted` of "keys" and "values". With `skip`, what cannot be decoded is skipped and reported."""

    def __init__(self, decoder: ValueDecoder, wanted: Collection[str], *, skip: bool) -> None:
        self.skipped = 0
        self._decoder = decoder
        self._wanted = wanted
        self._skip = skip

    def apply(self, where: "TopicPartition", columns: "Columns", limit: int | None = None) -> click.ClickException | None:
        """Decode, and no more than `limit` records; where that has to end the command, the error.

        The columns then end before the record that it is about.
        """
        bad: list[int] = []
        for number, offset in enumerate(columns.offsets):
            if limit is not None and number - len(bad) >= limit:
                columns.cut(number, len(columns))
                break
            try:
                for name in self._wanted:
                    column = getattr(columns, name)
                    column[number] = self._decoder.decode(column[number])
            except UndecodableValueError as error:
                text = f"partition {where} at offset {offset}: the {name[:-1]} cannot be decoded: {error}"
                if not self._skip:
                    columns.cut(number, len(columns))
                    return click.ClickException(f"{text}; --on-error skip leaves it out and continues")
                bad.append(number)
                say(text, err=True)
        for number in reversed(bad):
            columns.cut(number, number + 1)
        self.skipped += len(bad)
        return None


def _json_line(body: memoryview) -> str:
    text = str(body, "utf-8")
    value = json.loads(text)
    return _compact(value) if "\n" in text or "\r" in text else text


def _avro(schema: "RegisteredSchema", registry: "RegistryClient") -> ToJson:
    import io

    from fastavro import parse_schema

    from moldau.registry.untrusted_avro import checked_schema
    from moldau.tracking.header import HEADER_FIELD, is_tracked_schema

    names: dict[str, Any] = {}
    try:
        for each in registry.referenced(schema):
            parse_schema(json.loads(each.text), named_schemas=names)
        declared = json.loads(schema.text)
        parsed, read = checked_schema(parse_schema(declared, named_schemas=names), names)
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error

    tracked = is_tracked_schema(declared)

    def to_json(body: memoryview) -> str:
        source = io.BytesIO(body)
        value = read(source, parsed, None)
        left = len(body) - source.tell()
        if left:
            raise UndecodableValueError(f"{left} bytes are left over")
        if tracked:
            value[HEADER_FIELD]["guid"] = value[HEADER_FIELD]["guid"].hex()
        try:
            return _compact(value)
        except ValueError:
            return _compact(_finite(value))

    return to_json


def _plain(value: Any) -> Any:
    """What JSON has instead of a value that it does not have."""
    if isinstance(value, bytes | bytearray | memoryview):
        return json_bytes(bytes(value))
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _finite(value: Any) -> Any:
    """The value with texts for floats that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _protobuf(schema: "RegisteredSchema", registry: "RegistryClient") -> ToJson:
    from google.protobuf.json_format import MessageToJson
    from google.protobuf.message_factory import GetMessageClass

    from moldau.registry.schemas.protobuf.messages import message_at, message_path, schema_file

    file = schema_file(schema, registry)

    def to_json(body: memoryview) -> str:
        path, position = message_path(body)
        message = GetMessageClass(message_at(file, path)).FromString(bytes(body[position:]))
        text: str = MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=file.pool)
        return _compact(json.loads(text))

    return to_json
