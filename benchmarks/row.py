"""A row of the tables that `make bench` prints: our figure, the rival's of the same run if there is one, and the target."""

from dataclasses import dataclass
from typing import Any

Summary = dict[str, Any]
"""A line of a benchmark with `"summary": true`; repeated figures are the `spread` of their runs."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure. `bound` is the target of the ratio, or of the figure itself where there is no rival or `absolute` is true.

    Less is better if `least` is false.
    """

    cell: str
    ours: float
    theirs: float | None
    bound: float | None
    least: bool
    absolute: bool = False

    @property
    def ratio(self) -> float:
        """Ours by theirs, where there is a rival."""
        return self.ours / self.theirs if self.theirs else float("inf")

    @property
    def judged(self) -> float:
        """What has the target: ours by theirs, or ours."""
        return self.ours if self.theirs is None or self.absolute else self.ratio

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.bound is None:
            return ""
        met = self.judged >= self.bound if self.least else self.judged <= self.bound
        return "met" if met else "falls short"

    @property
    def target(self) -> str:
        """The bound, and of what it is one."""
        if self.bound is None:
            return ""
        sign = "≥" if self.least else "≤"
        return f"{sign} {short(self.bound)}" if self.theirs is None or self.absolute else f"{sign} {self.bound:.3g} ×"

    def markdown(self) -> str:
        """One row of a table; without a rival there are no columns for it and for the ratio."""
        if self.theirs is None:
            return f"| {self.cell} | {short(self.ours)} | {self.target} | {self.verdict} |"
        ratio = f"{self.ratio:.3g} ×" if self.theirs else ""
        return f"| {self.cell} | {short(self.ours)} | {short(self.theirs)} | {ratio} | {self.target} | {self.verdict} |"


def short(figure: float) -> str:
    """Four digits that count: 2,595,000 or 0.1497."""
    rounded = float(f"{figure:.4g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"


def median(figure: Any) -> float:
    """The middle of a `spread`, or the figure if it is one."""
    return float(figure["median"] if isinstance(figure, dict) else figure)
