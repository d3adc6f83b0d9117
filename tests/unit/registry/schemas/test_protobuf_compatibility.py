"""What may change in a Protobuf schema, by the rules that Confluent's registry publishes: each rule by its name, harmless or not."""

import pytest

from moldau.registry.schemas.language import ResolvedReference
from moldau.registry.schemas.protobuf.compatibility import HARMFUL, ProtoFiles, differences
from moldau.registry.schemas.protobuf.language import ParsedProtobufSchema, ProtobufLanguage

PROTOBUF = ProtobufLanguage()


def schema(body: str, *, head: str = 'syntax = "proto3";', references: tuple[ResolvedReference, ...] = ()) -> ParsedProtobufSchema:
    return PROTOBUF.parse(f"{head}\n{body}", references)


def found(original: ParsedProtobufSchema, update: ParsedProtobufSchema) -> set[str]:
    """Every difference as `TYPE path`, harmless ones with a plus in front."""
    every = differences(ProtoFiles(original.files, original.references), ProtoFiles(update.files, update.references))
    return {f"{'' if kind in HARMFUL else '+'}{kind} #/{'/'.join(path)}" for kind, path in every}


def message(*fields: str) -> str:
    return "message M { " + " ".join(f"{field};" for field in fields) + " }\nmessage N { int32 x = 1; } enum E { Z = 0; }"


@pytest.mark.parametrize(
    ("original", "update", "expected"),
    [
        (["int32 a = 1"], ["int32 a = 1", "string b = 2"], "+FIELD_ADDED #/M/2"),
        (["int32 a = 1", "string b = 2"], ["int32 a = 1"], "+FIELD_REMOVED #/M/2"),
        (["int32 a = 1"], ["int32 b = 1"], "+FIELD_NAME_CHANGED #/M/1"),
        # Alike on the wire, or not.
        *[([f"int32 a = {1}"], [f"{other} a = {1}"], "") for other in ("int64", "uint32", "uint64", "bool", "E")],
        (["string a = 1"], ["bytes a = 1"], ""),
        (["sint32 a = 1"], ["sint64 a = 1"], ""),
        (["fixed32 a = 1"], ["sfixed32 a = 1"], ""),
        (["fixed64 a = 1"], ["sfixed64 a = 1"], ""),
        *[(["int32 a = 1"], [f"{other} a = 1"], "FIELD_SCALAR_KIND_CHANGED #/M/1") for other in ("sint32", "fixed32", "float", "string")],
        (["float a = 1"], ["double a = 1"], "FIELD_SCALAR_KIND_CHANGED #/M/1"),
        (["int32 a = 1"], ["N a = 1"], "FIELD_KIND_CHANGED #/M/1"),
        (["N a = 1"], ["map<int32, N> a = 1"], "FIELD_KIND_CHANGED #/M/1"),
        (["map<int32, N> a = 1"], ["map<int64, N> a = 1"], ""),
        (["map<int32, N> a = 1"], ["map<string, N> a = 1"], "FIELD_SCALAR_KIND_CHANGED #/M/1"),
        (["map<int32, N> a = 1"], ["map<int32, M> a = 1"], "FIELD_NAMED_TYPE_CHANGED #/M/1"),
        (["N a = 1"], ["M a = 1"], "FIELD_NAMED_TYPE_CHANGED #/M/1"),
        (["N a = 1"], ["repeated N a = 1"], ""),
        # One or many.
        (["string a = 1"], ["repeated string a = 1"], "+FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"),
        (["optional int32 a = 1"], ["repeated int32 a = 1"], "FIELD_NUMERIC_LABEL_CHANGED #/M/1"),
        (["repeated int32 a = 1"], ["int32 a = 1"], "FIELD_NUMERIC_LABEL_CHANGED #/M/1"),
        (["int32 a = 1"], ["optional int32 a = 1"], ""),
    ],
)
def test_fields(original: list[str], update: list[str], expected: str) -> None:
    assert found(schema(message(*original)), schema(message(*update))) == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("original", "update", "expected"),
    [
        ("int32 a = 1; oneof o { int32 b = 2; }", "int32 a = 1; oneof o { int32 b = 2; int32 c = 3; }", {"+ONEOF_FIELD_ADDED #/M/o/3"}),
        ("oneof o { int32 b = 2; int32 c = 3; }", "oneof o { int32 b = 2; }", {"ONEOF_FIELD_REMOVED #/M/o/3"}),
        ("int32 a = 1; oneof o { int32 b = 2; int32 c = 3; }", "int32 a = 1;", {"+ONEOF_REMOVED #/M/o"}),
        (
            "oneof o { int32 b = 2; int32 c = 3; }",
            "int32 b = 2;",
            {"+ONEOF_REMOVED #/M/o", "+ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/2", "ONEOF_FIELD_REMOVED #/M/o/3"},
        ),
        ("int32 a = 1;", "oneof o { int32 a = 1; }", {"+ONEOF_ADDED #/M/o"}),
        ("int32 a = 1;", "oneof o { int32 a = 1; int32 b = 2; }", {"+ONEOF_ADDED #/M/o", "+ONEOF_FIELD_ADDED #/M/o/2"}),
        (
            "int32 a = 1; int32 b = 2;",
            "oneof o { int32 a = 1; int32 b = 2; }",
            {"+ONEOF_ADDED #/M/o", "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"},
        ),
        ("int32 a = 1; oneof o { int32 b = 2; }", "oneof o { int32 a = 1; int32 b = 2; }", {"FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"}),
        (
            "oneof o { int32 a = 1; } oneof p { int32 b = 2; }",
            "oneof o { int32 a = 1; int32 b = 2; }",
            {"FIELD_MOVED_TO_EXISTING_ONEOF #/M/o", "+ONEOF_REMOVED #/M/p"},
        ),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof p { int32 a = 1; int32 b = 2; }", {"+ONEOF_REMOVED #/M/o", "+ONEOF_ADDED #/M/p"}),
        ("oneof o { int32 a = 1; }", "oneof o { string a = 1; }", {"FIELD_SCALAR_KIND_CHANGED #/M/o/1"}),
        # What `optional` makes inside is no oneof.
        ("int32 a = 1; int32 b = 2;", "optional int32 a = 1; optional int32 b = 2;", set()),
    ],
)
def test_oneofs(original: str, update: str, expected: set[str]) -> None:
    assert found(schema(f"message M {{ {original} }}"), schema(f"message M {{ {update} }}")) == expected


@pytest.mark.parametrize(
    ("original", "update", "expected"),
    [
        ("message A {} message B {}", "message A {}", {"MESSAGE_REMOVED #/B"}),
        ("message A {}", "message A {} message B {}", {"+MESSAGE_ADDED #/B"}),
        ("message A {} message B {}", "message B {} message A {}", {"+MESSAGE_MOVED #/A", "+MESSAGE_MOVED #/B"}),
        ("message A { message B {} }", "message A {}", {"MESSAGE_REMOVED #/A/B"}),
        ("message A { message B { int32 x = 1; } }", "message A { message B { string x = 1; } }", {"FIELD_SCALAR_KIND_CHANGED #/A/B/1"}),
        # A message that holds itself.
        ("message A { A a = 1; int32 x = 2; }", "message A { A a = 1; string x = 2; }", {"FIELD_SCALAR_KIND_CHANGED #/A/2"}),
        # Maps make hidden messages.
        ("message A { map<string, int32> m = 1; }", "message A {}", {"+FIELD_REMOVED #/A/1"}),
        ("enum E { X = 0; Y = 1; }", "enum E { X = 0; Z = 2; }", {"+ENUM_CONST_REMOVED #/E/1", "+ENUM_CONST_ADDED #/E/2"}),
        ("enum E { X = 0; }", "enum E { Y = 0; }", {"+ENUM_CONST_CHANGED #/E/0"}),
        ("message A { enum E { X = 0; } }", "message A { enum F { Y = 0; } }", {"+ENUM_REMOVED #/A/E", "+ENUM_ADDED #/A/F"}),
        ("package a; message A {}", "package b; message A {}", {"PACKAGE_CHANGED #/"}),
    ],
)
def test_types_and_packages(original: str, update: str, expected: set[str]) -> None:
    assert found(schema(original), schema(update)) == expected


def test_required_fields_may_neither_come_nor_go() -> None:
    head = 'syntax = "proto2";'
    without, with_it = schema("message M {}", head=head), schema("message M { required int32 a = 1; }", head=head)
    assert found(without, with_it) == {"REQUIRED_FIELD_ADDED #/M/1"}
    assert found(with_it, without) == {"REQUIRED_FIELD_REMOVED #/M/1"}


def test_a_group_is_no_message_on_the_wire() -> None:
    head = 'syntax = "proto2";'
    group = schema("message M { optional group G = 1 { optional int32 x = 1; } }", head=head)
    message_in_it = schema("message M { optional G g = 1; message G { optional int32 x = 1; } }", head=head)
    changed = schema("message M { optional group G = 1 { optional string x = 1; } }", head=head)
    assert "FIELD_KIND_CHANGED #/M/1" in found(group, message_in_it)
    assert found(group, changed) == {"FIELD_SCALAR_KIND_CHANGED #/M/G/1"}


def importing(text: str, *, version: int = 1, package: str = "geo") -> ParsedProtobufSchema:
    airport = ResolvedReference("airport.proto", "airport", version, f'syntax = "proto3"; package {package}; message Airport {{ {text} }}')
    return schema(f"message M {{ {package}.Airport a = 1; }}", head='syntax = "proto3"; import "airport.proto";', references=(airport,))


def test_a_type_of_another_file_is_compared_if_it_may_be_another_one() -> None:
    older = importing("int32 x = 1;")
    assert found(older, importing("int32 x = 1;")) == set()
    assert found(older, importing("int32 x = 1; int32 y = 2;", version=2)) == {"+FIELD_ADDED #/Airport/2"}
    changed = {"FIELD_SCALAR_KIND_CHANGED #/Airport/1", "FIELD_NAMED_TYPE_CHANGED #/M/1"}
    assert found(older, importing("string x = 1;", version=2)) == changed
    # The package may change, the name within it may not.
    assert found(older, importing("int32 x = 1;", version=2, package="earth")) == set()
    # From another file into this one.
    local = schema("message M { Airport a = 1; } message Airport { string x = 1; }")
    assert found(older, local) == {*changed, "+MESSAGE_ADDED #/Airport"}


def test_only_what_does_harm_is_reported_in_the_words_of_the_registry() -> None:
    older, newer = schema(message("int32 a = 1", "int32 b = 2")), schema(message("string a = 1"))
    (incompatibility,) = newer.check(older)
    assert incompatibility.message("new", "old") == (
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/1\' in the new schema does not '
        'match its kind in the old schema"}'
    )
    assert older.check(older) == []
