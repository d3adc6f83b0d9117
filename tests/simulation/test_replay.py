"""The slow reader of the coordinators' topics agrees with what the coordinators show, and notices when they do not."""

from collections.abc import Coroutine, Iterable
from typing import Any

import pytest

from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.replay import DiskLog, check_coordinators, logs_of, replay
from moldau.testing.simulation.simulation import Simulation
from simulation.test_determinism import T0, write


async def use(simulation: Simulation) -> None:
    """Commit an offset plainly, one in a transaction that commits, one in a transaction that aborts."""
    Nemesis(simulation.hosts, [], may_cut_power=False)
    simulation.host.start()
    await write(simulation, 0, 3)
    consumer = SimulatedConsumer(simulation.client("plain"), group_id="plain")
    await consumer.commit({T0: 1})
    producer = SimulatedTransactionalProducer(simulation.client("producer"), "id")
    await producer.init_transactions()
    for group, offset, is_kept in (("g", 2, True), ("g", 3, False), ("other", 1, False)):
        await producer.begin()
        member = SimulatedConsumer(simulation.client(group), group_id=group)
        await producer.commit_offsets({T0: offset}, member.group_metadata())
        await (producer.commit() if is_kept else producer.abort())
        await member.close()
    await simulation.sleep(1)
    await consumer.close()


def run(main: Coroutine[Any, Any, None], simulation: Simulation) -> None:
    try:
        simulation.run(main)
    finally:
        simulation.close()


def test_what_the_topics_say_is_what_the_coordinators_show_after_a_start() -> None:
    async def main() -> None:
        await use(simulation)
        said = replay(logs_of(simulation.host))
        assert said.offsets == {("plain", "t", 0): 1, ("g", "t", 0): 2}
        assert [state for state, _, _ in said.transactions.values()] == ["CompleteAbort"]
        simulation.host.kill()
        await check_coordinators(simulation, lambda: logs_of(simulation.host))

    simulation = Simulation(Options(1))
    run(main(), simulation)


def test_an_offset_that_is_shown_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await use(simulation)
        monkeypatch.setattr("moldau.testing.simulation.replay.replay", says_more)
        with pytest.raises(InvariantError, match="is 7 in the log and 1 for clients"):
            await check_coordinators(simulation, lambda: logs_of(simulation.host))

    def says_more(logs: Iterable[DiskLog]) -> Any:
        said = replay(logs)
        said.offsets["plain", "t", 0] = 7
        return said

    simulation = Simulation(Options(1))
    run(main(), simulation)
