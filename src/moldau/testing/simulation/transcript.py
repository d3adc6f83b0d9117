"""What happened in a run, one line per change, in columns that a person can follow.

    time | process | mark | event | partitions that have changed: epoch start/last stable/high watermark/end

Marks: ``^`` a process serves, ``!`` it has ended, ``~`` it stands still, ``x`` a connection, a disk, a session or a client is hurt,
``[`` a log lost its end.
"""

from collections.abc import Callable
from typing import TextIO

from moldau.testing.simulation.nemesis import Fault, Nemesis
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.schedule import Actor

_MARKS = {"pause": "~", "kill": "!", "power_cut": "!", "crash_at_call": "!", "stop": "!"}


class Transcript:
    """Writes the lines of a run as it happens; the last ones are kept."""

    def __init__(self, host: Host, nemesis: Nemesis, file: TextIO) -> None:
        self._host = host
        self._file = file
        self._schedule = host.schedule
        self._states: dict[str, tuple[int, int, int, int, int]] = {}
        self._inner: Callable[[Actor], object] | None = host.schedule.observer
        host.schedule.observer = self._after_step
        host.on_ending.append(self._ending)
        host.on_serving.append(self._serving)
        nemesis.on_fault = self._fault

    def write(self, mark: str, event: str, changes: str = "") -> None:
        """One line."""
        process = self._host.process
        name = process.name if process is not None else "-"
        self._file.write(f"{self._schedule.now:11.6f} | {name:<10} | {mark or ' '} | {event:<28} | {changes}".rstrip() + "\n")

    def _fault(self, fault: Fault) -> None:
        self.write(_MARKS.get(fault.kind, "x"), f"fault {fault.kind}")

    def _ending(self, process: Incarnation, power_cut: bool) -> None:
        self.write("!", f"{'power cut' if power_cut else 'ends'} after call {process.port_calls}")

    def _serving(self, _process: Incarnation) -> None:
        self.write("^", "serves")
        self._note("start")

    def _after_step(self, actor: Actor) -> None:
        if self._inner is not None:
            self._inner(actor)
        process = self._host.process
        if process is not None and process.is_serving and actor.group is process.group:
            self._note(actor.name.removeprefix(process.name).strip())

    def _note(self, event: str) -> None:
        broker = self._host.broker
        if broker is None:
            return
        changes, mark = [], ""
        for partition in list(broker.partitions):
            log, name = partition.log, str(partition.topic_partition)
            state = partition.machine.leader_epoch, log.start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
            before = self._states.get(name)
            if before != state:
                if before is not None and state[4] < before[4]:
                    mark = "["
                self._states[name] = state
                changes.append(f"{name} {state[0]} {state[1]}/{state[2]}/{state[3]}/{state[4]}")
        if changes:
            self.write(mark, event, "  ".join(changes))
