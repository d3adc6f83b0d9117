"""Clients of many kinds see no anomaly while brokers of a cluster die, stand still, are cut off, moved, or have no space.

`make test` runs one cell of the table with metadata in a shared file and one in ZooKeeper; `make torture` runs every fault, each with a
workload that the seed draws. The whole table is `make faults`, see docs/faults.md.
"""

import os
import random
from pathlib import Path

import pytest

from support import zookeeper
from support.fault_table.cell import run_cell
from support.fault_table.faults import FAULTS, faults_of
from support.fault_table.process_faults import can_be_made
from support.fault_table.stage import FILE, STORES, ZOOKEEPER
from support.fault_table.workloads import WORKLOADS
from support.sizes import TORTURE, sized

pytestmark = [
    pytest.mark.system,
    pytest.mark.torture,
    pytest.mark.skipif(not can_be_made(), reason="no C compiler, by which clocks and disks fail"),
]

SECONDS = sized(3, 20)
STRIKES = sized(1, 4)
QUICK = [(FILE, "kill_leader", "tx_streaming"), (ZOOKEEPER, "isolate_leader", "reads_writes_idempotent")]
SEED = int(os.environ.get("MOLDAU_SEED", random.SystemRandom().randrange(1 << 32)))


def cells() -> list[tuple[str, str, str]]:
    """Store, fault, workload; None: one that the seed draws."""
    return [(store, fault, "") for store in STORES for fault in faults_of(store)] if TORTURE else QUICK


@pytest.mark.parametrize(("store", "fault", "workload"), cells())
def test_no_anomaly(tmp_path: Path, store: str, fault: str, workload: str) -> None:
    if store == ZOOKEEPER and not zookeeper.has_java():
        pytest.skip("no Java")
    workload = workload or random.Random(f"{SEED} {store} {fault}").choice(list(WORKLOADS))
    print(f"seed {SEED}: MOLDAU_SEED={SEED} repeats the choices, not their moments; workload {workload}")
    result = run_cell(tmp_path / "cell", store, workload, fault, seed=SEED, seconds=SECONDS, strikes_least=STRIKES)
    assert result.wrong == [], f"seed {SEED}, history and logs: {result.kept}"
    assert result.acknowledged > 0
    assert result.faults >= STRIKES or fault == "baseline"


def test_every_fault_happens_somewhere() -> None:
    assert list(dict.fromkeys(fault for store in STORES for fault in faults_of(store))) == list(FAULTS)
    assert len(WORKLOADS) == 10
    assert all(len(faults_of(store)) >= 20 for store in STORES)
