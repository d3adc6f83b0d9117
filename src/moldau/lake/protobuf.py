"""Framed Protobuf values to one record batch of typed columns: those of one message of the reader's schema.

Protobuf's own rule of evolution holds: fields are found by their numbers. A value of another message, or of a schema that is not Protobuf,
is rejected with a reason, as are bytes that are no such message. What a type becomes:

* int32 int, int64 and uint32 long, uint64 decimal(20, 0), float, double, bool, string, bytes; an enum the name, or the number as text if it
  has none
* a message a struct, repeated fields an array, map fields a map
* google.protobuf.Timestamp a timestamp with microseconds; a wrapper (StringValue, ...) its value, which may be null; Struct, Value and
  ListValue their JSON text

Null is what has presence and is not set: messages, fields of a oneof, `optional` ones, all single ones of proto2. Other fields that are not
set have their default. A message that has itself among its fields has no columns.
"""

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from moldau.lake.avro.columns import NULL_VALUE, DecodedBatch
from moldau.registry.client import RegisteredSchema, RegistryClient, SubjectVersion, UnknownSchemaError
from moldau.registry.schemas.protobuf.messages import MessagePathError, message_at, message_path, schema_file
from moldau.registry.wire import WireFormatError, unframe

PROTOBUF = "PROTOBUF"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECONDS = (-62_135_596_800, 253_402_300_799)
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON = frozenset(("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"))
_KINDS: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}

Convert = Callable[[Any], Any]
"""From what a message has to what Arrow takes. ValueError."""


class ProtobufSchemaError(ValueError):
    """There are no columns for a message; the text says why."""


class ProtobufColumns:
    """Decodes values into the columns of a message of `schema`: the first of its file, or the one of this full name.

    With `columns` only these are made, in this order. ProtobufSchemaError; RegistryError, RegistryUnavailableError.
    """

    def __init__(
        self,
        registry: RegistryClient | str,
        schema: RegisteredSchema | SubjectVersion,
        *,
        message: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._registry = RegistryClient(registry) if isinstance(registry, str) else registry
        found = _message(schema, self._registry, message)
        self._name = found.full_name
        self._class: Any = GetMessageClass(found)
        fields = [found.fields_by_name[name] for name in columns] if columns is not None else list(found.fields)
        self.schema = pa.schema([pa.field(each.name, _kind(each, (found.full_name,))) for each in fields])
        """Arrow schema of what `decode` gives."""
        self._readers = [_reader(each) for each in fields]
        self._known: dict[int, Any] = {}
        self._problems: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def decode(self, values: Any) -> DecodedBatch:
        """Decode framed values: a pyarrow binary array. RegistryError, RegistryUnavailableError."""
        messages: list[Any] = []
        rows: list[int] = []
        rejected: dict[int, str] = {}
        for number, value in enumerate(values.to_pylist()):
            if value is None:
                rejected[number] = NULL_VALUE
                continue
            try:
                messages.append(self._message(value))
                rows.append(number)
            except (WireFormatError, MessagePathError, DecodeError, ProtobufSchemaError) as error:
                rejected[number] = str(error)
        return self._batch(messages, rows, rejected)

    def close(self) -> None:
        """Close the connection to the registry."""
        self._registry.close()

    def _message(self, value: bytes) -> Any:
        schema_id, body = unframe(value)
        path, position = message_path(body)
        problem = self._problem(schema_id, path)
        if problem is not None:
            raise ProtobufSchemaError(f"schema id {schema_id}: {problem}")
        try:
            return self._class.FromString(bytes(body[position:]))
        except DecodeError as error:
            raise DecodeError(f"schema id {schema_id}: the bytes are no {self._name}: {error}") from error

    def _problem(self, schema_id: int, path: tuple[int, ...]) -> str | None:
        """Why values of this message of this schema are not decoded."""
        key = schema_id, path
        if key not in self._problems:
            try:
                if schema_id not in self._known:
                    self._known[schema_id] = _file(self._registry.schema(schema_id), self._registry)
                name = message_at(self._known[schema_id], path).full_name
                self._problems[key] = None if name == self._name else f"the value is a {name}, not a {self._name}"
            except UnknownSchemaError:
                return "it is not known to the registry"  # not kept: it may be registered a moment later
            except ValueError as error:
                self._problems[key] = str(error)
        return self._problems[key]

    def _batch(self, messages: list[Any], rows: list[int], rejected: dict[int, str]) -> DecodedBatch:
        """The columns; where a value has none, its message is rejected, and the others are made again."""
        try:
            arrays = [
                pa.array([read(each) for each in messages], kind) for read, kind in zip(self._readers, self.schema.types, strict=True)
            ]
        except (ValueError, OverflowError):
            fine: list[int] = []
            for place, message in enumerate(messages):
                try:
                    for read in self._readers:
                        read(message)
                    fine.append(place)
                except (ValueError, OverflowError) as error:
                    rejected[rows[place]] = f"a {self._name} has a value without a column: {error}"
            if len(fine) == len(messages):
                raise
            return self._batch([messages[place] for place in fine], [rows[place] for place in fine], rejected)
        return DecodedBatch(pa.record_batch(arrays, schema=self.schema), np.array(rows, np.int64), rejected)


def _message(schema: RegisteredSchema | SubjectVersion, registry: RegistryClient, name: str | None) -> Descriptor:
    file = _file(schema, registry)
    messages = list(file.message_types_by_name.values())
    if not messages:
        raise ProtobufSchemaError("the schema has no message")
    if name is None:
        return messages[0]
    every: list[Descriptor] = []
    while messages:
        every.append(messages.pop(0))
        messages += [each for each in every[-1].nested_types if not each.GetOptions().map_entry]
    for each in every:
        if each.full_name == name:
            return each
    raise ProtobufSchemaError(f"the schema has no message {name}; there are {', '.join(each.full_name for each in every)}")


def _file(schema: RegisteredSchema | SubjectVersion, registry: RegistryClient) -> Any:
    if schema.type != PROTOBUF:
        raise ProtobufSchemaError(f"it is a schema of type {schema.type}, not PROTOBUF")
    return schema_file(schema, registry)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _kind(field: FieldDescriptor, within: tuple[str, ...]) -> Any:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_single_kind(key, within), _single_kind(value, within))
    single = _single_kind(field, within)
    return pa.list_(pa.field("element", single)) if field.is_repeated else single


def _single_kind(field: FieldDescriptor, within: tuple[str, ...]) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary()
    message = field.message_type
    if message is None:
        return _KINDS[field.cpp_type]
    if message.full_name == "google.protobuf.Timestamp":
        return _TIMESTAMP
    if message.full_name in _JSON:
        return pa.string()
    if message.full_name in _WRAPPERS:
        return _single_kind(message.fields_by_name["value"], within)
    if message.full_name in within:
        raise ProtobufSchemaError(
            f"message {message.full_name} has itself among its fields ({field.full_name}): there are no columns for it"
        )
    inner = (*within, message.full_name)
    return pa.struct([pa.field(each.name, _kind(each, inner)) for each in message.fields])


def _reader(field: FieldDescriptor) -> Convert:
    """From a message to the value of one of its fields."""
    name = field.name
    if _is_map(field):
        key, value = (_converter(field.message_type.fields_by_name[part]) for part in ("key", "value"))
        return lambda message: [(key(each), value(one)) for each, one in getattr(message, name).items()]
    convert = _converter(field)
    if field.is_repeated:
        return lambda message: [convert(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _converter(field: FieldDescriptor) -> Convert:
    message = field.message_type
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    if message is None:
        return Decimal if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else _as_it_is
    if message.full_name == "google.protobuf.Timestamp":
        return _timestamp
    if message.full_name in _JSON:
        return lambda value: MessageToJson(value, indent=None, ensure_ascii=False)
    if message.full_name in _WRAPPERS:
        convert = _converter(message.fields_by_name["value"])
        return lambda wrapper: convert(wrapper.value)
    readers = [(each.name, _reader(each)) for each in message.fields]
    return lambda value: {name: read(value) for name, read in readers}


def _as_it_is(value: Any) -> Any:
    return value


def _timestamp(value: Any) -> datetime.datetime:
    if not _SECONDS[0] <= value.seconds <= _SECONDS[1] or not 0 <= value.nanos < 1_000_000_000:
        raise ValueError(f"a timestamp of {value.seconds} s and {value.nanos} ns lies outside the years 1 to 9999")
    return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
