"""How far a partition has come: what was fetched counts once the target has it, each batch once, whatever was fetched twice."""

import pytest

from moldau.mirror.fetched import Fetched
from moldau.mirror.measures import WINDOW_S, Meter
from moldau.mirror.partitions import Position
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import peek_header


def fetched(first: int, count: int, newest_ms: int) -> Fetched:
    """A response with one batch."""
    builder = RecordBatchBuilder(base_offset=first)
    for _ in range(count):
        builder.append(newest_ms, None, b"." * 100)
    data = memoryview(bytes(builder.build()))
    return Fetched([(peek_header(data), data)], data, (), Position(first + count), 0, 0, 0)


def test_lag_is_what_the_source_has_more_than_the_target() -> None:
    meter = Meter(0.0)
    assert (meter.lag_records, meter.lag_bytes, meter.newest_ms) == (None, None, None)
    response = fetched(0, 10, 5_000)
    meter.fetched(response, 30)
    meter.written(0)
    assert (meter.lag_records, meter.newest_ms) == (30, None), "fetched is not mirrored"
    meter.written(10)
    assert (meter.lag_records, meter.newest_ms, meter.records) == (20, 5_000, 10)
    assert meter.lag_bytes == 2 * len(response.records), "by the bytes of what was fetched"
    meter.written(30)
    assert (meter.lag_records, meter.lag_bytes) == (0, 0)


def test_what_was_dropped_and_fetched_again_counts_once() -> None:
    meter = Meter(0.0)
    meter.fetched(fetched(0, 10, 1), 30)
    meter.fetched(fetched(10, 10, 2), 30)
    meter.written(10)
    meter.fetched(fetched(10, 20, 3), 30)
    meter.written(30)
    assert (meter.records, meter.newest_ms) == (30, 3)


def test_rates_are_those_of_the_last_windows() -> None:
    meter = Meter(0.0)
    meter.fetched(fetched(0, 60, 1), 60)
    meter.written(60)
    assert meter.rates(10.0)[1] == pytest.approx(6.0)
    meter.tick(WINDOW_S)
    assert meter.rates(20.0)[1] == pytest.approx(3.0)
    meter.tick(2 * WINDOW_S)
    meter.tick(3 * WINDOW_S)
    assert meter.rates(3 * WINDOW_S + 1) == (0.0, 0.0)
