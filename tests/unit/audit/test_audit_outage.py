"""An auditor whose brokers are away says so once, however often it tries, and once that it goes on."""

from collections.abc import Callable

import pytest

from moldau.audit import auditor
from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.client.errors import UnreachableError, failure
from moldau.model.errors import ErrorCode
from moldau.model.host_port import Address


def refused() -> None:
    raise UnreachableError(Address("kafka-1", 9092), "connection refused")


def test_an_outage_is_one_warning_and_its_end_another(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Tried every few seconds for hours; another kind of trouble within it is news, and so is the next outage."""
    monkeypatch.setattr(auditor, "_PATIENCE_S", 0.0)
    tried: list[None] = []

    def other() -> None:
        raise failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cluster")

    def counted() -> None:
        watched.add(published=1, transactions=1)
        refused()

    def stopped() -> None:
        watched.add(published=1, transactions=1)
        watched.stop()
        refused()

    attempts: list[Callable[[], None]] = [refused, refused, other, refused, counted, refused, stopped]
    rounds = iter(attempts)

    def attempt(*, once: bool) -> None:
        tried.append(None)
        next(rounds)()

    watched = Auditor("127.0.0.1:1", AuditorOptions("local"))
    monkeypatch.setattr(watched, "_work", attempt)
    watched.run()
    assert len(tried) == len(attempts)
    told = [record.getMessage().split(":")[0] for record in caplog.records if record.levelname == "WARNING"]
    again, on, end = "audit interrupted, retrying", "audit resumed, counts are published again", "audit interrupted, ending"
    assert told == [again, again, on, again, on, end]
