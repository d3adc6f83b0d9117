"""Protobuf values become columns: every type of field, presence, evolution by number, and what cannot be decoded."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from moldau.lake.avro.columns import NULL_VALUE
from moldau.lake.protobuf import ProtobufColumns, ProtobufSchemaError
from moldau.protocol.varint import varint
from moldau.registry.client import Reference
from moldau.registry.schemas.protobuf.messages import message_at, schema_file
from moldau.registry.wire import frame
from support.avro_registry import MemoryRegistry

PLACE = 'syntax = "proto3"; package places; message Place { string code = 1; Kind kind = 2; enum Kind { NONE = 0; AIRPORT = 1; } }'
FLIGHT = """
syntax = "proto3";
package flights;
import "place.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Flight {
  string carrier = 1;
  int32 i = 2; int64 l = 3; uint32 u = 4; uint64 ul = 5; sint32 si = 6; fixed64 fx = 7; double d = 8; float f = 9; bool flag = 10;
  bytes raw = 11;
  places.Place origin = 12;
  repeated places.Place stops = 13;
  map<string, int64> counts = 14;
  map<int32, places.Place> by_number = 15;
  optional int32 delay = 16;
  oneof seat { string row = 17; int32 bed = 18; }
  google.protobuf.Timestamp at = 19;
  google.protobuf.Int64Value wrapped = 20;
  google.protobuf.Struct more = 21;
  repeated int32 numbers = 22;
  Status status = 23;
  enum Status { UNKNOWN = 0; FLOWN = 1; }
  message Leg { int32 number = 1; }
}
"""


@pytest.fixture
def registry() -> Any:
    made = MemoryRegistry()
    made.add(PLACE, "place", kind="PROTOBUF")
    made.add(FLIGHT, "flights-value", (Reference("place.proto", "place", 1),), kind="PROTOBUF")
    return made


def message(registry: Any, number: int, *path: int) -> Any:
    """A message of a schema, to be filled."""
    return GetMessageClass(message_at(schema_file(registry.schemas[number], registry), path or (0,)))()


def framed(number: int, filled: Any, *path: int) -> bytes:
    """As Confluent's serialisers write it."""
    prefix = b"\x00" if path in ((), (0,)) else varint(len(path)) + b"".join(map(varint, path))
    return frame(number, prefix + filled.SerializeToString())


def test_every_type_of_field(registry: Any) -> None:
    flight = message(registry, 2)
    flight.carrier, flight.i, flight.l, flight.u, flight.ul, flight.si = "UA", -1, -(2**63), 2**32 - 1, 2**64 - 1, -7
    flight.fx, flight.d, flight.f, flight.flag, flight.raw = 2**64 - 1, 0.1, 0.5, True, b"\xff"
    flight.origin.code, flight.origin.kind = "EWR", 1
    flight.stops.add().code = "ORD"
    flight.stops.add().kind = 9
    flight.counts["a"] = 1
    flight.by_number[7].code = "JFK"
    flight.delay, flight.bed = 0, 4
    flight.at.seconds, flight.at.nanos = -1, 999_999_999
    flight.wrapped.value = 0
    flight.more["x"] = [1.5, None]
    flight.numbers.extend([1, 2])
    flight.status = 1
    columns = ProtobufColumns(registry, registry.latest("flights-value"))
    decoded = columns.decode(pa.array([framed(2, flight), framed(2, message(registry, 2))]))
    assert (decoded.rejected, decoded.rows.tolist()) == ({}, [0, 1])
    full, empty = decoded.batch.to_pylist()
    place = {"code": "EWR", "kind": "AIRPORT"}
    assert full == {
        "carrier": "UA", "i": -1, "l": -(2**63), "u": 2**32 - 1, "ul": Decimal(2**64 - 1), "si": -7, "fx": Decimal(2**64 - 1), "d": 0.1,
        "f": 0.5, "flag": True, "raw": b"\xff", "origin": place, "stops": [{"code": "ORD", "kind": "NONE"}, {"code": "", "kind": "9"}],
        "counts": [("a", 1)], "by_number": [(7, {"code": "JFK", "kind": "NONE"})], "delay": 0, "row": None, "bed": 4,
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "wrapped": 0, "more": '{"x": [1.5, null]}', "numbers": [1, 2],
        "status": "FLOWN",
    }  # fmt: skip
    assert {name for name, value in empty.items() if value is None} == {"origin", "delay", "row", "bed", "at", "wrapped", "more"}
    assert (empty["carrier"], empty["i"], empty["stops"], empty["counts"], empty["status"]) == ("", 0, [], [], "UNKNOWN")
    some = ProtobufColumns(registry, registry.latest("flights-value"), columns=["flag", "carrier"])
    assert some.decode(pa.array([framed(2, flight)])).batch.to_pylist() == [{"flag": True, "carrier": "UA"}]


def test_evolution_is_by_numbers_and_other_messages_are_rejected(registry: Any) -> None:
    newer = FLIGHT.replace("string carrier = 1;", "string airline = 1; string gate = 99;")
    registry.add(newer, "flights-value", (Reference("place.proto", "place", 1),), kind="PROTOBUF")
    avro = registry.add('"string"', "other")
    flight, leg = message(registry, 3), message(registry, 2, 0, 2)
    flight.airline, flight.gate, leg.number = "UA", "7", 5
    flight_of_late = message(registry, 2)
    flight_of_late.at.seconds = 253_402_300_800
    values = [
        framed(3, flight), None, framed(2, leg, 0, 2), framed(2, leg, 5), frame(avro, b"\x00x"), frame(2, b"\x00\xff"), b"{}",
        framed(77, flight), frame(2, b""), framed(2, flight_of_late), framed(2, message(registry, 2)),
    ]  # fmt: skip
    decoded = ProtobufColumns(registry, registry.versions["flights-value"][0], columns=["carrier", "at"]).decode(
        pa.array(values, pa.binary())
    )
    assert decoded.rows.tolist() == [0, 10]
    assert decoded.batch.column("carrier").to_pylist() == ["UA", ""]
    assert decoded.rejected.pop(1) == NULL_VALUE
    reasons = {
        2: "schema id 2: the value is a flights.Flight.Leg, not a flights.Flight",
        3: "schema id 2: the schema has no message 5",
        4: "schema id 3: it is a schema of type AVRO, not PROTOBUF".replace("3", str(avro)),
        5: "schema id 2: the bytes are no flights.Flight: ",
        6: "a value of 2 bytes has no room for the schema id",
        7: "schema id 77: it is not known to the registry",
        8: "the message indexes cannot be read",
        9: "a flights.Flight has a value without a column: a timestamp of 253402300800 s",
    }
    assert decoded.rejected.keys() == reasons.keys()
    for number, reason in reasons.items():
        assert decoded.rejected[number].startswith(reason), decoded.rejected[number]


def test_a_message_is_chosen_by_its_name_and_one_without_columns_is_named(registry: Any) -> None:
    leg = message(registry, 2, 0, 2)
    leg.number = 5
    columns = ProtobufColumns(registry, registry.latest("flights-value"), message="flights.Flight.Leg")
    assert columns.decode(pa.array([framed(2, leg, 0, 2)])).batch.to_pylist() == [{"number": 5}]
    with pytest.raises(ProtobufSchemaError, match=r"the schema has no message Leg; there are flights\.Flight, flights.Flight.Leg"):
        ProtobufColumns(registry, registry.latest("flights-value"), message="Leg")
    registry.add('syntax = "proto3"; message Tree { int32 n = 1; repeated Tree below = 2; }', "trees", kind="PROTOBUF")
    with pytest.raises(ProtobufSchemaError, match=r"message Tree has itself among its fields \(Tree.below\): there are no columns for it"):
        ProtobufColumns(registry, registry.latest("trees"))
    registry.add('"string"', "avro")
    with pytest.raises(ProtobufSchemaError, match="it is a schema of type AVRO, not PROTOBUF"):
        ProtobufColumns(registry, registry.latest("avro"))
