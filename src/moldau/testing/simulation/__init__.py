"""Brokers, their disks, their network and their clients in one process and one virtual time, all drawn from one seed.

    @simulate(seeds=range(20), faults=("kill", "disconnect", "slow_disk"))
    async def test_nothing_is_lost(sim): ...

    @simulate(brokers=3)
    async def test_a_leader_is_lost(sim):
        sim.kill(await sim.leader_of("orders"))

Nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.testing.simulation.public import simulate
    from moldau.testing.simulation.world import World

__all__ = ["World", "simulate"]


def __getattr__(name: str) -> Any:
    if name == "simulate":
        from moldau.testing.simulation.public import simulate

        return simulate
    if name == "World":
        from moldau.testing.simulation.world import World

        return World
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
