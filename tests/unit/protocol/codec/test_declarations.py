"""Every message is declared soundly: what is annotated, what is on the wire and what the versions say fit together."""

import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.ports.filesystem import Bytes
from moldau.protocol import messages
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import fields
from moldau.protocol.codec.fields import (
    NO_VERSIONS,
    Blob,
    Field,
    Fixed,
    ListOf,
    Nested,
    Text,
    WireType,
    boolean,
    fields_of,
    float64,
    int32,
    parse_versions,
    string,
    uuid,
)
from moldau.protocol.versions import VersionRange


@pytest.mark.parametrize(
    ("text", "versions"),
    [("0+", (0, 32767)), ("3-7", (3, 7)), ("5", (5, 5)), ("", (0, -1))],
)
def test_versions_are_written_as_kafka_writes_them(text: str, versions: tuple[int, int]) -> None:
    assert parse_versions(text) == versions


def structs(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for field in fields_of(cls):
        wire = field.type.element if isinstance(field.type, ListOf) else field.type
        if isinstance(wire, Nested):
            yield from structs(wire.cls)


def python_type(wire: WireType) -> Any:
    match wire:
        case Nested():
            return wire.cls
        case ListOf():
            return list[python_type(wire.element)]  # type: ignore[misc]
        case Text():
            return str
        case Blob():
            return Bytes if wire.in_place else bytes
        case Fixed():
            return {boolean: bool, float64: float, uuid: bytes}.get(wire, int)
    raise AssertionError(wire)


def check_field(cls: type[Any], field: Field, annotation: Any, api: messages.MessagePair) -> None:
    where = f"{cls.__name__}.{field.name}"
    may_be_null = field.nullable != NO_VERSIONS or (field.tag is not None and isinstance(field.type, Nested))
    expected = python_type(field.type) | None if may_be_null else python_type(field.type)
    assert annotation == expected, where
    assert field.versions.min <= api.versions.max, where
    assert field.versions.max >= api.versions.min, where
    assert field.nullable == NO_VERSIONS or field.versions.includes(field.nullable.min), where
    if field.default is None:
        assert may_be_null, where
    if field.tag is not None:
        assert api.flexible_from is not None, where
        assert field.versions.min >= api.flexible_from, where


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_annotations_fit_the_wire(api_key: ApiKey) -> None:
    pair = messages.load(api_key)
    for message in (pair.request, pair.response):
        assert message.API is api_key
        for cls in structs(message):
            annotations = typing.get_type_hints(cls)
            tags = [field.tag for field in fields_of(cls) if field.tag is not None]
            assert len(tags) == len(set(tags)), cls.__name__
            for field in fields_of(cls):
                check_field(cls, field, annotations[field.name], pair)


def test_messages_have_slots_and_build_from_defaults() -> None:
    for api_key in ApiKey:
        pair = messages.load(api_key)
        for message in (pair.request, pair.response):
            assert not hasattr(message(), "__dict__")
            assert message() == message()


def test_a_constructor_is_compiled_for_the_first_instance_and_checks_arguments_already_there() -> None:
    @fields.message
    class Point:
        x: int = int32("0+")
        name: str = string("0+", "here")

    first = Point.__init__
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(z=1)  # type: ignore[call-arg]
    compiled = Point.__init__
    assert compiled is not first
    assert (Point(3, name="there").x, Point(3, name="there").name, Point(4).name) == (3, "there", "here")
    assert Point.__init__ is compiled


def test_a_union_of_bytes_is_one_type() -> None:
    assert isinstance(Bytes, types.UnionType)
    assert VersionRange(1, 3).includes(3)
    assert not VersionRange(1, 3).includes(4)
