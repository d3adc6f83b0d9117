"""The world of a test against a simulated cluster: brokers that the test itself kills, pauses and cuts off from each other."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from moldau.cluster import znodes
from moldau.testing.simulation.cluster_judge import ClusterJudge
from moldau.testing.simulation.convergence import converge
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_view import PartitionInTree, partitions_in
from moldau.testing.simulation.waiting import NotConvergedError
from moldau.testing.simulation.world import World

POLL_S = 0.05
LIMIT_S = 120.0
"""How much virtual time a wait may take."""


class ClusterWorld(World):
    """Brokers with the ids from 1 on. While a test runs, the invariants of replication are checked at every step."""

    def __init__(self, simulation: Simulation, nemesis: Nemesis) -> None:
        super().__init__(simulation, nemesis)
        self._judge = ClusterJudge(simulation, nemesis)
        self.broker_ids = range(1, len(simulation.hosts) + 1)

    # Faults, now

    def kill(self, broker_id: int) -> None:
        """End the process of a broker at once. It stays away until `restart` or `heal`."""
        keeper = self._nemesis.keepers[broker_id - 1]
        keeper.is_kept = False
        keeper.host.kill()

    async def restart(self, broker_id: int) -> None:
        """Start a broker that was killed, and wait until it serves."""
        keeper = self._nemesis.keepers[broker_id - 1]
        keeper.is_kept = True
        keeper.restart()
        await self._until(lambda: keeper.host.process is not None and keeper.host.process.is_serving, f"broker {broker_id} serves")

    def pause(self, broker_id: int, seconds: float) -> None:
        """Have nothing happen in a broker's process for so long."""
        self._nemesis.keepers[broker_id - 1].host.pause(seconds)

    def partition(self, first: int | Sequence[int], second: int | Sequence[int], *, one_way: bool = False) -> None:
        """Cut brokers off from each other, each of the first from each of the second, until `reconnect`.

        `one_way`: only what the first send to the second does not arrive. What is sent meanwhile arrives later.
        """
        for one in _ids(first):
            for other in _ids(second):
                self._block(one, other)
                if not one_way:
                    self._block(other, one)

    def isolate(self, broker_id: int, seconds: float) -> None:
        """Cut a broker off from all others and from the coordination tree for so long. Clients reach it."""
        others = [each for each in self.broker_ids if each != broker_id]
        self.partition(broker_id, others)
        for other in others:
            self._nemesis.later(partial(self._unblock, broker_id, other), seconds)
            self._nemesis.later(partial(self._unblock, other, broker_id), seconds)
        process = self.simulation.hosts[broker_id - 1].process
        if process is not None:
            before, self.simulation.tree.away_s = self.simulation.tree.away_s, seconds
            process.session.suspend()
            self.simulation.tree.away_s = before

    def reconnect(self) -> None:
        """Brokers reach each other again."""
        for one in self.broker_ids:
            for other in self.broker_ids:
                self._unblock(one, other)

    async def heal(self) -> None:
        """No more faults; what can be repaired is, and all replicas are in sync."""
        for keeper in self._nemesis.keepers:
            keeper.is_kept = True
        self._nemesis.heal()
        await converge(self.simulation, dict(enumerate(self.simulation.hosts, 1)))
        self.check()

    # Leaders

    async def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; waits until one does whose process runs."""

        def leader() -> int | None:
            found = next(self._partitions(topic, partition), None)
            if found is None or found.state is None or found.state.leader not in self.broker_ids:
                return None
            return found.state.leader if self.simulation.hosts[found.state.leader - 1].process is not None else None

        await self._until(lambda: leader() is not None, f"{topic}-{partition} has a leader")
        found = leader()
        assert found is not None, "looked at in the same step"
        return found

    async def controller(self) -> int:
        """The broker that is the controller; waits until there is one."""
        await self._until(lambda: self.simulation.tree.get(znodes.CONTROLLER) is not None, "there is a controller")
        node = self.simulation.tree.get(znodes.CONTROLLER)
        assert node is not None, "looked at in the same step"
        return znodes.decode_controller(znodes.CONTROLLER, node.data)

    async def wait_until_in_sync(self, topic: str, replicas: int | None = None) -> None:
        """Until all replicas of a topic are in sync, or so many of each partition."""

        def are_in_sync() -> bool:
            found = list(self._partitions(topic))
            return bool(found) and all(each.state is not None and len(each.state.isr) >= (replicas or len(each.replicas)) for each in found)

        await self._until(are_in_sync, f"{replicas or 'all'} replicas of {topic} are in sync")

    # The rest

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._judge.look()
        await super().sleep(seconds)

    def _partitions(self, topic: str, partition: int | None = None) -> Iterator[PartitionInTree]:
        for each in partitions_in(self.simulation.tree):
            if each.topic == topic and partition in (None, each.number):
                yield each

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        until = self.simulation.schedule.now + LIMIT_S
        while not holds():
            if self.simulation.schedule.now > until:
                raise NotConvergedError(f"waited for in vain: {what}")
            await self.sleep(POLL_S)

    def _block(self, one: int, other: int) -> None:
        self.simulation.network.block(self._name(one), self._name(other))

    def _unblock(self, one: int, other: int) -> None:
        self.simulation.network.unblock(self._name(one), self._name(other))

    def _name(self, broker_id: int) -> str:
        return self.simulation.hosts[broker_id - 1].name


def _ids(given: int | Sequence[int]) -> Sequence[int]:
    return [given] if isinstance(given, int) else given
