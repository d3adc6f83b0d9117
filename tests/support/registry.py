"""Schema registries for tests: a real one over a broker, plain HTTP to it, and its decisions alone over a list of records."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from moldau.registry.body import read_schema
from moldau.registry.decisions import ChangeDecision
from moldau.registry.records import Write
from moldau.registry.registration import register
from moldau.registry.server import RegistryServer
from moldau.registry.state import RegistryState

V1 = "application/vnd.schemaregistry.v1+json"


@contextlib.contextmanager
def running_registry(bootstrap: str, **options: Any) -> Iterator[RegistryServer]:
    """A registry over the cluster, on a free port; options as for RegistryServer."""
    with RegistryServer(bootstrap, "127.0.0.1:0", **options) as registry:
        yield registry


@dataclass(frozen=True)
class Told:
    """What a registry answered."""

    status: int
    body: Any
    kind: str
    allow: str = ""

    @property
    def code(self) -> int:
        """Confluent's error code."""
        return int(self.body["error_code"])


class Rest:
    """Requests as curl makes them."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc

    def __call__(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Told:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self._host, timeout=30)
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, content, {"Content-Type": V1, **(headers or {})})
            response = connection.getresponse()
            found = response.read()
        finally:
            connection.close()
        try:
            value = json.loads(found) if found else None
        except ValueError:
            value = found.decode()
        return Told(response.status, value, response.headers.get("Content-Type", ""), response.headers.get("Allow", ""))

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request that has to succeed."""
        told = self(method, path, body)
        assert told.status == 200, (method, path, told)
        return told.body


class Ledger:
    """A state, and the list of records that made it: decisions are carried out without a broker."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.records: list[Write] = []

    def write(self, writes: Sequence[Write]) -> None:
        """Append records."""
        for key, value in writes:
            self.state.apply(len(self.records), 1_700_000_000_000 + len(self.records), key, value)
            self.records.append((key, value))

    def carry_out(self, decision: ChangeDecision) -> Any:
        """Write what was decided; the answer."""
        self.write(decision.writes)
        return decision.answer

    def register(self, subject: str, schema: object, **fields: Any) -> int:
        """Register a schema given as text or as JSON; its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        options = {name: fields.pop(name) for name in ("normalize", "force") if name in fields}
        return int(self.carry_out(register(self.state, subject, read_schema({"schema": text, **fields}), **options))["id"])

    def compacted(self) -> RegistryState:
        """The state out of what compaction leaves: of each key the last record."""
        last = {key: offset for offset, (key, _) in enumerate(self.records)}
        state = RegistryState()
        for offset, (key, value) in enumerate(self.records):
            if last[key] == offset:
                state.apply(offset, 1_700_000_000_000 + offset, key, value)
        return state


def record(name: str, *fields: tuple[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    """An Avro record: fields are (name, type) or (name, type, default)."""
    made = []
    for each in fields:
        made.append({"name": each[0], "type": each[1]})
        if len(each) == 3:
            made[-1]["default"] = each[2]
    return {"type": "record", "name": name, "fields": made}
