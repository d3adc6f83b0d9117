"""Blocking HTTP to a registry that may have several addresses: JSON out, JSON back, connections kept and shared by threads.

After an address that cannot be reached the next one is tried, and that one last from then on; so after an answer that it cannot serve the
request now (a registry without its log or its writer). A kept connection may have been closed by the other side meanwhile: the request
is sent once more on a new one. All requests of the registry are idempotent.
"""

import base64
import contextlib
import http.client
import json
import os
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from moldau.registry.client_errors import RegistryError, RegistryUnavailableError

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
IDLE_MAX = 8
"""Connections kept per address."""
_ELSEWHERE = (429, 500, 502, 503, 504)
"""Answers that may be others at another address."""


class Target(NamedTuple):
    """One address of the registry."""

    scheme: str
    host: str
    port: int
    prefix: str
    """Path before every path, such as ``/contexts/.fleet``."""
    authorization: str | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def parse_urls(text: str) -> list[Target]:
    """The addresses of ``http://HOST:PORT,...``, at least one; ``HOST:PORT`` alone is http. ValueError names the fault."""
    targets = [_parse_url(part.strip()) for part in text.split(",") if part.strip()]
    if not targets:
        raise ValueError("no schema registry is named (http://HOST:PORT)")
    return targets


def _parse_url(text: str) -> Target:
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or ("://" not in text and parts.netloc.endswith(":")):  # htp:/host
        raise ValueError(f"'{text}' is not a registry's URL (http://HOST:PORT)")
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"'{text}': {error}") from error
    is_bare = "://" not in text and port is None
    if not parts.hostname or is_bare or " " in text or parts.query or parts.fragment:
        raise ValueError(f"'{text}' is not a registry's URL (http://HOST:PORT)")
    authorization = None
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(secret.encode()).decode()}"
    return Target(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 8081), parts.path.rstrip("/"), authorization)


class RestConnection:
    """Requests to the registry at `url`. Any thread may use it; a forked process makes connections of its own."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._targets = parse_urls(url)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: dict[Target, list[http.client.HTTPConnection]] = {}
        self._pid = os.getpid()

    def request(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        """The decoded answer. RegistryError for an answer with an error, RegistryUnavailableError if no address gives one."""
        content = None if body is None else json.dumps(body).encode()
        troubles: list[str] = []
        refused: RegistryError | None = None
        for target in list(self._targets):
            try:
                status, answer = self._exchange(target, method, path, content, headers or {})
            except (OSError, http.client.HTTPException) as error:
                troubles.append(f"{target}: {_reason(error)}")
                self._put_last(target)
                continue
            try:
                return _read(f"{target}: {method} {path}", status, answer)
            except RegistryError as error:
                if status not in _ELSEWHERE:
                    raise
                refused = refused or error
        if refused is not None:
            raise refused
        raise RegistryUnavailableError(f"no answer from the schema registry at {'; '.join(troubles)}")

    def close(self) -> None:
        """Close what is kept; the next request connects again."""
        with self._lock:
            idle, self._idle = self._idle, {}
        if self._pid == os.getpid():
            for connections in idle.values():
                for connection in connections:
                    connection.close()
        self._pid = os.getpid()

    def _exchange(self, target: Target, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        every = {"Accept": CONTENT_TYPE, **headers}
        if content is not None:
            every["Content-Type"] = CONTENT_TYPE
        if target.authorization is not None:
            every["Authorization"] = target.authorization
        kept = self._take(target)
        if kept is not None:
            with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
                return self._talk(kept, target, method, path, content, every)
        return self._talk(self._connect(target), target, method, path, content, every)

    def _talk(
        self,
        connection: http.client.HTTPConnection,
        target: Target,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, target.prefix + path, content, dict(headers))
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(target, connection)
        return response.status, answer

    def _connect(self, target: Target) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
        return kind(target.host, target.port, timeout=self._timeout_s)

    def _take(self, target: Target) -> http.client.HTTPConnection | None:
        if self._pid != os.getpid():
            self.close()
        with self._lock:
            kept = self._idle.get(target)
            return kept.pop() if kept else None

    def _keep(self, target: Target, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            kept = self._idle.setdefault(target, [])
            if len(kept) < IDLE_MAX:
                kept.append(connection)
                return
        connection.close()

    def _put_last(self, target: Target) -> None:
        with self._lock:
            self._targets = sorted(self._targets, key=lambda each: each == target)


def _read(what: str, status: int, answer: bytes) -> Any:
    try:
        value = json.loads(answer) if answer else None
    except ValueError:
        value = None
        if status < 300:
            raise RegistryError(status, 50001, f"{what}: the answer is not JSON; is this a schema registry?") from None
    if status < 300:
        return value
    code, message = status, answer[:200].decode("utf-8", "replace")
    if isinstance(value, dict):
        code, message = value.get("error_code", status), value.get("message", message)
    raise RegistryError(status, code, f"{message}")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    strerror = error.strerror if isinstance(error, OSError) else None
    return (strerror or str(error) or type(error).__name__).lower()
