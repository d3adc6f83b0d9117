"""What a person is shown of runs: what many seeds have shown together, and the transcript of one, a line per change, in columns:

    time | process | mark | event | replicas that have changed: epoch start/last stable/high watermark/end, and who is in sync with a leader

Marks: ``^`` a process serves, ``!`` it has ended, ``~`` it stands still, ``x`` a connection, a disk, a session or a client is hurt,
``[`` a log lost its end.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from moldau.testing.simulation.nemesis import Fault, Nemesis
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.schedule import Actor

_MARKS = {"pause": "~", "kill": "!", "power_cut": "!", "crash_at_call": "!", "stop": "!"}


class Transcript:
    """Writes the lines of a run as it happens; the last ones are kept."""

    def __init__(self, hosts: Sequence[Host], nemesis: Nemesis, file: TextIO) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._file = file
        self._schedule = hosts[0].schedule
        self._states: dict[tuple[str, str], tuple[int | str, ...]] = {}
        self._schedule.observe(self._after_step)
        for host in hosts:
            host.on_ending.append(self._ending)
            host.on_serving.append(self._serving)
        nemesis.on_fault = self._fault

    def write(self, mark: str, process: str, event: str, changes: str = "") -> None:
        """One line."""
        self._file.write(f"{self._schedule.now:11.6f} | {process:<11} | {mark or ' '} | {event:<28} | {changes}".rstrip() + "\n")

    def _fault(self, fault: Fault) -> None:
        self.write(_MARKS.get(fault.kind, "x"), "-", f"fault {fault.kind}")

    def _ending(self, process: Incarnation, power_cut: bool) -> None:
        self.write("!", process.name, f"{'power cut' if power_cut else 'ends'} after call {process.port_calls}")

    def _serving(self, process: Incarnation) -> None:
        self.write("^", process.name, "serves")
        self._note(process, "start")

    def _after_step(self, actor: Actor) -> None:
        if actor.group is None:
            return
        host = self._hosts.get(actor.group.name.partition("/")[0])
        process = None if host is None else host.process
        if process is not None and process.is_serving and actor.group is process.group:
            self._note(process, actor.name.removeprefix(process.name).strip())

    def _note(self, process: Incarnation, event: str) -> None:
        broker = process.broker
        if broker is None:
            return
        changes, mark = [], ""
        for partition in list(broker.replicas.hosted.values()):
            log, machine, name = partition.log, partition.machine, str(partition.topic_partition)
            in_sync = ",".join(map(str, machine.isr)) if len(machine.replicas) > 1 else ""
            state = machine.leader_epoch, log.start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset, in_sync
            before = self._states.get((process.host.name, name))
            if before != state:
                if before is not None and state[4] < int(before[4]):
                    mark = "["
                self._states[process.host.name, name] = state
                epoch, start, stable, high, end, _ = state
                changes.append(f"{name} {epoch} {start}/{stable}/{high}/{end}{f' leads {in_sync}' if in_sync else ''}")
        if changes:
            self.write(mark, process.name, event, "  ".join(changes))


LAST = 100
"""So many seeds show by the states that they have been the first to see whether more seeds would explore more."""
REACHED_FROM = 200
"""From so many seeds on each point of the product has to be reached."""


@dataclass(slots=True)
class SeedReport:
    """The results of the seeds so far, as the processes that run them report them."""

    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    differences: list[int] = field(default_factory=list)
    """Seeds that were another run under another order of hashes."""

    def add(self, result: dict[str, Any]) -> None:
        """Take a seed's result; the second one of a seed has to be the same run."""
        before = self.results.setdefault(result["seed"], result)
        if before["crc"] != result["crc"]:
            self.differences.append(result["seed"])

    def failed(self) -> list[int]:
        """Seeds whose run was not clean."""
        return sorted(seed for seed, result in self.results.items() if result["failures"])

    def reached(self) -> Counter[str]:
        """How many seeds have reached each point."""
        return Counter(name for result in self.results.values() for name in result["reached"])

    def never_reached(self, points: Sequence[str]) -> list[str]:
        """Points that no seed has reached, if there were enough seeds to say so."""
        reached = self.reached()
        return [name for name in points if not reached[name]] if len(self.results) >= REACHED_FROM else []

    def struck(self) -> Counter[str]:
        """How many seeds each fault has struck."""
        return Counter(name for result in self.results.values() for name in result["struck"])

    def lines(self, points: Sequence[str]) -> list[str]:
        """The whole report."""
        results = list(self.results.values())
        costs = sorted(result["cpu_s"] for result in results)
        in_order = [self.results[seed] for seed in sorted(self.results)]
        before, last = in_order[:-LAST], in_order[-LAST:]
        states = {state for result in results for state in result["states"]}
        known = {state for result in before for state in result["states"]}
        reached = self.reached()
        width = max(map(len, points), default=0)
        sums = ", ".join(f"{sum(result[name] for result in results)} {name}" for name in ("records", "faults", "steps"))
        return [
            f"{len(results)} seeds, {len(self.failed())} failed; {sums}",
            f"CPU per seed: median {_at(costs, 0.5):.2f} s, 95 % up to {_at(costs, 0.95):.2f} s, most {_at(costs, 1.0):.2f} s",
            f"different states of partitions: {len(states)}, {len(states - known)} of them seen first by the last {len(last)} seeds",
            "",
            "point of the product, and how many seeds reached it",
            *(f"  {name:<{width}} {reached[name]:>6}" for name in points),
            "",
            "fault, and how many seeds it struck",
            *(f"  {name:<{width}} {count:>6}" for name, count in sorted(self.struck().items())),
            *(f"seed {seed} is another run under another PYTHONHASHSEED" for seed in self.differences),
        ]


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
