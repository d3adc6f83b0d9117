"""From a path to its route. Parts are cut at slashes before they are unquoted: a subject may have a slash in its name, as %2F."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from moldau.registry.errors import RestError, invalid_subject
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


class NotAllowedError(RestError):
    """405; `allow` are the methods that the path has."""

    def __init__(self, allow: str) -> None:
        super().__init__(405, 405, "HTTP 405 Method Not Allowed")
        self.allow = allow


def find_route(method: str, path: str) -> Found:
    """The route of a path as it came; what answers GET answers HEAD. RestError 404, 42208, NotAllowedError."""
    methods, names, context = _find(path)
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        raise NotAllowedError(_allowed(methods))
    return Found(route, names, context)


def allowed_methods(path: str) -> str:
    """The methods of a path, as the header ``Allow`` has them. RestError 404."""
    return _allowed(_find(path)[0])


def _find(path: str) -> tuple[Mapping[str, Route], dict[str, str], str]:
    trimmed = path.lstrip("/").removesuffix("/")
    parts = trimmed.split("/") if trimmed else []
    context = DEFAULT_CONTEXT
    if len(parts) > 2 and parts[0] == _CONTEXTS:
        context = _unquoted(parts[1]).strip(":")
        context = context if context.startswith(".") else f".{context}"
        if ":" in context:
            raise invalid_subject(context)
        parts = parts[2:]
    for pattern, methods in _BY_LENGTH.get(len(parts), ()):
        names = _match(pattern, parts)
        if names is not None:
            return methods, names, context
    raise RestError(404, 404, "HTTP 404 Not Found")


def _unquoted(part: str) -> str:
    """A part of the path as text. RestError 42208 for bytes that are not UTF-8: two names must not become one."""
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise invalid_subject(part) from None


def _allowed(methods: Mapping[str, Route]) -> str:
    head = ["HEAD"] if "GET" in methods else []
    return ",".join([*head, *methods, "OPTIONS"])


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    names = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted[0] == "{":
            names[wanted[1:-1]] = _unquoted(part)
        elif wanted != part:
            return None
    return names
