"""Another broker is suspected when it refuses, does not answer in time or fails twice, and no more when it answers."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.peers.connection import PeerCallError, PeerConnection
from moldau.broker.peers.watch import PeerWatch
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.ports.transport import ConnectError
from moldau.protocol.api_keys import ApiKey
from moldau.testing.clock import FakeClock

ADDRESS = "b1", 9092
TIMEOUT_S = 1.5


def fault(*, is_refused: bool = False) -> PeerCallError:
    reason: object = ConnectError(*ADDRESS, "connection refused", is_refused=True) if is_refused else "closed by the peer"
    return PeerCallError(ADDRESS, reason, was_sent=False)


class Connection:
    def __init__(self) -> None:
        self.on_idle_lost: Callable[[], object] | None = None
        self.out: list[Callable[[Any], object]] = []
        self.asked = 0
        self.is_closed = False

    def request(self, api_key: ApiKey, message: Any, done: Callable[[Any], object], *, timeout_s: float, version: object) -> None:
        assert (api_key, timeout_s, self.out) == (ApiKey.API_VERSIONS, TIMEOUT_S, [])
        self.asked += 1
        self.out.append(done)

    def close(self) -> None:
        self.is_closed = True
        for done in self.out:
            done(fault())


class World:
    def __init__(self, grace_s: float = 0.0) -> None:
        self.clock = FakeClock()
        self.connection = Connection()
        self.changes: list[bool] = []
        broker = BrokerInfo(1, (Endpoint("PLAINTEXT", *ADDRESS),))
        self.watch = PeerWatch(self._connect, self.clock, broker, timeout_s=lambda: TIMEOUT_S, changed=self.changes.append, grace_s=grace_s)

    def _connect(self, *_args: object, **_options: object) -> PeerConnection:
        return self.connection  # type: ignore[return-value]

    def answer(self, outcome: Any = None) -> None:
        self.connection.out.pop()(outcome)


def test_one_that_answers_is_asked_again_and_not_suspected() -> None:
    world = World()
    for count in range(1, 5):
        assert world.connection.asked == count
        world.answer()
        world.clock.advance(TIMEOUT_S / 3)
    assert world.changes == []


def test_a_refused_connection_is_a_suspicion_at_once_which_ends_with_an_answer() -> None:
    world = World()
    world.answer(fault(is_refused=True))
    assert world.changes == [True]
    world.clock.advance(TIMEOUT_S / 3)
    world.answer(fault(is_refused=True))
    world.clock.advance(TIMEOUT_S / 3)
    assert (world.changes, world.watch.is_suspected) == ([True], True)
    world.answer()
    assert (world.changes, world.watch.is_suspected) == ([True, False], False)


def test_a_connection_that_is_closed_has_it_asked_at_once() -> None:
    world = World()
    world.answer()
    world.clock.advance(0.1)
    assert world.connection.asked == 1
    assert world.connection.on_idle_lost is not None
    world.connection.on_idle_lost()
    assert world.connection.asked == 2
    world.clock.advance(TIMEOUT_S / 3)
    assert world.connection.asked == 2, "one request at a time"
    world.answer(fault())
    assert world.changes == [], "it may have closed an idle connection"
    world.clock.advance(0.0)
    world.answer(fault())
    assert world.changes == [True]


def test_no_answer_in_time_is_a_suspicion() -> None:
    world = World()
    world.clock.advance(TIMEOUT_S)
    world.answer(fault())
    assert world.changes == [True]


def test_one_that_has_just_registered_may_not_listen_yet() -> None:
    world = World(grace_s=5.0)
    for _ in range(4):
        world.clock.advance(1.0)
        world.answer(fault(is_refused=True))
    assert world.changes == []
    world.clock.advance(1.0)
    world.answer(fault(is_refused=True))
    assert world.changes == [True]


def test_an_answer_ends_the_time_in_which_it_may_not_listen() -> None:
    world = World(grace_s=5.0)
    world.answer()
    world.clock.advance(TIMEOUT_S / 3)
    world.answer(fault(is_refused=True))
    assert world.changes == [True]


@pytest.mark.parametrize("is_out", [True, False])
def test_when_it_is_watched_no_more_nothing_comes(is_out: bool) -> None:
    world = World()
    if not is_out:
        world.answer()
    world.watch.close()
    world.clock.advance(10.0)
    assert (world.connection.is_closed, world.connection.asked, world.changes) == (True, 1, [])
