"""Samples for a monitoring system, as values: what collecting makes and an exporter renders."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Labels = Mapping[str, str]


class Sample(NamedTuple):
    """One number. `suffix` follows the family's name: ``_total`` for a counter, ``_sum`` and ``_count`` in a summary."""

    suffix: str
    labels: Labels
    value: float


class Family(NamedTuple):
    """The samples of one name."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    samples: list[Sample]

    def add(self, value: float, **labels: str) -> None:
        """Add a counter's or a gauge's sample."""
        self.samples.append(Sample("_total" if self.kind == "counter" else "", labels, value))


def counter(name: str, text: str) -> Family:
    """A number that only grows while the process lives."""
    return Family(name, "counter", text, [])


def gauge(name: str, text: str) -> Family:
    """A number that goes up and down."""
    return Family(name, "gauge", text, [])


def summary(name: str, text: str) -> Family:
    """Quantiles, with sum and count."""
    return Family(name, "summary", text, [])
