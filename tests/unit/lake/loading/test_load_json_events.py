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
    b'{"c":NaN}': "NaN is not a number in JSON",
    b'{"c":1e999}': "Number too big",
    b'{"a":9223372036854775808}': "Failed to convert JSON to int64",
    b'{"a":1.5}': "Failed to convert JSON to int64",
    b'{"a":"1"}': "field 'a': the column wants int64: a JSON number, the event has a JSON string",
    b'{"b":1}': "field 'b': the column wants string: a JSON string, the event has a JSON number",
    b'{"d":0}': "field 'd': the column wants bool: a JSON boolean, the event has a JSON number",
    b'{"n":{"y":1}}': "unexpected field",
    b'{"z":1}': "field 'z' is not in the table",
    b'{"a":1,"a":2}': "Column(/a) was specified twice",
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
    ]
)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"at":1372636800000}', "field 'at': the column wants a timestamp: ISO 8601 text like \"2013-07-01T12:00:00Z\", the event has a"),
        (b'{"in":{"at":1}}', "field 'in/at': the column wants a timestamp: ISO 8601 text"),
        (b'{"all":[1]}', "field 'all/[]': the column wants a timestamp: ISO 8601 text"),
        (b'{"at":"noon"}', "couldn't parse:noon; a timestamp is ISO 8601 text like"),
        (b'{"day":"2013-07-01"}', "field 'day': the column wants a date: the number of days since 1970, the event has a JSON string"),
    ],
)
def test_a_time_in_another_form_is_told_what_the_column_takes(value: bytes, reason: str) -> None:
    """Of milliseconds nobody can see that they are no seconds: a timestamp is text, with its zone."""
    assert reason in parse_events([value], TIMES).rejected[0]


def test_times_with_and_without_a_zone_are_read() -> None:
    parsed = parse_events(
        [b'{"at":"2013-07-01T12:00:00Z"}', b'{"at":"2013-07-01 14:00:00.000+02:00"}', b'{"at":"2013-07-01T12:00:00"}'], TIMES
    )
    assert [each.isoformat() for each in parsed.table.column("at").to_pylist()] == ["2013-07-01T12:00:00+00:00"] * 3
