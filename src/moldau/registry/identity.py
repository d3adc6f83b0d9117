"""What registries tell each other through their group: who each one is, and who of them writes. JSON, as Confluent's registries speak it.

    {"version":1,"host":"10.0.0.5","port":8081,"master_eligibility":true,"scheme":"http","leader":false}
    {"version":1,"error":0,"master":"sr-1-4711...","master_identity":{...}}

The group's leader (who is that does not matter) chooses: the registry that writes already goes on, else the one with the smallest URL.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

log = logging.getLogger(__name__)

_VERSION = 1
_NO_ERROR, _DUPLICATE_URLS = 0, 1


@dataclass(frozen=True, slots=True)
class Identity:
    """A registry; `writes` says that it was the writer when it joined."""

    host: str
    port: int
    eligible: bool = True
    scheme: str = "http"
    writes: bool = False

    @property
    def url(self) -> str:
        """Where it is reached, ``http://HOST:PORT``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def same(self, other: "Identity | None") -> bool:
        """Whether both are one registry."""
        return other is not None and self.url == other.url


def encode_identity(identity: Identity) -> bytes:
    """What a member says of itself when it joins."""
    return json.dumps(_fields(identity), separators=(",", ":")).encode()


def decode_identity(data: bytes) -> Identity:
    """What a member said of itself. ValueError if it cannot be read."""
    return _identity(json.loads(data))


def encode_assignment(member: str | None, identity: Identity | None, *, duplicates: bool = False) -> bytes:
    """What the group's leader tells all: which member writes."""
    fields: dict[str, Any] = {"version": _VERSION, "error": _DUPLICATE_URLS if duplicates else _NO_ERROR}
    if member is not None and identity is not None:
        fields |= {"master": member, "master_identity": _fields(identity)}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_assignment(data: bytes) -> Identity | None:
    """Who writes, as the group's leader told; None if nobody can. ValueError if it cannot be read."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError(f"{fields!r} is not an assignment")
    if fields.get("error"):
        log.error("registries with the same URL, none writes: set another with --advertise")
        return None
    found = fields.get("master_identity")
    return None if found is None else _identity(found)


def choose(members: Mapping[str, Identity]) -> bytes:
    """The assignment for these members: one writer for all."""
    eligible = {member: identity for member, identity in members.items() if identity.eligible}
    writing = [member for member, identity in eligible.items() if identity.writes]
    if len(writing) == 1:
        chosen = writing[0]
    else:
        chosen = min(eligible, key=lambda member: eligible[member].url, default="")
    duplicates = len({identity.url for identity in members.values()}) < len(members)
    identity = replace(eligible[chosen], writes=True) if chosen else None
    return encode_assignment(chosen or None, identity, duplicates=duplicates)


def _fields(identity: Identity) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "host": identity.host,
        "port": identity.port,
        "master_eligibility": identity.eligible,
        "scheme": identity.scheme,
        "leader": identity.writes,
    }


def _identity(fields: Any) -> Identity:
    try:
        return Identity(
            str(fields["host"]),
            int(fields["port"]),
            bool(fields.get("master_eligibility", True)),
            str(fields.get("scheme") or "http"),
            bool(fields.get("leader")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{fields!r} is not a registry") from error
