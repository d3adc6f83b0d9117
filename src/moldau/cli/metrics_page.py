"""The page of metrics that a broker serves, read and taken apart."""

import http.client
import socket
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import click
from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 15.0
"""Longer than the broker takes at the most."""


class Sample(NamedTuple):
    """One number of the page."""

    labels: Mapping[str, str]
    value: float


class Page:
    """All samples by their full names."""

    def __init__(self, text: str) -> None:
        """ValueError for text that is not in the format. Values that are no finite numbers are left out."""
        self._samples: dict[str, list[Sample]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if isfinite(sample.value):
                    self._samples.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))

    def total(self, name: str) -> float | None:
        """The sum over all samples of a name, None if there is none."""
        samples = self._samples.get(name)
        return None if samples is None else _whole(sum(sample.value for sample in samples))

    def by(self, name: str, label: str, **others: str) -> dict[str, float]:
        """Sums by the value of one label, of the samples that have `others`."""
        found: dict[str, float] = {}
        for sample in self._samples.get(name, ()):
            if all(sample.labels.get(key) == value for key, value in others.items()):
                value = sample.labels.get(label)
                if value is not None:  # Kafka's exporter gives sums over all topics too
                    found[value] = _whole(found.get(value, 0) + sample.value)
        return found


def read_page(host: str, port: int) -> Page:
    """Ask for the page. click.ClickException has why there is none."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
        if response.status == http.HTTPStatus.OK:
            return Page(text)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise click.ClickException(f"{where}: {_reason(error)}; are metrics served there (moldau serve --metrics)?") from error
    finally:
        connection.close()
    raise click.ClickException(f"{where}: {response.status} {_first_line(text)}")


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror | TimeoutError):
        return str(error).lower()
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "no page of metrics came"


def _first_line(text: str) -> str:
    lines: Sequence[str] = text.splitlines() or [""]
    return lines[0]


def _whole(value: float) -> float:
    """Counts as whole numbers."""
    return int(value) if value == int(value) else value
