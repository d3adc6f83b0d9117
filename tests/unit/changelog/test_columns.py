"""Values that JSON does not hold are objects with one member, named by the type; other objects are refused, with the column."""

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest

from moldau.changelog.columns import from_json, key_text, row_from_json, row_text, to_json, value_text
from moldau.changelog.values import Value

CASES: list[tuple[Value, object]] = [
    (None, None),
    (True, True),
    (0, 0),
    (2**53, 2**53),
    (2**53 + 1, {"integer": "9007199254740993"}),
    (-(2**63), {"integer": "-9223372036854775808"}),
    (0.1, 0.1),
    (float("inf"), {"real": "inf"}),
    ("text", "text"),
    (b"", {"bytes": ""}),
    (b"\x00\xff", {"bytes": "AP8="}),
    (Decimal("12.50"), {"decimal": "12.50"}),
    (Decimal("1E+3"), {"decimal": "1E+3"}),
    (date(2026, 2, 28), {"date": "2026-02-28"}),
    (time(23, 59, 59, 999999), {"time": "23:59:59.999999"}),
    (datetime(2026, 2, 28, 1, 2, 3), {"timestamp": "2026-02-28T01:02:03"}),  # noqa: DTZ001
    (datetime(2026, 2, 28, 1, 2, 3, tzinfo=UTC), {"timestamptz": "2026-02-28T01:02:03+00:00"}),
]


@pytest.mark.parametrize(("value", "written"), CASES, ids=repr)
def test_a_value_is_written_so_and_read_back(value: Value, written: object) -> None:
    assert to_json(value) == written
    assert json.loads(value_text(value)) == written
    found = from_json(written)
    assert (found, type(found)) == (value, type(value))


def test_one_moment_has_one_text_so_that_keys_are_equal() -> None:
    there = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert to_json(there) == to_json(there.astimezone(UTC)) == {"timestamptz": "2026-01-01T00:00:00+00:00"}


def test_at_the_ends_of_the_calendar_a_moment_keeps_its_zone() -> None:
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert from_json(to_json(first)) == first


@pytest.mark.parametrize(
    "found",
    [{}, {"a": 1}, {"decimal": 1}, {"decimal": "x"}, {"bytes": "?"}, {"date": "2026"}, {"a": "b", "c": "d"}, [1], {"integer": "1.5"}],
    ids=repr,
)
def test_what_is_no_value_is_refused_with_its_column(found: object) -> None:
    with pytest.raises(ValueError, match=r"^column total: "):
        row_from_json({"id": 1, "total": found})


def test_a_timestamp_has_a_zone_or_not_as_its_type_says() -> None:
    with pytest.raises(ValueError, match="timestamp"):
        from_json({"timestamp": "2026-01-01T00:00:00+00:00"})
    with pytest.raises(ValueError, match="timestamptz"):
        from_json({"timestamptz": "2026-01-01T00:00:00"})


def test_a_value_of_another_type_is_refused_with_its_column() -> None:
    with pytest.raises(TypeError, match="column tags: a value of type list cannot be written"):
        row_text({"id": 1, "tags": ["a"]})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="a key of 1 values, and the primary key is id, line"):
        key_text(("id", "line"), (1,))
