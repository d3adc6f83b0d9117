"""What columns take in stores whose columns have types: such a store would convert other values, and the replica would differ."""

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

from moldau.changelog.values import Value

_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "any": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "real": (float,),
    "text": (str,),
    "bytes": (bytes,),
    "decimal": (Decimal, int, float),
    "date": (date,),
    "time": (time,),
    "timestamp": (datetime,),
    "timestamptz": (datetime,),
}
_INTEGERS: Final = 2**63


def fits(kind: str, value: Value) -> bool:
    """Whether a column of this type takes a value; all take None."""
    if value is None:
        return True
    if not isinstance(value, _CLASSES[kind]) or isinstance(value, bool) != (kind == "boolean"):
        return False
    match kind:
        case "integer":
            return isinstance(value, int) and -_INTEGERS <= value < _INTEGERS
        case "date":
            return not isinstance(value, datetime)
        case "timestamp" | "timestamptz":
            return isinstance(value, datetime) and (value.tzinfo is None) == (kind == "timestamp")
        case _:
            return True
