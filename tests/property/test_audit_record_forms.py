"""The short way of an audit record to bytes and back is the general one, by JSON."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moldau.tracking import audit_record
from moldau.tracking.audit_record import AuditRecord, AuditRecordError
from moldau.tracking.counts import Count, CountKey
from moldau.tracking.latencies import BUCKETS, Latencies

TEXTS = st.one_of(st.sampled_from(["", "ewr-1", "š", '"', "\\", "\x1f", "\x7f", "\u2028", ',"count":0,']), st.text(max_size=6))
TIMES = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.integers(0, 2**41))
NUMBERS = st.one_of(st.integers(0, 2**70), st.integers(0, 9))
COUNTS = st.builds(Count, NUMBERS, NUMBERS, st.integers(0, 2**64 - 1), TIMES, TIMES)
KEYS = st.builds(CountKey, TEXTS, st.integers(-(2**50), 2**70), TEXTS, TEXTS, TEXTS, TEXTS)
RECORDS = st.builds(
    AuditRecord,
    st.sampled_from(["counts", "open", "close"]), TEXTS, st.integers(-9, 2**70), TEXTS, KEYS, COUNTS, st.none(),
    st.integers(0, 1), st.sampled_from(["", "job"]), st.sampled_from([None, 5]), st.booleans(), st.one_of(st.none(), TEXTS),
    st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 2**40), max_size=3).map(Latencies.of), st.sampled_from(["", "a cluster"]),
)  # fmt: skip
PLAIN = AuditRecord.of_counts("local", CountKey("t", 600_000, "ewr", "s", "h", "00ff"), Count(3, 99, 1, 600_001, 600_002), time_ms=9)


def parsed(value: bytes, *, short: bool) -> AuditRecord | str:
    with pytest.MonkeyPatch.context() as patched:
        if not short:
            patched.setattr(audit_record, "_PLAIN", re.compile("(?!)"))
        try:
            return AuditRecord.from_bytes(value)
        except AuditRecordError as error:
            return str(error)


@given(RECORDS)
@example(PLAIN)
@example(replace(PLAIN, epoch="e"))
def test_a_record_comes_back_the_same_both_ways(record: AuditRecord) -> None:
    value = record.to_bytes()
    assert value == json.dumps(json.loads(value), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    assert parsed(value, short=True) == parsed(value, short=False) == record


@given(st.sampled_from([PLAIN, replace(PLAIN, epoch="e")]), st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3))
@example(PLAIN, 9, 1, b"-1")
@example(PLAIN, 9, 0, b"0")
def test_bytes_that_were_changed_are_the_same_record_or_fault_both_ways(record: AuditRecord, at: int, size: int, put: bytes) -> None:
    value = record.to_bytes()
    at %= len(value)
    changed = value[:at] + put + value[at + size :]
    assert parsed(changed, short=True) == parsed(changed, short=False)
