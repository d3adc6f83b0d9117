"""A command waits for a broker that is about to listen, says so, and says at its end for how long it did."""

import socket
from collections.abc import Callable

import click
import pytest

from moldau.cli.connecting import wait_for_broker
from moldau.client.cluster import Cluster
from moldau.client.errors import ConnectionLostError, UnreachableError
from moldau.protocol.messages.metadata import MetadataResponse
from support.scripted_broker import HANG_UP, ScriptedBroker


def unused_address() -> str:
    with ScriptedBroker() as gone:
        return gone.bootstrap


class Time:
    """Moves on only by the pauses."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.on_pause: Callable[[], object] = lambda: None

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s
        self.on_pause()

    def __call__(self) -> float:
        return self.now_s


def test_a_broker_that_listens_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    time = Time()
    with ScriptedBroker(lambda request: MetadataResponse()) as broker, Cluster(broker.bootstrap, sleep=time.sleep) as cluster:
        wait_for_broker(cluster, time)
    assert (time.now_s, capsys.readouterr().err) == (0.0, "")


def test_one_that_comes_later_is_and_after_a_second_that_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It takes connections after 3 s; before that it hangs up, as a proxy does before a broker that is not up yet."""
    time = Time()

    with ScriptedBroker(lambda request: MetadataResponse() if time.now_s >= 3 else HANG_UP) as broker:
        with Cluster(broker.bootstrap, sleep=time.sleep, timeout_s=10.0) as cluster:
            wait_for_broker(cluster, time)
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"{broker.bootstrap}: ")
        assert said.endswith("; trying for 10 s")
    assert 3 <= time.now_s < 4.5


def test_the_last_line_says_for_how_long_it_was_tried() -> None:
    address = unused_address()
    with Cluster(address, timeout_s=0.1) as cluster, pytest.raises(click.ClickException) as caught:
        wait_for_broker(cluster)
    assert caught.value.message == f"cannot connect to {address}: connection refused (tried for 0.1 s)"


@pytest.mark.parametrize(("errno", "waits"), [(socket.EAI_NONAME, False), (socket.EAI_AGAIN, True)])
def test_a_host_that_nobody_knows_is_not_waited_for(errno: int, waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """But a name server that does not answer is."""

    def fail(*arguments: object) -> socket.socket:
        raise socket.gaierror(errno, "name or service not known")

    monkeypatch.setattr(socket, "create_connection", fail)
    pauses: list[float] = []

    def give_up(pause_s: float) -> None:
        pauses.append(pause_s)
        raise ConnectionLostError(error_at, "enough")

    with Cluster("nowhere:9092", sleep=give_up) as cluster:
        error_at = next(iter(cluster._candidates()))
        with pytest.raises((UnreachableError, click.ClickException)):
            wait_for_broker(cluster)
    assert bool(pauses) == waits
