"""Named scenarios as tests, and their cures.

    @scenario(without("join at the high watermark", "moldau.broker...:may_join", plant))
    async def test_r2_...(cluster: Cluster) -> None:

A *cure* is what makes the scenario harmless: planted without it, the scenario has to fail, see `check_cure`.
"""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from moldau.model.errors import PeerError, WorldError
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.mutant import Function, Mutant
from moldau.testing.simulation.mutants import MUTANTS
from simulation.small_cluster import Cluster


class Scenario(Protocol):
    """A scenario as a test."""

    __name__: str
    cures: tuple[tuple[Mutant, ...], ...]

    def __call__(self) -> None:
        """Carry it out."""


def scenario(*cures: Mutant | tuple[Mutant, ...], **settings: Any) -> Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], Scenario]:
    """Make a test of a scenario. `cures`: each of them alone has to make it fail; those in a tuple together, as each would do."""

    def make(main: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Scenario:
        def test() -> None:
            Cluster(**settings).run(main)

        test.__name__, test.__qualname__, test.__doc__, test.__module__ = main.__name__, main.__qualname__, main.__doc__, main.__module__
        test.cures = tuple(each if isinstance(each, tuple) else (each,) for each in cures)  # type: ignore[attr-defined]
        return test  # type: ignore[return-value]

    return make


def without(name: str, target: str, plant: Callable[[Function], Function]) -> Mutant:
    """The product without a cure."""
    return Mutant(name, target, plant, needs_cluster=True)


def known(name: str) -> Mutant:
    """A bug that `make simulate-mutants` plants too."""
    (found,) = [mutant for mutant in MUTANTS if mutant.name == name]
    return found


def nothing(_real: Function) -> Function:
    """Plants a function that does nothing."""
    return lambda *_positional, **_named: None


def any_incarnation(real: Function) -> Function:
    """Plants a look at who belongs in an in-sync set for which each follower is registered as it has fetched."""

    def wanted_isr(partition: Any, registered: Any, *rest: Any) -> Any:
        fetched = {broker_id: progress.broker_epoch for broker_id, progress in partition.followers.items()}
        return real(partition, {broker_id: fetched.get(broker_id, epoch) for broker_id, epoch in registered.items()}, *rest)

    return wanted_isr


def cures_of(scenarios: Mapping[str, Any]) -> list[Any]:
    """The parameters for `check_cure`: each scenario of a module, and each of its cures."""
    return [
        pytest.param(test, cure, id=f"{name.removeprefix('test_').split('_')[0]}: {cure[0].name}")
        for name, test in scenarios.items()
        for cure in getattr(test, "cures", ())
    ]


def check_cure(test: Scenario, cure: tuple[Mutant, ...]) -> None:
    """Check that a scenario fails without its cure."""
    with ExitStack() as stack:
        for mutant in cure:
            stack.enter_context(mutant.planted())
        with pytest.raises((InvariantError, AssertionError, TimeoutError, PeerError, WorldError)):
            test()
