"""What Moldau says of two Protobuf schemas is what the wire shows: a message of the older one is read whole with a compatible newer one.

The older schema is random, the newer one is the older with a few random changes. Whole means: no error, and each field that both have
is set after reading if it was before.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.registry.schemas.protobuf.language import ParsedProtobufSchema, ProtobufLanguage
from support.sizes import sized

PROTOBUF = ProtobufLanguage()
SCALARS = ["int32", "int64", "uint32", "uint64", "bool", "sint32", "sint64", "fixed32", "sfixed64", "float", "double", "string", "bytes"]
TYPES = [*SCALARS, "E", "N", ".p.M", "map<int32, N>", "map<string, bytes>", "google.protobuf.Any"]

Field = tuple[str, str, str]
"""Label, type, and the oneof it is in (or none)."""


@st.composite
def fields(draw: st.DrawFn) -> Field:
    kind = draw(st.sampled_from(TYPES))
    oneof = "" if kind.startswith("map") else draw(st.sampled_from(["", "", "one", "two"]))
    label = "" if oneof or kind.startswith("map") else draw(st.sampled_from(["", "optional ", "repeated "]))
    return label, kind, oneof


messages = st.dictionaries(st.integers(1, 6), fields(), max_size=5)


@st.composite
def changed(draw: st.DrawFn, message: dict[int, Field]) -> dict[int, Field]:
    """The message with some fields gone, some new, some of another type or in another oneof."""
    result = {}
    for number, (label, kind, oneof) in message.items():
        change = draw(st.sampled_from(["stay", "stay", "stay", "go", "type", "oneof"]))
        if change == "type" and kind in SCALARS:
            result[number] = (label, draw(st.sampled_from(SCALARS)), oneof)
        elif change == "oneof" and not kind.startswith("map"):
            result[number] = ("", kind, draw(st.sampled_from(["", "one", "two"])))
        elif change != "go":
            result[number] = (label, kind, oneof)
    return {**draw(messages.filter(lambda new: len(new) < 2)), **result}


def text(message: dict[int, Field]) -> str:
    lines = [f"{label}{kind} f{number} = {number};" for number, (label, kind, oneof) in message.items() if not oneof]
    for name in ("one", "two"):
        inside = [f"{kind} f{number} = {number};" for number, (_, kind, oneof) in message.items() if oneof == name]
        lines += [f"oneof {name} {{ {' '.join(inside)} }}"] if inside else []
    body = "\n".join(lines)
    head = 'syntax = "proto3"; package p; import "google/protobuf/any.proto"; message N { string x = 1; } enum E { Z = 0; Y = 1; }'
    return f"{head} message M {{ {body} }}"


def message_class(schema: ParsedProtobufSchema) -> Any:
    pool = DescriptorPool()
    for file in schema.files:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("p.M"))


def filled(schema: ParsedProtobufSchema, numbers: set[int]) -> Any:
    """A message with the fields of these numbers set; of a oneof the last one stays."""
    message = message_class(schema)()
    for field in message.DESCRIPTOR.fields:
        if field.number not in numbers:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            message.MergeFrom(type(message)(**{field.name: one_entry(field)}))
        elif field.message_type is not None:
            getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name).SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).append(one_value(field))
        else:
            setattr(message, field.name, one_value(field))
    return message


def one_value(field: Any) -> Any:
    return {field.TYPE_STRING: "a", field.TYPE_BYTES: b"b", field.TYPE_BOOL: True}.get(field.type, 1)


def one_entry(field: Any) -> dict[Any, Any]:
    key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
    return {one_value(key): {} if value.message_type else one_value(value)}


def set_numbers(message: Any) -> set[int]:
    return {field.number for field, _ in message.ListFields()}


@settings(max_examples=sized(50, 1200), deadline=None)
@given(st.data())
def test_a_message_is_read_whole_with_a_compatible_schema(source: st.DataObject) -> None:
    before = source.draw(messages)
    after = source.draw(changed(before))
    older, newer = PROTOBUF.parse(text(before)), PROTOBUF.parse(text(after))
    if newer.check(older):
        return
    written = filled(older, source.draw(st.sets(st.integers(1, 6))))
    read = message_class(newer)()
    read.ParseFromString(written.SerializeToString())
    assert set_numbers(read) == set_numbers(written) & after.keys(), f"{written} of {text(before)} is {read} with {text(after)}"


def in_order(schema: ParsedProtobufSchema) -> FileDescriptorProto:
    """The descriptor with fields by number, since the stored text has those of oneofs after the others."""
    file = FileDescriptorProto.FromString(schema.files[-1].SerializeToString())
    for message in file.message_type:
        message.field.sort(key=lambda field: field.number)
        message.nested_type.sort(key=lambda nested: nested.name)
    return file


@settings(max_examples=sized(15, 400), deadline=None)
@given(messages)
def test_the_stored_text_describes_the_same_messages(message: dict[int, Field]) -> None:
    schema = PROTOBUF.parse(text(message))
    stored = PROTOBUF.parse(schema.canonical)
    assert stored.canonical == schema.canonical
    assert in_order(stored) == in_order(schema)
    assert PROTOBUF.parse(schema.formatted("serialized")).canonical == schema.canonical
    normal = PROTOBUF.parse(schema.normalized().canonical)
    assert normal.canonical == normal.normalized().canonical == schema.normalized().canonical
    assert [*schema.check(stored), *stored.check(schema), *schema.check(normal), *normal.check(schema)] == []
