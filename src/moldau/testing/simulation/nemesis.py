"""What goes wrong in a run, and when: a script of faults, drawn before the run begins.

The script is apart from everything else that a seed draws: a run with some of its faults left out is the same run up to the first of
those. Each fault has a number of its own from which all choices at its time are drawn.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.testing.simulation.options import Options, generator, log_uniform
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.reader import folders_of, unsynced_batches

if TYPE_CHECKING:
    from moldau.testing.simulation.schedule import ScheduledCall
    from moldau.testing.simulation.tree import SimulatedSession

_CHECKED_FROM = 21
"""Where a batch begins to be covered by its checksum."""
_DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")
DOWN_S = 0.5
"""How long a process that ended without a fault of the script stays away."""


class Fault(NamedTuple):
    """One entry of a script."""

    at: float
    kind: str
    draw: int


def draw_faults(options: Options) -> list[Fault]:
    """The faults of a run, by time."""
    script = []
    for kind, interval_s in options.faults.items():
        random = generator(options.seed, f"faults/{kind}")
        at = random.expovariate(1 / interval_s)
        while at < options.faults_s:
            script.append(Fault(round(at, 6), kind, random.getrandbits(32)))
            at += random.expovariate(1 / interval_s)
    return sorted(script)


class KillableClient(Protocol):
    """A client that may be ended."""

    def is_living(self) -> bool:
        """Whether it runs."""

    def die(self) -> None:
        """End it at once, without a word to anyone."""


class Nemesis:
    """Carries out a script, and starts what has ended again."""

    def __init__(self, host: Host, script: Sequence[Fault], *, may_cut_power: bool) -> None:
        """`may_cut_power`: whether a crash in a call of a port may be a power cut."""
        self.done: list[Fault] = []
        """The faults that had something to act on."""
        self.struck: Counter[str] = Counter()
        """What faults have hurt that may or may not hurt something."""
        self.clients: Sequence[KillableClient] = ()
        """Those that may die."""
        self.damaged_topics: Collection[str] = ()
        """See `Options.damaged_topics`."""
        self.on_fault: Callable[[Fault], object] = lambda _fault: None
        """Called with each of them."""
        self._host = host
        self._script = script
        self._may_cut_power = may_cut_power
        self._schedule = host.schedule
        self._network = host.network
        self._actor = host.schedule.actor("nemesis")
        self._events: list[ScheduledCall] = []
        self._is_over = False
        self._down_s = DOWN_S
        self._start_crash: tuple[int, bool] | None = None
        host.on_ended.append(self._ended)

    def begin(self) -> None:
        """Have the faults happen at their times."""
        for fault in self._script:
            self._events.append(self._schedule.post(self._actor, partial(self._strike, fault), fault.at))

    def heal(self) -> None:
        """No more faults, and what can be repaired is. Connections that are dead in one direction stay so."""
        self._is_over = True
        for event in self._events:
            event.cancel()
        self._down_s = 0.0
        self._start_crash = None
        host = self._host
        host.disk.make_room()
        host.disk.failing_syncs = 0
        host.tree.away_s = 0.1
        host.disk.slowness = 1.0
        self._network.refuse_rate = 0.0
        if host.process is not None:
            host.process.crash_at = -1
        host.disk.failing = None
        if host.process is None:
            self._restart()
        elif host.disk.failed_syncs or any(fault.kind == "fail_directory" for fault in self.done):
            host.kill()  # a directory that has failed is used again after a start

    def _strike(self, fault: Fault) -> None:
        self._schedule.note(fault.kind)
        self.on_fault(fault)
        if getattr(self, f"_{fault.kind}")(Random(fault.draw)):
            self.done.append(fault)

    def _ended(self, _process: Incarnation) -> None:
        down_s, self._down_s = self._down_s, DOWN_S
        self._schedule.post(self._actor, self._restart, 0.01 if self._is_over else down_s)

    def _restart(self) -> None:
        if self._host.process is not None:
            return
        crash, self._start_crash = self._start_crash, None
        if crash is None:
            self._host.start()
        else:
            self._host.start(crash_at=crash[0], power_cut=crash[1])

    def _falls(self, random: Random) -> None:
        """The process is about to end: how long it stays away, and whether it crashes in its next start."""
        self._down_s = log_uniform(random, 0.01, 4.0)
        if random.random() < 0.2:
            self._start_crash = int(log_uniform(random, 1, 500)), random.random() < 0.5 and self._may_cut_power

    # Kinds of faults. Each says whether there was something to act on.

    def _kill(self, random: Random) -> bool:
        if self._host.process is None:
            return False
        self._falls(random)
        self._host.kill()
        return True

    def _power_cut(self, random: Random) -> bool:
        if self._host.process is None:
            return False
        self._falls(random)
        self._host.power_cut()
        return True

    def _crash_at_call(self, random: Random) -> bool:
        process = self._host.process
        if process is None:
            return False
        self._falls(random)
        process.crash_at = process.port_calls + int(log_uniform(random, 1, 3000))
        process.crash_with_power = random.random() < 0.5 and self._may_cut_power
        return True

    def _stop(self, random: Random) -> bool:
        process = self._host.process
        if process is None or not process.is_serving:
            return False
        self._falls(random)
        process.stop()
        return True

    def _pause(self, random: Random) -> bool:
        if self._host.process is None:
            return False
        self._host.pause(log_uniform(random, 0.05, 20.0))
        return True

    def _disconnect(self, random: Random) -> bool:
        connections = self._network.open_connections()
        if connections:
            self._network.cut(random.choice(connections), random)
        return bool(connections)

    def _half_open(self, random: Random) -> bool:
        connections = self._network.open_connections()
        if connections:
            self._network.half_open(random.choice(connections), random)
        return bool(connections)

    def _refuse(self, random: Random) -> bool:
        self._network.refuse_rate = random.random()
        self._later(lambda: setattr(self._network, "refuse_rate", 0.0), log_uniform(random, 0.1, 10.0))
        return True

    def _disk_full(self, random: Random) -> bool:
        self._host.disk.fill_up(int(log_uniform(random, 1, 100_000)))
        self._later(self._host.disk.make_room, log_uniform(random, 0.1, 10.0))
        return True

    def _slow_disk(self, random: Random) -> bool:
        disk = self._host.disk
        disk.slowness = log_uniform(random, 3, 1000)
        self._later(lambda: setattr(disk, "slowness", 1.0), log_uniform(random, 0.1, 10.0))
        return True

    def _flip_bit(self, random: Random) -> bool:
        """End the process, and change a bit of what it has left."""
        return self._damages(random, lambda path, position, length: self._flip(random, path, position, length))

    def _misdirect_write(self, random: Random) -> bool:
        """End the process, and put a piece of one file into another."""
        return self._damages(random, lambda path, position, _length: self._misdirect(random, path, position))

    def _damages(self, random: Random, harm: Callable[[str, int, int], object]) -> bool:
        host = self._host
        if host.process is None:
            return False
        self._falls(random)
        host.damage = partial(self._harm, random, harm)
        if self._may_cut_power and random.random() < 0.5:
            host.power_cut()
        else:
            host.kill()
        return True

    def _harm(self, random: Random, harm: Callable[[str, int, int], object]) -> None:
        """Harm a record that is not known to be synced, or an index or a snapshot, which can be made again."""
        disk = self._host.disk
        places = [
            (folder, place)
            for directory in self._host.directories
            for folder in folders_of(disk, directory)
            if folder.rpartition("-")[0] in self.damaged_topics
            for place in unsynced_batches(disk, directory, folder)
        ]
        if places and random.random() < 0.7:
            folder, (path, position, size) = random.choice(places)
            disk.damaged[folder] = None
            harm(path, position + _CHECKED_FROM, size - _CHECKED_FROM)
            self.struck["records damaged"] += 1
        elif derived := [path for path in self._derived_files() if disk.contents(path)]:
            path = random.choice(derived)
            length = len(disk.contents(path))
            harm(path, random.randrange(length), 1)
            self.struck["an index or a snapshot damaged"] += 1

    def _derived_files(self) -> Iterator[str]:
        disk = self._host.disk
        for directory in self._host.directories:
            for folder in folders_of(disk, directory):
                for name in disk.names(f"{directory}/{folder}"):
                    if name.endswith(_DERIVED):
                        yield f"{directory}/{folder}/{name}"

    def _flip(self, random: Random, path: str, position: int, length: int) -> None:
        self._host.disk.flip(path, position + random.randrange(length), random.randrange(8))

    def _misdirect(self, random: Random, path: str, position: int) -> None:
        self._host.disk.misdirect(random.choice([path, *self._derived_files()]), path, position)

    def _fail_sync(self, random: Random) -> bool:
        self._host.disk.failing_syncs = random.choice((1, 1, 3))
        return True

    def _fail_directory(self, random: Random) -> bool:
        disk = self._host.disk
        disk.failing = random.choice(self._host.directories)
        self._later(self._mend_directory, log_uniform(random, 0.1, 10.0))
        return True

    def _mend_directory(self) -> None:
        """Mend the directory, and have the process start again: it uses a failed one no more."""
        disk = self._host.disk
        if disk.failing is not None:
            disk.failing = None
            self._host.kill()

    def _suspend_session(self, random: Random) -> bool:
        return self._cuts_off(random, lambda session: session.suspend())

    def _expire_session(self, random: Random) -> bool:
        return self._cuts_off(random, lambda session: session.expire())

    def _lose_answer(self, random: Random) -> bool:
        return self._cuts_off(random, lambda session: session.lose_answer(random.choice((1, 1, 2, 5))))

    def _cuts_off(self, random: Random, cut: "Callable[[SimulatedSession], object]") -> bool:
        process = self._host.process
        self._host.tree.away_s = log_uniform(random, 0.01, 10.0)
        if process is not None:
            cut(process.session)
        return process is not None

    def _client_death(self, random: Random) -> bool:
        living = [client for client in self.clients if client.is_living()]
        if 2 * len(living) <= len(self.clients):  # some are left to see what becomes of the others
            return False
        random.choice(living).die()
        return True

    def _later(self, call: Callable[[], object], seconds: float) -> None:
        self._schedule.post(self._actor, call, seconds)
