"""Whatever comes in as a schema, it is taken or refused: no other error, and a stored text that can be encoded and read again."""

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.registry.schemas.language import InvalidSchemaError, ParsedSchema
from moldau.registry.schemas.languages import language
from support.sizes import sized

WORD_LIST = """
    type name fields items values symbols size default aliases namespace record enum fixed array map int string null logicalType object
    properties required $ref $id $schema # #/properties/a definitions allOf anyOf not const additionalProperties minimum multipleOf a b
    http://json-schema.org/draft-04/schema# https://json-schema.org/draft/2020-12/schema
"""
WORDS = st.sampled_from([*WORD_LIST.split(), "\ud800", ""])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.just(10**40), st.sampled_from([0.5, 1e300, 1e-300]), WORDS)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12)
SCRAP_LIST = """
syntax = "proto3";
message A {
}
int32 a = 1;
oneof o {
enum E { Z = 0; }
import "b.proto";
//
/*
"
é
"""
SCRAPS = st.lists(st.sampled_from(SCRAP_LIST.strip().split("\n")), max_size=8).map(" ".join)


def taken(name: str, text: str, *, stored: bool) -> None:
    """Everything that a registry does with a schema."""
    try:
        schema: ParsedSchema = language(name).parse(text, stored=stored)
        schema.check(schema)
    except InvalidSchemaError:
        return
    schema.canonical.encode()
    again = language(name).parse(schema.canonical, stored=stored)
    assert again.canonical == schema.canonical
    assert schema.normalized().normalized().canonical == schema.normalized().canonical
    assert isinstance(schema.name, str | None)
    schema.formatted("resolved").encode()


@pytest.mark.parametrize("name", ["AVRO", "JSON"])
@settings(max_examples=sized(60, 1500), deadline=None)
@given(tree=TREES, stored=st.booleans())
def test_any_json(name: str, tree: Any, stored: bool) -> None:
    taken(name, json.dumps(tree), stored=stored)


@settings(max_examples=sized(25, 600), deadline=None)
@given(SCRAPS)
def test_scraps_of_protobuf(text: str) -> None:
    taken("PROTOBUF", text, stored=False)


@settings(max_examples=sized(40, 1000), deadline=None)
@given(st.data())
def test_damaged_descriptors(source: st.DataObject) -> None:
    text = 'syntax = "proto2"; message M { map<int32, M> m = 1; optional group G = 2 { oneof o { E e = 3; } } } enum E { Z = 0; }'
    data = bytearray(base64.b64decode(language("PROTOBUF").parse(text).formatted("serialized")))
    for _ in range(source.draw(st.integers(1, 3))):
        data[source.draw(st.integers(0, len(data) - 1))] = source.draw(st.integers(0, 255))
    taken("PROTOBUF", base64.b64encode(data).decode(), stored=False)


def test_a_descriptor_of_odd_parts() -> None:
    entry = {"name": "XEntry", "options": {"map_entry": True}, "field": []}
    field = {"name": "x", "number": 1, "label": 3, "type": 11, "type_name": ".M.XEntry"}
    for message in ({"name": "M", "nested_type": [entry], "field": [field]}, {"name": "M {} message N"}, {"name": "M", "field": [field]}):
        taken("PROTOBUF", base64.b64encode(FileDescriptorProto(message_type=[message]).SerializeToString()).decode(), stored=False)
