"""A command that goes on for long says soon that no broker answers: once for each outage, however many attempts it makes."""

import threading
from typing import TYPE_CHECKING, cast

import pytest

from moldau.cli.connecting import ASK_EVERY_S, ClusterOutage, PatientCluster
from moldau.client.errors import failure
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.protocol.messages.metadata import MetadataResponse
from support.scripted_broker import HANG_UP, SILENCE, Request, ScriptedBroker

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster


@pytest.mark.parametrize(("fault", "reason"), [(HANG_UP, "the broker closed the connection"), (SILENCE, "no answer for 0.05 s")])
def test_a_broker_that_dies_is_told_long_before_the_attempt_is_given_up(fault: object, reason: str) -> None:
    """It hangs up, or says nothing any more; the attempt has a minute, and it is told while that is under way."""
    told: list[str] = []
    heard = threading.Event()
    dead = False

    def tell(trouble: object) -> None:
        told.append(str(trouble))
        heard.set()
        cluster.interrupt()

    def script(request: Request) -> object:
        return fault if dead else MetadataResponse()

    with ScriptedBroker(script) as broker, PatientCluster(broker.bootstrap, report=tell, after_s=0.05, timeout_s=60.0) as cluster:
        cluster.metadata([])
        assert told == []
        dead = True
        with pytest.raises(WorldError):
            cluster.metadata([])
        assert heard.is_set()
        assert told[0] == f"{broker.bootstrap}: {reason}"


def test_an_outage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Its end is another, and so is the next one."""
    outage = ClusterOutage()
    for trouble in ("kafka-1: refused", "kafka-1: no answer"):
        outage.report(trouble)
    for _ in range(2):
        outage.over()
    outage.report("kafka-2: refused")
    lines = ["kafka-1: refused; trying again", "the brokers answer again", "kafka-2: refused; trying again"]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_broker_that_dies_while_nothing_is_asked_of_it_is_told_soon(capsys: pytest.CaptureFixture[str]) -> None:
    """However long the rest was to be; and it ends as soon as the broker is back, so that what comes next is done at once."""
    now = 0.0
    told_at: list[float] = []

    class Asked:
        def metadata(self, topics: list[str]) -> None:
            assert topics == []
            if 600.0 <= now < 603.0:
                raise failure(ErrorCode.NETWORK_EXCEPTION, "broker 1")
            if outage.under_way:
                told_at.append(now)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    outage, asked = ClusterOutage(), cast("Cluster", Asked())
    outage.rest(3600.0, asked, sleep=sleep, monotonic=lambda: now)
    assert capsys.readouterr().err == "broker 1: network exception; trying again\n"
    assert 603.0 <= now <= 603.0 + ASK_EVERY_S
    assert told_at == [now]
    outage.over()
    outage.rest(7.25, asked, sleep=sleep, monotonic=lambda: now - 603.0)
    assert capsys.readouterr().err == "the brokers answer again\n"
    assert now >= 603.0 + 7.25


def test_trouble_that_will_not_pass_ends_a_rest() -> None:
    """It is none of an outage."""

    class Refusing:
        def metadata(self, topics: list[str]) -> None:
            raise failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cluster")

    with pytest.raises(PeerError, match="cluster"):
        ClusterOutage().rest(60.0, cast("Cluster", Refusing()), sleep=lambda _: None)
