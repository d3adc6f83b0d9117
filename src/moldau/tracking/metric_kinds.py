"""Counters, gauges and histograms: what they keep, and what they give away to be sent."""

import bisect
import threading
from collections.abc import Sequence
from numbers import Real
from typing import Any

Labels = tuple[tuple[str, str], ...]


class Metric:
    """What the kinds have in common. Any thread may use one."""

    kind = ""

    def __init__(self, name: str, labels: Labels) -> None:
        self.name = name
        self.labels = labels
        self._lock = threading.Lock()

    def take(self) -> dict[str, Any] | None:
        """What to send now; None for nothing."""
        raise NotImplementedError

    def give_back(self, event: dict[str, Any]) -> None:
        """What was taken could not be sent: it counts for the next time."""

    def _event(self, value: float, count: int, bounds: Sequence[float] = (), counts: Sequence[int] = ()) -> dict[str, Any]:
        labels = dict(self.labels)
        return {
            "name": self.name,
            "kind": self.kind,
            "labels": labels,
            "value": value,
            "count": count,
            "bounds": list(bounds),
            "counts": list(counts),
        }


class Counter(Metric):
    """It only rises."""

    kind = "COUNTER"

    def __init__(self, name: str, labels: Labels) -> None:
        super().__init__(name, labels)
        self._value, self._count = 0.0, 0

    def add(self, amount: float = 1.0) -> None:
        """ValueError for a negative amount, TypeError for one that is no number."""
        _check_number(f"counter {self.name}: amount", amount)
        if amount < 0:
            raise ValueError(f"counter {self.name}: {amount} is negative")
        with self._lock:
            self._value += amount
            self._count += 1

    def take(self) -> dict[str, Any] | None:
        """The increase since the last time."""
        with self._lock:
            value, count = self._value, self._count
            self._value, self._count = 0.0, 0
        return self._event(value, count) if count else None

    def give_back(self, event: dict[str, Any]) -> None:
        """Add it again."""
        with self._lock:
            self._value += event["value"]
            self._count += event["count"]


class Gauge(Metric):
    """It has a value at a time."""

    kind = "GAUGE"

    def __init__(self, name: str, labels: Labels) -> None:
        super().__init__(name, labels)
        self._value: float | None = None

    def set(self, value: float) -> None:
        """The value from now on. TypeError for what is no number."""
        _check_number(f"gauge {self.name}: value", value)
        self._value = float(value)

    def take(self) -> dict[str, Any] | None:
        """The value, if there has been one."""
        value = self._value
        return None if value is None else self._event(value, 1)


class Histogram(Metric):
    """How often it was how much; by buckets, each with its upper bound, which belongs to it."""

    kind = "HISTOGRAM"

    def __init__(self, name: str, labels: Labels, bounds: Sequence[float]) -> None:
        super().__init__(name, labels)
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"histogram {name}: the bounds of buckets rise: {list(bounds)}")
        self.bounds = tuple(float(bound) for bound in bounds)
        self._counts, self._sum = [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """One more. TypeError for what is no number."""
        _check_number(f"histogram {self.name}: value", value)
        with self._lock:
            self._counts[bisect.bisect_left(self.bounds, value)] += 1
            self._sum += value

    def take(self) -> dict[str, Any] | None:
        """The observations since the last time."""
        with self._lock:
            counts, total = self._counts, self._sum
            self._counts, self._sum = [0] * len(counts), 0.0
        return self._event(total, sum(counts), self.bounds, counts) if any(counts) else None

    def give_back(self, event: dict[str, Any]) -> None:
        """Add them again."""
        with self._lock:
            self._counts = [one + other for one, other in zip(self._counts, event["counts"], strict=True)]
            self._sum += event["value"]


def _check_number(what: str, value: object) -> None:
    """Floats and integers, numpy's too; no text, and no truth values."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{what} is a number, not {value!r} ({type(value).__name__})")
