"""The probe of a run: which of the code's points were reached, and which rare decisions fall.

A point of `chance` is off in most runs, for the whole run: many rare things at a time hide each other. Where it is on it has a rate of its
own, and draws from a generator of its own. A script names the hits instead, by the point and the count of its calls.
"""

import ast
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from typing import NamedTuple

from moldau.ports import probe
from moldau.testing.simulation.options import generator, log_uniform

CHANCE_ON = 0.25
"""How often a point of `chance` is on in a run."""


class Hit(NamedTuple):
    """A rare decision that fell: the call of a point with this number, from 1."""

    point: str
    call: int


class SimulatedProbe:
    """A :class:`moldau.ports.probe.Probe`, in use between ``with`` and its end."""

    def __init__(self, seed: int, script: Collection[Hit] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        """How often each place was reached."""
        self.hits: list[Hit] = []
        """The rare decisions that fell."""
        self.on_reached: dict[str, Callable[[], object]] = {}
        """Called when a place is reached, by its name."""
        self._seed = seed
        self._script = None if script is None else frozenset(script)
        self._calls: Counter[str] = Counter()
        self._points: dict[str, tuple[Random, float]] = {}
        self._before: probe.Probe | None = None

    def reached(self, name: str) -> None:
        """Count."""
        self.counts[name] += 1
        if name in self.on_reached:
            self.on_reached[name]()

    def chance(self, name: str) -> bool:
        """Draw, or look into the script."""
        self._calls[name] += 1
        hit = Hit(name, self._calls[name])
        if self._script is None:
            point = self._points.get(name)
            if point is None:
                random = generator(self._seed, f"chance/{name}")
                point = self._points[name] = random, log_uniform(random, 0.01, 0.25) if random.random() < CHANCE_ON else 0.0
            falls = point[1] > 0 and point[0].random() < point[1]
        else:
            falls = hit in self._script
        if falls:
            self.hits.append(hit)
            self.counts[name] += 1
        return falls

    def __enter__(self) -> "SimulatedProbe":
        self._before = probe.use(self)
        return self

    def __exit__(self, *_: object) -> None:
        probe.use(self._before)


BY_UNCLEAN_ELECTIONS = ("cluster: a follower truncated below its own high watermark",)
"""Points that sound runs never reach, since nothing elects a replica that lacks committed records."""


OF_MIRRORS = "mirror: "
"""What the names of points begin with that only runs with a mirror reach."""


def points_of_the_product() -> list[str]:
    """The names of all points that a run without a mirror can reach, of both kinds, as they stand in the source of the package."""
    return [name for name in _points() if name not in BY_UNCLEAN_ELECTIONS and not name.startswith(OF_MIRRORS)]


def points_of_mirrors() -> list[str]:
    """Those of mirrors."""
    return [name for name in _points() if name.startswith(OF_MIRRORS)]


def _points() -> list[str]:
    found: dict[str, None] = {}
    for path in sorted(Path(probe.__file__).parents[1].rglob("*.py")):
        if "testing" in path.parts:
            continue
        text = path.read_text()
        if "moldau.ports.probe" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Name(id="reached" | "chance"), args=[ast.Constant(value=str(name))]):
                    found[name] = None
    return list(found)
