"""JSON Schema's drafts: whether a document is a schema of one. jsonschema judges, but for one keyword of the drafts' own schemas.

`uniqueItems` is judged by sorted texts. jsonschema compares each two values of a list that cannot be sorted: 20,000 objects in an `enum` of
draft 4 take minutes. A validator with a keyword of its own has to be kept from handing on to the plain one, which it does for each schema
that names its draft: so it gets copies of the drafts' schemas without `$schema`.
"""

from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY as DRAFTS  # type: ignore[import-untyped]
from referencing import Registry, Specification
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from moldau.registry.schemas.json_schema.text import write_json
from moldau.registry.schemas.language import InvalidSchemaError

_SPECIFICATIONS: dict[str, Specification[Any]] = {
    "json-schema.org/draft-04/schema": DRAFT4,
    "json-schema.org/draft-06/schema": DRAFT6,
    "json-schema.org/draft-07/schema": DRAFT7,
    "json-schema.org/draft/2019-09/schema": DRAFT201909,
    "json-schema.org/draft/2020-12/schema": DRAFT202012,
}
_VALIDATORS = {
    DRAFT4.name: Draft4Validator,
    DRAFT6.name: Draft6Validator,
    DRAFT7.name: Draft7Validator,
    DRAFT201909.name: Draft201909Validator,
    DRAFT202012.name: Draft202012Validator,
}
MODERN: tuple[Specification[Any], ...] = (DRAFT201909, DRAFT202012)
_FAULT_CHARACTERS_MAX = 1_000


def specification(document: Any) -> Specification[Any]:
    """The draft a document says it is of; draft 7 if it says nothing or something unknown, as in Confluent's registry."""
    named = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(named, str):
        return DRAFT7
    return _SPECIFICATIONS.get(named.partition("://")[2].rstrip("#"), DRAFT7)


def check_against_draft(document: Any) -> None:
    """InvalidSchemaError if the document is no schema of its draft, with the place.

    Formats are not checked: patterns are JavaScript's, and Python cannot read all that are right.
    """
    if not isinstance(document, dict | bool):
        raise InvalidSchemaError(f"A JSON schema is an object or a boolean, not {write_json(document)[:_FAULT_CHARACTERS_MAX]}")
    try:
        error = next(_validator(specification(document).name).iter_errors(document), None)
    except RecursionError as error:
        raise InvalidSchemaError("The JSON schema is nested too deeply") from error
    if error is not None:
        place = "#/" + "/".join(str(part) for part in error.absolute_path)
        raise InvalidSchemaError(f"Invalid JSON schema at {place}: {error.message[:_FAULT_CHARACTERS_MAX]}") from error


@cache
def _validator(draft: str) -> Any:
    """What judges schemas of a draft."""
    plain = _VALIDATORS[draft]
    registry: Registry[Any] = Registry()
    for uri in DRAFTS:
        contents = DRAFTS.contents(uri)
        bare = {name: value for name, value in contents.items() if name != "$schema"}
        registry = registry.with_resource(uri, specification(contents).create_resource(bare))
    bare = {name: value for name, value in plain.META_SCHEMA.items() if name != "$schema"}
    return extend(plain, {"uniqueItems": _check_unique})(bare, registry=registry)


def _check_unique(_validator: Any, wanted: Any, values: Any, _schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(values, list) and len({write_json(_plain(value), sort=True) for value in values}) < len(values):
        yield ValidationError(f"{repr(values)[: _FAULT_CHARACTERS_MAX // 2]} has non-unique elements")


def _plain(value: Any) -> Any:
    """Numbers that are equal made alike: 1, 1.0 and 1e0."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        sign, digits, exponent = Decimal(value).as_tuple()
        text = "".join(map(str, digits))
        kept = text.rstrip("0")
        return [sign, kept, int(exponent) + len(text) - len(kept)] if kept else [0]
    return value
