"""A Protobuf schema may come as text or as a descriptor, and is stored as text either way: the same schema, the same text."""

import base64
import importlib.resources
from collections.abc import Sequence

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference
from moldau.registry.schemas.protobuf.compiler import compile_proto
from moldau.registry.schemas.protobuf.language import ProtobufLanguage

PROTOBUF = ProtobufLanguage()

FLIGHT = """
syntax = "proto3";  // what a flight is
package flights.v1;
import "google/protobuf/timestamp.proto";
option java_package = "org.example";

message Flight {
  reserved 5, 8 to 10; reserved "gate";
  string carrier = 1 [deprecated = true, json_name = "airline"];
  optional int32 number = 2;
  map<string, .flights.v1.Airport> stops = 3;
  google.protobuf.Timestamp departure = 4;
  oneof place { string stand = 6; int32 runway = 7; }
  enum State { PLANNED = 0; GONE = 1; }
  flights.v1.Flight.State state = 11;
  message Leg { Flight.State state = 1; flights.v1.Flight whole = 2; .flights.v1.Flight.Leg next = 3; }
  repeated Leg legs = 12; repeated int32 bags = 13 [packed = false];
}
enum Kind { reserved 4 to max; ANY = 0; CARGO = 2 [deprecated = true]; MAIL = 1; }
message Airport {}
service Tower {
  option deprecated = true;
  rpc Clear (stream Flight) returns (Flight.Leg) { option idempotency_level = IDEMPOTENT; }
  rpc Close (Airport) returns (stream Airport);
}
"""
STORED = """\
syntax = "proto3";
package flights.v1;

import "google/protobuf/timestamp.proto";

option java_package = "org.example";

message Flight {
  reserved 5, 8 to 10;
  reserved "gate";

  string carrier = 1 [
    deprecated = true,
    json_name = "airline"
  ];
  optional int32 number = 2;
  map<string, Airport> stops = 3;
  google.protobuf.Timestamp departure = 4;
  State state = 11;
  repeated Leg legs = 12;
  repeated int32 bags = 13 [packed = false];

  oneof place {
    string stand = 6;
    int32 runway = 7;
  }

  message Leg {
    State state = 1;
    Flight whole = 2;
    Leg next = 3;
  }
  enum State {
    PLANNED = 0;
    GONE = 1;
  }
}
message Airport {}
enum Kind {
  reserved 4 to max;
  ANY = 0;
  CARGO = 2 [deprecated = true];
  MAIL = 1;
}

service Tower {
  option deprecated = true;

  rpc Clear (stream Flight) returns (Flight.Leg) {
    option idempotency_level = IDEMPOTENT;
  };
  rpc Close (Airport) returns (stream Airport);
}
"""


def test_the_stored_text_is_in_the_layout_of_the_registry() -> None:
    schema = PROTOBUF.parse(FLIGHT)
    assert schema.canonical == STORED
    assert PROTOBUF.parse(STORED).canonical == STORED
    assert schema.name == "flights.v1.Flight"
    assert schema.language == "PROTOBUF"
    assert schema.formatted("") == STORED


def test_a_descriptor_is_the_same_schema() -> None:
    schema = PROTOBUF.parse(FLIGHT)
    serialized = schema.formatted("serialized")
    assert PROTOBUF.parse(serialized).canonical == schema.canonical
    stored = PROTOBUF.parse(STORED).formatted("serialized")
    assert PROTOBUF.parse(stored).formatted("serialized") == stored
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert (file.package, [message.name for message in file.message_type]) == ("flights.v1", ["Flight", "Airport"])


def test_the_normal_form_sorts_what_has_no_order_and_names_types_in_full() -> None:
    text = """
    syntax = "proto2";
    package p;
    import "google/protobuf/wrappers.proto";
    import public "google/protobuf/any.proto";
    import "google/protobuf/empty.proto";
    option java_package = "p";
    option cc_enable_arenas = true;
    message B { reserved "y", "x"; reserved 9, 3 to 4; optional int32 b = 2; optional A a = 1;
      oneof two { int32 f = 12; int32 e = 11; } oneof one { google.protobuf.Any c = 5; }
      map<string, A> m = 20; }
    message A {}
    enum E { Y = 1; X = 0; }
    """
    normal = PROTOBUF.parse(text).normalized()
    assert (
        normal.canonical
        == """\
package p;

import "google/protobuf/empty.proto";
import "google/protobuf/wrappers.proto";
import public "google/protobuf/any.proto";

option cc_enable_arenas = true;
option java_package = "p";

message B {
  reserved 3 to 4;
  reserved 9;
  reserved "x";
  reserved "y";

  optional .p.A a = 1;
  optional int32 b = 2;
  map<string, .p.A> m = 20;

  oneof one {
    .google.protobuf.Any c = 5;
  }
  oneof two {
    int32 e = 11;
    int32 f = 12;
  }
}
message A {}
enum E {
  X = 0;
  Y = 1;
}
"""
    )
    assert normal.normalized().canonical == normal.canonical
    assert PROTOBUF.parse(normal.canonical).normalized().canonical == normal.canonical


PROTO2 = """\
syntax = "proto2";

message Old {
  required string name = 1 [default = "a\\"b\\n"];
  optional bytes raw = 2 [default = "\\001\\377"];
  optional float rate = 3 [default = inf];
  optional Kind kind = 4 [default = LATE];
  repeated int64 list = 5 [packed = true];
  optional group Part = 6 {
    optional bool yes = 1 [default = true];
  }

  oneof one {
    int32 number = 7;
    group Other = 8 {}
  }

  extensions 100 to 199;
  extensions 1000 to max;

  extend Old {
    optional int32 inner = 101;
  }

  enum Kind {
    option allow_alias = true;
    EARLY = 0;
    LATE = -1;
    TARDY = -1;
  }
}

extend Old {
  optional Old more = 100;
  repeated group Bit = 102 {
    optional int32 on = 1;
  }
}
"""
EDITION = """\
edition = "2023";

option features.field_presence = IMPLICIT;

message New {
  reserved 2, 4;
  reserved gate;

  int32 a = 1 [features.field_presence = EXPLICIT];
}
"""
OPTIONS = """\
syntax = "proto3";
package p;

import "confluent/meta.proto";
import "google/protobuf/descriptor.proto";

option (confluent.file_meta) = {
  doc: "all \\"of\\" it",
  params: { key: "a", value: "1" },
  params: { key: "b", value: "2" }
};

message M {
  option (confluent.message_meta) = {
    doc: "one"
  };

  string x = 1 [
    (confluent.field_meta) = {
      tags: "PII",
      tags: "NAME",
      rules: {
        name: "r"
      }
    },
    (p.weight) = 1.5,
    (p.flags) = 1,
    (p.flags) = 2,
    (p.raw) = "\\000a\\042"
  ];
  google.protobuf.FieldOptions o = 2;
}

extend google.protobuf.FieldOptions {
  double weight = 5000;
  repeated int32 flags = 5001;
  bytes raw = 5002;
}
"""


@pytest.mark.parametrize("text", [PROTO2, EDITION, OPTIONS])
def test_each_kind_of_declaration_is_printed_as_it_is_read(text: str) -> None:
    assert PROTOBUF.parse(text).canonical == text
    assert PROTOBUF.parse(PROTOBUF.parse(text).formatted("serialized")).canonical == text


def test_a_name_that_would_mean_something_else_is_written_with_a_dot() -> None:
    """Inside the message `google` the name `google.protobuf.Any` begins with that message."""
    text = (
        'syntax = "proto3"; package a; import "google/protobuf/any.proto"; message google { .google.protobuf.Any any = 1; google g = 2; }'
    )
    canonical = PROTOBUF.parse(text).canonical
    assert "  .google.protobuf.Any any = 1;\n  google g = 2;\n" in canonical
    assert PROTOBUF.parse(canonical).canonical == canonical


def test_a_text_in_the_layout_of_the_registry_stays_however_it_names_types() -> None:
    """What a registry gave out is found again, be it this one's, its normal form, or that of a registry that keeps names as written."""
    for text in (PROTOBUF.parse(FLIGHT).normalized().canonical, STORED.replace("  Leg next", "  v1.Flight.Leg next")):
        assert text != STORED
        assert PROTOBUF.parse(text).canonical == text


def reference(name: str, text: str) -> ResolvedReference:
    return ResolvedReference(name, f"subject of {name}", 1, text)


AIRPORT = 'syntax = "proto3"; package geo; message Airport { string code = 1; }'
ROUTE = 'syntax = "proto3"; package geo; import "geo/airport.proto"; message Route { Airport from = 1; }'
USER = 'syntax = "proto3"; import "geo/route.proto"; message Flight { geo.Route route = 1; }'


def test_references_are_imported_by_their_name_as_text_or_descriptor() -> None:
    references = [reference("geo/airport.proto", AIRPORT), reference("geo/route.proto", ROUTE)]
    schema = PROTOBUF.parse(USER, references)
    assert 'import "geo/route.proto";' in schema.canonical
    airport = PROTOBUF.parse(AIRPORT).formatted("serialized")
    assert (
        PROTOBUF.parse(schema.formatted("serialized"), [reference("geo/airport.proto", airport), references[1]]).canonical
        == schema.canonical
    )


@pytest.mark.parametrize(
    ("text", "references", "fault"),
    [
        ('syntax = "proto3";\nmessage A {\n  strng a = 1;\n}', [], 'default, line 3, column 3: "strng" is not defined.'),
        ('syntax = "proto3"; message A { int32 a = 0; }', [], "Field numbers must be positive"),
        ('syntax = "proto3"; message A {', [], "Reached end of input"),
        ("just words", [], "default, line 1, column 1"),
        (USER, [], "geo/route.proto, File not found."),
        (USER, [reference("geo/route.proto", "nothing")], "geo/route.proto, line 1, column 1"),
        ("{}", [reference("../../etc/x", AIRPORT)], "'../../etc/x' is no import path"),
        ("{}", [reference("/etc/x", AIRPORT)], "'/etc/x' is no import path"),
        ("{}", [reference("", AIRPORT)], "'' is no import path"),
    ],
)
def test_what_is_no_schema_is_refused_with_file_line_and_column(text: str, references: Sequence[ResolvedReference], fault: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        PROTOBUF.parse(text, references)
    assert fault in str(refused.value)


def test_a_descriptor_that_says_nothing_sensible_is_refused() -> None:
    def packed(**parts: object) -> str:
        return base64.b64encode(FileDescriptorProto(**parts).SerializeToString()).decode()

    field = {"name": "a", "number": 1, "type_name": ".B", "type": 11, "label": 1}
    with pytest.raises(InvalidSchemaError, match=r"The imports of the Protobuf descriptor: .*nowhere\.proto, File not found"):
        PROTOBUF.parse(packed(name="x", dependency=["nowhere.proto"]))
    with pytest.raises(InvalidSchemaError, match="Invalid Protobuf descriptor"):
        PROTOBUF.parse(packed(name="x", message_type=[{"name": "A", "field": [field]}]))
    with pytest.raises(InvalidSchemaError, match="default, line 1"):
        PROTOBUF.parse(base64.b64encode(b"no descriptor").decode())


def test_the_common_types_are_at_hand_and_are_what_they_are_elsewhere() -> None:
    """Producers do not register google/type/*, confluent/*, google/protobuf/*: their clients leave them out."""
    folder = importlib.resources.files("moldau.registry.schemas.protobuf") / "common"
    names = ["confluent/meta.proto", "confluent/type/decimal.proto", "confluent/type/variant.proto"]
    names += [f"google/type/{entry.name}" for entry in (folder / "google" / "type").iterdir()]
    imports = "".join(f'import "{name}";\n' for name in names)
    files = {file.name: file for file in compile_proto({"all.proto": f'syntax = "proto3";\n{imports}'}, "all.proto")}
    assert len(names) == 20
    for name in names:
        module = pytest.importorskip(name.removesuffix(".proto").replace("/", ".") + "_pb2") if name.startswith("google") else None
        if module is not None:
            theirs = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
            theirs.ClearField("options")
            for message in (*theirs.message_type, *files[name].message_type):
                message.field.sort(key=lambda field: field.number)
            assert files[name] == theirs


def test_the_name_of_a_schema_is_that_of_its_first_type() -> None:
    assert PROTOBUF.parse('syntax = "proto3"; enum E { X = 0; }').name == "E"
    assert PROTOBUF.parse('syntax = "proto3";').name is None
