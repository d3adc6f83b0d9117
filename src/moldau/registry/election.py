"""Which of the registries writes: they elect one through a consumer group of protocol type ``sr``, as Confluent's do, with them too.

    {"version":1,"host":"10.0.0.5","port":8081,"master_eligibility":true,"scheme":"http","leader":false}
    {"version":1,"error":0,"master":"sr-1-4711...","master_identity":{...}}

The group's leader, any member, chooses: the registry that is the writer already, else the one with the smallest URL.

A thread keeps this registry a member: it joins, receives the writer, sends a heartbeat every second, and rejoins when the group
rebalances. A writer that leaves is replaced within a heartbeat, one that dies after the session's timeout.

The writer is known as long as the coordinator answered this member within the session's timeout: after that the group may have elected
another. This avoids useless writes; what makes it safe is the fence in :mod:`moldau.registry.schemas_topic`.
"""

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from moldau.client.cluster import Cluster, CoordinatorClient
from moldau.client.errors import failure
from moldau.model.errors import ErrorCode, MoldauError, known_error
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_VERSION = 1
_NO_ERROR, _DUPLICATE_URLS = 0, 1


@dataclass(frozen=True, slots=True)
class RegistryIdentity:
    """A registry; `writes` means that it was the writer when it joined."""

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

    def same(self, other: "RegistryIdentity | None") -> bool:
        """Whether both are one registry."""
        return other is not None and self.url == other.url


def encode_identity(identity: RegistryIdentity) -> bytes:
    """The metadata of a member, sent when it joins."""
    return json.dumps(_fields(identity), separators=(",", ":")).encode()


def decode_identity(data: bytes) -> RegistryIdentity:
    """The identity in a member's metadata. ValueError if it cannot be read."""
    return _identity(json.loads(data))


def encode_assignment(member: str | None, identity: RegistryIdentity | None, *, duplicates: bool = False) -> bytes:
    """The assignment that every member receives: which member writes."""
    fields: dict[str, Any] = {"version": _VERSION, "error": _DUPLICATE_URLS if duplicates else _NO_ERROR}
    if member is not None and identity is not None:
        fields |= {"master": member, "master_identity": _fields(identity)}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_assignment(data: bytes) -> RegistryIdentity | None:
    """The writer in an assignment; None if there is no eligible member. ValueError if it cannot be read."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError(f"{fields!r} is not an assignment")
    if fields.get("error"):
        log.error("registries with the same URL, none writes: give each its own with --advertise")
        return None
    found = fields.get("master_identity")
    return None if found is None else _identity(found)


def choose(members: Mapping[str, RegistryIdentity]) -> bytes:
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


def _fields(identity: RegistryIdentity) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "host": identity.host,
        "port": identity.port,
        "master_eligibility": identity.eligible,
        "scheme": identity.scheme,
        "leader": identity.writes,
    }


def _identity(fields: Any) -> RegistryIdentity:
    try:
        return RegistryIdentity(
            str(fields["host"]),
            int(fields["port"]),
            bool(fields.get("master_eligibility", True)),
            str(fields.get("scheme") or "http"),
            bool(fields.get("leader")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{fields!r} is not a registry") from error


PROTOCOL_TYPE, PROTOCOL = "sr", "v0"
SESSION_TIMEOUT_S = 10.0
HEARTBEAT_S = 1.0
_PAUSE_S = 0.2
_SAY_EVERY_S = 30.0
_LEAVE_TIMEOUT_S = 2.0
_MANY_LEAVE = VersionRange(3, 5)

_REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class RejoinNeededError(MoldauError):
    """The group rebalances: this member has to join again."""


class Election:
    """Membership of the registry `me` in `group`."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        me: RegistryIdentity,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.group = group
        self.me = me
        self._session_timeout_s = session_timeout_s
        self._heartbeat_s = min(heartbeat_s, session_timeout_s / 3)
        self._cluster = Cluster(bootstrap, client_id="moldau-registry", timeout_s=2 * session_timeout_s)
        self._coordinators = CoordinatorClient(self._cluster)
        self._member = ""
        self._generation = -1
        self._writer: RegistryIdentity | None = None
        self._heard_at = -session_timeout_s
        self._said, self._said_at = "", 0.0
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau-registry-election", daemon=True)

    def start(self) -> None:
        """Begin to join the group."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, so that another takes over at once if this one writes."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(_LEAVE_TIMEOUT_S)
            self._cluster.interrupt()
            self._thread.join(_PAUSE_S)
        self._cluster.close()

    @property
    def writer(self) -> RegistryIdentity | None:
        """The registry that writes, as far as is known now."""
        with self._changed:
            return self._writer if time.monotonic() - self._heard_at < self._session_timeout_s else None

    @property
    def mine(self) -> bool:
        """Whether this registry is the writer."""
        return self.me.same(self.writer)

    def wait_for_change(self, timeout_s: float) -> None:
        """Wait until the writer changes or is confirmed, or until the time is over."""
        with self._changed:
            if not self._stopping.is_set():
                self._changed.wait(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._join()
                self._stay()
            except RejoinNeededError:
                continue
            except MoldauError as error:
                if self._stopping.is_set():
                    break
                self._say(str(error))
                self._stopping.wait(_PAUSE_S)
        self._leave()

    def _say(self, reason: str) -> None:
        if reason != self._said or time.monotonic() - self._said_at >= _SAY_EVERY_S:
            self._said, self._said_at = reason, time.monotonic()
            log.warning("registry election failed, retrying: group=%s reason=%s", self.group, reason)

    def _join(self) -> None:
        timeout_ms = int(self._session_timeout_s * 1000)
        identity = replace(self.me, writes=self.mine)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            member_id=self._member,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(PROTOCOL, encode_identity(identity))],
            reason=None,
        )
        response = self._ask(ApiKey.JOIN_GROUP, request)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = response.member_id
            raise RejoinNeededError
        self._check(response.error_code)
        self._member, self._generation = response.member_id, response.generation_id
        assignments = []
        if response.leader == self._member:
            assignments = _assignments({each.member_id: each.metadata for each in response.members})
        self._sync(assignments)

    def _sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        sent_at = time.monotonic()
        response = self._ask(ApiKey.SYNC_GROUP, request)
        self._check(response.error_code)
        try:
            writer = decode_assignment(bytes(response.assignment))
        except ValueError as error:
            raise MoldauError(f"the assignment cannot be read: {error}") from error
        with self._changed:
            if writer is not None and not writer.same(self._writer):
                log.info("registry writer elected: url=%s mine=%s", writer.url, writer.same(self.me))
            self._writer, self._heard_at = writer, sent_at
            self._changed.notify_all()

    def _stay(self) -> None:
        request = HeartbeatRequest(self.group, self._generation, self._member, None)
        while not self._stopping.wait(self._heartbeat_s):
            sent_at = time.monotonic()
            self._check(self._ask(ApiKey.HEARTBEAT, request).error_code)
            with self._changed:
                self._heard_at = sent_at

    def _check(self, code: int) -> None:
        """RejoinNeededError for an answer that asks for it, RequestFailedError for any other with an error."""
        if code in _REJOIN:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member = ""
            raise RejoinNeededError
        if code:
            raise failure(code, f"group {self.group}")

    def _ask(self, api_key: ApiKey, message: Any) -> Any:
        return self._coordinators.ask(self.group, api_key, message, _passing_errors_raised(self.group))

    def _leave(self) -> None:
        if not self._member:
            return
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(self._member, None, "the registry stops")])
        try:
            broker = self._coordinators.find(self.group)
            self._cluster.at_broker(broker, ApiKey.LEAVE_GROUP, request, version=_MANY_LEAVE)
        except MoldauError as error:
            log.info("registry group not left: group=%s reason=%s", self.group, error)


def _assignments(members: dict[str, bytes]) -> list[SyncGroupRequestAssignment]:
    """The same for every member; one whose identity cannot be read is not chosen."""
    known = {}
    for member, metadata in members.items():
        try:
            known[member] = decode_identity(bytes(metadata))
        except ValueError as error:
            log.error("registry member not eligible, its identity cannot be read: member=%s reason=%s", member, error)
    chosen = choose(known)
    return [SyncGroupRequestAssignment(member, chosen) for member in members]


def _passing_errors_raised(group: str) -> "Callable[[Any], Any]":
    """The response as it is, but for errors that pass: those are raised, so that the request is made again."""

    def read(response: Any) -> Any:
        if known_error(response.error_code).retriable:
            raise failure(response.error_code, f"group {group}")
        return response

    return read
