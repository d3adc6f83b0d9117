"""Calls of a test's cluster that could do nothing are refused and name the brokers; a wait for a topic that does not exist says so."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.adapters.process_identity import identity_of
from moldau.assembly.local_cluster.state import BrokerProcess, ClusterState
from moldau.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId
from moldau.testing import Cluster


class KnownCluster(Cluster):
    """Broker 1 is up, broker 2 dead, broker 3 paused; there is a topic with two partitions, as broker 1 knows."""

    topics_known: Sequence[str] = ("orders",)

    def run(self, up: str, paused: str) -> None:
        brokers = [BrokerProcess(number, "127.0.0.1", 0, process) for number, process in enumerate((up, "", paused), 1)]
        self._supervisor: Any = SimpleNamespace(state=ClusterState(brokers, ""))

    def _views(self, topics: Iterable[str] | None) -> dict[int, ClusterMetadata]:
        one = BrokerId(1)
        wanted = self.topics_known if topics is None else topics
        known = {name: self._topic(name, one) for name in wanted}
        return {1: ClusterMetadata("id", one, {}, {}, known)}

    def _topic(self, name: str, leader: BrokerId) -> TopicMetadata:
        if name not in self.topics_known:
            return TopicMetadata(name, b"", False, (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [PartitionMetadata(each, leader, 0, (leader,), (leader,), (), ErrorCode.NONE) for each in range(2)]
        return TopicMetadata(name, b"", False, tuple(partitions), ErrorCode.NONE)


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


@pytest.fixture(scope="module")
def processes() -> Iterator[tuple[str, str]]:
    """One that is up, one that is paused."""
    with process() as up, process() as paused:
        paused.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, paused.pid, os.WSTOPPED | os.WNOWAIT)
        yield identity_of(up.pid), identity_of(paused.pid)


@pytest.fixture
def cluster(tmp_path: Path, processes: tuple[str, str]) -> KnownCluster:
    found = KnownCluster(directory=tmp_path, timeout_s=0)
    found.run(*processes)
    return found


UNKNOWN = "there is no broker 7 in this cluster; the brokers are 1, 2, 3"
NONE = "no broker is named; the brokers are 1, 2, 3"
STATES = "brokers: 1 up, 2 dead, 3 paused"

REFUSED: dict[str, tuple[Callable[[Cluster], object], str]] = {
    "state of an unknown one": (lambda it: it.state(7), UNKNOWN),
    "process of an unknown one": (lambda it: it.pid(7), UNKNOWN),
    "log of an unknown one": (lambda it: it.log(7), UNKNOWN),
    "an unknown one is killed": (lambda it: it.kill(1, 7), UNKNOWN),
    "no one is killed": (lambda it: it.kill(), NONE),
    "a dead one is killed": (lambda it: it.kill(1, 2), f"broker 2 is dead; {STATES}"),
    "a list is killed": (lambda it: it.kill([1, 2]), "there is no broker [1, 2] in this cluster; the brokers are 1, 2, 3"),  # type: ignore[arg-type]
    "no one is paused": (lambda it: it.pause(), NONE),
    "a dead one is paused": (lambda it: it.pause(2), f"broker 2 is dead; {STATES}"),
    "a paused one is paused": (lambda it: it.pause(3), f"broker 3 is paused; {STATES}"),
    "no one is resumed": (lambda it: it.resume(), NONE),
    "one that is not paused is resumed": (lambda it: it.resume(3, 1), f"broker 1 is up; {STATES}"),
    "a dead one is resumed": (lambda it: it.resume(2), f"broker 2 is dead; {STATES}"),
    "no one is restarted": (lambda it: it.restart(), NONE),
    "an unknown one is restarted": (lambda it: it.restart(7), UNKNOWN),
    "an unknown one is isolated": (lambda it: it.isolate(7), UNKNOWN),
    "cut off from an unknown one": (lambda it: it.partition(1, [2, 7]), UNKNOWN),
    "cut off from no one": (lambda it: it.partition([1, 2], []), NONE),
    "cut off by a misspelt name": (lambda it: it.partition(1, "zoo"), "there is no broker 'zoo' in this cluster; the brokers are 1, 2, 3"),
    "cut off from itself": (lambda it: it.partition(1, 1), "1 is on both sides, and has no connection to itself; the brokers are 1, 2, 3"),
    "cut off from itself and another": (lambda it: it.partition([1, 2], [2, 3]), "2 is on both sides"),
    "cut off from no ZooKeeper": (lambda it: it.partition(1, "zookeeper"), "the cluster was made without `zookeeper`"),
    "a delay below 0": (lambda it: it.slow(1, 2, delay_s=-1), "delay_s=-1: a number from 0 on is needed"),
    "a delay that is no number": (lambda it: it.slow(1, 2, delay_s=float("nan")), "delay_s=nan: a number from 0 on is needed"),
    "a delay without an end": (lambda it: it.slow(1, 2, delay_s=float("inf")), "delay_s=inf: a number from 0 on is needed"),
    "a limit below 0": (lambda it: it.slow(1, 2, bytes_per_s=-1), "bytes_per_s=-1: a number from 0 on is needed"),
    "slow to itself": (lambda it: it.slow(1, [2, 1]), "1 is on both sides"),
    "an unknown one is to lead": (lambda it: it.move_leader("orders", 0, 7), UNKNOWN),
    "a dead one is to lead": (lambda it: it.move_leader("orders", 0, 2), f"broker 2 is dead; {STATES}"),
    "a paused one is to lead": (lambda it: it.move_leader("orders", 0, 3), f"broker 3 is paused; {STATES}"),
    "replicas on an unknown one": (lambda it: it.reassign("orders", 0, [1, 7]), UNKNOWN),
    "replicas nowhere": (lambda it: it.reassign("orders", 0, []), NONE),
    "no replicas in sync": (lambda it: it.wait_until_in_sync("orders", replicas=0), "replicas=0: a partition has 1 to 3 in this cluster"),
    "more in sync than brokers": (lambda it: it.wait_until_in_sync(replicas=4), "replicas=4: a partition has 1 to 3 in this cluster"),
    "a cluster of none": (lambda _: Cluster(0), "a cluster has 1 broker or more, not 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_could_do_nothing_is_refused(cluster: KnownCluster, name: str) -> None:
    call, line = REFUSED[name]
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        call(cluster)
    assert str(refused.value).startswith(line)


WAITS: dict[str, Callable[[Cluster, str], object]] = {
    "leader": lambda it, topic: it.leader_of(topic),
    "in sync": lambda it, topic: it.in_sync(topic),
    "replicas": lambda it, topic: it.replicas_of(topic),
    "all in sync": lambda it, topic: it.wait_until_in_sync(topic),
    "another leader": lambda it, topic: it.move_leader(topic, 0, 1),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_for_a_misspelt_topic_ends_with_the_topics_that_there_are(cluster: KnownCluster, name: str) -> None:
    with pytest.raises(TimeoutError, match=f"; topic ordrs does not exist, there are: orders; {STATES}; their logs: "):
        WAITS[name](cluster, "ordrs")


def test_of_many_topics_some_are_named(cluster: KnownCluster) -> None:
    cluster.topics_known = [f"t{number:02}" for number in range(11)]
    names = r"t00, t01, t02, t03, t04, t05, t06, t07, t08, t09, \.\.\.;"
    with pytest.raises(TimeoutError, match=f"; topic ordrs does not exist, there are: {names}"):
        cluster.leader_of("ordrs")


def test_a_wait_for_a_partition_that_the_topic_does_not_have_says_which_it_has(cluster: KnownCluster) -> None:
    with pytest.raises(TimeoutError, match="leads orders-2; topic orders has the partitions 0 to 1; brokers: "):
        cluster.leader_of("orders", 2)


def test_where_no_broker_answers_nothing_is_said_of_topics(cluster: KnownCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_views", lambda _: {})
    with pytest.raises(TimeoutError, match=f"a broker that is up leads ordrs-0; {STATES}"):
        cluster.leader_of("ordrs")


@pytest.mark.parametrize("call", [Cluster.heal, lambda it: it.partition(1, 2), lambda it: it.slow(1, 2), lambda it: it.isolate(1)])
def test_connections_of_a_cluster_that_does_not_run_are_refused(tmp_path: Path, call: Callable[[Cluster], object]) -> None:
    with pytest.raises(RuntimeError, match="the cluster has not been started"):
        call(Cluster(directory=tmp_path))
