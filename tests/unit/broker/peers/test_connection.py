"""Calls to another broker: every request has one outcome, and a fault ends the connection."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.peers.connection import PeerCallError, PeerConnection
from moldau.model.errors import ErrorCode
from moldau.ports.transport import Receiver, Transport
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.messages.group_members import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.rpc import RpcRequest
from moldau.protocol.versions import VersionRange
from moldau.testing.clock import FakeClock
from moldau.testing.network import MemoryNetwork
from support.rpc_peer import VERSIONS, answer, asked

ADDRESS = ("broker.test", 9092)


def _middle(count: int) -> bytes:
    """Random bytes of which no delay gets longer or shorter."""
    return bytes([128] * count)


class Answering:
    """The other broker's end of a connection: it keeps what it receives, and answers ApiVersions."""

    def __init__(self, transport: Transport, versions: ApiVersionsResponse | None) -> None:
        self.transport = transport
        self.requests: list[Any] = []
        self.lost = False
        self._versions = versions
        self._received = bytearray()
        self._room = memoryview(bytearray(4096))

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._room

    def buffer_updated(self, count: int) -> None:
        self._received += self._room[:count]
        while len(self._received) >= 4 and len(self._received) >= (size := 4 + int.from_bytes(self._received[:4], "big")):
            header = asked(bytes(self._received[:size]))
            del self._received[:size]
            if header.api_key == ApiKey.API_VERSIONS and self._versions is not None:
                self.transport.send([answer(header, self._versions)])
            else:
                self.requests.append(header)

    def queue_drained(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True

    def answer(self, error_code: int = 0) -> None:
        """To the oldest request."""
        self.transport.send([answer(self.requests.pop(0), HeartbeatResponse(error_code=error_code))])


class Peers:
    """A connection, and the broker that it leads to."""

    def __init__(self, **given: Any) -> None:
        self.clock = FakeClock()
        self.network = MemoryNetwork(lambda call: self.clock.call_later(0.0, call))
        self.versions: ApiVersionsResponse | None = VERSIONS
        self.ends: list[Answering] = []
        self.attempts = 0
        self.listen()
        settings: dict[str, Any] = {"in_flight_max": 5, "random_bytes": _middle, **given}
        self.connection = PeerConnection(self.network, self.clock, ADDRESS, "broker-1-test", **settings)
        self.outcomes: list[Any] = []

    def listen(self) -> None:
        self.network.listen(*ADDRESS, self._accept)

    def _accept(self, transport: Transport) -> Receiver:
        self.ends.append(Answering(transport, self.versions))
        return self.ends[-1]

    @property
    def end(self) -> Answering:
        return self.ends[-1]

    def ask(self, timeout_s: float = 10.0, then: Callable[[], object] = lambda: None, **options: Any) -> None:
        def done(outcome: Any) -> None:
            self.outcomes.append(outcome.error_code if isinstance(outcome, HeartbeatResponse) else outcome)
            then()

        before = len(self.outcomes)
        self.connection.request(ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m"), done, timeout_s=timeout_s, **options)
        assert len(self.outcomes) == before, "nothing is called before `request` returns"

    def settle(self) -> None:
        for _ in range(10):
            self.clock.settle()
            self.network.move()
        self.clock.settle()

    def errors(self) -> list[tuple[bool, bool]]:
        """Of each outcome, all being errors, whether it was sent and whether it can be tried again; and forget them."""
        assert all(isinstance(each, PeerCallError) for each in self.outcomes), self.outcomes
        found = [(each.was_sent, each.retriable) for each in self.outcomes]
        self.outcomes.clear()
        return found


def test_requests_that_come_before_the_connection_are_sent_in_order_with_client_id_and_answered_in_order() -> None:
    peers = Peers()
    for _ in range(3):
        peers.ask()
    peers.settle()
    assert [(header.api_key, header.client_id) for header in peers.end.requests] == [(ApiKey.HEARTBEAT, "broker-1-test")] * 3
    for code in (1, 2, 3):
        peers.end.answer(code)
    peers.settle()
    assert peers.outcomes == [1, 2, 3]
    assert len(peers.ends) == 1
    assert peers.clock.pending == 1, "one timer for all calls"


def test_the_version_is_the_highest_that_both_know_within_the_range() -> None:
    peers = Peers()
    peers.ask()
    peers.ask(version=VersionRange(0, 2))
    peers.settle()
    assert [header.api_version for header in peers.end.requests] == [4, 2]


def test_a_request_of_an_api_that_the_peer_does_not_serve_fails_alone_and_is_not_to_be_repeated() -> None:
    peers = Peers()
    known = [each for each in VERSIONS.api_keys if each.api_key != ApiKey.HEARTBEAT]
    peers.versions = ApiVersionsResponse(0, known)
    peers.ask()
    peers.settle()
    assert peers.errors() == [(False, False)]
    peers.ask()
    assert peers.outcomes == []
    peers.settle()
    assert peers.errors() == [(False, False)]
    assert not peers.end.lost


def test_an_older_peer_is_asked_for_its_versions_twice() -> None:
    peers = Peers()
    peers.versions = None
    peers.ask()
    peers.settle()
    refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(int(ApiKey.API_VERSIONS), 0, 2)])
    first = peers.end.requests.pop()
    peers.end.transport.send([answer(first, refusal, version=0)])
    peers.settle()
    second = peers.end.requests.pop()
    assert (first.api_version, second.api_version) == (4, 2)
    peers.end.transport.send([answer(second, VERSIONS)])
    peers.settle()
    assert len(peers.end.requests) == 1


def test_more_requests_than_may_be_out_fail_and_the_others_do_not() -> None:
    peers = Peers(in_flight_max=2)
    for _ in range(3):
        peers.ask()
    peers.settle()
    assert peers.errors() == [(False, True)]
    peers.ask()
    peers.settle()
    assert peers.errors() == [(False, True)]
    peers.end.answer()
    peers.end.answer()
    peers.settle()
    assert peers.outcomes == [0, 0]


def test_a_late_response_ends_the_connection_and_all_that_is_out() -> None:
    peers = Peers()
    peers.ask(timeout_s=5)
    peers.ask(timeout_s=1)
    peers.settle()
    peers.clock.advance(1)
    assert peers.errors() == [(True, True)] * 2
    peers.settle()
    assert peers.end.lost
    assert peers.clock.pending == 1, "the back-off"


def test_where_the_peer_does_not_tell_its_versions_requests_end_after_the_connect_timeout() -> None:
    peers = Peers(connect_timeout_s=3)
    peers.versions = None
    peers.ask()
    peers.ask(timeout_s=1)
    peers.settle()
    peers.clock.advance(1)
    assert peers.errors() == [(False, True)]
    peers.clock.advance(2)
    assert peers.errors() == [(False, True)]
    peers.settle()
    assert peers.end.lost


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        (1 << 20 | 1).to_bytes(4, "big"),
        answer(RpcRequest(ApiKey.HEARTBEAT, 4, 99), HeartbeatResponse()),
        (5).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"\xff",
    ],
    ids=["another protocol", "negative size", "huge frame", "another correlation id", "damaged"],
)
def test_a_hostile_response_ends_the_connection_with_one_line(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers()
    peers.ask()
    peers.ask()
    peers.settle()
    peers.end.transport.send([data])
    peers.settle()
    assert peers.errors() == [(True, True)] * 2
    assert peers.end.lost
    assert len(caplog.records) == 1
    assert "broker.test:9092 client_id=broker-1-test" in caplog.text


def test_a_response_that_nothing_waits_for_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers()
    peers.ask()
    peers.settle()
    peers.end.answer()
    peers.settle()
    peers.end.transport.send([answer(RpcRequest(ApiKey.HEARTBEAT, 4, 3), HeartbeatResponse())])
    peers.settle()
    assert peers.end.lost
    assert peers.outcomes == [0]
    assert len(caplog.records) == 1


def test_a_connection_that_the_peer_closes_while_nothing_is_out_is_made_again_at_the_next_request(caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers()
    peers.ask()
    peers.settle()
    peers.end.answer()
    peers.settle()
    peers.end.transport.close()
    peers.settle()
    assert len(peers.ends) == 1
    peers.ask()
    peers.settle()
    peers.end.answer(7)
    peers.settle()
    assert peers.outcomes == [0, 7]
    assert len(peers.ends) == 2
    assert caplog.text == ""


def test_a_connection_that_is_lost_while_nothing_is_out_is_reported_once_and_one_that_is_refused_is_known_by_its_error() -> None:
    peers, lost = Peers(), []
    peers.connection.on_idle_lost = lambda: lost.append(peers.connection.out)
    peers.ask()
    peers.settle()
    peers.end.transport.close()
    peers.settle()
    assert (lost, [each.is_refused for each in peers.outcomes]) == ([], [False])
    peers.outcomes.clear()
    peers.clock.advance(10.0)
    peers.ask()
    peers.settle()
    peers.end.answer()
    peers.settle()
    peers.network.stop_listening(*ADDRESS)
    peers.end.transport.close()
    peers.settle()
    assert (lost, peers.outcomes) == ([0], [0])
    peers.ask()
    peers.settle()
    assert (lost, [each.is_refused for each in peers.outcomes[1:]]) == ([0], [True])


def test_attempts_back_off_and_are_repeated_only_for_requests() -> None:
    peers = Peers()
    peers.network.stop_listening(*ADDRESS)
    tries: list[float] = []

    def again() -> None:
        tries.append(peers.clock.monotonic())
        if len(tries) < 8:
            peers.ask(then=again)

    peers.ask(then=again)
    peers.clock.advance(60)
    assert tries == pytest.approx([0.0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55, 3.55], rel=0.01)
    assert peers.clock.pending == 0
    peers.outcomes.clear()
    peers.listen()
    peers.ask()
    peers.settle()
    peers.end.answer()
    peers.settle()
    assert peers.outcomes == [0]


def test_the_back_off_begins_again_only_after_a_response() -> None:
    """A peer that takes connections and ends them is not asked without pause."""
    peers = Peers()
    peers.ask()
    for faults, wait_s in enumerate((0.05, 0.1, 0.2), 1):
        peers.settle()
        peers.end.transport.abort()
        peers.settle()
        assert peers.errors() == [(True, True)]
        peers.ask()
        peers.clock.advance(wait_s * 0.95)
        assert len(peers.ends) == faults
        peers.clock.advance(wait_s * 0.1)
        assert len(peers.ends) == faults + 1


@pytest.mark.parametrize("random", [0, 255])
def test_the_back_off_is_a_fifth_shorter_or_longer(random: int) -> None:
    peers = Peers(random_bytes=lambda count: bytes([random] * count))
    peers.network.stop_listening(*ADDRESS)
    peers.ask()
    peers.settle()
    peers.ask()
    peers.clock.advance(0.039 if random == 0 else 0.059)
    assert len(peers.outcomes) == 1
    peers.clock.advance(0.002)
    assert len(peers.outcomes) == 2


def test_a_refused_connection_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers()
    peers.network.stop_listening(*ADDRESS)
    for _ in range(61):
        peers.ask()
        peers.clock.advance(2)
    assert len(peers.outcomes) == 61
    assert len(caplog.records) == 3


def test_closing_ends_what_is_out_and_what_comes_later() -> None:
    peers = Peers()
    peers.ask()
    peers.settle()
    peers.ask(then=peers.connection.close)
    peers.connection.close()
    assert peers.errors() == [(True, True)] * 2
    peers.ask()
    peers.settle()
    assert peers.errors() == [(False, True)]
    assert peers.end.lost
    assert peers.clock.pending == 0


def test_closing_while_connecting_ends_the_attempt() -> None:
    peers = Peers()
    peers.ask()
    peers.connection.close()
    assert peers.errors() == [(False, True)]
    peers.settle()
    assert peers.ends == []
    assert peers.clock.pending == 0


def test_a_bug_in_the_handling_of_one_response_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers()

    def fail() -> None:
        raise AssertionError("a bug")

    peers.ask(then=fail)
    peers.ask()
    peers.settle()
    peers.end.answer(1)
    peers.end.answer(2)
    peers.settle()
    assert peers.outcomes == [1, 2]
    assert "a bug" in caplog.text
