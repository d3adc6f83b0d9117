"""A command that goes on for long says soon that no broker answers: once for each outage, however many attempts it makes."""

import threading

import pytest

from moldau.cli.patience import Outage, PatientCluster
from moldau.model.errors import WorldError
from moldau.protocol.messages.metadata import MetadataResponse
from support.scripted_broker import HANG_UP, SILENCE, Request, ScriptedBroker


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

    with ScriptedBroker(script) as broker, PatientCluster(broker.bootstrap, tell=tell, after_s=0.05, timeout_s=60.0) as cluster:
        cluster.metadata([])
        assert told == []
        dead = True
        with pytest.raises(WorldError):
            cluster.metadata([])
        assert heard.is_set()
        assert told[0] == f"{broker.bootstrap}: {reason}"


def test_an_outage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And the next one another."""
    outage = Outage()
    for trouble in ("kafka-1: refused", "kafka-1: no answer"):
        outage.tell(trouble)
    outage.over()
    outage.tell("kafka-2: refused")
    assert capsys.readouterr().err.splitlines() == ["kafka-1: refused; trying again", "kafka-2: refused; trying again"]
