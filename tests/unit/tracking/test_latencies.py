"""How long events were on their way: buckets, sums in any order, quantiles, and the text of audit records."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.tracking.audit_record import AuditRecord, AuditRecordError, certainly_counts
from moldau.tracking.latencies import BUCKETS, Latencies, bucket_of, range_of

LATENCIES = st.one_of(st.integers(-(2**60), 2**60), st.integers(-3, 40), st.integers(0, 2**41))
PARTS = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 2**40), max_size=5).map(Latencies.of)


@given(LATENCIES)
def test_a_latency_is_in_the_range_of_its_bucket(latency_ms: int) -> None:
    """Claim: there are few buckets, whatever the latency, and none is wider than a quarter of what is in it."""
    bucket = bucket_of(latency_ms)
    least, beyond = range_of(bucket)
    assert 0 <= bucket < BUCKETS < 170
    assert least <= latency_ms < beyond
    assert bucket in (0, BUCKETS - 1) or beyond - least <= max(1, least / 4)


@given(PARTS, PARTS, PARTS)
def test_parts_add_up_in_any_order(one: Latencies, two: Latencies, three: Latencies) -> None:
    assert (one + two) + three == three + (two + one)
    assert (one + two).total == one.total + two.total
    assert Latencies.from_text(one.to_text()) == one if one else one.to_text() == ""


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_are_true_to_an_eighth(share: float) -> None:
    """Claim: against all latencies, sorted."""
    chance = random.Random(7)
    taken = sorted(round(chance.lognormvariate(8, 1.5)) for _ in range(5_000))
    found = Latencies()
    for latency_ms in taken:
        found += Latencies.of({bucket_of(latency_ms): 1})
    exact = taken[int(share * len(taken))]
    assert abs(found.quantile(share) - exact) <= exact / 8


def test_quantiles_of_little() -> None:
    assert (Latencies().quantile(0.5), Latencies.of({0: 3}).quantile(0.99), Latencies.of({1: 1}).quantile(0.5)) == (0, 0, 1)


@given(st.integers(1, 2**35), st.integers(0, 2**35))
def test_what_is_seen_later_took_longer(latency_ms: int, more_ms: int) -> None:
    """Claim: as much longer, to an eighth."""
    ((bucket, count),) = Latencies.of({bucket_of(latency_ms): 5}).later_by(more_ms).counts
    least, beyond = range_of(bucket)
    wanted = latency_ms + more_ms
    assert (count, least * 7 // 8 <= wanted <= beyond * 9 // 8 + 1) == (5, True)


def test_a_record_of_latencies_is_one_of_no_counts_to_who_does_not_know_them() -> None:
    """Claim: releases from before them read counts without events or a source; loads that look for claims need not read it at all."""
    record = AuditRecord.of_latencies("local", "departures", 600_000, Latencies.of({53: 7, 21: 2}), time_ms=9)
    value = record.to_bytes()
    assert AuditRecord.from_bytes(value) == record
    assert (b'"latencies":"21:2 53:7"' in value, b'"count":0' in value, b'"instance":""' in value) == (True, True, True)
    assert certainly_counts(value)
    assert not certainly_counts(AuditRecord.of_tier("lake", "departures", time_ms=9, owner="job").to_bytes())


@pytest.mark.parametrize("text", ["x", "1", "1:2,3:4", "1:-2", "1:2 ", "1:2:3", "-1:2"])
def test_text_that_is_no_histogram_is_refused(text: str) -> None:
    value = AuditRecord.of_latencies("local", "t", 0, Latencies.of({5: 1}), time_ms=9).to_bytes().replace(b"5:1", text.encode())
    with pytest.raises(AuditRecordError, match="latencies are BUCKET:COUNT"):
        AuditRecord.from_bytes(value)
