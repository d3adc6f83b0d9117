"""Values of columns out of PostgreSQL's text format, by the types of `moldau.changelog.values.Table`.

The text has to be that of a session with `SESSION_OPTIONS`, which make it independent of the server's settings.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

from moldau.changelog.values import Value

SESSION_OPTIONS: Final[Mapping[str, str]] = {
    "bytea_output": "hex",
    "DateStyle": "ISO",
    "extra_float_digits": "3",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
}

TYPES: Final[Mapping[int, str]] = {
    16: "boolean",  # boolean
    17: "bytes",  # bytea
    20: "integer",  # bigint
    21: "integer",  # smallint
    23: "integer",  # integer
    26: "integer",  # oid
    700: "real",  # real
    701: "real",  # double precision
    1082: "date",  # date
    1083: "time",  # time without time zone
    1114: "timestamp",  # timestamp without time zone
    1184: "timestamptz",  # timestamp with time zone
    1700: "decimal",  # numeric
}
"""By OID, which is fixed for the types that are built in. What is not here is text, as PostgreSQL writes it: json, uuid, interval, arrays,
enumerations, ranges, and domains over any type.
"""

Parser = Callable[[bytes], Value]


def type_of(oid: int) -> str:
    """By the vocabulary of changelogs."""
    return TYPES.get(oid, "text")


def parser_of(kind: str) -> Parser:
    """For values of a type; it raises ValueError for a value that Python's type does not have, such as the date `infinity`."""
    return _PARSERS[kind]


def _boolean(text: bytes) -> bool:
    return text == b"t"


def _bytes(text: bytes) -> bytes:
    return bytes.fromhex(text[2:].decode())


def _date(text: bytes) -> date:
    return date.fromisoformat(text.decode())


def _decimal(text: bytes) -> Decimal:
    return Decimal(text.decode())


def _time(text: bytes) -> time:
    if text.startswith(b"24"):  # newer versions of Python read it as midnight
        raise ValueError("the hour 24")
    return time.fromisoformat(text.decode())


def _datetime(text: bytes) -> datetime:
    return datetime.fromisoformat(text.decode())


_PARSERS: Final[Mapping[str, Parser]] = {
    "boolean": _boolean,
    "bytes": _bytes,
    "date": _date,
    "decimal": _decimal,
    "integer": int,
    "real": float,
    "text": bytes.decode,
    "time": _time,
    "timestamp": _datetime,
    "timestamptz": _datetime,
}
