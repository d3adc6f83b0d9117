"""Whole runs of clusters with faults: clean where the brokers are sound, and found out where they are not."""

from collections.abc import Sequence

import pytest

from moldau.broker.groups.partition import GroupPartition
from moldau.broker.replicas import partition
from moldau.cluster.controller.election_rules import Candidates, elect
from moldau.cluster.znodes import PartitionState
from moldau.testing.simulation.fleet import options_of
from moldau.testing.simulation.options import CLUSTER_FAULTS, Options
from moldau.testing.simulation.trial import TrialResult, run_trial
from moldau.testing.simulation.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.system

PLAIN = "write", "write", "read"
COORDINATED = "copy", "commit_plainly", "join", "succeed", "transact"
SETTINGS: dict[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 1000,
    "zookeeper.session.timeout.ms": 2000,
}


def trial(seed: int, clients: Sequence[str], **faults: float) -> TrialResult:
    options = Options(
        seed,
        brokers=3,
        settings=SETTINGS,
        faults=faults,
        faults_s=20.0,
        operations=200,
        tree_latency_s=0.002,
        tree_linger_s=2.0,
        session_s=2.0,
    )
    workloads: list[tuple[str, Workload]] = [(name, WORKLOADS[name]) for name in clients]
    return run_trial(options, workloads)


def test_half_of_the_seeds_have_several_brokers_with_clients_of_every_kind() -> None:
    found = [options for seed in range(200) if (options := options_of(seed)).brokers > 1]
    assert 70 < len(found) < 130
    assert {options.brokers for options in found} == {2, 3, 4, 5}
    assert {name for options in found for name in options.clients} == set(WORKLOADS)


def test_a_run_of_a_cluster_is_repeated_with_all_its_faults() -> None:
    first, second = (trial(1, PLAIN, kill=3.0, cut_link=3.0, pause=5.0) for _ in range(2))
    assert (first.crc, first.steps) == (second.crc, second.steps)
    assert len(first.done) > 5


@pytest.mark.parametrize("kind", [*CLUSTER_FAULTS, "expire_session", "power_cut"])
def test_a_fault_strikes_a_cluster_and_nothing_is_lost(kind: str) -> None:
    verdict = trial(2, PLAIN, **{kind: 1.5})
    assert not verdict.failures, str(verdict)
    assert kind in verdict.struck


@pytest.mark.parametrize("kind", ["kill", "cut_link", "expire_session", "pause", "roll"])
def test_coordinators_of_a_cluster_lose_nothing_and_leave_nothing_undecided(kind: str) -> None:
    verdict = trial(3, COORDINATED, **{kind: 1.5})
    assert not verdict.failures, str(verdict)
    assert kind in verdict.struck


def test_a_coordinator_that_shows_what_its_log_does_not_say_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupPartition, "_apply_offset", lambda *_args: None)
    found = [str(trial(seed, ("commit_plainly",), kill=3.0)) for seed in range(5)]
    assert any("in the log" in each for each in found), found


def test_an_acknowledgement_before_the_followers_have_the_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "least_end_offset", lambda machine, _minimum: machine.log_end_offset)
    found = [str(trial(seed, PLAIN, kill=2.0)) for seed in range(5)]
    assert any("lacks committed records" in each for each in found), found


def test_an_election_outside_the_in_sync_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def elect_any(state: PartitionState, replicas: tuple[int, ...], candidates: Candidates, *rest: object, **named: object) -> object:
        return elect(state._replace(isr=replicas), replicas, candidates, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("moldau.cluster.controller.elections.elect", elect_any)
    found = [str(trial(seed, PLAIN, kill=3.0, isolate=3.0)) for seed in range(5)]
    assert any("lacks committed records" in each or "is not in sync" in each for each in found), found
