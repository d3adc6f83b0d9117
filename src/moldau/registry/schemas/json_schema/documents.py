"""JSON Schema documents: their text, the draft that they follow, and where their references lead (into the document itself, into registered
ones, into the drafts'; never to the network).

`1.50` stays `1.50`, since numbers with a point are read as decimals; `1e2` becomes `1E+2`, as in Confluent's registry.

`uniqueItems` is checked by sorted texts. jsonschema compares each two values of a list that cannot be sorted: 20,000 objects in an
`enum` of draft 4 take minutes. A validator with a keyword of its own would delegate to the plain one for each schema that names its draft:
so it gets copies of the drafts' schemas without `$schema`.
"""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from urllib.parse import urljoin

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY as DRAFTS  # type: ignore[import-untyped]
from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference, quoted

if TYPE_CHECKING:
    from referencing._core import Resolver as _Resolver


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
    """The draft that a document names; draft 7 if it names none or an unknown one, as in Confluent's registry."""
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
    """The validator of schemas of a draft."""
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


Resolver: TypeAlias = "_Resolver[Any]"


def resolver_for(document: Any, references: Sequence[ResolvedReference]) -> Resolver:
    """What finds references from the root of `document`; the registered ones go by their name, as it is or beside the root's `$id`."""
    root = specification(document).create_resource(document)
    base = root.id() or ""
    registry: Registry[Any] = DRAFTS
    for reference in references:
        contents = read_json(reference.text, f"Reference {reference.name} ({reference.subject} {reference.version})")
        check_against_draft(contents)
        resource = specification(contents).create_resource(contents)
        names = {reference.name, "./" + reference.name, urljoin(base, reference.name)}
        registry = registry.with_resources((name, resource) for name in names)
    resolver: Resolver = registry.with_resource(base, root).resolver(base)
    return resolver


def subresource(resolver: Resolver, value: dict[str, Any], draft: Specification[Any]) -> Resolver:
    """What finds references inside `value`, which may have an `$id` of its own."""
    return resolver.in_subresource(draft.create_resource(value))


def check_references(document: Any, resolver: Resolver) -> None:
    """InvalidSchemaError for the first reference in the document that leads nowhere."""
    draft = specification(document)
    waiting = [(draft.create_resource(document), resolver)]
    while waiting:
        resource, here = waiting.pop()
        contents = resource.contents
        if isinstance(contents, dict):
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(contents.get(keyword), str):
                    _check_reference(contents[keyword], here, early=draft not in MODERN)
        waiting += [(child, here.in_subresource(child)) for child in resource.subresources()]


def _check_reference(reference: str, resolver: Resolver, *, early: bool) -> None:
    """Follow a reference as long as it leads to a reference; in early drafts `$ref` counts alone, in late ones if it stands alone."""
    seen = set()
    found, resolver = follow(resolver, reference)
    while isinstance(found, dict) and isinstance(found.get("$ref"), str) and (early or len(found) == 1):
        if id(found) in seen:
            raise InvalidSchemaError(f"The reference {reference!r} of the JSON schema leads to itself")
        seen.add(id(found))
        found, resolver = follow(resolver, found["$ref"])


def follow(resolver: Resolver, reference: str) -> tuple[Any, Resolver]:
    """The schema a reference leads to, and what finds references inside it; InvalidSchemaError if there is none."""
    try:
        found = resolver.lookup(reference)
    except Unresolvable as error:
        raise InvalidSchemaError(f"The reference {reference!r} of the JSON schema cannot be resolved") from error
    if not isinstance(found.contents, dict | bool):
        raise InvalidSchemaError(f"The reference {reference!r} of the JSON schema does not refer to a schema")
    return found.contents, found.resolver
