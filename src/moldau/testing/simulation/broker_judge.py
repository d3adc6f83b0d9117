"""The verdict on a run of one broker, but for what its clients have seen."""

from collections.abc import Awaitable, Callable

from moldau.testing.history.history import Outage
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.invariants import Invariants
from moldau.testing.simulation.moving import check_directories, moved
from moldau.testing.simulation.power_cuts import PowerCuts
from moldau.testing.simulation.replay import check_coordinators, logs_of, replay
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.waiting import decided, undecided

LATE_S = 60.0
"""After so long without a word every transaction has been ended by its coordinator, if it has one."""


class BrokerJudge:
    """See the module."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._invariants = Invariants(simulation.host)
        self._cuts = PowerCuts(simulation.host, simulation.history, simulation.partitions)
        self._invariants.on_seen = self._cuts.see

    @property
    def states(self) -> set[str]:
        """Abstract states of partitions that were seen."""
        return self._invariants.states

    def look(self) -> None:
        """Nothing to do from time to time: every step is looked at."""

    async def settle(self, outage: Outage, clients_end: Callable[[], Awaitable[None]]) -> None:
        """Nothing goes wrong any more: clients and transactions come to their end, and the coordinators show what their topics say."""
        simulation, cuts = self._simulation, self._cuts
        simulation.budget.left = 0
        can_hang = cuts.may_hang and simulation.history.transactions
        if not can_hang:
            simulation.history.healed(outage)
        await clients_end()
        await moved(simulation, simulation.hosts)
        await decided(simulation, cuts.may_hang)
        await _abort_hanging(simulation)
        if can_hang:  # until then records may wait for such a transaction
            simulation.history.healed(outage)
        if any(replay(logs_of(simulation.host))):
            simulation.host.kill()  # what they show then was read from their topics
            await check_coordinators(simulation, lambda: logs_of(simulation.host))

    def finish(self) -> None:
        """All has been read."""
        self._invariants.check_all()
        check_directories(self._simulation.hosts)


async def _abort_hanging(simulation: Simulation) -> None:
    """Do what an operator does: end the transactions that no coordinator will end, since the loss of records has made it forget them."""
    if not undecided(simulation.hosts):
        return
    await simulation.sleep(LATE_S)
    admin = SimulatedAdmin(simulation.client("operator"))
    for partition in undecided(simulation.hosts) or ():
        await admin.abort_transactions(partition)
    admin.close()
    await decided(simulation)
