"""One cell of the table: a workload on a new cluster, one kind of fault again and again, and the judgement."""

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from moldau.testing.history.checker import check
from moldau.testing.history.history import History, Outcome
from moldau.testing.history.kinds import Kind
from moldau.testing.history.saving import save
from support.fault_table.faults import FAULTS
from support.fault_table.stage import Stage
from support.fault_table.workloads import COMPACTED, COMPACTED_SETTINGS, WORKLOADS, Workload, forward_groups
from support.workload.run import drive
from support.workload.world import COPIES, NUMBERS, Worker, World

CALM_S = (0.3, 1.0)
"""Between two faults, at least and at most."""
CUTTING = ("isolate", "cut", "pause")
"""How the names of faults begin that keep brokers from one another."""
TOPICS: Mapping[str, Mapping[str, object]] = {NUMBERS: {}, COPIES: {}, COMPACTED: COMPACTED_SETTINGS}
LOST = (Kind.LOST_WRITE, Kind.UNSEEN, Kind.COPY_LOST)
DOUBLED = (Kind.DUPLICATE, Kind.COPY_DOUBLED)


@dataclass
class Result:
    """What came of a cell."""

    store: str
    workload: str
    fault: str
    seed: int
    faults: int = 0
    """Injected."""
    sends: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    stall_s: float = 0.0
    """The longest time in which a partition had no acknowledgement."""
    wrong: list[str] = field(default_factory=list)
    """All that is wrong, in words; with what is lost and doubled."""
    seconds: float = 0.0
    kept: str = ""
    """Where history and logs of a cell are in which something is wrong."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class ClusterWorld(World):
    """Its clients do not wait long for a broker that stands still."""

    def settings(self, **settings: Any) -> dict[str, Any]:
        return super().settings(**{"socket_timeout_ms": 3000, **settings})


class Nemesis(Worker):
    """One fault after the other; in the end nothing is wrong any more."""

    def __init__(self, world: World, stage: Stage, fault: str) -> None:
        super().__init__(world, "nemesis")
        self.stage = stage
        self.fault = fault
        self.faults = 0
        self.strikes = 0

    def live(self, name: str) -> None:
        if self.stopping.wait(self.random.uniform(*CALM_S)):
            return
        outage = self.history.outage(self.fault, cut=self.fault.startswith(CUTTING))
        self.faults += FAULTS[self.fault](self.stage, self.stopping.wait)
        self.strikes += 1
        self.history.healed(outage)

    def run(self) -> None:
        super().run()
        outage = self.history.outage("recovery")
        try:
            self.stage.recover()
        except BaseException as failure:
            self.world.failures.append(failure)
        self.history.healed(outage)


def run_cell(directory: Path, store: str, workload: str, fault: str, *, seed: int, seconds: float, strikes_least: int) -> Result:
    """Run it for so long, and until the fault has struck so many times. `directory` is new, and is kept if something is wrong."""
    result = Result(store, workload, fault, seed)
    chance = random.Random(f"{seed} {store} {workload} {fault}")
    begun = time.monotonic()
    with Stage(directory, store, chance) as stage:
        world = ClusterWorld(stage.cluster.bootstrap_servers, chance.randrange(1 << 32))
        work = None
        try:
            for topic, settings in TOPICS.items():
                stage.create_topic(topic, settings)
            world.history.forward_groups |= forward_groups()
            work = WORKLOADS[workload](world)
            stage.topic, stage.coordinated = work.topic, list(work.coordinated)
            stage.cluster.wait_until_in_sync()
            nemesis = Nemesis(world, stage, fault)
            until = time.monotonic() + seconds
            drive(world, work.clients, nemesis, lambda: time.monotonic() >= until and nemesis.strikes >= strikes_least)
            result.faults = nemesis.faults
            result.wrong += work.judge(world)
        except Exception as failure:
            result.wrong.append(f"{type(failure).__name__}: {failure} {' '.join(getattr(failure, '__notes__', []))}")
        result.wrong += stage.complaints()
        counts, shown = check(world.history)
        result.lost, result.doubled = (sum(counts[kind] for kind in kinds) for kinds in (LOST, DOUBLED))
        result.wrong += map(str, shown)
        _count(result, world.history, work)
        if result.wrong:
            result.kept = str(directory)
            save(world.history, directory / "history.jsonl")
    result.seconds = time.monotonic() - begun
    if not result.wrong:
        shutil.rmtree(directory)
    return result


def _count(result: Result, history: History, work: Workload | None) -> None:
    sends = history.sends
    times: dict[tuple[str, int], list[float]] = {}
    for partition, outcome, ended in zip(sends.partition, sends.outcome, sends.ended, strict=True):
        if outcome == Outcome.OK:
            times.setdefault(("history", partition), []).append(ended)
    for partition, at in work.acknowledged_at if work is not None else ():
        times.setdefault(("other", partition), []).append(at)
    result.sends = len(sends)
    result.acknowledged = sum(map(len, times.values()))
    result.stall_s = max(map(_longest_gap, times.values()), default=0.0)


def _longest_gap(times: Sequence[float]) -> float:
    inside = sorted(times)
    return max((later - earlier for earlier, later in pairwise(inside)), default=0.0)


def from_json(document: Mapping[str, Any]) -> Result:
    """A result that `as_json` gave."""
    return Result(**document)
