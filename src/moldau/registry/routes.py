"""The table of the REST interface: which path does what. Paths are split at slashes before they are unquoted, since a subject may contain a
slash.

Four kinds of work: READ is a look-up in memory of one thing, WORK may take a while, since it understands schemas, or lists what one subject
or schema has, LIST goes over the whole registry, WRITE decides on a change that only the writer among the registries may make.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

from moldau import __version__
from moldau.registry import decisions, lookups, registration
from moldau.registry.body import read_config, read_mode, read_schema
from moldau.registry.decisions import ChangeDecision
from moldau.registry.errors import RestError, invalid_subject
from moldau.registry.request import config_view, version_view
from moldau.registry.schemas.languages import LANGUAGES
from moldau.registry.scopes import check_config_kept, check_mode_kept, config_in_scope, config_set_at, mode_in_scope, mode_set_at
from moldau.registry.subjects import DEFAULT_CONTEXT, EVERY_CONTEXT, scope_of

if TYPE_CHECKING:
    from moldau.registry.request import RestRequest
    from moldau.registry.state import RegistryState


class WorkKind(Enum):
    """What carrying out a request takes."""

    READ = auto()
    WORK = auto()
    LIST = auto()
    WRITE = auto()


class PlainText(str):
    """An answer that is a schema and not a JSON text around one."""

    __slots__ = ()


class RestRoute(NamedTuple):
    """A path and what it does. The answer is JSON; that of a WRITE is a Decision.

    `known` gives the answer to a WRITE that would change nothing, or None: every registry can give it, without asking the writer.
    """

    kind: WorkKind
    act: Callable[["RegistryState", "RestRequest"], Any]
    known: Callable[["RegistryState", "RestRequest"], Any] | None = None


def _subjects(state: "RegistryState", request: "RestRequest") -> list[str]:
    everywhere = EVERY_CONTEXT if request.context == DEFAULT_CONTEXT else scope_of(request.context)
    prefix = request.text("subjectPrefix", everywhere)
    found = lookups.subjects(state, request.qualified(prefix), deleted=request.flag("deleted"), deleted_only=request.flag("deletedOnly"))
    return request.page(found)


def _find(state: "RegistryState", request: "RestRequest") -> Any:
    found = lookups.find(
        state,
        request.subject(state),
        read_schema(request.json()),
        normalize=request.flag("normalize"),
        deleted=request.flag("deleted"),
    )
    return version_view(found, lookups.formatted(state, found, request.text("format")))


def _latest_with_metadata(state: "RegistryState", request: "RestRequest") -> Any:
    wanted = dict(zip(request.options.get("key", ()), request.options.get("value", ()), strict=False))
    found = lookups.latest_with_metadata(state, request.subject(state), wanted, deleted=request.flag("deleted"))
    return version_view(found, lookups.formatted(state, found, request.text("format")))


def _versions(state: "RegistryState", request: "RestRequest") -> list[int]:
    found = lookups.version_numbers(
        state,
        request.subject(state),
        deleted=request.flag("deleted"),
        deleted_only=request.flag("deletedOnly"),
        deleted_negative=request.flag("deletedAsNegative"),
    )
    return request.page(found)


def _version(state: "RegistryState", request: "RestRequest") -> Any:
    found = lookups.version(state, request.subject(state), request.version, deleted=request.flag("deleted"))
    return version_view(found, lookups.formatted(state, found, request.text("format")))


def _version_text(state: "RegistryState", request: "RestRequest") -> PlainText:
    return PlainText(_version(state, request)["schema"])


def _referenced_by(state: "RegistryState", request: "RestRequest") -> list[int]:
    found = lookups.referenced_by(state, request.subject(state), request.version, deleted=request.flag("deleted"))
    return request.page(found)


def _register(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    body = read_schema(request.json())
    return registration.register(state, request.subject(state), body, normalize=request.flag("normalize"), force=request.flag("force"))


def _registered(state: "RegistryState", request: "RestRequest") -> Any:
    body = read_schema(request.json())
    return registration.candidate(state, request.subject(state), body, normalize=request.flag("normalize")).known(state)


def _delete_version(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    return decisions.delete_version(state, request.subject(state), request.version, permanent=request.flag("permanent"))


def _delete_subject(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    return decisions.delete_subject(state, request.subject(state), permanent=request.flag("permanent"))


def _schema(state: "RegistryState", request: "RestRequest") -> Any:
    found = lookups.by_id(state, request.id, _context_subject(request))
    return lookups.id_view(state, found, request.text("format"), named="subject" in request.options, highest=request.flag("fetchMaxId"))


def _schema_text(state: "RegistryState", request: "RestRequest") -> PlainText:
    return PlainText(_schema(state, request)["schema"])


def _id_subjects(state: "RegistryState", request: "RestRequest") -> list[str]:
    found = lookups.holders_of(state, request.id, _context_subject(request), deleted=request.flag("deleted"))
    return request.page(each.subject for each in found)


def _id_versions(state: "RegistryState", request: "RestRequest") -> list[dict[str, Any]]:
    found = lookups.holders_of(state, request.id, _context_subject(request), deleted=request.flag("deleted"))
    return request.page({"subject": each.subject, "version": each.version} for each in found)


def _context_subject(request: "RestRequest") -> str | None:
    return request.qualified(request.text("subject")) or None


def _guid(state: "RegistryState", request: "RestRequest") -> Any:
    found = lookups.by_guid(state, request.names["guid"])
    return lookups.id_view(state, found, request.text("format"), named=False, highest=False)


def _guid_ids(state: "RegistryState", request: "RestRequest") -> list[dict[str, Any]]:
    return [{"context": context, "id": schema_id} for context, schema_id in lookups.ids_of_guid(state, request.names["guid"])]


def _schemas(state: "RegistryState", request: "RestRequest") -> list[dict[str, Any]]:
    prefix = request.qualified(request.text("subjectPrefix"))
    return request.page(lookups.schemas(state, prefix, deleted=request.flag("deleted"), latest_only=request.flag("latestOnly")))


def _compatibility(state: "RegistryState", request: "RestRequest") -> dict[str, Any]:
    number = request.version if "version" in request.names else None
    verbose = request.flag("verbose")
    try:
        problems = lookups.compatibility(
            state, request.subject(state), number, read_schema(request.json()), normalize=request.flag("normalize")
        )
    except RestError as error:
        if not verbose or error.code != 42201:
            raise
        problems = [error.message]
    return {"is_compatible": not problems, **({"messages": problems} if verbose else {})}


def _config(state: "RegistryState", request: "RestRequest") -> Any:
    scope = request.scope()
    if not request.flag("defaultToGlobal"):
        return config_view(config_set_at(state, scope))
    check_config_kept(state, scope)
    return config_view(config_in_scope(state, scope))


def _set_config(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    return decisions.set_config(state, request.scope(), read_config(request.json()))


def _delete_config(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    return decisions.delete_config(state, request.scope())


def _mode(state: "RegistryState", request: "RestRequest") -> Any:
    scope = request.scope()
    if not request.flag("defaultToGlobal"):
        return {"mode": mode_set_at(state, scope)}
    check_mode_kept(state, scope)
    return {"mode": mode_in_scope(state, scope)}


def _set_mode(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    return decisions.set_mode(state, request.scope(), read_mode(request.json()), force=request.flag("force"))


def _delete_mode(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    return decisions.delete_mode(state, request.scope(), recursive=request.flag("recursive"))


def _contexts(state: "RegistryState", request: "RestRequest") -> list[str]:
    prefix = request.text("contextPrefix")
    return request.page(each for each in state.all_contexts() if each.startswith(prefix))


def _delete_context(state: "RegistryState", request: "RestRequest") -> ChangeDecision:
    return decisions.delete_context(state, request.names["context"].strip(":"))


def _read(act: Callable[["RegistryState", "RestRequest"], Any]) -> RestRoute:
    return RestRoute(WorkKind.READ, act)


def _work(act: Callable[["RegistryState", "RestRequest"], Any]) -> RestRoute:
    return RestRoute(WorkKind.WORK, act)


def _list(act: Callable[["RegistryState", "RestRequest"], Any]) -> RestRoute:
    return RestRoute(WorkKind.LIST, act)


def _write(act: Callable[["RegistryState", "RestRequest"], Any]) -> RestRoute:
    return RestRoute(WorkKind.WRITE, act)


ROUTES: dict[str, Mapping[str, RestRoute]] = {
    "": {"GET": _read(lambda _state, _request: {}), "POST": _read(lambda _state, _request: {})},
    "subjects": {"GET": _list(_subjects)},
    "subjects/{subject}": {"POST": _work(_find), "DELETE": _write(_delete_subject)},
    "subjects/{subject}/metadata": {"GET": _work(_latest_with_metadata)},
    "subjects/{subject}/versions": {"GET": _work(_versions), "POST": RestRoute(WorkKind.WRITE, _register, _registered)},
    "subjects/{subject}/versions/{version}": {"GET": _read(_version), "DELETE": _write(_delete_version)},
    "subjects/{subject}/versions/{version}/schema": {"GET": _read(_version_text)},
    "subjects/{subject}/versions/{version}/referencedby": {"GET": _work(_referenced_by)},
    "schemas": {"GET": _list(_schemas)},
    "schemas/types": {"GET": _read(lambda _state, _request: list(LANGUAGES))},
    "schemas/ids/{id}": {"GET": _read(_schema)},
    "schemas/ids/{id}/schema": {"GET": _read(_schema_text)},
    "schemas/ids/{id}/subjects": {"GET": _work(_id_subjects)},
    "schemas/ids/{id}/versions": {"GET": _work(_id_versions)},
    "schemas/guids/{guid}": {"GET": _work(_guid)},
    "schemas/guids/{guid}/ids": {"GET": _work(_guid_ids)},
    "compatibility/subjects/{subject}/versions": {"POST": _work(_compatibility)},
    "compatibility/subjects/{subject}/versions/{version}": {"POST": _work(_compatibility)},
    "config": {"GET": _read(_config), "PUT": _write(_set_config), "DELETE": _write(_delete_config)},
    "config/{subject}": {"GET": _read(_config), "PUT": _write(_set_config), "DELETE": _write(_delete_config)},
    "mode": {"GET": _read(_mode), "PUT": _write(_set_mode), "DELETE": _write(_delete_mode)},
    "mode/{subject}": {"GET": _read(_mode), "PUT": _write(_set_mode), "DELETE": _write(_delete_mode)},
    "contexts": {"GET": _list(_contexts)},
    "contexts/{context}": {"DELETE": _write(_delete_context)},
    "v1/metadata/version": {"GET": _read(lambda _state, _request: {"version": f"moldau-{__version__}", "commitId": ""})},
}  # fmt: skip
"""By path, then by method."""


_CONTEXTS = "contexts"


class RouteMatch(NamedTuple):
    """A route, the parts of the path that it names, and the context that the path begins with."""

    route: RestRoute
    names: dict[str, str]
    context: str


def _table() -> dict[int, list[tuple[list[str], Mapping[str, RestRoute]]]]:
    table: dict[int, list[tuple[list[str], Mapping[str, RestRoute]]]] = {}
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


def find_route(method: str, path: str) -> RouteMatch:
    """The route of a path as it came; what answers GET answers HEAD. RestError 404, 42208, NotAllowedError."""
    methods, names, context = _find_node(path)
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        raise NotAllowedError(_allowed(methods))
    return RouteMatch(route, names, context)


def allowed_methods(path: str) -> str:
    """The methods of a path, as the header ``Allow`` has them. RestError 404."""
    return _allowed(_find_node(path)[0])


def _find_node(path: str) -> tuple[Mapping[str, RestRoute], dict[str, str], str]:
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


def _allowed(methods: Mapping[str, RestRoute]) -> str:
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
