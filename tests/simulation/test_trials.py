"""Whole runs with faults: clean where the broker is sound, and found out where it is not."""

import asyncio
import itertools
from typing import Any

import pytest

from moldau.broker.replicas.flusher import LogFlusher
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition import Partition
from moldau.testing.history.history import History
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.fleet import clients_of, options_of
from moldau.testing.simulation.nemesis import Fault
from moldau.testing.simulation.options import Options, draw_options
from moldau.testing.simulation.trial import Script, TrialResult, run_trial
from moldau.testing.simulation.workloads import Workload
from moldau.testing.simulation.workloads.moving_logs import move_logs
from moldau.testing.simulation.workloads.plain import read, write

pytestmark = pytest.mark.system

WORKLOADS: list[tuple[str, Workload]] = [("write", write), ("write", write), ("read", read)]


@pytest.mark.parametrize("seed", range(40))
def test_a_seed_is_clean(seed: int) -> None:
    options = options_of(seed)
    verdict = run_trial(options, clients_of(options))
    assert not verdict.failures, str(verdict)


def test_a_run_is_repeated_with_all_its_faults() -> None:
    verdicts = [run_trial(draw_options(38), WORKLOADS) for _ in range(2)]
    assert verdicts[0].crc == verdicts[1].crc
    assert len(verdicts[0].done) > 10


def test_a_run_is_repeated_with_its_moves_between_directories() -> None:
    options = Options(5, faults={"kill": 3.0}, faults_s=20.0, operations=200, directories=2)
    verdicts = [run_trial(options, [*WORKLOADS, ("move_logs", move_logs)]) for _ in range(2)]
    assert verdicts[0].crc == verdicts[1].crc
    assert not verdicts[0].failures, str(verdicts[0])
    assert verdicts[0].reached["log: a copy took the place of its log"] > 5


def test_many_but_not_all_of_the_seeds_with_two_directories_move_logs() -> None:
    seeds = [options for seed in range(300) if (options := options_of(seed)).directories == 2]
    for several in (False, True):
        moving = ["move_logs" in options.clients for options in seeds if (options.brokers > 1) is several]
        assert 0.5 < sum(moving) / len(moving) < 0.9


def power_cuts(**settings: object) -> TrialResult:
    """Three power cuts while two write, on a disk whose syncs take long."""
    options = Options(1, faults={"power_cut": 10.0}, faults_s=20.0, operations=200, settings=settings)
    faults = [Fault(at, "power_cut", number) for number, at in enumerate((1.0, 2.0, 4.0))]
    return run_trial(options, WORKLOADS, Script(faults, []))


def test_what_was_synced_before_its_acknowledgement_survives_power_cuts() -> None:
    verdict = power_cuts(**{"log.flush.interval.messages": 1})
    assert not verdict.failures, str(verdict)
    assert len(verdict.done) >= 2


def test_an_acknowledgement_before_its_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "open_offset", lambda self, _level: self.log_end_offset)
    verdict = power_cuts(**{"log.flush.interval.messages": 1})
    assert "was synced and acknowledged" in str(verdict)


def test_the_history_has_the_evictions_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[History] = []
    monkeypatch.setattr(History, "evicted", lambda self: found.append(self))
    verdict = run_trial(Options(1, operations=40, settings={"producer.ids.max": 1}), WORKLOADS)
    assert len(found) == verdict.reached["producers: evicted one"] > 0


def test_a_high_watermark_that_falls_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = HostedPartition.advanced
    calls = itertools.count()

    def falls(self: HostedPartition) -> bool:
        has_advanced = real(self)
        if self.log.high_watermark > 10 and next(calls) % 2:
            self.log.high_watermark -= 5
        return has_advanced

    monkeypatch.setattr(HostedPartition, "advanced", falls)
    assert "high watermark fell" in str(run_trial(draw_options(3), WORKLOADS))


RARE: list[tuple[str, dict[str, object], set[str]]] = [
    ("flip_bit", {"damaged_topics": ["plain"]}, {"records damaged"}),
    ("misdirect_write", {"damaged_topics": ["plain"]}, {"records damaged"}),
    ("flip_bit", {}, {"an index or a snapshot damaged"}),
    ("misdirect_write", {}, {"an index or a snapshot damaged"}),
    ("fail_sync", {"settings": {"log.flush.interval.messages": 1}}, {"a sync failed"}),
    ("fail_directory", {"directories": 2}, set()),
    ("suspend_session", {"tree_latency_s": 0.01}, set()),
    ("expire_session", {"tree_latency_s": 0.01, "tree_linger_s": 6.0}, set()),
    ("lose_answer", {}, set()),
    ("client_death", {}, set()),
]


@pytest.mark.parametrize(("kind", "more", "struck"), RARE, ids=[f"{kind} {', '.join(more) or '-'}" for kind, more, _ in RARE])
def test_a_fault_strikes_and_nothing_is_lost_that_must_stay(kind: str, more: dict[str, Any], struck: set[str]) -> None:
    options = Options(7, faults={kind: 2.0, "kill": 8.0}, operations=150, **more)
    verdict = run_trial(options, WORKLOADS)
    assert not verdict.failures, str(verdict)
    assert verdict.struck >= {kind, *struck}


def test_damaged_records_that_are_served_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.log.batches.verify_crc", lambda _batch: True)
    options = Options(7, faults={"flip_bit": 2.0}, operations=150, damaged_topics=["plain"])
    assert "recovered up to" in str(run_trial(options, WORKLOADS))


async def wait_for_ever(context: ClientContext) -> None:
    await asyncio.get_running_loop().create_future()


def test_a_workload_that_never_ends_is_found_with_the_place_where_it_waits() -> None:
    verdict = run_trial(draw_options(3), [*WORKLOADS, ("waiting", wait_for_ever)])
    assert "not done: waiting in" in str(verdict)
    assert "wait_for_ever" in str(verdict)


def test_an_error_of_the_product_on_its_own_thread_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_self: LogFlusher, *_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(LogFlusher, "request", fails)
    assert "planted" in str(power_cuts(**{"log.flush.interval.messages": 1}))
