"""A run of a seed, in two phases, and the verdict on it.

In the first phase the workloads run and faults happen. In the second nothing new goes wrong, what can be repaired is, and what could make
progress must: all workloads come to their end within a bound of virtual time. Then the history of all clients is judged.
"""

import logging
import re
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TextIO

from moldau.model.identity import TopicPartition
from moldau.testing.history.checker import check
from moldau.testing.simulation.broker_judge import BrokerJudge
from moldau.testing.simulation.cluster_judge import ClusterJudge
from moldau.testing.simulation.nemesis import Fault, Nemesis, draw_faults
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.probes import BY_UNCLEAN_ELECTIONS, Hit, SimulatedProbe
from moldau.testing.simulation.process import ProcessCrash
from moldau.testing.simulation.report import Transcript
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.waiting import wait_for
from moldau.testing.simulation.workloads import Workload
from moldau.testing.simulation.workloads.recording import drain

CONVERGE_S = 600.0
"""How long the second phase may take."""


class Script(NamedTuple):
    """What goes wrong in a run, instead of what its seed draws."""

    faults: Sequence[Fault]
    hits: Sequence[Hit]


@dataclass(slots=True)
class TrialResult:
    """What a run has shown."""

    seed: int
    crc: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    operations: int = 0
    failures: list[str] = field(default_factory=list)
    """What was wrong, in the order in which it was found; empty for a clean run."""
    done: list[Fault] = field(default_factory=list)
    """The faults that had something to act on."""
    script: Script = field(default_factory=lambda: Script((), ()))
    """All that was to go wrong, from which the run can be repeated."""
    reached: Counter[str] = field(default_factory=Counter)
    """How often each point of the product was reached."""
    struck: set[str] = field(default_factory=set)
    """Kinds of faults that had something to act on, and what they have hurt."""
    states: set[str] = field(default_factory=set)
    """Abstract states of partitions that were seen."""

    @property
    def signature(self) -> str:
        """The way in which the run failed first, without numbers and names of the run; empty for a clean one."""
        return _signature(self.failures[0]) if self.failures else ""

    @property
    def signatures(self) -> list[str]:
        """The ways in which it failed."""
        return [_signature(failure) for failure in self.failures]

    def __str__(self) -> str:
        what = "; ".join(self.failures) or "clean"
        return f"seed {self.seed}: {what} ({self.steps} steps, {self.virtual_s:.1f} s, {len(self.done)} faults, crc {self.crc:08x})"


def run_trial(
    options: Options, workloads: Sequence[tuple[str, Workload]], script: Script | None = None, *, transcript: TextIO | None = None
) -> TrialResult:
    """Run a seed with these workloads, each under its name; with a script, what goes wrong is what that says.

    What happens is written to `transcript`, if there is one; the run is the same without it.
    """
    begun = time.process_time()
    simulation = Simulation(options)
    verdict = TrialResult(options.seed)
    bugs = BugHandler()
    with bugs, SimulatedProbe(options.seed, None if script is None else script.hits) as probe:
        probe.on_reached["producers: evicted one"] = simulation.history.evicted
        faults = draw_faults(options) if script is None else script.faults
        nemesis = Nemesis(simulation.hosts, faults, may_cut_power="power_cut" in options.faults)
        nemesis.damaged_topics = options.damaged_topics
        judge = BrokerJudge(simulation) if options.brokers == 1 else ClusterJudge(simulation, nemesis)
        try:
            simulation.run(_phases(simulation, nemesis, judge, workloads, transcript))
        except Exception as error:
            verdict.failures.append("".join(traceback.format_exception(error)).strip())
        verdict.failures += bugs.found
        verdict.done, verdict.script, verdict.reached = nemesis.done, Script(faults, probe.hits), probe.counts
        verdict.failures += [f"reached in a run without unclean elections: {name}" for name in BY_UNCLEAN_ELECTIONS if probe.counts[name]]
        verdict.crc, verdict.steps = simulation.schedule.crc, simulation.schedule.steps
        verdict.struck = {*(fault.kind for fault in nemesis.done), *nemesis.struck}
        if any(host.disk.failed_syncs for host in simulation.hosts):
            verdict.struck.add("a sync failed")
        verdict.states = judge.states
        verdict.virtual_s = simulation.schedule.now
        verdict.operations = len(simulation.history.sends)
        simulation.close()
    if not verdict.failures:
        verdict.failures = [str(anomaly) for anomaly in check(simulation.history)[1]]
    verdict.cpu_s = time.process_time() - begun
    return verdict


def _signature(failure: str) -> str:
    """Kind of an anomaly, or type and first words of an exception."""
    last = failure.rsplit("\n", 1)[-1]
    return re.sub(r"[-0-9.]+", "", ":".join(last.split(":", 2)[:2]) if failure.startswith("Traceback") else last.split(":")[0])


async def _phases(
    simulation: Simulation,
    nemesis: Nemesis,
    judge: BrokerJudge | ClusterJudge,
    workloads: Sequence[tuple[str, Workload]],
    transcript: TextIO | None,
) -> None:
    if transcript is not None:
        Transcript(simulation.hosts, nemesis, transcript)
    outage = simulation.history.outage("faults")
    for host in simulation.hosts:
        host.start()
    nemesis.begin()
    clients = [RunningClient(simulation, name, workload) for name, workload in workloads]
    tasks = [client.task for client in clients]
    nemesis.clients = clients
    until = simulation.schedule.now + simulation.options.faults_s
    while simulation.schedule.now < until and not all(task.done() for task in tasks):
        if failed := [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]:
            failed[0].result()
        judge.look()
        await simulation.sleep(min(1.0, until - simulation.schedule.now))
    nemesis.heal()
    await judge.settle(outage, lambda: wait_for(simulation, tasks, CONVERGE_S))
    partitions = [TopicPartition(*each) for each in simulation.partitions]
    drains = [simulation.start(drain(simulation.client("drain"), partitions, committed=committed), "drain") for committed in (True, False)]
    await wait_for(simulation, drains, CONVERGE_S)
    judge.finish()


class RunningClient:
    """A client of a run, which may die."""

    def __init__(self, simulation: Simulation, name: str, workload: Workload) -> None:
        context = simulation.client(name)
        self.task = simulation.start(workload(context), name)
        self._name = context.name
        self._simulation = simulation

    def is_living(self) -> bool:
        """Whether it runs."""
        return not self.task.done()

    def die(self) -> None:
        """End it at once: nothing is heard of it any more."""
        self._simulation.network.process_ended(self._name, silently=True)
        self.task.cancel()
        history = self._simulation.history
        for number, producer in enumerate(history.producers):
            if producer.gone_at == inf and producer.name.rpartition(".")[0] == self._name:
                history.producer_gone(number)


class BugHandler(logging.Handler):
    """Takes the log of the product while a run lasts: what it reports as a bug of its own is a failure of the run."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        self._logger = logging.getLogger("moldau")
        self._before: tuple[bool, int] = (True, logging.NOTSET)

    def __enter__(self) -> None:
        self._before = self._logger.propagate, self._logger.level
        self._logger.propagate = False
        self._logger.setLevel(logging.ERROR)
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._before[0]
        self._logger.setLevel(self._before[1])

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line that comes with an exception."""
        kind, error = (record.exc_info or (None, None))[:2]
        if kind is not None and error is not None and not issubclass(kind, ProcessCrash):
            self.found.append(f"{record.getMessage()}: {''.join(traceback.format_exception(error)).strip()}")
