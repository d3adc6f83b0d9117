"""Batches by Kafka's Java classes (golden/java-4.3.0.txt, made by golden/JavaBatches.java) are read, and where nothing is compressed
written, byte for byte."""

from pathlib import Path

import pytest

from moldau.protocol.records.batch import CREATE_TIME, LOG_APPEND_TIME, Compression, Record, encode_batch, iterate
from moldau.protocol.records.control import ControlType, EndTxnMarker, decode_end_txn_marker, encode_end_txn_marker
from moldau.protocol.records.header import check_batch, read_header, verify_crc
from moldau.protocol.records.validate import RecordsSummary
from support.validation import validated

GOLDEN_LINES = Path(__file__).with_name("golden").joinpath("java-4.3.0.txt").read_text().splitlines()
GOLDEN = {name: bytes.fromhex(text) for name, text in map(str.split, GOLDEN_LINES)}
RECORDS = [
    Record(0, 1700000000000, CREATE_TIME, b"key", b"value", []),
    Record(1, 1700000000005, CREATE_TIME, None, b"", [("h", b"x"), ("ü", None)]),
    Record(2, 1699999999990, CREATE_TIME, b"", None, []),
    Record(3, 1700000000300, CREATE_TIME, None, b"moldau " * 12000, []),
]
MAX_BYTES = 1 << 20


def records_of(batch: bytes) -> list[Record]:
    return list(iterate(memoryview(batch), max_decompressed_bytes=MAX_BYTES))


def test_plain_batch_is_read() -> None:
    assert records_of(GOLDEN["none"]) == RECORDS[:3]


def test_plain_batch_is_written() -> None:
    written = encode_batch(RECORDS[:3], transactional=True, producer_id=4000, producer_epoch=3, base_sequence=70)
    assert written == GOLDEN["none"]


def test_log_append_time_is_that_of_all_records() -> None:
    expected = [record._replace(timestamp=1700000009999, timestamp_type=LOG_APPEND_TIME) for record in RECORDS[:3]]
    assert records_of(GOLDEN["log-append-time"]) == expected
    written = encode_batch(
        RECORDS[:3], transactional=True, producer_id=4000, producer_epoch=3, base_sequence=70, log_append_time_ms=1700000009999
    )
    assert written == GOLDEN["log-append-time"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batch_is_read(codec: str) -> None:
    batch = memoryview(GOLDEN[codec])
    header = check_batch(batch)
    assert header.compression == Compression[codec.upper()]
    assert records_of(GOLDEN[codec]) == RECORDS
    assert validated(batch, MAX_BYTES) == RecordsSummary(1699999999990, 1700000000300, first_null_key=1)


def test_header_says_what_java_meant() -> None:
    header = check_batch(memoryview(GOLDEN["none"]))
    assert header.size == len(GOLDEN["none"])
    assert header[-6:] == (1700000000000, 1700000000005, 4000, 3, 70, 3)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (0, 2, -1)
    assert header.is_transactional
    assert not header.is_control
    assert not header.timestamp_type_is_log_append
    assert not header.has_delete_horizon
    assert (header.base_sequence, header.last_sequence) == (70, 72)


@pytest.mark.parametrize("kind", list(ControlType))
def test_end_of_transaction(kind: ControlType) -> None:
    golden = GOLDEN[kind.name.lower()]
    marker = EndTxnMarker(kind, coordinator_epoch=12)
    assert verify_crc(golden)
    assert read_header(golden).is_control
    (record,) = records_of(golden)
    assert record.offset == 500
    assert decode_end_txn_marker(record) == marker
    written = encode_end_txn_marker(marker, producer_id=4000, producer_epoch=3, timestamp=1700000000000, base_offset=500, leader_epoch=6)
    assert written == golden
