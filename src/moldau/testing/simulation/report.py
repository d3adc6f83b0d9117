"""What many seeds have shown together, for a person."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

REACHED_FROM = 200
"""From so many seeds on each point of the product has to be reached."""


@dataclass(slots=True)
class Report:
    """The results of the seeds so far, as the processes that run them report them."""

    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    differences: list[int] = field(default_factory=list)
    """Seeds that were another run under another order of hashes."""

    def add(self, result: dict[str, Any]) -> None:
        """Take a seed's result; the second one of a seed has to be the same run."""
        before = self.results.setdefault(result["seed"], result)
        if before["crc"] != result["crc"]:
            self.differences.append(result["seed"])

    def failed(self) -> list[int]:
        """Seeds whose run was not clean."""
        return sorted(seed for seed, result in self.results.items() if result["failures"])

    def reached(self) -> Counter[str]:
        """How many seeds have reached each point."""
        return Counter(name for result in self.results.values() for name in result["reached"])

    def never_reached(self, points: Sequence[str]) -> list[str]:
        """Points that no seed has reached, if there were enough seeds to say so."""
        reached = self.reached()
        return [name for name in points if not reached[name]] if len(self.results) >= REACHED_FROM else []

    def struck(self) -> Counter[str]:
        """How many seeds each fault has struck."""
        return Counter(name for result in self.results.values() for name in result["struck"])

    def lines(self, points: Sequence[str]) -> list[str]:
        """The whole report."""
        results = list(self.results.values())
        costs = sorted(result["cpu_s"] for result in results)
        states = {state for result in results for state in result["states"]}
        reached = self.reached()
        width = max(map(len, points), default=0)
        sums = ", ".join(f"{sum(result[name] for result in results)} {name}" for name in ("records", "faults", "steps"))
        return [
            f"{len(results)} seeds, {len(self.failed())} failed; {sums}",
            f"CPU per seed: median {_at(costs, 0.5):.2f} s, 95 % up to {_at(costs, 0.95):.2f} s, most {_at(costs, 1.0):.2f} s",
            f"states of partitions told apart: {len(states)}",
            "",
            "point of the product, and how many seeds reached it",
            *(f"  {name:<{width}} {reached[name]:>6}" for name in points),
            "",
            "fault, and how many seeds it struck",
            *(f"  {name:<{width}} {count:>6}" for name, count in sorted(self.struck().items())),
            *(f"seed {seed} is another run under another PYTHONHASHSEED" for seed in self.differences),
        ]


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
