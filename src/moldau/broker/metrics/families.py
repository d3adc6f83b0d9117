"""Samples for a monitoring system, as values: what collecting makes and an exporter renders.

A sample is a plain tuple of what the garbage collector need not look at. With an object for each, a scrape of thousands of partitions would
bring about a full collection, which stops the broker for longer than all else that a scrape does.
"""

from typing import Literal, NamedTuple

Sample = tuple[str, tuple[str, ...], float]
"""What follows the family's name (``_total`` for a counter, ``_sum``, ``_count`` in a summary), values of the first labels, the number."""


class Family(NamedTuple):
    """The samples of one name."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    labels: tuple[str, ...]
    samples: list[Sample]

    def add(self, value: float, *labels: str) -> None:
        """Add a counter's or a gauge's sample, with the values of its labels."""
        self.samples.append(("_total" if self.kind == "counter" else "", labels, value))


def counter(name: str, text: str, *labels: str) -> Family:
    """A number that only grows while the process lives."""
    return Family(name, "counter", text, labels, [])


def gauge(name: str, text: str, *labels: str) -> Family:
    """A number that goes up and down."""
    return Family(name, "gauge", text, labels, [])


def summary(name: str, text: str, *labels: str) -> Family:
    """Quantiles, with sum and count."""
    return Family(name, "summary", text, labels, [])
