"""Tests of programs against a simulated broker or cluster: the decorator `simulate`."""

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from moldau.testing.simulation.invariants import Invariants
from moldau.testing.simulation.nemesis import Nemesis, draw_faults
from moldau.testing.simulation.options import CLUSTER_FAULTS, FAULTS, Options, draw_cluster, draw_options
from moldau.testing.simulation.power_cuts import PowerCuts
from moldau.testing.simulation.probes import SimulatedProbe
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.trial import BugHandler
from moldau.testing.simulation.world import World

T = TypeVar("T")
FAULTS_S = 60.0
"""How long faults happen in a test that does not heal before."""
INTERVAL_S = 5.0
"""Mean time between two faults of a kind."""


Test = Callable[[Any], Coroutine[Any, Any, None]]


def simulate(
    *, seeds: Iterable[int] = range(20), faults: Sequence[str] = (), settings: Mapping[str, object] | None = None, brokers: int = 1
) -> Callable[[Test], Callable[[], None]]:
    """Run a test, ``async def test(sim)``, once for each seed: each is a broker with settings of its own and faults at other times.

    `faults` are kinds of :data:`moldau.testing.simulation.options.FAULTS`; `settings` are the broker's, instead of what the seed draws.
    Several `brokers` are a cluster, and `sim` is a :class:`moldau.testing.simulation.cluster_world.ClusterWorld`. A failure is reported
    with the line that repeats it.
    """
    kinds = FAULTS if brokers == 1 else (*FAULTS, *CLUSTER_FAULTS)
    unknown = sorted(set(faults) - set(kinds))
    if unknown:
        raise ValueError(f"no such faults: {', '.join(unknown)}; there are {', '.join(kinds)}")
    all_seeds = list(seeds)

    def decorate(test: Test) -> Callable[[], None]:
        def run() -> None:
            for seed in all_seeds:
                drawn = draw_options(seed, ())
                if brokers > 1:
                    draw_cluster(drawn)
                    drawn.brokers = brokers
                    drawn.settings |= _replication(brokers)
                options = replace(
                    drawn,
                    faults=dict.fromkeys(faults, INTERVAL_S),
                    faults_s=FAULTS_S,
                    settings={**drawn.settings, **(settings or {})},
                )
                try:
                    run_test(options, test)
                except BaseException as error:
                    again = f"faults={tuple(faults)!r}" + (f", settings={dict(settings)!r}" if settings else "")
                    again += f", brokers={brokers}" if brokers > 1 else ""
                    error.add_note(f"again: @simulate(seeds=[{seed}], {again})")
                    raise

        functools.update_wrapper(run, test)
        del run.__wrapped__  # type: ignore[attr-defined]  # pytest would take its parameter for a fixture
        return run

    return decorate


def _replication(brokers: int) -> dict[str, object]:
    """Three replicas, or as many as there are brokers; one may fail."""
    replicas = min(3, brokers)
    return {"default.replication.factor": replicas, "min.insync.replicas": max(1, replicas - 1)}


def run_test(options: Options, test: Test) -> None:
    """Run a test once. Raises what it raises, or what the broker reports as a bug of its own."""
    simulation = Simulation(options)
    bugs = BugHandler()
    with bugs, SimulatedProbe(options.seed):
        try:
            nemesis = Nemesis(simulation.hosts, draw_faults(options), may_cut_power="power_cut" in options.faults)
            world = _world(simulation, nemesis)

            async def main() -> None:
                for host in simulation.hosts:
                    host.start()
                nemesis.begin()
                await test(world)
                world.check()

            simulation.run(main())
        finally:
            simulation.close()
    if bugs.found:
        raise AssertionError("a bug of the broker: " + bugs.found[0])


def _world(simulation: Simulation, nemesis: Nemesis) -> World:
    if len(simulation.hosts) > 1:
        from moldau.testing.simulation.cluster_world import ClusterWorld

        return ClusterWorld(simulation, nemesis)
    Invariants(simulation.host).on_seen = PowerCuts(simulation.host, simulation.history, simulation.partitions).see
    return World(simulation, nemesis)
