"""However events are counted, the counts are the same: one by one, batch by batch, with numpy, from Arrow columns of values or headers."""

import struct
from itertools import cycle, islice
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.audit.columns import count_columns, count_headers, count_values
from moldau.audit.events import count_each
from moldau.audit.tally import Tally, is_untracked
from moldau.audit.walker import Walker
from moldau.model.identity import TopicPartition
from moldau.protocol.records.compression import Compression
from moldau.protocol.varint import varlong
from moldau.tracking.counts import Count, CountKey, window_start
from moldau.tracking.header import read_header
from moldau.tracking.latencies import NO_LATENCIES, Latencies, bucket_of
from support.audit_events import NOON, batch, fetched, framed
from support.sizes import sized

WHERE = TopicPartition("t", 0)

TEXTS = st.one_of(st.sampled_from(["", "ewr-1", "lga", "š", "x" * 63, "x" * 64, "x" * 200]), st.text(max_size=12))
TIMES = st.one_of(
    st.integers(NOON - 2_000_000, NOON + 2_000_000),
    st.sampled_from(
        [0, -1, 2**21, 2**34, 2**41, 2**47, 253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_000, -62_135_596_800_001]
    ),
    st.integers(-(2**60), 2**60),
)
INSTANCES = st.sampled_from([b"instance", b"\0" * 8, b"another!"])
EVENTS = st.builds(
    lambda time, service, host, datacenter, instance, number, body, schema_id: framed(
        time, service, host, datacenter, instance + struct.pack(">Q", number), body=body, schema_id=schema_id
    ),
    TIMES, TEXTS, TEXTS, TEXTS, INSTANCES, st.integers(0, 2**64 - 1), st.binary(max_size=20), st.integers(1, 3),
)  # fmt: skip
CUT = st.builds(lambda event, at: event[:at], EVENTS, st.integers(0, 60))
TURNED = st.builds(
    lambda event, at, byte: event[: at % len(event)] + bytes([byte]) + event[at % len(event) + 1 :],
    EVENTS,
    st.integers(0, 99),
    st.integers(0, 255),
)
OVERLONG = st.builds(
    lambda head, event: b"\0\0\0\0\1" + head + event,
    st.sampled_from([b"\x80" * n + b"\0" for n in range(12)]),
    st.binary(min_size=19, max_size=40),
)
VALUES = st.lists(st.one_of(EVENTS, EVENTS, CUT, TURNED, OVERLONG, st.none(), st.binary(max_size=50)), max_size=12)


def ends_in(counts: dict[CountKey, Count]) -> tuple[dict[CountKey, Count], int, int]:
    """Tracked counts, and how many untracked records and bytes."""
    untracked = [count for key, count in counts.items() if is_untracked(key)]
    return {k: c for k, c in counts.items() if not is_untracked(k)}, sum(c.count for c in untracked), sum(c.bytes for c in untracked)


def obvious(values: list[bytes | None], known: Any = None) -> tuple[dict[CountKey, Count], int, int]:
    """By `read_header` alone."""
    return ends_in(count_each("t", values, is_tracked=known).counts())


SEEN = st.one_of(st.none(), st.integers(-(2**45), 2**45), st.integers(NOON - 90_000, NOON + 2_000_000))
SENT = st.lists(
    st.one_of(st.integers(NOON, NOON + 300), st.integers(NOON - 40_000, NOON + 2_000_000), st.sampled_from([-1, 0, 1, 2**42])),
    min_size=1,
    max_size=30,
)
"""Times of records, over and over."""
APPENDED = st.one_of(st.none(), st.integers(NOON - 90_000, NOON + 90_000))


def on_their_way(values: list[bytes | None], sent_ms: list[int], seen_ms: int | None) -> dict[int, Latencies]:
    """Of the events among the values whose records have a time, by the start of the window of their own time."""
    found: dict[int, Latencies] = {}
    for header, sent in zip(map(read_header, values), sent_ms, strict=True):
        if seen_ms is not None and header is not None and sent >= 0:
            one = Latencies.of({bucket_of(seen_ms - sent): 1})
            found[window_start(header.time_ms)] = found.get(window_start(header.time_ms), NO_LATENCIES) + one
    return found


@settings(max_examples=sized(60, 1500), deadline=None)
@given(
    st.lists(st.tuples(VALUES, SENT, APPENDED), min_size=1, max_size=4),
    st.sampled_from(list(Compression)),
    st.booleans(),
    SEEN,
    st.integers(0, 20),
)
def test_walks_agree(
    batches: list[tuple[list[bytes | None], list[int], int | None]], codec: Compression, repeated: bool, seen_ms: int | None, first: int
) -> None:
    """Both ways of the walker count what `read_header` sees, whatever the values are, and how long they were on their way since the time of
    their record, that of the broker if it has stamped them; they continue at the offset after the last batch.
    """
    everything: list[bytes | None] = []
    sent: list[int] = []
    encoded = []
    for some, times, appended_ms in batches:
        values = some * (8 if repeated else 1) or [None]
        sent_ms = list(islice(cycle(times), len(values)))
        encoded.append(batch(values, base_offset=len(everything), codec=codec, sent_ms=sent_ms, appended_ms=appended_ms))
        everything += values
        sent += sent_ms if appended_ms is None else [appended_ms] * len(values)
    first = min(first, len(everything) - 1)
    expected = obvious(everything[first:])
    for fast in (False, True):
        tally = Tally()
        walker = Walker(fast=fast)
        if fast:
            walker.few = 0
        assert walker.walk(WHERE, fetched(*encoded), first, tally, seen_ms) == len(everything)
        assert ends_in(tally.counts()) == expected
        latencies = {start_ms: each for (_, start_ms), each in tally.latencies().items()}
        assert latencies == on_their_way(everything[first:], sent[first:], seen_ms)


@settings(max_examples=sized(30, 800), deadline=None)
@given(VALUES, st.integers(0, 12))
def test_a_walk_from_the_middle_of_a_batch(values: list[bytes | None], first: int) -> None:
    """Records before the offset that was asked for are not counted, though their batch was fetched."""
    values = values or [None]
    first = min(first, len(values) - 1)
    tally = Tally()
    assert Walker().walk(WHERE, fetched(batch(values)), first, tally) == len(values)
    assert ends_in(tally.counts()) == obvious(values[first:])


@settings(max_examples=sized(50, 1200), deadline=None)
@given(VALUES, SENT, st.integers(0, 3), st.booleans(), SEEN)
def test_columns_of_values(values: list[bytes | None], times: list[int], skipped: int, large: bool, seen_ms: int | None) -> None:
    """Arrow arrays of values, sliced and chunked and of both widths, give the same counts and latencies."""
    array = pa.array(values, pa.large_binary() if large else pa.binary())
    parts = pa.chunked_array([array[skipped:], array[:skipped]], array.type)
    for given_values, column in ((values, array), (values[skipped:], array[skipped:]), (values[skipped:] + values[:skipped], parts)):
        sent = list(islice(cycle(times), len(given_values)))
        counted = count_values("t", column, seen_ms=seen_ms, sent_ms=np.array(sent, np.int64))
        assert (counted.counts, counted.untracked, counted.untracked_bytes) == obvious(list(given_values))
        assert counted.latencies == on_their_way(list(given_values), sent, seen_ms)
    assert count_values("t", array, seen_ms=seen_ms).latencies == {}, "without times of the records"


@settings(max_examples=sized(25, 600), deadline=None)
@given(VALUES)
def test_only_schemas_of_tracked_events(values: list[bytes | None]) -> None:
    """Where schema ids are known, what has the shape of a header by chance is not taken for one, in all ways."""
    known = {1, 2}.__contains__
    expected = obvious(values, known)
    for fast in (False, True):
        tally = Tally()
        walker = Walker(known, fast=fast)
        walker.few = 0
        walker.walk(WHERE, fetched(batch(values or [None])), 0, tally)
        if values:
            assert ends_in(tally.counts()) == expected
    counted = count_values("t", pa.array(values, pa.binary()), is_tracked=known)
    assert (counted.counts, counted.untracked) == expected[:2]


@settings(max_examples=sized(25, 600), deadline=None)
@given(st.lists(EVENTS, max_size=10), st.booleans())
def test_columns_of_headers(events: list[bytes], dictionaries: bool) -> None:
    """Decoded headers, as Spark has them, give the counts of the bytes that they came from."""
    found = [(event, header) for event in events if (header := read_header(event)) is not None]
    times = pa.array([h.time_ms for _, h in found], pa.timestamp("ms", tz="UTC"))
    texts = {name: pa.array([getattr(h, name) for _, h in found], pa.string()) for name in ("service", "host", "datacenter")}
    if dictionaries:
        texts = {name: column.dictionary_encode() for name, column in texts.items()}
    guids = pa.array([h.guid for _, h in found], pa.binary(16))
    sizes = pa.array([len(event) for event, _ in found], pa.int32())
    expected = obvious([event for event, _ in found])[0]
    in_us = times.cast(pa.timestamp("us", tz="UTC"), safe=False) if all(abs(h.time_ms) < 2**50 for _, h in found) else times
    assert count_columns("t", time=in_us, guid=guids.cast(pa.binary()), value_bytes=sizes, **texts).counts == expected
    assert count_columns("t", time=times.cast(pa.int64()), guid=guids, value_bytes=sizes, **texts).counts == expected
    struct_of = pa.StructArray.from_arrays([times, *texts.values(), guids], names=["time", *texts, "guid"])
    nothing = pa.nulls(1, struct_of.type)
    both = count_headers("t", pa.chunked_array([struct_of, nothing]), pa.chunked_array([sizes, pa.array([3], pa.int32())]))
    assert (both.counts, both.untracked, both.untracked_bytes) == (expected, 1, 3)


def test_long_numbers_do_not_mislead() -> None:
    """A time written in more bytes than it needs is read as `read_header` reads it."""
    names = varlong(1) + b"s" + varlong(1) + b"h" + varlong(1) + b"d" + b"g" * 16
    values: list[bytes | None] = [b"\0\0\0\0\1" + b"\x80" * n + b"\x02" + names for n in range(12)]
    assert (count_values("t", pa.array(values)).counts, 0, 0)[0] == obvious(values)[0]
