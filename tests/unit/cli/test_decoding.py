"""Values in a registry's wire format become JSON, one line each; what is none is named by its offset, and no bytes do worse."""

import datetime
import decimal
import io
import json
from typing import TYPE_CHECKING, cast

import click
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.decoding import ColumnDecoder, UndecodableValueError, ValueDecoder
from moldau.cli.output_records import json_bytes
from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Columns
from moldau.protocol.varint import varlong
from moldau.registry.client import RegisteredSchema, SubjectVersion
from moldau.registry.client_errors import UnknownSchemaError
from moldau.registry.subjects import Reference
from moldau.registry.wire import frame
from moldau.tracking.header import HEADER_SCHEMA

if TYPE_CHECKING:
    from moldau.registry.client import RegistryClient

BUYER = {"type": "record", "name": "Buyer", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "buyer", "type": ["null", "Buyer"]},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "rate", "type": "double"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
TRACKED = {"type": "record", "name": "Click", "fields": [{"name": "header", "type": HEADER_SCHEMA}, {"name": "raw", "type": "bytes"}]}
PROTO = """
syntax = "proto3";
import "money.proto";
message Order { int64 order_id = 1; Money price = 2; bytes raw = 3; message Line { repeated string items = 1; } }
message Other { string name = 1; }
"""
MONEY = 'syntax = "proto3"; message Money { int32 cents = 1; }'


class FakeRegistry:
    """Schemas by id; 1 Avro with a reference, 2 JSON Schema, 3 Protobuf with an import, 4 a text that is no schema,
    5 a type that holds itself, 6 a list of nothing, 7 a tracked event."""

    def __init__(self) -> None:
        self.asked = 0
        self._schemas = {
            1: RegisteredSchema(1, "AVRO", json.dumps(ORDER), (Reference("Buyer", "buyer", 1),)),
            2: RegisteredSchema(2, "JSON", '{"type": "object"}'),
            3: RegisteredSchema(3, "PROTOBUF", PROTO, (Reference("money.proto", "money", 1),)),
            4: RegisteredSchema(4, "AVRO", '{"type": "nothing"}'),
            5: RegisteredSchema(5, "AVRO", json.dumps(NODE)),
            6: RegisteredSchema(6, "AVRO", '{"type": "array", "items": "null"}'),
            7: RegisteredSchema(7, "AVRO", json.dumps(TRACKED)),
        }
        self._texts = {"buyer": json.dumps(BUYER), "money": MONEY}

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked += 1
        if schema_id not in self._schemas:
            raise UnknownSchemaError(schema_id)
        return self._schemas[schema_id]

    def version(self, subject: str, version: int) -> SubjectVersion:
        return SubjectVersion(subject, version, 9, "AVRO", self._texts[subject])

    def referenced(self, schema: RegisteredSchema) -> list[SubjectVersion]:
        return [self.version(each.subject, each.version) for each in schema.references]


def decoder() -> ValueDecoder:
    return ValueDecoder(cast("RegistryClient", FakeRegistry()))


def avro(**changed: object) -> bytes:
    at = datetime.datetime(2013, 1, 1, 5, 0, 0, 250_000, tzinfo=datetime.UTC)
    order = {
        "id": 7,
        "buyer": {"name": "Müller"},
        "raw": b"\xff",
        "at": at,
        "price": decimal.Decimal("12.50"),
        "rate": 0.5,
        "state": "PAID",
    }
    out = io.BytesIO()
    schemaless_writer(out, json.loads(json.dumps(ORDER).replace('"Buyer"', json.dumps(BUYER))), {**order, **changed})
    return frame(1, out.getvalue())


def decoded(data: bytes) -> object:
    line = decoder().decode(data)
    assert line is not None
    assert b"\n" not in line
    return json.loads(line)


def test_avro_with_a_reference_and_logical_types() -> None:
    assert decoded(avro()) == {
        "id": 7,
        "buyer": {"name": "Müller"},
        "raw": {"base64": "/w=="},
        "at": "2013-01-01T05:00:00.250000+00:00",
        "price": "12.50",
        "rate": 0.5,
        "state": "PAID",
    }
    assert decoded(avro(buyer=None, raw=b"text", rate=float("-inf"))) == {
        **cast("dict[str, object]", decoded(avro())),
        "buyer": None,
        "raw": "text",
        "rate": "-Infinity",
    }


@pytest.mark.parametrize("guid", [b"\xff" * 8 + bytes(7) + b"\x07", b"sixteen letters."])
def test_the_guid_of_a_tracked_event_is_in_hex_digits_as_the_audit_names_it(guid: bytes) -> None:
    header = {"time": 0, "service": "s", "host": "h", "datacenter": "d", "guid": guid}
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(TRACKED), {"header": header, "raw": guid})
    assert decoded(frame(7, body.getvalue())) == {
        "header": {**header, "time": "1970-01-01T00:00:00+00:00", "guid": guid.hex()},
        "raw": json_bytes(guid),
    }


def test_few_bytes_of_any_schema_do_no_worse_than_being_refused() -> None:
    """A level of each byte ended the process, a list of 2**40 nothings did not end."""
    assert decoded(frame(5, b"\2\2\0")) == {"next": {"next": {"next": None}}}
    for data, reason in ((frame(5, b"\2" * 100_000 + b"\0"), "RecursionError"), (frame(6, varlong(1 << 40) + b"\0"), "takes no bytes")):
        with pytest.raises(UndecodableValueError, match=reason):
            decoder().decode(data)


def test_json_stays_as_it_was_sent_on_one_line() -> None:
    assert decoder().decode(frame(2, b'{"a": 1.50}')) == b'{"a": 1.50}'
    assert decoder().decode(frame(2, b'{\n  "a": "\xc3\xbc"\n}')) == '{"a":"ü"}'.encode()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"\x00\x08\x96\x01\x12\x02\x08\x05", {"order_id": "150", "price": {"cents": 5}}),
        (b"\x02\x00\x08\x07", {"order_id": "7"}),
        (b"\x02\x02\x0a\x01x", {"name": "x"}),
        (b"\x04\x00\x00\x0a\x01a\x0a\x01b", {"items": ["a", "b"]}),
    ],
)
def test_protobuf_with_an_import_whichever_message_it_is(body: bytes, value: object) -> None:
    assert decoded(frame(3, body)) == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "has no room for the schema id"),
        (b"plain text", "does not carry a schema id"),
        (frame(8, b""), "the registry does not know schema id 8"),
        (frame(4, b""), "schema id 4 cannot be read"),
        (avro()[:-3], "schema id 1: "),
        (avro() + b"!", "1 bytes are left over"),
        (avro()[:-1] + b"\x01", "below 0"),
        (frame(2, b"{"), "schema id 2: "),
        (frame(2, b"\xff"), "schema id 2: "),
        (frame(3, b"\x00\x08"), "schema id 3: "),
        (frame(3, b"\x02\x0a"), "has no message"),
        (frame(3, b""), "schema id 3: "),
    ],
)
def test_what_cannot_be_decoded_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableValueError, match=reason):
        decoder().decode(data)


@given(st.sampled_from([1, 2, 3]), st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(schema_id: int, body: bytes) -> None:
    try:
        found = SHARED.decode(frame(schema_id, body))
    except UndecodableValueError:
        return
    json.loads(found or b"")


SHARED = decoder()


def test_a_schema_is_asked_for_once() -> None:
    registry = FakeRegistry()
    several = ValueDecoder(cast("RegistryClient", registry))
    for _ in range(3):
        several.decode(frame(2, b"1"))
        with pytest.raises(UndecodableValueError):
            several.decode(frame(8, b""))
    assert registry.asked == 2


def columns(*values: bytes | None) -> Columns:
    found = Columns()
    for number, value in enumerate(values):
        found.offsets.append(10 + number)
        found.timestamps.append(0)
        found.timestamp_types.append(0)
        found.keys.append(b"plain")
        found.values.append(value)
        found.headers.append([])
    return found


GOOD, BAD = frame(2, b"1"), b"bad"
WHERE = TopicPartition("orders", 2)


def test_the_first_that_cannot_be_decoded_ends_it_with_those_before_printed() -> None:
    found = columns(GOOD, None, BAD, GOOD)
    error = ColumnDecoder(decoder(), ["values"], skip=False).apply(WHERE, found)
    assert isinstance(error, click.ClickException)
    assert error.message.startswith("partition orders-2 at offset 12: the value cannot be decoded: a value of 3 bytes")
    assert error.message.endswith("; --on-error skip leaves it out and continues")
    assert (found.offsets, found.values) == ([10, 11], [b"1", None])


def test_with_skip_they_are_told_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = columns(BAD, GOOD, BAD, GOOD)
    decoding = ColumnDecoder(decoder(), ["values"], skip=True)
    assert decoding.apply(WHERE, found) is None
    assert (found.offsets, decoding.skipped) == ([11, 13], 2)
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"partition orders-2 at offset {at}" for at in (10, 12)
    ]


def test_nothing_after_the_last_that_is_wanted_is_decoded() -> None:
    found = columns(BAD, GOOD, GOOD, BAD)
    decoding = ColumnDecoder(decoder(), ["values"], skip=True)
    assert decoding.apply(WHERE, found, 2) is None
    assert (found.offsets, decoding.skipped) == ([11, 12], 1)
    assert ColumnDecoder(decoder(), ["values"], skip=False).apply(WHERE, columns(GOOD, BAD), 1) is None


def test_keys_are_decoded_when_they_are_wanted() -> None:
    found = columns(GOOD)
    assert ColumnDecoder(decoder(), ["values"], skip=False).apply(WHERE, found) is None
    assert (found.keys, found.values) == ([b"plain"], [b"1"])
    error = ColumnDecoder(decoder(), ["keys", "values"], skip=False).apply(WHERE, columns(GOOD))
    assert error is not None
    assert "the key cannot be decoded" in error.message
