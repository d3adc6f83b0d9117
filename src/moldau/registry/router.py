"""From a path to its route. Parts are cut at slashes before they are unquoted: a subject may have a slash in its name, as %2F."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from moldau.registry.errors import RestError
from moldau.registry.routes import ROUTES, Route
from moldau.registry.subjects import DEFAULT_CONTEXT

_CONTEXTS = "contexts"


class Found(NamedTuple):
    """A route, the parts of the path that it names, and the context that the path begins with."""

    route: Route
    names: dict[str, str]
    context: str


def _table() -> dict[int, list[tuple[list[str], Mapping[str, Route]]]]:
    table: dict[int, list[tuple[list[str], Mapping[str, Route]]]] = {}
    for pattern, methods in ROUTES.items():
        parts = pattern.split("/") if pattern else []
        table.setdefault(len(parts), []).append((parts, methods))
    return table


_BY_LENGTH = _table()


def find_route(method: str, path: str) -> Found:
    """The route of a path as it came. RestError 404 or 405."""
    parts = [part for part in path.split("/") if part]
    context = DEFAULT_CONTEXT
    if len(parts) > 2 and parts[0] == _CONTEXTS:
        context = unquote(parts[1]).strip(":")
        context = context if context.startswith(".") else f".{context}"
        parts = parts[2:]
    for pattern, methods in _BY_LENGTH.get(len(parts), ()):
        names = _match(pattern, parts)
        if names is not None:
            route = methods.get(method)
            if route is None:
                raise RestError(405, 405, "HTTP 405 Method Not Allowed")
            return Found(route, names, context)
    raise RestError(404, 404, "HTTP 404 Not Found")


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    names = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted[0] == "{":
            names[wanted[1:-1]] = unquote(part)
        elif wanted != part:
            return None
    return names
