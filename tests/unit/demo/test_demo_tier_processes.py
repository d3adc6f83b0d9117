"""The demonstration finds the processes of its tiers by what `moldau tiers up` notes of them, and kills those alone that it means."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from moldau.adapters.process_identity import ProcessState, identity_of
from moldau.demo.children import ChildError
from moldau.demo.tier_processes import MIRROR, TierProcesses
from moldau.demo.tiers import LAKE_TIER
from moldau.demo.topology import AGGREGATE, DATACENTERS, NAME, OFFLINE
from moldau.tiers.processes import ProcessKind
from moldau.tiers.state import TierProcess, TiersState, write_tiers_state
from moldau.tracking.audit_record import PRODUCER_TIER

LIMIT_S = 30.0
BROKER = f"broker.{AGGREGATE}.2"


class Ended:
    """The child that would be `moldau tiers up`."""

    def stop(self) -> int:
        return 0


@pytest.fixture
def tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierProcesses:
    """As after the start of `moldau tiers up`, which does not run."""
    words: list[Sequence[str]] = []

    def started(command: Sequence[str], _log: Path, marker: str) -> tuple[Any, list[str]]:
        assert marker == f"{NAME} is up: "
        words.append(command)
        return Ended(), []

    monkeypatch.setattr("moldau.demo.tier_processes.started", started)
    found = TierProcesses(tmp_path / "topology.toml", tmp_path / "tiers", tmp_path / "tiers.log", "departures", 6).start()
    assert words == [["tiers", "up", str(tmp_path / "topology.toml"), "--data", str(tmp_path / "tiers")]]
    return found


@pytest.fixture
def process() -> Iterator[Callable[[], str]]:
    """Makes processes; each call returns the identity of one that runs until it is killed."""
    running: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        running.append(subprocess.Popen(["sleep", "600"]))
        return identity_of(running[-1].pid)

    yield start
    for each in running:
        each.kill()
        each.wait()


def note(directory: Path, mirror: str, broker: str, *, serves: bool = True) -> None:
    """What `moldau tiers up` notes of two processes."""
    children = [
        TierProcess(ProcessKind.MIRROR.value, MIRROR, "", mirror, serves=serves),
        TierProcess(ProcessKind.BROKER.value, BROKER, "", broker, serves=serves),
    ]
    (directory / "tiers").mkdir(exist_ok=True)
    write_tiers_state(str(directory / "tiers"), TiersState(NAME, "topology.toml", "", children))


def test_clusters_are_those_of_the_file(tiers: TierProcesses) -> None:
    """Claim: hosts publish to the cluster of their data centre, the load reads the offline copy, and the audit has a tier for each."""
    assert tiers.audited.keys() == {*DATACENTERS, AGGREGATE, OFFLINE}
    assert tiers.published_to(3) == [(tiers.audited[name], name) for name in DATACENTERS]
    assert tiers.bootstrap == tiers.audited[OFFLINE]
    assert tiers.tree.names == (PRODUCER_TIER, *DATACENTERS, AGGREGATE, OFFLINE, LAKE_TIER)
    assert tiers.tree.sources(AGGREGATE) == DATACENTERS


def test_each_host_has_a_data_centre(tiers: TierProcesses) -> None:
    with pytest.raises(ValueError, match="there are 3 data centres, and 2 hosts"):
        tiers.published_to(2)


def test_the_mirror_is_killed_and_waited_for(tiers: TierProcesses, tmp_path: Path, process: Callable[[], str]) -> None:
    """The broker lives on; a process that has been started in place of the mirror counts once it mirrors."""
    mirror, broker, next_mirror = process(), process(), process()
    note(tmp_path, mirror, broker)
    tiers.kill_mirror()
    assert wait_dead(mirror)
    assert TierProcess("", "", "", broker).state is not ProcessState.DEAD
    note(tmp_path, next_mirror, broker)
    assert 0 <= tiers.wait_for_mirror() < 60


def test_a_broker_is_killed_by_its_number_and_waited_for(tiers: TierProcesses, tmp_path: Path, process: Callable[[], str]) -> None:
    mirror, broker, next_broker = process(), process(), process()
    note(tmp_path, mirror, broker)
    tiers.kill(2)
    assert wait_dead(broker)
    assert TierProcess("", "", "", mirror).state is not ProcessState.DEAD
    note(tmp_path, mirror, next_broker)
    tiers.restart(2)


@pytest.mark.parametrize("how", ["not started", "started, without its work begun"])
def test_a_mirror_that_does_not_come_again_is_named(
    how: str, tiers: TierProcesses, tmp_path: Path, process: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.demo.tier_processes.LIMIT_S", 0.0)
    mirror, broker = process(), process()
    note(tmp_path, mirror, broker)
    tiers.kill_mirror()
    if how != "not started":
        note(tmp_path, process(), broker, serves=False)
    with pytest.raises(ChildError, match=rf"{MIRROR} was killed, and does not run again after 0 s; .*tiers.log has more"):
        tiers.wait_for_mirror()


def wait_dead(identity: str) -> bool:
    """Whether it ends; it was killed."""
    end = time.monotonic() + LIMIT_S
    while TierProcess("", "", "", identity).state is not ProcessState.DEAD and time.monotonic() < end:
        time.sleep(0.01)
    return TierProcess("", "", "", identity).state is ProcessState.DEAD
