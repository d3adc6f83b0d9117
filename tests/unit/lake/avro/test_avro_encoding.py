"""Rows that are encoded with the schema of their columns are decoded into the same columns; what does not fit is named."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from moldau.lake.avro.columns import AvroColumns
from moldau.lake.avro.encoding import AvroEncoder, EncodingError, check_columns, derived_schema
from moldau.lake.avro.schemas import AvroSchemaError, AvroText
from support.avro_registry import MemoryRegistry

MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        ("flag", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()), ("s", pa.string()),
        ("raw", pa.binary()), ("money", pa.decimal128(38, 18)), ("day", pa.date32()), ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("window", pa.struct([("start", pa.timestamp("us", tz="UTC")), ("counts", pa.map_(pa.string(), pa.int32()))])),
        ("list", pa.list_(pa.field("element", pa.struct([("n", pa.int64())])))), ("words", pa.map_(pa.string(), pa.binary())),
    ]
)  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "flag": True, "i": -(2**31), "l": 2**63 - 1, "f": 0.5, "d": math.inf,
        "s": "\u20ac", "raw": b"\xff\x00", "money": Decimal("-1.000000000000000001"),
        "day": date(1, 1, 1), "at": MOMENT, "local": MOMENT.replace(tzinfo=None),
        "window": {"start": MOMENT, "counts": [("a", 1), ("b", None)]},
        "list": [{"n": 1}, None, {"n": None}], "words": [("x", b""), ("y", None)],
    },
    dict.fromkeys(COLUMNS.names),
]  # fmt: skip


def test_a_derived_schema_gives_the_columns_back() -> None:
    registry = MemoryRegistry()
    text = derived_schema("airport-hours", COLUMNS)
    number = registry.add(text)
    batch = pa.RecordBatch.from_pylist(ROWS, schema=COLUMNS)
    decoded = AvroColumns(registry, subject="events-value").decode(AvroEncoder(number, AvroText(text)).encode(batch))
    assert decoded.rejected == {}
    assert decoded.batch.schema.names == COLUMNS.names
    assert decoded.batch.to_pylist() == batch.to_pylist()
    check_columns(AvroText(text), COLUMNS.names)
    assert json.loads(text)["name"] == "airport_hours"


def test_small_numbers_become_int_and_a_name_that_begins_with_a_digit_gets_a_line() -> None:
    schema = json.loads(derived_schema("7", pa.schema([("b", pa.int8()), ("s", pa.int16())])))
    assert (schema["name"], [each["type"] for each in schema["fields"]]) == ("_7", [["null", "int"]] * 2)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (pa.schema([("a", pa.struct([("b", pa.map_(pa.int32(), pa.string()))]))]),
         r"column a.b is map<int32, string>, which Avro has no type for"),
        (pa.schema([("flight number", pa.string())]), "column flight number: Avro has no field of that name; rename it"),
    ],
)  # fmt: skip
def test_columns_without_an_avro_type_are_named(columns: Any, problem: str) -> None:
    with pytest.raises(AvroSchemaError, match=problem):
        derived_schema("rows", columns)


def test_columns_and_fields_that_do_not_meet_are_named() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}, {"name": "c", "type": "int", "default": 7}]
    schema = AvroText(json.dumps({"type": "record", "name": "R", "fields": fields}))
    check_columns(schema, ["a", "b"])
    with pytest.raises(AvroSchemaError, match="the schema has no field d; it has a, b, c"):
        check_columns(schema, ["a", "b", "d"])
    with pytest.raises(AvroSchemaError, match="there is no column b, and the schema has no default for it"):
        check_columns(schema, ["a"])
    with pytest.raises(AvroSchemaError, match="the schema is no record"):
        check_columns(AvroText('"string"'), ["a"])
    with pytest.raises(AvroSchemaError, match="the schema cannot be read"):
        check_columns(AvroText("{"), ["a"])
    encoder = AvroEncoder(7, schema)
    assert encoder.encode(pa.RecordBatch.from_pylist([{"a": 1, "b": 2}])).to_pylist() == [b"\x00\x00\x00\x00\x07\x02\x04\x0e"]
    with pytest.raises(EncodingError, match=r"a row does not fit schema id 7: .*'b': None"):
        encoder.encode(pa.RecordBatch.from_pylist([{"a": 1, "b": None}], schema=pa.schema([("a", pa.int32()), ("b", pa.int32())])))
