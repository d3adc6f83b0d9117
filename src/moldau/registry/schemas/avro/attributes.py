"""The attributes that several kinds of Avro types have: names, aliases, docs, and what the specification does not know."""

import re
from typing import Any, Final, NoReturn

from moldau.registry.schemas.avro.place import Place
from moldau.registry.schemas.avro.types import PRIMITIVES, Properties

TYPE_ATTRIBUTES: Final = frozenset({"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"})
ENUM_ATTRIBUTES: Final = TYPE_ATTRIBUTES | {"default"}
FIELD_ATTRIBUTES: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def names_of(node: dict[str, Any], enclosing: str, place: Place, *, strict: bool) -> tuple[str, str, list[str]]:
    """Name, namespace and full aliases; a dot in the name says the namespace, else the node does, else the enclosing type."""
    full = node.get("name")
    if not isinstance(full, str):
        place.refuse(f"a named type ({node['type']}) needs a 'name' that is a string")
    given = node.get("namespace")
    space, dot, name = full.rpartition(".")
    if not dot:
        space = given if isinstance(given, str) else enclosing
    if not space and name in PRIMITIVES:
        place.refuse(f"a type may not be called {name!r}")
    if strict:
        check_name(name, place)
        for part in space.split(".") if space else ():
            check_name(part, place)
    return name, space, [alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases_of(node, place)]


def aliases_of(node: dict[str, Any], place: Place) -> list[str]:
    """The aliases as they stand, each once."""
    if "aliases" not in node:
        return []
    aliases = node["aliases"]
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        place.refuse("'aliases' is a list of names")
    return list(dict.fromkeys(aliases))


def check_name(name: str, place: Place) -> None:
    """Refuse what is no name."""
    if not _NAME.fullmatch(name):
        place.refuse(f"{name!r} is no name: it must begin with a letter or _ and go on with letters, digits and _")


def doc_of(node: dict[str, Any]) -> str | None:
    """The doc; one that is no text does not count."""
    doc = node.get("doc")
    return doc if isinstance(doc, str) else None


def properties_of(node: dict[str, Any], attributes: frozenset[str]) -> Properties:
    """What the node says beside the attributes of its kind."""
    if node.keys() <= attributes:
        return {}
    return {name: value for name, value in node.items() if name not in attributes}


def refuse_constant(name: str) -> NoReturn:
    """`NaN` and the infinities, which Python's reader of JSON would take."""
    raise ValueError(f"{name} is no JSON number")
