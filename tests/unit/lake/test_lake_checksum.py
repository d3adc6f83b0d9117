"""The checksum depends on the content of events and their lines, and on nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.checksum import MODULUS, Tally, canonical, event_hash, line_of
from moldau.lake.demo.column_types import ShapeError, arrow_schema, merge_fields, shape_of
from moldau.lake.events import parse_events

scalars = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars.filter(lambda value: not isinstance(value, str) or value.isprintable()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
events = st.lists(st.dictionaries(st.sampled_from("abc"), values, max_size=3), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"b": 1, "a": "ä"}, '{"a":"ä","b":1}'),
        ({"a": None, "b": {"c": None}, "d": []}, '{"d":[]}'),
        ({"a": 1.0, "b": 0.5, "c": 1e300, "d": -0.0}, '{"a":1,"b":0.5,"c":1e+300,"d":0}'),
        ({"a": True, "b": [None, {"x": 2.0}]}, '{"a":true,"b":[null,{"x":2}]}'),
    ],
)
def test_an_event_has_one_form(event: dict[str, Any], expected: str) -> None:
    assert canonical(event) == expected.encode()


@given(events)
def test_the_form_survives_the_columns_of_a_table(drawn: list[dict[str, Any]]) -> None:
    """What goes in as canonical JSON and through typed columns comes out as the same bytes, if its columns can be told at all."""
    import json

    payloads = [canonical(event) for event in drawn]
    fields: dict[str, Any] = {}
    fitting = []
    for payload in payloads:
        event = json.loads(payload)
        try:
            fields = merge_fields(fields, {name: shape_of(value) for name, value in event.items()})
        except ShapeError:
            continue
        fitting.append(payload)
    if not fields:
        return
    parsed = parse_events(fitting, arrow_schema(fields))
    assert parsed.rejected == {}
    assert [canonical(row) for row in parsed.table.to_pylist()] == fitting


def test_a_hash_depends_on_line_and_payload() -> None:
    seen = {event_hash(line, payload) for line in range(50) for payload in (b"", b"a", b"b")}
    assert len(seen) == 150
    assert all(0 <= number < MODULUS for number in seen)


def test_what_is_missing_and_doubled_is_told_apart() -> None:
    expected = Tally(10, 10, 5)
    assert Tally(10, 9, 4).missing_from(expected) == 1
    assert Tally(10, 9, 4).doubled == 1, "a loss hidden by a double"
    assert Tally(4, 4, MODULUS - 1) + Tally(6, 6, 6) == expected


def test_the_line_is_the_last_header_of_that_name() -> None:
    assert line_of(None) is None
    assert line_of([{"key": "line", "value": b"3"}, {"key": "line", "value": b"4"}, {"key": "x", "value": b"5"}]) == 4
    assert line_of([{"key": "line", "value": b"x"}]) is None
