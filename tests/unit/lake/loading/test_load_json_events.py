"""Every value becomes one row or one reason, whatever its bytes are, and a row is what the value says."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.loading.json_events import parse_events

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("d", pa.bool_()),
        ("n", pa.struct([("x", pa.int64())])),
        ("l", pa.list_(pa.int64())),
    ]
)

BAD = {
    b"null": "a JSON null, not an object",
    None: "the value is null",
    b"": "not JSON: Expecting value",
    b"  ": "not JSON: Expecting value",
    b'{"a":1} null {"a":2}': "not JSON: Extra data",
    b'{"a":1}{"a":2}': "not JSON: Extra data",
    b"[]": "a JSON array, not an object",
    b'"x"': "a JSON string, not an object",
    b'{"a":1': "not JSON",
    b'{"a":1}x': "not JSON: Extra data",
    b'{"b":"\xff"}': "not UTF-8: invalid start byte at byte 6",
    b'{"b":"x\ny"}': "not JSON: Invalid control character",
    b'{"b":"\\ud800"}': "surrogate pair",
    b'{"c":NaN}': "not JSON: field 'c': NaN is not a number in JSON",
    b'{"n":{"x":-Infinity},"c":1}': "not JSON: field 'n/x': -Infinity is not a number in JSON",
    b'{"c":1e999}': "field 'c': the column wants double: a JSON number that double can hold, the event has 1e999",
    b'{"a":9223372036854775808}': "whole, from -9223372036854775808 to 9223372036854775807, the event has 9223372036854775808",
    b'{"a":1.5}': "field 'a': the column wants int64: a JSON number, whole, from",
    b'{"l":[1,1e3]}': "field 'l/[]': the column wants int64: a JSON number, whole, from",
    b'{"a":"1"}': "field 'a': the column wants int64: a JSON number",
    b'{"a":true}': "the event has a JSON boolean",
    b'{"b":1}': "field 'b': the column wants string: a JSON string, the event has a JSON number",
    b'{"d":0}': "field 'd': the column wants bool: a JSON boolean, the event has a JSON number",
    b'{"n":{"y":1}}': "unexpected field",
    b'{"z":1}': "field 'z' is not in the table",
    b'{"a":1,"a":2}': "Column(/a) was specified twice",
    b'{"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "nested too deeply",
    b'{"z":1,"a":' + b"1" * 5000 + b"}": "field 'z' is not in the table",
    b'{"a":' + b"1" * 5000 + b"}": "the event has " + "1" * 80 + "... (5,000 characters)",
    b'{"b":"NaN","a":' + b"1" * 5000 + b"}": "the event has " + "1" * 80 + "... (5,000 characters)",
    b'{"' + b"z" * 5000 + b'":1}': "field '" + "z" * 80 + "... (5,000 characters)' is not in the table",
    b'{"b":"NaN","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "nested too deeply",
}
GOOD = [b'{"a":1}', b' {"a":2,"b":"}x"}\n', b"{}", b'{"n":{"x":3},"l":[1,null],\n"c":1}', b'{"b":"NaN","d":true}']


@pytest.mark.parametrize(("value", "reason"), BAD.items(), ids=lambda value: repr(value)[:30])
def test_a_bad_value_has_its_reason_and_harms_no_neighbour(value: bytes | None, reason: str) -> None:
    for values in ([value], [*GOOD, value, *GOOD]):
        parsed = parse_events(values, SCHEMA)
        at = values.index(value)
        assert list(parsed.rejected) == [at]
        assert reason in parsed.rejected[at]
        assert parsed.accepted == [number for number in range(len(values)) if number != at]
        assert parsed.table.num_rows == len(values) - 1


def test_good_values_are_rows() -> None:
    parsed = parse_events(GOOD, SCHEMA)
    assert parsed.rejected == {}
    rows = [{name: cell for name, cell in row.items() if cell is not None} for row in parsed.table.to_pylist()]
    assert rows == [{"a": 1}, {"a": 2, "b": "}x"}, {}, {"n": {"x": 3}, "l": [1, None], "c": 1.0}, {"b": "NaN", "d": True}]


def test_unknown_fields_are_dropped_where_that_is_wanted() -> None:
    parsed = parse_events([b'{"a":1,"z":2}', b'{"a":2}'], SCHEMA, refuse_unknown=False)
    assert parsed.table["a"].to_pylist() == [1, 2]


def test_nothing_gives_an_empty_table_of_the_schema() -> None:
    assert parse_events([], SCHEMA).table.schema == SCHEMA
    assert parse_events([b"x"], SCHEMA).table.schema == SCHEMA


@given(st.lists(st.sampled_from([*GOOD, *(value for value in BAD if value is None or len(value) < 1000)]), max_size=12))
def test_rows_and_reasons_add_up_in_any_mixture(values: list[bytes | None]) -> None:
    """Two objects in one value and none in the next must not pass as one each."""
    parsed = parse_events(values, SCHEMA)
    assert sorted([*parsed.accepted, *parsed.rejected]) == list(range(len(values)))
    assert parsed.accepted == [number for number, value in enumerate(values) if value in GOOD]
    for number, row in zip(parsed.accepted, parsed.table.to_pylist(), strict=True):
        value = values[number]
        assert value is not None
        assert {name: cell for name, cell in row.items() if cell is not None} == json.loads(value)


TIMES = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("in", pa.struct([("at", pa.timestamp("us", tz="UTC"))])),
        ("all", pa.list_(pa.timestamp("us", tz="UTC"))),
        ("text", pa.string()),
    ]
)


WANTED_TIME = 'the column wants a timestamp: ISO 8601 text like "2013-07-01T12:00:00Z", in the years 1 to 9999'


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"at":1372636800000}', f"field 'at': {WANTED_TIME}, of at most six digits after the second, the event has a JSON number"),
        (b'{"in":{"at":1}}', f"field 'in/at': {WANTED_TIME}"),
        (b'{"all":[1]}', f"field 'all/[]': {WANTED_TIME}"),
        (b'{"at":"noon"}', 'the event has "noon"'),
        (b'{"text":"noon","at":"noon"}', "field 'at'"),
        (b'{"day":"2013-07-01"}', "field 'day': the column wants a date: the number of days since 1970"),
    ],
)
def test_a_time_in_another_form_is_told_what_the_column_takes(value: bytes, reason: str) -> None:
    """Of milliseconds nobody can see that they are no seconds: a timestamp is text, with its zone."""
    assert reason in parse_events([value], TIMES).rejected[0]


LIMITS = pa.schema(
    [
        *((str(kind), kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("cents", pa.decimal128(10, 2)),
        ("in", pa.struct([("at", pa.timestamp("us", tz="UTC")), ("float", pa.float32())])),
        ("all", pa.list_(pa.struct([("day", pa.date32())]))),
        ("millis", pa.list_(pa.timestamp("ms"))),
        ("noons", pa.date64()),
        ("uint64", pa.uint64()),
    ]
)
WITHIN = {
    "int8": ("-128", "127"),
    "int16": ("-32768", "32767"),
    "int32": ("-2147483648", "2147483647"),
    "int64": ("-9223372036854775808", "9223372036854775807"),
    "float": ("-3.4028235e38", "3.4028235677e38", "1e-400"),
    "double": ("-1.7976931348623157e308", "1.7976931348623157e308"),
    "day": ("-719162", "2932896"),
    "at": ('"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59+00:01"'),
    "cents": ("-99999999.99", '"99999999.99"'),
    "in": ('{"at":"0001-01-01T00:00:00Z","float":1}',),
    "all": ('[{"day":2932896},null,{}]', "[]"),
    "millis": ('["9999-12-31T23:59:59.999"]',),
    "noons": ("253402300799999",),
    "uint64": ("9223372036854775807",),
}
BEYOND = {
    "int8": ("-129", "128", "1.0", "NaN"),
    "int16": ("-32769", "32768", "1e3"),
    "int32": ("-2147483649", "2147483648"),
    "int64": ("-9223372036854775809", "9223372036854775808", "1e400", "Infinity"),
    "float": ("-3.4028236e38", "3.5e38", "1e400", "NaN", "123456789" * 5),
    "double": ("1e309", "-1e400", "-Infinity"),
    "day": ("-719163", "2932897", "2147483647", "-2147483648", "2147483648", "1e99"),
    "at": (
        *('"0000-12-31T23:59:59Z"', '"0001-01-01T00:00:00+00:01"', '"9999-12-31T23:59:59-00:01"', '"10000-01-01T00:00:00Z"'),
        *('"-0001-01-01T00:00:00Z"', '"294248-01-01"', '"2013-02-30T00:00:00Z"', '"2013-07-01T12:00:00.1234567Z"', '"NaN"', '"\\u0000"'),
    ),
    "cents": ("100000000.00", "0.001", "1e400", '"1e400"', '"NaN"', '""', "NaN"),
    "in": ('{"at":"0000-01-01T00:00:00Z"}', '{"float":1e39}', '{"float":-1e39,"at":null}'),
    "all": ('[{},{"day":2932897},{"day":1}]',),
    "millis": ('["0000-01-01"]',),
    "noons": ("253402300800000",),
    "uint64": ("18446744073709551615", "-1"),
}


@pytest.mark.parametrize(("name", "value"), [(name, each) for name, values in BEYOND.items() for each in values])
def test_a_value_beyond_what_its_column_holds_is_a_dead_letter_that_names_field_and_value(name: str, value: str) -> None:
    """A timestamp of the year 0 would end a query, and a float that is infinity would be no number that anybody has sent."""
    good = [f'{{"{name}":{each}}}'.encode() for each in WITHIN[name]]
    bad = f'{{"int8":1,"{name}":{value}}}'.encode() if name != "int8" else f'{{"int8":{value}}}'.encode()
    parsed = parse_events([*good, bad, *good], LIMITS)
    assert list(parsed.rejected) == [len(good)]
    assert parsed.accepted == [*range(len(good)), *range(len(good) + 1, 2 * len(good) + 1)]
    reason = parsed.rejected[len(good)]
    assert f"field '{name}" in reason
    assert value.strip('"')[:5] in reason or name in ("in", "all", "millis") or "u0000" in reason
    assert len(reason) < 400
    for column in parsed.table.columns:
        column.to_pylist()  # each has a Python value: no year is beyond


def test_values_within_are_rows() -> None:
    for name, values in WITHIN.items():
        parsed = parse_events([f'{{"{name}":{each}}}'.encode() for each in values], LIMITS)
        assert (parsed.rejected, parsed.table.num_rows) == ({}, len(values))


def test_times_with_and_without_a_zone_are_read() -> None:
    parsed = parse_events(
        [b'{"at":"2013-07-01T12:00:00Z"}', b'{"at":"2013-07-01 14:00:00.000+02:00"}', b'{"at":"2013-07-01T12:00:00"}'], TIMES
    )
    assert [each.isoformat() for each in parsed.table.column("at").to_pylist()] == ["2013-07-01T12:00:00+00:00"] * 3
