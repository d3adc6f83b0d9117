"""Values in records of Debezium's connectors, which Kafka Connect's JSON converter has written together with their schema.

Without its schema a value is what JSON says: a date is a number of days. With it, logical types become what they mean.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from moldau.changelog.values import Value

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Instead of a value that PostgreSQL has not sent, because it is stored out of line (TOAST) and has not changed."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_EPOCH_DAY = _EPOCH.date()
_WRAPPER = {"schema", "payload"}

Schema = Mapping[str, Any]
"""A schema of Kafka Connect, as its JSON converter writes it."""


def unwrapped(document: Any) -> tuple[Any, Schema | None]:
    """What a record has, with or without the converter's wrapper, and its schema."""
    if type(document) is dict and document.keys() == _WRAPPER:
        schema = document["schema"]
        return document["payload"], schema if type(schema) is dict else None
    return document, None


def fields_of(schema: Schema | None) -> Mapping[str, Schema]:
    """The schemas of a struct's fields, by name."""
    found = () if schema is None else schema.get("fields") or ()
    return {each["field"]: each for each in found if isinstance(each, dict) and "field" in each}


def value_of(schema: Schema, found: Any) -> Value:
    """A value by its schema. ValueError for one that does not fit it, and for types that no column of a changelog has."""
    if found is None:
        return None
    name, kind = str(schema.get("name")), schema.get("type")
    try:
        if name == "org.apache.kafka.connect.data.Decimal":
            return _decimal(found, int(schema["parameters"]["scale"]))
        if name == "io.debezium.data.VariableScaleDecimal":
            return _decimal(found["value"], int(found["scale"]))
        if name in _LOGICAL:
            return _LOGICAL[name](found)
        if kind == "bytes":
            return b64decode(found, validate=True)
        if kind in ("float", "double"):
            return float(found)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{str(found)[:100]!r} is not of type {schema.get('name') or kind}: {error}") from error
    if isinstance(found, dict | list):
        raise ValueError(f"type {schema.get('name') or kind} is no type of a column of a changelog")
    return found  # type: ignore[no-any-return]


def _decimal(text: str, scale: int) -> Decimal:
    unscaled = int.from_bytes(b64decode(text, validate=True), "big", signed=True)
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


def _whole(nanoseconds: int) -> int:
    microseconds, rest = divmod(nanoseconds, 1000)
    if rest:
        raise ValueError("it has nanoseconds, and a changelog has microseconds")
    return microseconds


def _time(microseconds: int) -> time:
    if not 0 <= microseconds < 86_400_000_000:
        raise ValueError("it is no time of a day")
    return (_EPOCH + timedelta(microseconds=microseconds)).time()


def _timestamp(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _date(days: int) -> date:
    return _EPOCH_DAY + timedelta(days=days)


_LOGICAL: Final[Mapping[str, Callable[[Any], Value]]] = {
    "io.debezium.time.Date": _date,
    "org.apache.kafka.connect.data.Date": _date,
    "io.debezium.time.Time": lambda found: _time(found * 1000),
    "io.debezium.time.MicroTime": _time,
    "io.debezium.time.NanoTime": lambda found: _time(_whole(found)),
    "org.apache.kafka.connect.data.Time": lambda found: _time(found * 1000),
    "io.debezium.time.Timestamp": lambda found: _timestamp(found * 1000),
    "io.debezium.time.MicroTimestamp": _timestamp,
    "io.debezium.time.NanoTimestamp": lambda found: _timestamp(_whole(found)),
    "org.apache.kafka.connect.data.Timestamp": lambda found: _timestamp(found * 1000),
    "io.debezium.time.ZonedTimestamp": datetime.fromisoformat,
    "io.debezium.time.ZonedTime": time.fromisoformat,
}
