"""Other people's codecs, fed with our values: kafka-python's and kio's.

Both keep the fields of a message in the order of Kafka's schemas, as we do; values are handed over by position, and the names checked.
"""

import dataclasses
import io
import pkgutil
import types
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from types import NoneType
from typing import Any, Protocol, get_args
from uuid import UUID

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from moldau.protocol.codec.fields import Field, Fixed, ListOf, Nested, WireType, uuid
from support.messages import carried

ZERO_UUID = bytes(16)
NO_OPERATIONS = -(1 << 31)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Oracle(Protocol):
    """Another codec that speaks in our messages."""

    name: str

    def knows(self, cls: type[Any], version: int) -> bool:
        """Whether it has this message at this version."""

    def encode(self, message: Any, version: int) -> bytes:
        """The bytes that it makes of our message."""

    def decode(self, cls: type[Any], version: int, data: bytes) -> Any:
        """Our message from what it reads in `data`."""


class KafkaPython:
    """`kafka.protocol` of kafka-python 3: one class for all versions, as ours."""

    name = "kafka-python"

    def knows(self, cls: type[Any], version: int) -> bool:
        theirs = _kafka_python_classes().get(cls.__name__)
        return theirs is not None and version <= theirs.max_version

    def encode(self, message: Any, version: int) -> bytes:
        theirs = _kafka_python_classes()[type(message).__name__]
        encoded: bytes = self._to(message, theirs, version).encode(version)
        return encoded

    def decode(self, cls: type[Any], version: int, data: bytes) -> Any:
        return self._from(cls, _kafka_python_classes()[cls.__name__].decode(data, version=version), version)

    def _to(self, message: Any, theirs: Any, version: int) -> Any:
        arguments = {}
        for field, their_field in self._pairs(type(message), theirs, version):
            value = getattr(message, field.name)
            if field.tag is None or value != ([] if field.default == () else field.default):  # it writes every tagged field it is given
                arguments[their_field.name] = self._value_to(field.type, value, their_field, version)
        return theirs(version=version, **arguments)

    def _pairs(self, cls: type[Any], theirs: Any, version: int) -> Iterator[tuple[Field, Any]]:
        their_fields = (field for field in theirs._struct.fields.values() if field.for_version_q(version))
        for field, their_field in zip(carried(cls, version), their_fields, strict=True):
            assert field.name.endswith(their_field.name), f"{field.name} is not {their_field.name}"  # it shortens a few
            yield field, their_field

    def _value_to(self, wire: WireType, value: Any, their_field: Any, version: int) -> Any:
        if value is None:
            return None
        if isinstance(wire, Nested):
            return self._to(value, their_field.data_class, version)
        if isinstance(wire, ListOf):
            return [self._value_to(wire.element, each, their_field, version) for each in value]
        if getattr(getattr(their_field, "_type", None), "__name__", "") == "BitField":
            return {bit for bit in range(32) if value >> bit & 1}  # sets of operations, and None for none known
        return UUID(bytes=value) if wire is uuid else value

    def _from(self, cls: type[Any], theirs: Any, version: int) -> Any:
        pairs = self._pairs(cls, theirs, version)
        return cls(**{field.name: self._value_from(field.type, getattr(theirs, their_field.name), version) for field, their_field in pairs})

    def _value_from(self, wire: WireType, value: Any, version: int) -> Any:
        if isinstance(wire, Nested) and value is not None:
            return self._from(wire.cls, value, version)
        if isinstance(wire, ListOf) and value is not None:
            return [self._value_from(wire.element, each, version) for each in value]
        match value:
            case None if isinstance(wire, Fixed):
                return ZERO_UUID if wire is uuid else NO_OPERATIONS
            case UUID():
                return value.bytes
            case set():
                return sum(1 << bit for bit in value) - (1 << 32 if 31 in value else 0)
            case _:
                return value


@cache
def _kafka_python_classes() -> dict[str, Any]:
    """Its message classes by name. Importing them warns about how it reads its own resources."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        modules = [import_module("kafka.protocol.sasl")]
        for package in ("admin", "consumer", "metadata", "producer"):
            root = import_module(f"kafka.protocol.{package}")
            modules += [import_module(f"{root.__name__}.{info.name}") for info in pkgutil.iter_modules(root.__path__)]
    found = [(name, value) for module in modules for name, value in vars(module).items()]
    return {name: value for name, value in found if isinstance(value, type) and name.endswith(("Request", "Response"))}


class Kio:
    """kio: a class for each version, with dates and error codes for numbers."""

    name = "kio"

    def knows(self, cls: type[Any], version: int) -> bool:
        try:
            self._class(cls, version)
        except (UnknownAPIKey, UnknownEntity):
            return False
        return True

    def encode(self, message: Any, version: int) -> bytes:
        theirs = self._class(type(message), version)
        buffer = io.BytesIO()
        entity_writer(theirs)(buffer, self._to(message, theirs, version))
        return buffer.getvalue()

    def decode(self, cls: type[Any], version: int, data: bytes) -> Any:
        entity, size = entity_reader(self._class(cls, version))(data, 0)
        assert size == len(data)
        return self._from(cls, entity, version)

    def _class(self, cls: type[Any], version: int) -> Any:
        load: Callable[[int, int], Any] = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
        return load(cls.API, version)

    def _to(self, message: Any, theirs: Any, version: int) -> Any:
        arguments = {}
        for field, their_field in zip(carried(type(message), version), dataclasses.fields(theirs), strict=True):
            assert field.name.startswith(their_field.name), f"{field.name} is not {their_field.name}"  # theirs have no units
            value = getattr(message, field.name)
            if value is None and field.tag is not None and isinstance(field.type, Nested):
                value = field.type.cls()
            arguments[their_field.name] = self._value_to(field.type, value, their_field, version)
        return theirs(**arguments)

    def _value_to(self, wire: WireType, value: Any, their_field: Any, version: int) -> Any:
        if value is None:
            return None
        if isinstance(wire, Nested):
            return self._to(value, _entity_class(their_field.type), version)
        if isinstance(wire, ListOf):
            return tuple(self._value_to(wire.element, each, their_field, version) for each in value)
        match their_field.metadata["kafka_type"]:
            case "uuid":
                return None if value == ZERO_UUID else UUID(bytes=value)
            case "error_code":
                return ErrorCode(value)
            case "timedelta_i32" | "timedelta_i64":
                return value * MILLISECOND
            case "datetime_i64":
                return None if value == -1 and NoneType in get_args(their_field.type) else EPOCH + value * MILLISECOND
            case _:
                return value

    def _from(self, cls: type[Any], theirs: Any, version: int) -> Any:
        arguments = {}
        for field, their_field in zip(carried(cls, version), dataclasses.fields(theirs), strict=True):
            value = self._value_from(field.type, getattr(theirs, their_field.name), version)
            if field.tag is not None and isinstance(field.type, Nested) and value == field.type.cls():
                value = None
            arguments[field.name] = value
        return cls(**arguments)

    def _value_from(self, wire: WireType, value: Any, version: int) -> Any:
        if isinstance(wire, Nested) and value is not None:
            return self._from(wire.cls, value, version)
        if isinstance(wire, ListOf) and value is not None:
            return [self._value_from(wire.element, each, version) for each in value]
        match value:
            case None if isinstance(wire, Fixed):
                return ZERO_UUID if wire is uuid else -1
            case UUID():
                return value.bytes
            case timedelta():
                return value // MILLISECOND
            case datetime():
                return (value - EPOCH) // MILLISECOND
            case _:
                return value


def _entity_class(annotation: Any) -> Any:
    """The entity within `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    arguments = annotation.__args__ if isinstance(annotation, types.UnionType | types.GenericAlias) else ()
    return next((found for each in arguments if (found := _entity_class(each)) is not None), None)


ORACLES: tuple[Oracle, ...] = (KafkaPython(), Kio())
