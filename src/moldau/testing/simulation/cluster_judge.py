"""The verdict on a run of several brokers, but for what its clients have seen."""

from collections.abc import Awaitable, Callable

from moldau.testing.history.history import Outage
from moldau.testing.simulation.cluster_faults import ClusterFaults
from moldau.testing.simulation.cluster_invariants import ClusterInvariants
from moldau.testing.simulation.convergence import check_replicas, converge
from moldau.testing.simulation.loss_budget import LossBudget
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_invariants import TreeInvariants


class ClusterJudge:
    """See the module. It keeps the nemesis from taking more than a cluster can stand."""

    def __init__(self, simulation: Simulation, nemesis: Nemesis) -> None:
        options = simulation.options
        self._simulation = simulation
        self._hosts = dict(enumerate(simulation.hosts, 1))
        loses = "power_cut" in options.faults
        self._budget = LossBudget(simulation.tree, simulation.hosts, _minimum(options.settings) - 1 if loses else None)
        nemesis.may_crash = self._budget.take
        ClusterFaults(nemesis, simulation.tree)
        tree = TreeInvariants(simulation.tree, simulation.hosts)
        self._invariants = ClusterInvariants(simulation.hosts, tree, self._budget.may_lack)

    @property
    def states(self) -> set[str]:
        """Abstract states of replicas that were seen."""
        return self._invariants.states

    def look(self) -> None:
        """See who has recovered."""
        self._budget.refresh()

    async def settle(self, outage: Outage, clients_end: Callable[[], Awaitable[None]]) -> None:
        """Nothing goes wrong any more: the cluster heals, and the clients come to their end."""
        await converge(self._simulation, self._hosts)
        self._simulation.history.healed(outage)
        await clients_end()
        await converge(self._simulation, self._hosts)

    def finish(self) -> None:
        """All has been read."""
        self._invariants.check_all()
        check_replicas(self._simulation, self._hosts)


def _minimum(settings: dict[str, object]) -> int:
    return int(str(settings.get("min.insync.replicas", 1)))
