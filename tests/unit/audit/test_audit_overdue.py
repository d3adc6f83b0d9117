"""An auditor that was stopped in the midst of a transaction, or whose brokers were away for longer than they keep one open, goes on.

Brokers end such a transaction and fence its producer, as they do when another auditor takes over. Which of the two it was is told by the
group's offsets: whoever took over has moved them (H2).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from moldau.audit import auditor as auditors
from moldau.audit import publishing
from moldau.audit.auditor import Auditor, AuditorOptions, AuditRound
from moldau.audit.publishing import OverdueError, Publisher
from moldau.client.cluster import Cluster
from moldau.client.failures import FencedError
from moldau.client.groups import GroupOffset
from moldau.model.identity import Offset, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FENCED = FencedError("moldau-audit-local", KafkaError(KafkaError._FENCED))
NOWHERE = cast("Cluster", None)


class FencedProducer:
    """One whose transaction takes a while, and ends fenced."""

    def __init__(self, takes_s: float) -> None:
        self.now = 0.0
        self.takes_s = takes_s

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        yield SimpleNamespace(commit_offsets=lambda *_: None)
        self.now += self.takes_s
        raise FENCED

    def close(self) -> None: ...


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Publisher]:
    """Publishes offset 7 behind a committed 5, in a transaction of so many seconds."""

    def run(takes_s: float) -> Publisher:
        producer = FencedProducer(takes_s)
        monkeypatch.setattr(publishing, "Producer", lambda *_, **__: producer)
        monkeypatch.setattr(publishing, "Consumer", lambda *_, **__: producer)
        monkeypatch.setattr(publishing, "since_boot_s", lambda: producer.now)
        publisher = Publisher("127.0.0.1:9", "local")
        publisher._committed = {T0: 5}
        publisher.publish(publishing.Counted({}, {}), {T0: 7}, None, {})
        raise AssertionError

    return run


def test_a_fence_within_time_is_another_auditors(publish: Callable[[float], Publisher]) -> None:
    with pytest.raises(FencedError):
        publish(59.0)


def test_a_fence_after_it_may_be_nobodys(publish: Callable[[float], Publisher]) -> None:
    """It remembers what the group has if nobody else commits: what was there before, or what was in doubt."""
    with pytest.raises(OverdueError, match=r"^the transaction of tier local was open for 75 s, so that brokers ended it$") as overdue:
        publish(75.0)
    assert overdue.value.known == {T0: {5, 7}}


@pytest.mark.parametrize(
    ("found", "replaced"),
    [
        ({T0: 5}, False),
        ({T0: 7}, False),
        ({}, False),
        ({T0: 9}, True),
        ({T0: 5, T1: 1}, True),
    ],
    ids=["as before", "as in doubt", "topic deleted", "moved", "another partition"],
)
def test_who_has_moved_the_offsets_has_the_tier(monkeypatch: pytest.MonkeyPatch, found: dict[TopicPartition, int], replaced: bool) -> None:
    asked: list[tuple[str, bool]] = []

    def committed(group: str, *, stable: bool) -> dict[TopicPartition, GroupOffset]:
        asked.append((group, stable))
        return {where: GroupOffset(Offset(offset)) for where, offset in found.items()}

    monkeypatch.setattr(publishing, "Groups", lambda _: SimpleNamespace(committed=committed))
    overdue = OverdueError("local", 75.0, FENCED, {T0: frozenset({5, 7})})
    publisher = Publisher("127.0.0.1:9", "local")
    try:
        publisher.check_not_replaced(NOWHERE, overdue)
    except FencedError:
        assert replaced
    else:
        assert not replaced
    finally:
        publisher.close()
    assert asked == [("audit-local", True)], "a transaction of another one that is open is waited for"


@pytest.mark.parametrize("replaced", [False, True])
def test_the_auditor_takes_the_tier_over_again_unless_somebody_has_it(monkeypatch: pytest.MonkeyPatch, replaced: bool) -> None:
    said: list[str] = []

    class Fake:
        def __init__(self, *_: Any) -> None: ...

        def check_not_replaced(self, _: Cluster, overdue: OverdueError) -> None:
            said.append("look")
            if replaced:
                raise overdue.fenced

        def take_over(self, _: Cluster) -> dict[TopicPartition, int]:
            said.append("take over")
            return {}

        def close(self) -> None: ...

    def run_round(_: AuditRound, *, once: bool) -> None:
        if len(said) == 1:
            raise OverdueError("local", 75.0, FENCED, {})
        watched.stop()

    monkeypatch.setattr(auditors, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(auditors, "Publisher", Fake)
    monkeypatch.setattr(AuditRound, "run_round", run_round)
    watched = Auditor("127.0.0.1:9", AuditorOptions("local"))
    if replaced:
        with pytest.raises(FencedError):
            watched.run()
        assert said == ["take over", "look"]
    else:
        watched.run()
        assert said == ["take over", "look", "take over"]
