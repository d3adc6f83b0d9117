"""A request is handed on only to a registry that puts the nonce of the moment, and its own address, into the topic (F1)."""

import json
from typing import Any, cast

import pytest

from moldau.registry.election import RegistryIdentity
from moldau.registry.errors import RestError
from moldau.registry.peers import ForwardedAnswer, ForwardError, WriterConfirmation, confirmation
from moldau.registry.records import NoopKey, encode_key
from moldau.registry.request import RestRequest
from support.registry import Ledger

GOOD, EVIL = RegistryIdentity("good", 8081), RegistryIdentity("evil", 8081)


class World:
    """A log, a clock, and who answers a nonce how."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = Ledger()
        self.now_s = 0.0
        self.asked: list[str] = []
        self.writes_as: dict[str, str | None] = {GOOD.url: GOOD.url}
        """What an answering registry does: it writes a record with this URL, or says that it did (None)."""
        self.confirming = WriterConfirmation(self.ledger.state, cast("Any", self), frozenset(), lambda: self.now_s)
        monkeypatch.setattr("moldau.registry.peers.forward", self.forward)

    def catch_up(self, _timeout_s: float) -> int:
        """All is applied always."""
        return 0

    def forward(self, writer: RegistryIdentity, request: RestRequest, _timeout_s: float) -> ForwardedAnswer:
        """Ask a registry for a confirmation."""
        self.asked.append(writer.url)
        if writer.url not in self.writes_as:
            raise ForwardError("no answer", delivered=False)
        url = self.writes_as[writer.url]
        if url is not None:
            self.ledger.write([confirmation(url, request)])
        return ForwardedAnswer(200, b"{}")

    def take_over(self) -> None:
        """Somebody becomes the writer."""
        self.ledger.write([(encode_key(NoopKey()), None)])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_writer_is_asked_once_and_again_when_somebody_took_over(world: World) -> None:
    assert world.confirming.ask(GOOD, 1)
    assert world.confirming.ask(GOOD, 1)
    assert world.asked == [GOOD.url]
    world.take_over()
    assert world.confirming.ask(GOOD, 1)
    assert world.asked == [GOOD.url, GOOD.url]


@pytest.mark.parametrize("writes", [None, GOOD.url])
def test_who_cannot_write_or_passes_the_nonce_on_is_not_confirmed(world: World, writes: str | None) -> None:
    """It says 200; or it has the real writer put the nonce into the topic: that one says its own address there."""
    world.writes_as[EVIL.url] = writes
    assert not world.confirming.ask(EVIL, 1)


def test_a_confirmation_of_before_is_of_no_use(world: World) -> None:
    old = confirmation(EVIL.url, RestRequest("POST", "/", {}, {}, json.dumps({"nonce": "0" * 32}).encode()))
    world.ledger.write([old])
    world.writes_as[EVIL.url] = None
    assert not world.confirming.ask(EVIL, 1)
    world.ledger.write([old])
    assert not world.confirming.ask(EVIL, 1)


def test_doubt_lasts_until_somebody_is_confirmed(world: World) -> None:
    assert world.confirming.doubted_s == 0
    assert not world.confirming.ask(EVIL, 1)
    world.now_s = 5
    assert not world.confirming.ask(EVIL, 1)
    assert world.confirming.doubted_s == 5
    assert not world.confirming.is_due
    world.now_s = 20
    assert world.confirming.is_due
    assert world.confirming.ask(GOOD, 1)
    assert world.confirming.doubted_s == 0


def test_a_writer_of_another_make_may_be_trusted(world: World) -> None:
    confirming = WriterConfirmation(world.ledger.state, cast("Any", world), frozenset([EVIL.url]))
    assert confirming.ask(EVIL, 1)
    assert world.asked == []


@pytest.mark.parametrize("nonce", [None, 7, "short", "x" * 200, "0" * 31 + "\u00e9!", '"' * 32])
def test_what_is_no_nonce_is_not_written(nonce: Any) -> None:
    with pytest.raises(RestError, match="nonce"):
        confirmation(GOOD.url, RestRequest("POST", "/", {}, {}, json.dumps({"nonce": nonce}).encode()))


@pytest.mark.parametrize("value", [b"{}", b'{"writer":1,"confirms":"x"}', b"[]", b"\xff", b'{"later":1}'])
def test_a_noop_with_another_value_confirms_no_registry(value: bytes) -> None:
    ledger = Ledger()
    ledger.write([(encode_key(NoopKey()), value)])
    assert ledger.state.noop_writer == ""
