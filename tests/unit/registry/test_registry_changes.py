"""A change is decided on everything before it, written, and answered only when it is read back as it was decided (F1)."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from moldau.registry import registration
from moldau.registry.body import read_schema
from moldau.registry.changes import DOUBTED_S, Changes
from moldau.registry.decisions import ChangeDecision, delete_config, set_config
from moldau.registry.election import RegistryIdentity
from moldau.registry.errors import RestError
from moldau.registry.peers import ForwardedAnswer, ForwardError
from moldau.registry.records import ConfigKey, Write, encode_config, encode_key
from moldau.registry.request import RestRequest
from moldau.registry.state import RegistryState
from support.registry import Ledger, record


class Log:
    """A log in memory that is writer, follower, election and its confirmation in one.

    `before` is what somebody else writes between deciding and writing.
    """

    group = "g"
    ready = True
    mine = True
    writer = RegistryIdentity("127.0.0.1", 1)

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.before: list[Write] = []

    def catch_up(self, _timeout_s: float) -> int:
        """All is applied always."""
        return len(self.ledger.records)

    def wait_for(self, end: int, _timeout_s: float) -> None:
        """All is applied always."""
        assert end <= len(self.ledger.records)

    def append_all(self, writes: Sequence[Write]) -> int:
        """First what the other one wrote."""
        self.ledger.write(self.before)
        self.before = []
        self.ledger.write(writes)
        return len(self.ledger.records)

    def resign(self) -> None:
        """It writes on all the same."""

    doubted_s = 0.0
    is_due = True
    confirmed = True

    def ask(self, _writer: RegistryIdentity, _timeout_s: float) -> bool:
        """Whether the elected one is confirmed."""
        return self.confirmed

    def doubt(self) -> None:
        """Nobody is confirmed."""

    def believe(self) -> None:
        """Somebody is."""

    def wait_for_change(self, _timeout_s: float) -> None:
        """Nothing changes."""


def register(state: RegistryState, request: RestRequest) -> ChangeDecision:
    return registration.register(state, request.names["subject"], read_schema(request.json()))


def posted(changes: Changes, subject: str, schema: object) -> tuple[int, Any]:
    """Register over `changes`: status and answer."""
    content = json.dumps({"schema": json.dumps(schema)}).encode()
    status, body = changes.carry_out(register, RestRequest("POST", "/", {"subject": subject}, {}, content))
    return status, json.loads(body)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def changes(log: Log) -> Changes:
    both = cast("Any", log)
    return Changes(log.ledger.state, both, both, both, both, timeout_s=0.5)


MINE, THEIRS = record("Mine", ("x", "int")), record("Theirs", ("y", "int"))


def test_an_id_that_an_unfenced_writer_took_meanwhile_is_not_answered(log: Log, changes: Changes) -> None:
    """A registry of another make is not fenced by ours: both decide on id 1. Its record came first; ours is skipped and decided again."""
    other = Ledger()
    other.register("theirs", THEIRS)
    log.before = list(other.records)
    status, answer = posted(changes, "mine", MINE)
    assert (status, answer["id"]) == (200, 2)
    assert log.ledger.state.holders(".", 1) == {"theirs": 1}
    assert log.ledger.state.holders(".", 2) == {"mine": 1}


@pytest.mark.parametrize(("method", "asked"), [("DELETE", 1), ("POST", 2)])
def test_a_deletion_that_the_writer_may_have_carried_out_is_not_asked_for_again(
    log: Log, changes: Changes, monkeypatch: pytest.MonkeyPatch, method: str, asked: int
) -> None:
    """Asked again, the writer would say 404 of what it has just deleted. What is registered or set may be asked for twice."""
    writers: list[str] = []

    def lost(writer: RegistryIdentity, _request: RestRequest, _timeout_s: float) -> ForwardedAnswer:
        writers.append(writer.url)
        if len(writers) == 1:
            raise ForwardError("no answer in time", delivered=True)
        return ForwardedAnswer(200, b"1")

    monkeypatch.setattr("moldau.registry.changes.forward", lost)
    monkeypatch.setattr(log, "mine", False, raising=False)
    request = RestRequest(method, "/subjects/a/versions/1", {}, {})
    if method == "DELETE":
        with pytest.raises(RestError, match="no answer in time") as raised:
            changes.carry_out(register, request)
        assert raised.value.code == 50003
    else:
        assert changes.carry_out(register, request) == (200, b"1")
    assert len(writers) == asked


def test_a_registry_that_stops_waits_for_no_election(log: Log, changes: Changes) -> None:
    changes.stop()
    with pytest.raises(RestError, match="Leader not known"):
        posted(changes, "mine", MINE)
    assert log.ledger.records == []


def test_a_change_waits_for_those_before_it_no_longer_than_it_may(changes: Changes) -> None:
    with changes._lock, pytest.raises(RestError, match="changes that came earlier") as late:
        posted(changes, "mine", MINE)
    assert late.value.code == 50002


def test_a_change_is_not_handed_to_a_writer_that_does_not_confirm_itself(
    log: Log, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client of the cluster may have been elected. After a while this registry writes itself, after fencing the others."""
    monkeypatch.setattr("moldau.registry.changes.forward", lambda *_: pytest.fail("handed on"))
    monkeypatch.setattr(log, "mine", False)
    log.confirmed = False
    with pytest.raises(RestError, match="does not confirm") as raised:
        posted(changes, "mine", MINE)
    assert raised.value.code == 50003
    log.doubted_s = DOUBTED_S + 1
    assert posted(changes, "mine", MINE)[0] == 200


def test_a_registry_that_is_alone_forwards_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.registry.changes.forward", lambda *_: pytest.fail("handed on"))
    monkeypatch.setattr(log, "mine", False)
    both = cast("Any", log)
    changes = Changes(log.ledger.state, both, both, both, both, alone=True, timeout_s=0.5)
    assert posted(changes, "mine", MINE)[0] == 200


def configured(changes: Changes, scope: str, text: str) -> tuple[int, Any]:
    """Set a configuration with so much text over `changes`: status and answer."""
    asked = RestRequest("PUT", "/", {}, {})
    status, body = changes.carry_out(lambda state, _: set_config(state, scope, {"compatibilityGroup": text}), asked)
    return status, json.loads(body)


def test_what_all_of_the_registry_keeps_has_a_bound(log: Log, changes: Changes, caplog: pytest.LogCaptureFixture) -> None:
    """A configuration may be as long as a record: a few thousand requests filled gigabytes."""
    log.ledger.state.memory_bytes_max = 100_000
    posted(changes, "mine", MINE)
    for number in range(8):
        configured(changes, f"s{number}", "x" * 10_000)
    with pytest.raises(RestError, match=r"registry\.memory\.max\.bytes") as raised:
        configured(changes, "s8", "x" * 10_000)
    assert (raised.value.status, raised.value.code) == (422, 42209)
    assert log.ledger.state.held_bytes <= 100_000
    with pytest.raises(RestError):
        configured(changes, "t", "x" * 10_000)
    assert caplog.text.count("registry.memory.max.bytes") == 1
    configured(changes, "s0", "y" * 10_000)  # what replaces as much is still accepted
    changes.carry_out(lambda state, _: delete_config(state, "s1"), RestRequest("DELETE", "/", {}, {}))
    assert configured(changes, "t", "x" * 10_000)[0] == 200
    assert log.ledger.state.held_bytes == log.ledger.compacted().held_bytes


def test_nothing_is_registered_while_records_are_left_out_and_deletions_are_carried_out(log: Log, changes: Changes) -> None:
    """An id or a version that is free here may be that of a record which did not fit."""
    log.ledger.state.memory_bytes_max = 100_000
    configured(changes, "s", "x" * 50_000)
    log.ledger.write([(encode_key(ConfigKey("theirs")), encode_config("theirs", {"compatibilityGroup": "y" * 60_000}))])
    assert log.ledger.state.left_out == 1
    changes.carry_out(lambda state, _: delete_config(state, "s"), RestRequest("DELETE", "/", {}, {}))
    with pytest.raises(RestError, match=r"left out records.*registry\.memory\.max\.bytes") as raised:
        posted(changes, "mine", MINE)
    assert (raised.value.status, raised.value.code) == (422, 42209)
    assert log.ledger.state.versions("mine") == []
