"""A batch that loses records keeps everything else: offsets, timestamps, producer, codec; a delete horizon changes no record."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from moldau.log.cleaning.filtering import emptied, rebuilt, records_of, select, shift_timestamps
from moldau.log.cleaning.key_map import KEPT, REPLACED, UnreadableRecordsError
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import read_header, verify_crc
from moldau.protocol.records.record import Record
from support.sizes import sized

TIMES = st.sampled_from([-1, 0, 1, 63, 64, 8191, 8192, 2**40, 2**62])
RECORDS = st.lists(st.tuples(TIMES, st.binary(max_size=70), st.none() | st.binary(max_size=300), st.booleans()), min_size=1, max_size=90)


def records(rows: list[tuple[int, bytes, bytes | None, bool]]) -> list[Record]:
    return [Record(1000 + number * 3, time, 0, key, value, []) for number, (time, key, value, _) in enumerate(rows)]


@settings(max_examples=sized(60, 1500), deadline=None)
@given(
    rows=RECORDS,
    codec=st.sampled_from(list(Compression)),
    append_time=st.booleans(),
    horizon_ms=st.none() | st.sampled_from([0, 2**41, 2**63 - 1]),
)
def test_what_is_kept_is_as_it_was(
    rows: list[tuple[int, bytes, bytes | None, bool]], codec: Compression, append_time: bool, horizon_ms: int | None
) -> None:
    rows[0] = (*rows[0][:3], True)
    produced = records(rows)
    stamp = 12345 if append_time else None
    batch = encode_batch(
        produced,
        base_offset=1000,
        compression=codec,
        log_append_time_ms=stamp,
        producer_id=7,
        producer_epoch=3,
        base_sequence=9,
        leader_epoch=5,
    )
    header = read_header(batch)
    states = bytes(KEPT if keep else REPLACED for *_, keep in rows)
    unpacked, start, end = records_of(batch, 0, header, 1 << 24)
    stretches, newest = select(unpacked, start, end, states, with_timestamps=not append_time)
    count = states.count(KEPT)
    after = rebuilt(header, b"".join(stretches), count, newest, horizon_ms)
    new_header = read_header(after)
    assert verify_crc(after)
    kept = [record for record, (*_, keep) in zip(iterate(memoryview(batch), max_decompressed_bytes=1 << 24), rows, strict=True) if keep]
    assert list(iterate(memoryview(after), max_decompressed_bytes=1 << 24)) == kept
    assert new_header.max_timestamp == (stamp if append_time else max(record.timestamp for record in kept))
    assert new_header.base_timestamp == (header.base_timestamp if horizon_ms is None else horizon_ms)
    assert new_header.has_delete_horizon is (horizon_ms is not None)
    same = ("base_offset", "last_offset_delta", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_sequence")
    assert [getattr(new_header, name) for name in same] == [getattr(header, name) for name in same]
    assert (new_header.compression, new_header.record_count) == (codec, count)


def test_an_emptied_batch_is_a_header() -> None:
    """Byte for byte what Kafka's `writeEmptyHeader` writes: no codec, no horizon, no base timestamp."""
    batch = encode_batch(
        records([(5, b"k", b"v", True), (6, b"k", None, True)]), base_offset=1000, compression=Compression.GZIP,
        producer_id=7, producer_epoch=3, base_sequence=9, transactional=True, leader_epoch=5,
    )  # fmt: skip
    header = read_header(batch)
    after = emptied(header)
    assert len(after) == 61
    assert verify_crc(after)
    expected = header._replace(batch_length=49, attributes=0x10, base_timestamp=-1, record_count=0)
    assert read_header(after)._replace(crc=0) == expected._replace(crc=0)
    assert list(iterate(memoryview(after), max_decompressed_bytes=0)) == []


@pytest.mark.parametrize("states", [b"\0", b"\0\0\0\0"])
def test_records_that_are_not_as_many_as_the_states(states: bytes) -> None:
    batch = encode_batch(records([(0, b"k", b"v", True)] * 3), base_offset=1000)
    with pytest.raises(UnreadableRecordsError):
        select(batch, 61, len(batch), states, with_timestamps=True)


@pytest.mark.parametrize("damaged", [b"\x06\0", b"\x0a\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", b"\x02\0\0\0"])
def test_records_whose_timestamps_cannot_be_shifted(damaged: bytes) -> None:
    with pytest.raises(UnreadableRecordsError):
        shift_timestamps(damaged, 5)
