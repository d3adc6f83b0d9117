"""A run of a seed, in two phases, and the verdict on it.

In the first phase the workloads run and faults happen. In the second nothing new goes wrong, what can be repaired is, and what could make
progress must: all workloads come to their end within a bound of virtual time. Then the history of all clients is judged.
"""

import asyncio
import logging
import re
import time
import traceback
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from types import CoroutineType
from typing import NamedTuple, TextIO

from moldau.model.identity import TopicPartition
from moldau.testing.history.checker import check
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.invariants import Invariants
from moldau.testing.simulation.nemesis import Fault, Nemesis, draw_faults
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.power_cuts import PowerCuts
from moldau.testing.simulation.probes import Hit, SimulatedProbe
from moldau.testing.simulation.process import ProcessCrash
from moldau.testing.simulation.replay import check_coordinators
from moldau.testing.simulation.report import Transcript
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.workloads import Workload
from moldau.testing.simulation.workloads.recording import drain

CONVERGE_S = 600.0
"""How long the second phase may take."""
LATE_S = 60.0
"""After so long without a word every transaction has been ended by its coordinator, if it has one."""


class NotConvergedError(Exception):
    """Workloads that could come to their end have not."""


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
        invariants = Invariants(simulation.host)
        nemesis = Nemesis(simulation.host, faults, may_cut_power="power_cut" in options.faults)
        nemesis.damaged_topics = options.damaged_topics
        try:
            simulation.run(_phases(simulation, nemesis, invariants, workloads, transcript))
        except Exception as error:
            verdict.failures.append("".join(traceback.format_exception(error)).strip())
        verdict.failures += bugs.found
        verdict.done, verdict.script, verdict.reached = nemesis.done, Script(faults, probe.hits), probe.counts
        verdict.crc, verdict.steps = simulation.schedule.crc, simulation.schedule.steps
        verdict.struck = {*(fault.kind for fault in nemesis.done), *nemesis.struck}
        if simulation.disk.failed_syncs:
            verdict.struck.add("a sync failed")
        verdict.states = invariants.states
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
    invariants: Invariants,
    workloads: Sequence[tuple[str, Workload]],
    transcript: TextIO | None,
) -> None:
    cuts = PowerCuts(simulation.host, simulation.history, simulation.partitions)
    invariants.on_seen = cuts.see
    if transcript is not None:
        Transcript(simulation.host, nemesis, transcript)
    outage = simulation.history.outage("faults")
    simulation.host.start()
    nemesis.begin()
    clients = [RunningClient(simulation, name, workload) for name, workload in workloads]
    tasks = [client.task for client in clients]
    nemesis.clients = clients
    until = simulation.schedule.now + simulation.options.faults_s
    while simulation.schedule.now < until and not all(task.done() for task in tasks):
        if failed := [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]:
            failed[0].result()
        await simulation.sleep(min(1.0, until - simulation.schedule.now))
    simulation.budget.left = 0
    nemesis.heal()
    can_hang = cuts.may_hang and simulation.history.transactions
    if not can_hang:
        simulation.history.healed(outage)
    await _wait(simulation, tasks, CONVERGE_S)
    await _decided(simulation, cuts.may_hang)
    await _abort_hanging(simulation)
    if can_hang:  # until then records may wait for such a transaction
        simulation.history.healed(outage)
    await check_coordinators(simulation)
    partitions = [TopicPartition(*each) for each in simulation.partitions]
    drains = [simulation.start(drain(simulation.client("drain"), partitions, committed=committed), "drain") for committed in (True, False)]
    await _wait(simulation, drains, CONVERGE_S)
    invariants.check_all()


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


async def _decided(simulation: Simulation, may_hang: Collection[str] = ()) -> None:
    """Wait until no transaction is undecided in any partition, but for those where one may stay so for ever."""
    until = simulation.schedule.now + CONVERGE_S
    while True:
        undecided = _undecided(simulation)
        lagging = None if undecided is None else [each for each in undecided if str(each) not in may_hang]
        if lagging == []:
            return
        if simulation.schedule.now > until:
            raise NotConvergedError(f"undecided transactions in {', '.join(map(str, lagging or []))}")
        await simulation.sleep(1.0)


async def _abort_hanging(simulation: Simulation) -> None:
    """Do what an operator does: end the transactions that no coordinator will end, since the loss of records has made it forget them."""
    if not _undecided(simulation):
        return
    await simulation.sleep(LATE_S)
    admin = SimulatedAdmin(simulation.client("operator"))
    for partition in _undecided(simulation) or ():
        await admin.abort_transactions(partition)
    admin.close()
    await _decided(simulation)


def _undecided(simulation: Simulation) -> list[TopicPartition] | None:
    """Partitions with undecided transactions; None while nothing serves."""
    process = simulation.host.process
    if process is None or process.broker is None or not process.is_serving:
        return None
    return [each.topic_partition for each in process.broker.partitions if each.log.last_stable_offset < each.log.high_watermark]


async def _wait(simulation: Simulation, tasks: "Sequence[asyncio.Task[None]]", limit_s: float) -> None:
    """Wait until all have ended. Raises what one has raised; NotConvergedError after `limit_s`."""
    until = simulation.schedule.now + limit_s
    while not all(task.done() for task in tasks):
        if simulation.schedule.now > until:
            raise NotConvergedError("not done: " + "; ".join(_where(task) for task in tasks if not task.done()))
        await simulation.sleep(1.0)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _where(task: "asyncio.Task[None]") -> str:
    """A task, and the places where it waits, the innermost first."""
    places = []
    coroutine: object = task.get_coro()
    while isinstance(coroutine, CoroutineType) and coroutine.cr_frame is not None:
        places.append(f"{coroutine.__qualname__}:{coroutine.cr_frame.f_lineno}")
        coroutine = coroutine.cr_await
    return f"{task.get_name()} in {' < '.join(reversed(places))}"


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
