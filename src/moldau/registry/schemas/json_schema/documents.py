"""Where the references of a JSON Schema lead: into its own document, into registered ones, into the drafts'. Never to the net."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urljoin

from jsonschema_specifications import REGISTRY as DRAFTS  # type: ignore[import-untyped]
from referencing import Registry, Specification
from referencing.exceptions import Unresolvable

from moldau.registry.schemas.json_schema.drafts import MODERN, check_against_draft, specification
from moldau.registry.schemas.json_schema.text import read_json
from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference

if TYPE_CHECKING:
    from referencing._core import Resolver as _Resolver

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
        raise InvalidSchemaError(f"The reference {reference!r} of the JSON schema leads nowhere") from error
    if not isinstance(found.contents, dict | bool):
        raise InvalidSchemaError(f"The reference {reference!r} of the JSON schema leads to no schema")
    return found.contents, found.resolver
