"""What goes wrong in a run, and when: a script of faults, drawn before the run begins.

The script is apart from everything else that a seed draws: a run with some of its faults left out is the same run up to the first of
those. Each fault has a number of its own from which all choices at its time are drawn.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.testing.simulation.disk_damage import Harm, damage, flip, misdirect
from moldau.testing.simulation.host_keeper import HostKeeper
from moldau.testing.simulation.options import FAULTS, Options, generator, log_uniform
from moldau.testing.simulation.process import Host, Incarnation

if TYPE_CHECKING:
    from moldau.testing.simulation.schedule import ScheduledCall
    from moldau.testing.simulation.tree import SimulatedSession


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


Strike = Callable[[Random], bool]
"""A fault that happens now; whether there was something to act on."""


class Nemesis:
    """Carries out a script, and starts what has ended again."""

    def __init__(self, hosts: Sequence[Host], script: Sequence[Fault], *, may_cut_power: bool) -> None:
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
        self.on_heal: list[Callable[[], object]] = []
        """Called when the faults end."""
        self.kinds: dict[str, Strike] = {kind: getattr(self, f"_{kind}") for kind in FAULTS}
        self.may_crash: Callable[[Host], bool] = lambda _host: True
        """Whether the process of a host may end without an orderly stop, now or soon."""
        self.may_crash_next: Callable[[Incarnation], bool] = lambda _process: True
        """Whether a process that stops in order may fail to say that it has, or the one after it crash in its start."""
        self.keepers = [HostKeeper(host, may_cut_power=may_cut_power) for host in hosts]
        self._script = script
        self._may_cut_power = may_cut_power
        self._schedule = hosts[0].schedule
        self._network = hosts[0].network
        self._tree = hosts[0].tree
        self._actor = self._schedule.actor("nemesis")
        self._events: list[ScheduledCall] = []

    def begin(self) -> None:
        """Have the faults happen at their times."""
        for fault in self._script:
            self._events.append(self._schedule.post(self._actor, partial(self._strike, fault), fault.at))

    def heal(self) -> None:
        """No more faults, and what can be repaired is. Connections that are dead in one direction stay so."""
        for event in self._events:
            event.cancel()
        self._tree.away_s = 0.1
        self._network.refuse_rate = 0.0
        has_failed = any(fault.kind == "fail_directory" for fault in self.done)
        for keeper in self.keepers:
            runs = keeper.host.process is not None
            keeper.heal()
            if runs and len(self.keepers) == 1 and (keeper.host.disk.failed_syncs or has_failed):
                keeper.host.kill()  # a directory that has failed is used again after a start
        for heal in self.on_heal:
            heal()

    def _strike(self, fault: Fault) -> None:
        self._schedule.note(fault.kind)
        self.on_fault(fault)
        if self.kinds[fault.kind](Random(fault.draw)):
            self.done.append(fault)

    def keeper(self, random: Random) -> HostKeeper:
        """That of the host that something happens to."""
        return self.keepers[0] if len(self.keepers) == 1 else random.choice(self.keepers)

    def falls(self, keeper: HostKeeper, random: Random) -> bool:
        """Whether the process of a host may end without an orderly stop; then how long it stays away is drawn."""
        if keeper.host.process is None or not self.may_crash(keeper.host):
            return False
        keeper.falls(random)
        return True

    def later(self, call: Callable[[], object], seconds: float) -> None:
        """Make a call then."""
        self._schedule.post(self._actor, call, seconds)

    # Kinds of faults. Each says whether there was something to act on.

    def _kill(self, random: Random) -> bool:
        keeper = self.keeper(random)
        if not self.falls(keeper, random):
            return False
        keeper.host.kill()
        return True

    def _power_cut(self, random: Random) -> bool:
        keeper = self.keeper(random)
        if not self.falls(keeper, random):
            return False
        keeper.host.power_cut()
        return True

    def _crash_at_call(self, random: Random) -> bool:
        keeper = self.keeper(random)
        process = keeper.host.process
        if process is None or not self.falls(keeper, random):
            return False
        process.crash_at = process.port_calls + int(log_uniform(random, 1, 3000))
        process.crash_with_power = random.random() < 0.5 and self._may_cut_power
        return True

    def _stop(self, random: Random) -> bool:
        keeper = self.keeper(random)
        process = keeper.host.process
        if process is None or not process.is_serving or not self.may_stop(process):
            return False
        keeper.falls(random)
        if keeper.start_crash is not None and not self.may_crash_next(process):
            keeper.start_crash = None
        process.stop()
        return True

    def may_stop(self, process: Incarnation) -> bool:
        """Whether a broker may stop in order. On a full disk it may find no room to say that it has."""
        return process.host.disk.capacity is None or self.may_crash_next(process)

    def _pause(self, random: Random) -> bool:
        keeper = self.keeper(random)
        if keeper.host.process is None:
            return False
        keeper.host.pause(log_uniform(random, 0.05, 20.0))
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
        self.later(lambda: setattr(self._network, "refuse_rate", 0.0), log_uniform(random, 0.1, 10.0))
        return True

    def _disk_full(self, random: Random) -> bool:
        host = self.keeper(random).host
        disk, process = host.disk, host.process
        if process is not None and process.is_stopping and not self.may_crash_next(process):
            return False
        disk.fill_up(int(log_uniform(random, 1, 100_000)))
        self.later(disk.make_room, log_uniform(random, 0.1, 10.0))
        return True

    def _slow_disk(self, random: Random) -> bool:
        disk = self.keeper(random).host.disk
        disk.slowness = log_uniform(random, 3, 1000)
        self.later(lambda: setattr(disk, "slowness", 1.0), log_uniform(random, 0.1, 10.0))
        return True

    def _flip_bit(self, random: Random) -> bool:
        """End the process, and change a bit of what it has left."""
        return self._damages(random, flip)

    def _misdirect_write(self, random: Random) -> bool:
        """End the process, and put a piece of one file into another."""
        return self._damages(random, misdirect)

    def _damages(self, random: Random, harm: Harm) -> bool:
        keeper = self.keeper(random)
        host = keeper.host
        if not self.falls(keeper, random):
            return False
        host.damage = lambda: self.struck.update(damage(host, self.damaged_topics, random, harm))
        if self._may_cut_power and random.random() < 0.5:
            host.power_cut()
        else:
            host.kill()
        return True

    def _fail_sync(self, random: Random) -> bool:
        self.keeper(random).host.disk.failing_syncs = random.choice((1, 1, 3))
        return True

    def _fail_directory(self, random: Random) -> bool:
        host = self.keeper(random).host
        host.disk.failing = random.choice(host.directories)

        def mend() -> None:
            """And have the process start again: it uses a failed directory no more."""
            if host.disk.failing is not None:
                host.disk.failing = None
                host.kill()

        self.later(mend, log_uniform(random, 0.1, 10.0))
        return True

    def _suspend_session(self, random: Random) -> bool:
        return self._cuts_off(random, lambda session: session.suspend())

    def _expire_session(self, random: Random) -> bool:
        return self._cuts_off(random, lambda session: session.expire())

    def _lose_answer(self, random: Random) -> bool:
        return self._cuts_off(random, lambda session: session.lose_answer(random.choice((1, 1, 2, 5))))

    def _cuts_off(self, random: Random, cut: "Callable[[SimulatedSession], object]") -> bool:
        process = self.keeper(random).host.process
        self._tree.away_s = log_uniform(random, 0.01, 10.0)
        if process is not None:
            cut(process.session)
        return process is not None

    def _client_death(self, random: Random) -> bool:
        living = [client for client in self.clients if client.is_living()]
        if 2 * len(living) <= len(self.clients):  # some are left to see what becomes of the others
            return False
        random.choice(living).die()
        return True
