"""The registry as an ASGI application: bytes of HTTP to requests of ours, and answers back. It decides nothing.

Look-ups are answered at once, on the loop. What decides something about schemas runs in a few threads, what changes something in others,
lists of the whole registry one after the other in one more, and what has to be found out about a schema in processes of its own
(`schema_workers`), so that none of it keeps the look-ups waiting.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from moldau.registry.access import JSON_TYPES, Access, check_content_type
from moldau.registry.errors import NOT_FOUND, RestError, answer_too_large, not_among_the_kept, timed_out
from moldau.registry.limits import ANSWER_BYTES_MAX, HttpLimits
from moldau.registry.peers import PATH as CONFIRMATIONS
from moldau.registry.request import NO_CONTENT, RestRequest, encode_json
from moldau.registry.routes import NotAllowedError, PlainText, RestRoute, WorkKind, allowed_methods, find_route
from moldau.registry.schema_workers import NotReadableError
from moldau.registry.schemas.answers import UnansweredError

if TYPE_CHECKING:
    from moldau.registry.changes import Changes
    from moldau.registry.schema_workers import SchemaWorkers
    from moldau.registry.schemas.answers import HeldAnswers
    from moldau.registry.state import RegistryState

log = logging.getLogger(__name__)

METADATA_ID = "/v1/metadata/id"
WORKERS = 4
WRITERS = 16
_CHANGE_ATTEMPTS = 20
_PIECE_BYTES = 256 << 10
"""An answer leaves in pieces of this size: what its client has not taken of it is counted until then."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HttpAnswer(NamedTuple):
    """Status and body, already bytes, of an answer; the methods of its path, if they are named; the origin whose pages may read it."""

    status: int
    content: bytes
    allow: str = ""
    origin: str = ""


class App:
    """Answers from `state`, has schemas read and `changes` made; `limits` bound the bodies of requests."""

    def __init__(
        self,
        state: "RegistryState",
        changes: "Changes",
        schema_workers: "SchemaWorkers",
        access: Access,
        *,
        cluster_id: str = "",
        limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._state = state
        self._changes = changes
        self._schema_workers = schema_workers
        self._access = access
        self._identity = {"kafka-cluster": cluster_id, "schema-registry-cluster": changes.group}
        self._limits = limits
        self._bodies: dict[int, int] = {}
        self._bodies_bytes = 0
        self._answers_bytes = 0
        self._workers = ThreadPoolExecutor(WORKERS, "moldau-registry-work")
        self._lists = ThreadPoolExecutor(1, "moldau-registry-list")
        self._writers = ThreadPoolExecutor(WRITERS, "moldau-registry-write")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not supported")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        origin = ""
        try:
            origin = self._access.check(headers) or ""
            check_content_type(scope["method"], headers)
            answer = await self._answer(scope, headers, receive)
        except RestError as error:
            if error.code in NOT_FOUND and self._state.left_out:
                error = not_among_the_kept(self._state.memory_bytes_max)
            answer = _error(error.status, error.code, error.message)
            if isinstance(error, NotAllowedError):
                answer = answer._replace(allow=error.allow)
        except MemoryError:
            log.error("registry request refused, out of memory: method=%s path=%s", scope["method"], scope["path"])
            answer = _error(503, 503, "The registry is out of memory; try again")
        except asyncio.CancelledError:  # the stop waits for it no longer
            answer = _error(503, 503, "The registry is stopping")
        except Exception:
            log.exception("registry request failed: method=%s path=%s", scope["method"], scope["path"])
            answer = _error(500, 500, "Internal Server Error")
        finally:
            self._bodies_bytes -= self._bodies.pop(id(receive), 0)
        if self._answers_bytes + len(answer.content) > max(self._limits.all_unread_bytes_max, len(answer.content)):
            most = self._limits.all_unread_bytes_max
            answer = _error(503, 503, f"Answers that clients have not read yet have more than {most:,} bytes; try again")
        with contextlib.suppress(asyncio.CancelledError):
            await self._send(answer._replace(origin=origin) if origin else answer, headers.get("accept", ""), send)

    async def _send(self, answer: HttpAnswer, accept: str, send: Send) -> None:
        content, start = answer.content, 0
        self._answers_bytes += len(content)
        try:
            await send({"type": "http.response.start", "status": answer.status, "headers": _headers(answer, accept)})
            while len(content) - start > _PIECE_BYTES:
                end = start + _PIECE_BYTES
                await send({"type": "http.response.body", "body": content[start:end], "more_body": True})
                start = end
            await send({"type": "http.response.body", "body": content[start:]})
        finally:
            self._answers_bytes -= len(content)

    def close(self) -> None:
        """Take no more work; what runs is not waited for."""
        for executor in (self._workers, self._lists, self._writers):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, scope: Scope, headers: dict[str, str], receive: Receive) -> HttpAnswer:
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        if scope["method"] == "OPTIONS":
            return HttpAnswer(200, b"", allowed_methods(path))
        if path == METADATA_ID and scope["method"] in ("GET", "HEAD"):
            return _json({"id": "", "scope": {"path": [], "clusters": self._identity}})
        if path == CONFIRMATIONS and scope["method"] == "POST":
            asked = RestRequest("POST", path, {}, {}, await self._body(receive), forwarded=True)
            status, content = await asyncio.get_running_loop().run_in_executor(self._writers, self._changes.confirm, asked)
            return HttpAnswer(status, content)
        route, names, context = find_route(scope["method"], path)
        content = await self._body(receive) if scope["method"] in ("POST", "PUT") else b""
        request = RestRequest(
            scope["method"],
            f"{path}?{query}" if query else path,
            names,
            parse_qs(query, keep_blank_values=True),
            content,
            context,
            forwarded="x-forward" in headers,
        )
        return await self._act(route, request)

    async def _act(self, route: RestRoute, request: RestRequest) -> HttpAnswer:
        with self._schema_workers.hold() as held:
            return await self._act_holding(route, request, held)

    async def _act_holding(self, route: RestRoute, request: RestRequest, held: "HeldAnswers") -> HttpAnswer:
        if route.known is not None:
            known = await self._tried(partial(route.known, self._state, request), held)
            if known is not None:
                return _json(known)
        if route.kind is WorkKind.WRITE:
            return await self._change(route, request, held)
        act = partial(route.act, self._state, request)
        if route.kind is not WorkKind.READ or request.text("format"):
            executor = self._lists if route.kind is WorkKind.LIST else self._workers
            content = await self._schema_workers.settle(executor, lambda: encode_body(act(), self._limits.answer_bytes_max), held)
            return HttpAnswer(200, content)
        return _json(act())

    async def _change(self, route: RestRoute, request: RestRequest, held: "HeldAnswers") -> HttpAnswer:
        """Carry a change out. A schema that is not parsed yet is parsed without the lock of all changes; then it starts again."""
        loop = asyncio.get_running_loop()
        for _ in range(_CHANGE_ATTEMPTS):
            try:
                status, content = await loop.run_in_executor(self._writers, self._changes.carry_out, route.act, request)
            except UnansweredError:
                await self._tried(partial(route.act, self._state, request), held)
            else:
                return HttpAnswer(status, content)
        raise timed_out("other requests changed the subject each time its versions were compared")

    async def _tried(self, decide: Callable[[], Any], held: "HeldAnswers") -> Any:
        """What comes of it here; None if nothing does: perhaps this registry has not read enough, and the writer has the last word."""
        try:
            return await self._schema_workers.settle(self._workers, decide, held)
        except NotReadableError:
            raise
        except RestError:
            return None

    async def _body(self, receive: Receive) -> bytes:
        """The body. RestError 413 for one that is too long, 503 while all of them together are."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RestError(400, 400, "the body ended early")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._bodies[id(receive)] = size
            self._bodies_bytes += len(parts[-1])
            if size > self._limits.body_bytes_max:
                raise RestError(413, 413, f"The body has more than {self._limits.body_bytes_max:,} bytes")
            if self._bodies_bytes > self._limits.all_bodies_bytes_max:
                raise RestError(503, 503, f"Requests under way have more than {self._limits.all_bodies_bytes_max:,} bytes; try again")
            if not message.get("more_body"):
                return b"".join(parts)


def _json(value: Any) -> HttpAnswer:
    return HttpAnswer(200, encode_body(value))


def encode_body(value: Any, bytes_max: int = ANSWER_BYTES_MAX) -> bytes:
    """The body of an answer that is a schema's text, a list, which is encoded one by one for the sake of other threads, or other JSON.

    RestError 422 for a list that is too long.
    """
    if isinstance(value, PlainText):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, list):
        parts, size = [], 0
        for each in value:
            parts.append(encode_json(each))
            size += len(parts[-1]) + 1
            if size > bytes_max:
                raise answer_too_large(bytes_max)
        return b"[" + b",".join(parts) + b"]"
    return encode_json(value)


def _error(status: int, code: int, message: str) -> HttpAnswer:
    return HttpAnswer(status, encode_json({"error_code": code, "message": message}))


def _headers(answer: HttpAnswer, accept: str) -> list[tuple[bytes, bytes]]:
    allow = [(b"allow", answer.allow.encode())] if answer.allow else []
    if answer.origin:
        allow += [(b"access-control-allow-origin", answer.origin.encode("latin-1")), (b"vary", b"Origin")]
        if answer.allow:
            allow.append((b"access-control-allow-methods", answer.allow.encode()))
            allow.append((b"access-control-allow-headers", b"Content-Type, Accept"))
    if answer.status == NO_CONTENT:
        return allow
    return [(b"content-type", _content_type(accept).encode()), (b"content-length", b"%d" % len(answer.content)), *allow]


def _content_type(accept: str) -> str:
    """The first of our types that the client takes; ours if it takes none: better an answer than none."""
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((each for each in JSON_TYPES if each in wanted), JSON_TYPES[0])
