"""Counts add up in any order, and a record of the audit topic says the same after its trip through bytes."""

import json
from typing import Any

import pytest

from moldau.tracking.audit_record import AuditRecord, AuditRecordError, Kind
from moldau.tracking.counts import WINDOW_MS, Count, CountKey, RunningCount, window_start

KEY = CountKey("page-views", 1_300_000_200_000, "east", "checkout", "web-1", "0001020304050607")


def test_a_window_is_ten_minutes_of_event_time() -> None:
    assert WINDOW_MS == 600_000
    assert [window_start(time_ms) for time_ms in (0, 599_999, 600_000, -1, -600_000)] == [0, 0, 600_000, -600_000, -600_000]


def test_counts_add_up() -> None:
    both = Count(2, 300, 5, 1_000, 9_000) + Count(1, 100, 7, 500, 500)
    assert both == Count(3, 400, 12, 500, 9_000)
    assert Count() + both == both + Count() == both
    assert Count().with_event(4_000, 99, 3) == Count(1, 99, 3, 4_000, 4_000)
    assert not Count()
    assert both


def test_a_checksum_is_a_sum_of_64_bits() -> None:
    assert Count(1, 1, (1 << 64) - 1, 0, 0) + Count(1, 1, 2, 0, 0) == Count(2, 2, 1, 0, 0)


def test_a_running_count_is_the_sum_of_its_events() -> None:
    running, expected = RunningCount(), Count()
    assert running.frozen() == expected
    for time_ms, size, guid_hash in [(10, 100, (1 << 64) - 1), (-5, 50, 1 << 63), (20, 0, 1 << 63)]:
        running.add(time_ms, size, guid_hash)
        expected = expected.with_event(time_ms, size, guid_hash)
    assert running.frozen() == expected


@pytest.mark.parametrize("kind", ["counts", "open", "close"])
def test_a_record_survives_its_bytes(kind: Kind) -> None:
    record = AuditRecord(kind, "ab" * 16, 1_300_000_000_000, "producer", KEY, Count(3, 400, (1 << 64) - 1, 1_300_000_200_001, None))
    assert AuditRecord.from_bytes(record.to_bytes()) == record


def test_what_a_record_looks_like() -> None:
    record = AuditRecord.of_counts("producer", KEY, Count(3, 400, 255, 1_300_000_200_001, 1_300_000_300_000), time_ms=1, guid="ab" * 16)
    assert record.record_key == b"page-views"
    assert json.loads(record.to_bytes()) == {
        "version": 1,
        "kind": "counts",
        "guid": "abababababababababababababababab",
        "time_ms": 1,
        "tier": "producer",
        "topic": "page-views",
        "window_start_ms": 1_300_000_200_000,
        "window_end_ms": 1_300_000_800_000,
        "datacenter": "east",
        "service": "checkout",
        "host": "web-1",
        "instance": "0001020304050607",
        "count": 3,
        "bytes": 400,
        "checksum": "00000000000000ff",
        "min_time_ms": 1_300_000_200_001,
        "max_time_ms": 1_300_000_300_000,
    }
    assert record.to_bytes().startswith(b'{"bytes":400,"checksum":"00000000000000ff","count":3,')


def test_an_instance_opens_with_no_topic_and_no_window() -> None:
    record = AuditRecord("open", "ab" * 16, 1, "producer", KEY._replace(topic="", window_start_ms=0))
    assert record.window_end_ms == 0
    assert record.record_key == b"0001020304050607"
    assert AuditRecord.from_bytes(record.to_bytes()) == record


def test_two_increments_have_two_guids() -> None:
    one, two = (AuditRecord.of_counts("producer", KEY, Count(), time_ms=1) for _ in range(2))
    assert one.guid != two.guid
    assert len(one.guid) == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2; only version 1 is supported"),
        ({"kind": "closed"}, "kind is one of counts, open, close, gap, not 'closed'"),
        ({"topic": None}, "topic is text, not None"),
        ({"window_start_ms": "0"}, "window_start_ms is a whole number, not '0'"),
        ({"count": True}, "count is a whole number, not True"),
        ({"count": -1}, "count is not negative: -1"),
        ({"checksum": "0x000000000000ff"}, "checksum is 16 hex digits"),
        ({"max_time_ms": 1.5}, "max_time_ms is a whole number"),
    ],
)
def test_a_record_that_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    good = json.loads(AuditRecord.of_counts("producer", KEY, Count(), time_ms=1).to_bytes())
    with pytest.raises(AuditRecordError, match=message):
        AuditRecord.from_bytes(json.dumps({**good, **change}).encode())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "an audit record is JSON: Expecting value"),
        (b"", "an audit record is JSON: Expecting value"),
        (b"{", "an audit record is JSON: Expecting property name"),
        (b"\xff\xfe\0", "an audit record is JSON in UTF-8; byte 0 is not"),
        (b'"\xe4"', "an audit record is JSON in UTF-8; byte 1 is not"),
        (b"\0\0\0\0\7abc", "an audit record is JSON: Expecting value"),
        (b"[1]", "an audit record is a JSON object, not list"),
        (b"12", "an audit record is a JSON object, not int"),
        (b"[" * 100_000, "an audit record is JSON that is nested too deeply"),
    ],
)
def test_other_bytes_are_no_record(value: bytes | None, message: str) -> None:
    with pytest.raises(AuditRecordError, match=message):
        AuditRecord.from_bytes(value)


def test_names_that_are_not_known_are_passed_over() -> None:
    record = AuditRecord.of_counts("producer", KEY, Count(), time_ms=1)
    later = {**json.loads(record.to_bytes()), "table": "of a later version"}
    assert AuditRecord.from_bytes(json.dumps(later).encode()) == record
