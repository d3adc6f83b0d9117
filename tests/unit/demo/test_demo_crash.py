"""Half way through the events one broker is killed, at three quarters it is started again, and the report comes when all is in sync. With a
mirror, that is killed too, and both come again at once.
"""

import threading
from collections.abc import Sequence

import pytest

from moldau.client.metadata import PartitionMetadata, TopicMetadata
from moldau.demo.children import ChildError
from moldau.demo.crash import BrokerCrash, CrashError, CrashReport
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId

TOPIC = "departures"
BROKERS = (1, 2, 3)
LIMIT_S = 30.0


class Cluster:
    """Three partitions, each led by its own broker; the next one leads those of a broker that has been killed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.called = threading.Condition()
        self._down: set[int] = set()

    def kill(self, broker_id: int) -> None:
        self._down.add(broker_id)
        self._call("kill", broker_id)

    def restart(self, broker_id: int) -> None:
        self._down.remove(broker_id)
        self._call("restart", broker_id)

    def topic(self, name: str) -> TopicMetadata:
        partitions = tuple(self._partition(number) for number in range(len(BROKERS)))
        return TopicMetadata(name, b"", False, partitions, ErrorCode.NONE)

    def topics(self, *, internal: bool = False) -> Sequence[TopicMetadata]:
        return [self.topic(TOPIC), *([self.topic("__consumer_offsets")] if internal else [])]

    def wait_for(self, *calls: tuple[str, int]) -> None:
        with self.called:
            assert self.called.wait_for(lambda: self.calls == list(calls), LIMIT_S), self.calls

    def _call(self, name: str, broker_id: int) -> None:
        with self.called:
            self.calls.append((name, broker_id))
            self.called.notify()

    def _partition(self, number: int) -> PartitionMetadata:
        replicas = tuple(BrokerId(each) for each in BROKERS[number:] + BROKERS[:number])
        isr = tuple(each for each in replicas if each not in self._down)
        return PartitionMetadata(number, isr[0], 0, replicas, isr, (), ErrorCode.NONE)


class Mirrored(Cluster):
    """With a mirror: both are started again at once by what supervises them, which `restart` and `wait_for_mirror` wait for."""

    mirror = "mirror.aggregate"

    def kill_mirror(self) -> None:
        self._call("kill mirror", 0)

    def wait_for_mirror(self) -> float:
        self._call("wait for mirror", 0)
        return 2.5


def figures(report: CrashReport | None) -> tuple[int, int, int, int, int]:
    assert report is not None
    return report.broker, report.sent, report.to_send, report.led, report.partitions


def test_a_broker_is_killed_half_way_and_started_again_at_three_quarters() -> None:
    cluster = Cluster()
    crash = BrokerCrash(cluster, cluster, TOPIC, 100)
    crash.progress(0, 20)
    crash.progress(1, 29)
    assert cluster.calls == []
    crash.progress(0, 22)
    cluster.wait_for(("kill", 1))
    crash.progress(1, 52)
    crash.progress(2, 1)
    cluster.wait_for(("kill", 1), ("restart", 1))
    assert figures(crash.finish()) == (1, 51, 100, 1, 3)


def test_a_mirror_is_killed_just_before_the_broker_and_both_are_waited_for_at_once() -> None:
    """Claim: nothing waits for three quarters of the events, and the report has both."""
    cluster = Mirrored()
    crash = BrokerCrash(cluster, cluster, TOPIC, 100, mirror=cluster)
    crash.progress(0, 49)
    assert cluster.calls == []
    crash.progress(0, 50)
    cluster.wait_for(("kill mirror", 0), ("kill", 1), ("restart", 1), ("wait for mirror", 0))
    report = crash.finish()
    assert figures(report) == (1, 50, 100, 1, 3)
    assert report is not None
    assert (report.mirror, report.mirror_down_s) == ("mirror.aggregate", 2.5)


def test_no_mirror_is_killed_before_half_of_the_events() -> None:
    cluster = Mirrored()
    crash = BrokerCrash(cluster, cluster, TOPIC, 100, mirror=cluster)
    crash.progress(0, 49)
    assert crash.finish() is None
    assert cluster.calls == []


def test_a_mirror_that_does_not_come_again_ends_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of what waits for it is raised at the end."""

    def wait() -> float:
        raise ChildError("mirror.aggregate was killed, and does not run again")

    cluster = Mirrored()
    monkeypatch.setattr(cluster, "wait_for_mirror", wait)
    crash = BrokerCrash(cluster, cluster, TOPIC, 100, mirror=cluster)
    crash.progress(0, 80)
    with pytest.raises(ChildError, match="does not run again"):
        crash.finish()


def test_the_end_of_the_hosts_is_three_quarters_too() -> None:
    """Fewer events than expected: a file with blank lines."""
    cluster = Cluster()
    crash = BrokerCrash(cluster, cluster, TOPIC, 100)
    crash.progress(0, 60)
    assert figures(crash.finish()) == (1, 60, 100, 1, 3)
    assert cluster.calls == [("kill", 1), ("restart", 1)]


@pytest.mark.parametrize("to_send", [0, 100])
def test_no_broker_is_killed_before(to_send: int) -> None:
    cluster = Cluster()
    crash = BrokerCrash(cluster, cluster, TOPIC, to_send)
    crash.progress(0, 49)
    assert crash.finish() is None
    assert cluster.calls == []


def test_a_cluster_that_does_not_recover_ends_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what is missing; nothing is reported as complete."""
    monkeypatch.setattr("moldau.demo.crash.LIMIT_S", 0.0)
    cluster = Cluster()
    monkeypatch.setattr(cluster, "restart", lambda _broker: None)
    crash = BrokerCrash(cluster, cluster, TOPIC, 100)
    crash.progress(0, 80)
    with pytest.raises(CrashError, match="the cluster does not have all replicas in sync"):
        crash.finish()


def test_a_demonstration_that_fails_waits_for_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    monkeypatch.setattr(cluster, "restart", lambda _broker: None)
    crash = BrokerCrash(cluster, cluster, TOPIC, 100)
    crash.progress(0, 80)
    cluster.wait_for(("kill", 1))
    crash.stop()
