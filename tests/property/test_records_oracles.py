"""Batches are those of kafka-python and aiokafka byte for byte, and each of the three reads what the others wrote, in every codec."""

import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.records.batch import CREATE_TIME, Compression, Record, encode_batch, iterate
from support.validation import validated

with warnings.catch_warnings():  # about how the package reads its own resources
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records
import aiokafka.record.default_records

from support.sizes import sized

MAX_BYTES = 1 << 22

some = settings(max_examples=sized(15, 500), deadline=None)
blobs = st.none() | st.binary(max_size=20) | st.sampled_from([60, 63, 64, 127, 128, 8191, 8192]).map(lambda size: b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=70), blobs), max_size=3)
rows = st.lists(st.tuples(st.integers(0, 1 << 42), blobs, blobs, headers), min_size=1, max_size=80)


def records_of(rows: list[tuple[int, bytes | None, bytes | None, Any]]) -> list[Record]:
    return [Record(offset, time, CREATE_TIME, key, value, headers) for offset, (time, key, value, headers) in enumerate(rows)]


def theirs(library: Any, records: list[Record], codec: Compression) -> bytes:
    builder = library.record.default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=9,
        batch_size=1 << 30,
    )
    for offset, time, _, key, value, headers in records:
        assert builder.append(offset, time, key, value, headers)
    return bytes(builder.build())


def ours(records: list[Record], codec: Compression, leader_epoch: int = -1) -> bytes:
    return encode_batch(
        records, compression=codec, transactional=True, producer_id=4000, producer_epoch=2, base_sequence=9, leader_epoch=leader_epoch
    )


def read_by(library: Any, batch: bytes) -> list[Record]:
    read = library.record.default_records.DefaultRecordBatch(bytearray(batch))
    assert read.validate_crc()
    return [
        Record(each.offset, each.timestamp, each.timestamp_type, each.key, each.value, [tuple(header) for header in each.headers])
        for each in read
    ]


@pytest.mark.parametrize("library", [kafka, aiokafka], ids=lambda library: library.__name__)
def test_the_same_bytes(library: Any) -> None:
    @some
    @given(rows)
    def check(drawn: Any) -> None:
        records = records_of(drawn)
        their_epoch = 0 if library is kafka else -1  # Java's is -1
        assert ours(records, Compression.NONE, their_epoch) == theirs(library, records, Compression.NONE)

    check()


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("library", [kafka, aiokafka], ids=lambda library: library.__name__)
def test_each_reads_the_others(library: Any, codec: Compression) -> None:
    @some
    @given(rows)
    def check(drawn: Any) -> None:
        records = records_of(drawn)
        batch = memoryview(theirs(library, records, codec))
        assert list(iterate(batch, max_decompressed_bytes=MAX_BYTES)) == records
        times = [record.timestamp for record in records]
        no_key = next((record.offset for record in records if record.key is None), -1)
        assert validated(batch, MAX_BYTES) == (min(times), max(times), no_key)
        assert read_by(library, ours(records, codec)) == records

    check()
