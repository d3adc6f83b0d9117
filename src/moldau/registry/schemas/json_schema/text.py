"""JSON text in and out, keeping the order of names and the digits of numbers: what is stored is what was sent, without the spaces.

`1.50` stays `1.50`, since numbers with a point are read as decimals; `1e2` becomes `1E+2`, as in Confluent's registry.
"""

import json
from decimal import Decimal
from typing import Any, NoReturn

from moldau.registry.schemas.language import InvalidSchemaError, quoted


def read_json(text: str, what: str) -> Any:
    """The value of a text; InvalidSchemaError, naming `what` it should have been, if it is no JSON."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except ValueError as error:
        raise InvalidSchemaError(f"{what} is no JSON: {error}") from error
    except RecursionError as error:
        raise InvalidSchemaError(f"{what} is nested too deeply") from error


def write_json(value: Any, *, sort: bool = False) -> str:
    """The text of a value without spaces; `sort` puts names in order."""
    if isinstance(value, dict):
        items = sorted(value.items()) if sort else value.items()
        return "{" + ",".join(f"{quoted(name)}:{write_json(item, sort=sort)}" for name, item in items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write_json(item, sort=sort) for item in value) + "]"
    return str(value) if isinstance(value, Decimal) else quoted(value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
