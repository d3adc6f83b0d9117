"""Points of the code that a simulator watches and turns. Outside of it they do nothing.

`reached` marks a place that tests must come to, as a count that must not stay at zero over many runs. `chance` marks a decision that may
fall either way at any time, such as rolling a segment early: False, but where a simulator draws otherwise, so that what is rare happens.

A probe is not handed in as other ports are: it would pass through the constructors of everything, as a logger would. A point costs a call
and a comparison; the shortest ways of Produce and Fetch have none.
"""

from typing import Protocol


class Probe(Protocol):
    """What looks at the points."""

    def reached(self, name: str) -> None:
        """The code has come to a place."""

    def chance(self, name: str) -> bool:
        """Whether a decision falls the rare way."""


_probe: Probe | None = None


def reached(name: str) -> None:
    """Mark a place. Names say the part of the product and what happened there: ``recovery: cut a torn batch``."""
    if _probe is not None:
        _probe.reached(name)


def chance(name: str) -> bool:
    """Whether a decision takes the rare way; False outside of the simulator."""
    return _probe is not None and _probe.chance(name)


def use(probe: Probe | None) -> Probe | None:
    """Have the points of this process reported to `probe` (None: to none); the probe before."""
    global _probe
    before, _probe = _probe, probe
    return before
