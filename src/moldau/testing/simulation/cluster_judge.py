"""The verdict on a run of several brokers, but for what its clients have seen.

When the faults are over all brokers come back, and must be in sync within a bound of time. In half of the runs whose clients can do without
one broker, one then goes for ever: it is dead, or cut off from the tree and one way from the others. The others must serve without it.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from moldau.testing.history.history import Outage
from moldau.testing.simulation.cluster_faults import ClusterFaults
from moldau.testing.simulation.cluster_invariants import ClusterInvariants
from moldau.testing.simulation.convergence import check_replicas, converge
from moldau.testing.simulation.loss_budget import LossBudget
from moldau.testing.simulation.moving import check_directories, moved
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.replay import check_coordinators, logs_of_leaders, replay
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_invariants import TreeInvariants
from moldau.testing.simulation.waiting import decided

PATIENT = (
    "commit_plainly",
    "compact",
    "copy",
    "delete",
    "join",
    "look",
    "move_logs",
    "read",
    "succeed",
    "transact",
    "write",
    "write_carelessly",
)
"""Clients that wait for no broker in particular."""
LOSING = ("fail_directory", "flip_bit", "fail_sync", "misdirect_write", "power_cut")
"""Faults that may take what was not synced."""
AFTERWARDS_MAX = 40
"""Operations that clients may still begin when one broker is gone for ever."""


class ClusterJudge:
    """See the module. It keeps the nemesis from taking more than a cluster can stand."""

    def __init__(self, simulation: Simulation, nemesis: Nemesis, *, checks: bool = True) -> None:
        """Without `checks` committed records may be dropped, as by the cut of a promotion: what holds after each step is not looked at."""
        options = simulation.options
        self._simulation = simulation
        self._nemesis = nemesis
        self._random = simulation.random("core")
        self._hosts = dict(enumerate(simulation.hosts, 1))
        loses = any(kind in LOSING for kind in options.faults)
        self._budget = LossBudget(simulation.tree, simulation.hosts, _minimum(options.settings) - 1 if loses else None)
        nemesis.may_crash = self._budget.take
        nemesis.may_crash_next = self._budget.take_until_restart
        ClusterFaults(nemesis, simulation.tree, self._budget)
        self._invariants: ClusterInvariants | None = None
        if checks:
            tree = TreeInvariants(simulation.tree, simulation.hosts)
            self._invariants = ClusterInvariants(simulation.hosts, tree, self._budget.may_lack)
            simulation.on_read = self._invariants.check_read
            simulation.deposed_since = self._invariants.deposed_since

    @property
    def states(self) -> set[str]:
        """Abstract states of replicas that were seen."""
        return set() if self._invariants is None else self._invariants.states

    def look(self) -> None:
        """See who has recovered."""
        self._budget.refresh()

    async def settle(self, outage: Outage, clients_end: Callable[[], Awaitable[None]]) -> None:
        """Nothing goes wrong any more: the cluster heals, and the clients come to their end."""
        simulation, budget = self._simulation, self._simulation.budget
        goes = self._can_do_with_less() and self._random.random() < 0.5
        budget.left = min(budget.left, AFTERWARDS_MAX) if goes else 0
        await converge(simulation, self._hosts)
        simulation.history.healed(outage)
        if goes:
            outage = simulation.history.outage("a broker is gone for ever")
            self._lose_one()
            await converge(simulation, self._hosts)
            simulation.history.healed(outage)
            budget.left = 0
        await clients_end()
        await moved(simulation, self._hosts.values())
        await converge(simulation, self._hosts)
        await self._check_coordinators()

    async def _check_coordinators(self) -> None:
        """Every transaction is decided, and coordinators show what their topics say: those that have served, and those that take over."""
        simulation = self._simulation
        logs = partial(logs_of_leaders, simulation.tree, self._hosts)
        if not any(replay(logs())):
            return
        await decided(simulation, among=self._hosts.values())
        await check_coordinators(simulation, logs)
        for host in self._random.choice(([], [self._random.choice(list(self._hosts.values()))], list(self._hosts.values()))):
            host.kill()
        await converge(simulation, self._hosts)
        await check_coordinators(simulation, logs)

    def _can_do_with_less(self) -> bool:
        """Whether every partition stays writable without one broker, and no client waits for that one."""
        options = self._simulation.options
        replicas = int(str(options.settings["default.replication.factor"]))
        return _minimum(options.settings) < replicas < options.brokers and all(name in PATIENT for name in options.clients)

    def _lose_one(self) -> None:
        """Have a broker go, with what it has not shared."""
        number = self._random.choice(list(self._hosts))
        host = self._hosts.pop(number)
        self._simulation.gone.append(host)
        process = host.process
        if process is None or self._random.random() < 0.5:
            self._nemesis.keepers[number - 1].is_kept = False
            host.kill()
            return
        is_deaf = self._random.random() < 0.5
        for other in self._hosts.values():
            host.network.block(*((other.name, host.name) if is_deaf else (host.name, other.name)))
        process.session.lose()

    def finish(self) -> None:
        """All has been read."""
        if self._invariants is not None:
            self._invariants.check_all()
        check_replicas(self._simulation, self._hosts)
        check_directories(self._hosts.values())


def _minimum(settings: dict[str, object]) -> int:
    return int(str(settings.get("min.insync.replicas", 1)))
