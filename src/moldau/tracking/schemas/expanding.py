"""Avro schemas that name types of each other's files, made into one without external references.

A name that is defined elsewhere is replaced by its definition where it is first used; later uses keep the name, as Avro wants it. So what
is registered needs no references, and its reader needs no second request to the registry.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from moldau.tracking.errors import SchemaError
from moldau.tracking.header import HEADER_NAME, HEADER_SCHEMA

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})

Library = dict[str, tuple[Mapping[str, Any], str]]
"""Definitions by full name, and where each comes from, for messages."""


def read_files(paths: Iterable[Path]) -> tuple[list[Mapping[str, Any]], Library]:
    """The schemas of these files, and all of them by name. SchemaError names the file."""
    found: list[Mapping[str, Any]] = []
    library: Library = {}
    for path in paths:
        try:
            schema = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SchemaError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise SchemaError(f"{path}: no JSON: {error}") from None
        for each in schema if isinstance(schema, list) else [schema]:
            if not isinstance(each, dict) or each.get("type") not in _NAMED or not each.get("name"):
                raise SchemaError(f"{path}: a file holds a record, an enum or a fixed type, not {json.dumps(each)[:80]}")
            found.append(each)
            add_to_library(library, each, str(path))
    return found, library


def add_to_library(library: Library, schema: Mapping[str, Any], origin: str) -> None:
    """Let its name stand for it. SchemaError if the name stands for something else already."""
    name, _ = _full_name(schema["name"], schema.get("namespace"))
    known = library.setdefault(name, (schema, origin))
    if known[0] != schema:
        raise SchemaError(f"{origin}: type {name} is already defined otherwise in {known[1]}")


def expand(schema: Any, library: Library | None = None) -> Any:
    """A copy of `schema` with every name of the library defined at its first use. SchemaError for a name that nobody defines."""
    known = {HEADER_NAME: (HEADER_SCHEMA, "the library"), **(library or {})}
    return _expand(schema, "", known, set())


def refers_to(schema: Any, name: str) -> bool:
    """Whether a type of this full name is called by it anywhere in what `expand` has made."""
    match schema:
        case str():
            return schema == name and schema not in _NAMED
        case list():
            return any(refers_to(each, name) for each in schema)
        case Mapping():
            inside = [schema[part] for part in ("type", "items", "values", "fields") if part in schema]
            return refers_to(inside, name)
        case _:
            return False


def _expand(schema: Any, namespace: str, library: Library, defined: set[str]) -> Any:
    match schema:
        case str() if schema in PRIMITIVES:
            return schema
        case str():
            return _named(schema, namespace, library, defined)
        case list():
            return [_expand(each, namespace, library, defined) for each in schema]
        case Mapping() if schema.get("type") in _NAMED:
            return _definition(schema, namespace, library, defined)
        case Mapping() if schema.get("type") == "array":
            return {**schema, "items": _expand(schema.get("items"), namespace, library, defined)}
        case Mapping() if schema.get("type") == "map":
            return {**schema, "values": _expand(schema.get("values"), namespace, library, defined)}
        case Mapping() if isinstance(schema.get("type"), str) and schema["type"] in PRIMITIVES:
            return dict(schema)
        case Mapping() if "type" in schema:
            return _expand(schema["type"], namespace, library, defined)
        case _:
            raise SchemaError(f"no Avro type: {json.dumps(schema, default=str)[:80]}")


def _named(name: str, namespace: str, library: Library, defined: set[str]) -> Any:
    for full in dict.fromkeys((_full_name(name, namespace)[0], name)):
        if full in defined:
            return full
        if full in library:
            return _definition(library[full][0], "", library, defined)
    raise SchemaError(f"type {_full_name(name, namespace)[0]} is not defined; the files that it stands in are given together")


def _definition(schema: Mapping[str, Any], namespace: str, library: Library, defined: set[str]) -> dict[str, Any]:
    """A type with its full name, split into name and namespace, and what it is made of."""
    if not isinstance(schema.get("name"), str):
        raise SchemaError(f"a {schema['type']} has a name: {json.dumps(schema, default=str)[:80]}")
    full, inside = _full_name(schema["name"], schema.get("namespace", namespace))
    if full in defined:
        raise SchemaError(f"type {full} is defined twice")
    defined.add(full)
    made = {**schema, "name": full.rpartition(".")[2]}
    if inside or "namespace" in schema:
        made["namespace"] = inside
    if schema["type"] in ("record", "error"):
        if not isinstance(schema.get("fields"), list):
            raise SchemaError(f"record {full} has no list of fields")
        names = [each.get("name") for each in schema["fields"] if isinstance(each, Mapping)]
        if len(set(names)) != len(names):
            raise SchemaError(f"record {full} has two fields of one name: {', '.join(map(str, names))}")
        made["fields"] = [_field(each, full, inside, library, defined) for each in schema["fields"]]
    return made


def _field(field: Any, record: str, namespace: str, library: Library, defined: set[str]) -> dict[str, Any]:
    if not isinstance(field, Mapping) or "name" not in field or "type" not in field:
        raise SchemaError(f"record {record}: a field has a name and a type: {json.dumps(field, default=str)[:80]}")
    try:
        return {**field, "type": _expand(field["type"], namespace, library, defined)}
    except SchemaError as error:
        raise SchemaError(f"{record}.{field['name']}: {error}") from None


def _full_name(name: str, namespace: str | None) -> tuple[str, str]:
    """The full name and its namespace."""
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{namespace}.{name}", namespace) if namespace else (name, "")
