"""The verdict on a run of one broker, but for what its clients have seen."""

from collections.abc import Awaitable, Callable, Collection

from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outage
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.invariants import Invariants
from moldau.testing.simulation.power_cuts import PowerCuts
from moldau.testing.simulation.replay import check_coordinators
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.waiting import NotConvergedError

DECIDE_S = 600.0
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
        await _decided(simulation, cuts.may_hang)
        await _abort_hanging(simulation)
        if can_hang:  # until then records may wait for such a transaction
            simulation.history.healed(outage)
        await check_coordinators(simulation)

    def finish(self) -> None:
        """All has been read."""
        self._invariants.check_all()


async def _decided(simulation: Simulation, may_hang: Collection[str] = ()) -> None:
    """Wait until no transaction is undecided in any partition, but for those where one may stay so for ever."""
    until = simulation.schedule.now + DECIDE_S
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
