"""How far a partition has come: what was fetched counts once the target has it, each batch once, whatever was fetched twice."""

import pytest

from moldau.mirror.fetched import Fetched
from moldau.mirror.measures import WINDOW_S, Measures, Meter
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import peek_header
from moldau.testing.clock import FakeClock


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


def test_records_without_timestamps_are_of_no_age() -> None:
    """Claim: they count, and the newest timestamp is that of the others."""
    meter = Meter(0.0)
    meter.fetched(fetched(0, 10, -1), 40)
    meter.written(10)
    assert (meter.records, meter.newest_ms) == (10, None)
    meter.fetched(fetched(10, 10, 5_000), 40)
    meter.fetched(fetched(20, 10, -1), 40)
    meter.written(30)
    assert (meter.records, meter.newest_ms) == (30, 5_000)


def test_a_meter_continues_with_what_is_known_of_its_partition() -> None:
    """Claim: lag and age are there at once, an estimate in bytes with the first response; what another process mirrored is no rate here."""
    meter = Meter(0.0, 10, 30, 9_000)
    assert (meter.lag_records, meter.lag_bytes, meter.newest_ms, meter.rates(1.0)) == (20, None, 9_000, (0.0, 0.0))
    meter.fetched(fetched(10, 10, 5_000), 30)
    meter.written(20)
    assert (meter.lag_records, meter.newest_ms) == (10, 9_000), "an older record makes it no older"
    assert meter.lag_bytes == meter.size
    assert meter.rates(0.0) == (0.0, 0.0)


def test_a_response_without_batches_moves_only_the_end() -> None:
    meter = Meter(0.0, 10, 10)
    meter.fetched(Fetched([], memoryview(b""), (), Position(10), 0, 0, 0), 12)
    meter.written(10)
    assert (meter.lag_records, meter.lag_bytes, meter.records) == (2, None, 0)
    meter.written(15)
    assert (meter.lag_records, meter.lag_bytes) == (0, 0), "a target that is ahead lags by nothing"


def test_bytes_per_offset_follow_what_was_fetched_lately() -> None:
    meter = Meter(0.0, 0)
    for first, count in ((0, 1), (1, 100), (101, 100), (201, 100)):
        meter.fetched(fetched(first, count, 1), 1_000)
    meter.written(301)
    one, many = (len(fetched(0, count, 1).records) / count for count in (1, 100))
    assert meter.lag_bytes is not None
    assert 699 * many < meter.lag_bytes < 699 * (many + (one - many) / 2)


class Taker:
    """What is behind the measures."""

    def __init__(self) -> None:
        self.taken: list[SourcePartition] = []
        self.halts: list[tuple[SourcePartition, Halt, str]] = []

    def take(self, partition: SourcePartition, fetched: Fetched) -> bool:
        self.taken.append(partition)
        return partition.number == 0

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        self.halts.append((partition, why, reason))


@pytest.mark.parametrize(("committed", "end"), [(True, 12), (False, 15)])
def test_everything_is_passed_on_and_noted_of_the_partitions_that_are_here(committed: bool, end: int) -> None:
    """Claim: the end is the last stable offset for a merge, else the high watermark; whether there is room is the taker's to say."""
    taker, clock = Taker(), FakeClock()
    measures = Measures(taker, clock, committed=committed)
    here, elsewhere = (SourcePartition("east", b"i" * 16, "orders", number) for number in (0, 1))
    measures.begin(here)
    response = fetched(0, 10, 1)._replace(high_watermark=15, last_stable_offset=12)
    assert [measures.take(each, response) for each in (here, elsewhere)] == [True, False]
    measures.halt(elsewhere, Halt.POISONED, "?")
    assert (taker.taken, taker.halts) == ([here, elsewhere], [(elsewhere, Halt.POISONED, "?")])
    measures.sample({here: Position(10), elsewhere: Position(10)})
    meter = measures.of(here)
    assert meter is not None
    assert (meter.position, meter.end, measures.of(elsewhere)) == (10, end, None)
    clock.advance(10.0)
    assert measures.rates() == {here: pytest.approx(meter.size / 10)}
    assert [partition for partition, _ in measures.meters()] == [here]
    for _ in range(2):
        measures.end(here)
    assert (measures.of(here), measures.rates()) == (None, {})


def test_a_window_begins_with_a_sample_once_it_is_time() -> None:
    """Claim: rates are those since the window before the last one, also of a partition of which nothing is mirrored any more."""
    clock = FakeClock()
    measures = Measures(Taker(), clock, committed=False)
    here = SourcePartition("east", b"i" * 16, "orders", 0)
    measures.begin(here)
    measures.take(here, fetched(0, 60, 1))
    measures.sample({here: Position(60)})
    for _ in range(3):
        clock.advance(WINDOW_S)
        measures.sample({})
    assert measures.rates() == {here: 0.0}
