"""What the first request of an API pays: its module imported, its decoder and its encoder made."""

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

from moldau.protocol import messages
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decoder, encoder


def measure() -> Iterator[dict[str, Any]]:
    """Once for each API, in this process, at its highest version."""
    spent = {}
    for api_key in ApiKey:
        start = perf_counter()
        pair = messages.load(api_key)
        decoder(pair.request, pair.versions.max)
        encoder(pair.response, pair.versions.max)
        spent[api_key] = (perf_counter() - start) * 1e6
    slowest = max(spent, key=lambda api_key: spent[api_key])
    yield {
        "benchmark": "load messages of an API and compile them, first use",
        "unit": "us",
        "median": round(median(spent.values()), 1),
        "min": round(min(spent.values()), 1),
        "max": round(spent[slowest], 1),
        "slowest": slowest.name,
    }
