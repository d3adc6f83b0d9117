"""Each logical type of Debezium and of Kafka Connect becomes what it means; what it cannot be is refused."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from moldau.changelog.debezium import unwrapped, value_of
from moldau.changelog.values import Value

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3"}}


def logical(name: str, kind: str = "int64") -> dict[str, Any]:
    return {"type": kind, "name": name}


CASES: list[tuple[dict[str, Any], Any, Value]] = [
    ({"type": "int64"}, 7, 7),
    ({"type": "string"}, "a", "a"),
    ({"type": "boolean"}, True, True),
    ({"type": "double"}, 1, 1.0),
    ({"type": "bytes"}, "AP8=", b"\x00\xff"),
    ({"type": "string"}, None, None),
    (DECIMAL, "/w==", Decimal("-0.001")),
    (DECIMAL, "AA==", Decimal("0.000")),
    (logical("io.debezium.data.VariableScaleDecimal", "struct"), {"scale": 1, "value": "fw=="}, Decimal("12.7")),
    (logical("io.debezium.time.Date", "int32"), -1, date(1969, 12, 31)),
    (logical("io.debezium.time.Time", "int32"), 1, time(0, 0, 0, 1000)),
    (logical("io.debezium.time.MicroTime"), 86_399_999_999, time(23, 59, 59, 999999)),
    (logical("io.debezium.time.NanoTime"), 1_000, time(0, 0, 0, 1)),
    (logical("io.debezium.time.Timestamp"), 0, datetime(1970, 1, 1)),  # noqa: DTZ001
    (logical("io.debezium.time.MicroTimestamp"), -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    (logical("io.debezium.time.NanoTimestamp"), 2_000, datetime(1970, 1, 1, microsecond=2)),  # noqa: DTZ001
    (logical("io.debezium.time.ZonedTimestamp", "string"), "2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
    (logical("io.debezium.data.Json", "string"), "[1]", "[1]"),
]


@pytest.mark.parametrize(("schema", "found", "value"), CASES, ids=[str(each[0].get("name", each[0]["type"])) for each in CASES])
def test_a_value_is_what_its_schema_says(schema: dict[str, Any], found: Any, value: Value) -> None:
    read = value_of(schema, found)
    assert (repr(read), type(read)) == (repr(value), type(value))


REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    (DECIMAL, 7, "is not of type"),
    (DECIMAL | {"parameters": {}}, "AA==", "scale"),
    ({"type": "bytes"}, "?", "is not of type bytes"),
    (logical("io.debezium.time.MicroTime"), 86_400_000_000, "no time of a day"),
    (logical("io.debezium.time.NanoTimestamp"), 1, "nanoseconds"),
    (logical("io.debezium.time.Date"), "x", "is not of type"),
    (logical("io.debezium.time.Timestamp"), 10**20, "is not of type"),
    ({"type": "array"}, [1], "type array is no type of a column"),
    (logical("io.debezium.data.geometry.Point", "struct"), {"x": 1.0}, "geometry.Point is no type of a column"),
]


@pytest.mark.parametrize(("schema", "found", "reason"), REFUSED, ids=[each[2] for each in REFUSED])
def test_what_does_not_fit_is_refused(schema: dict[str, Any], found: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        value_of(schema, found)


def test_only_the_converters_wrapper_is_taken_off() -> None:
    assert unwrapped({"schema": {"type": "struct"}, "payload": {"a": 1}}) == ({"a": 1}, {"type": "struct"})
    assert unwrapped({"schema": "public", "payload": 1, "id": 2}) == ({"schema": "public", "payload": 1, "id": 2}, None)
