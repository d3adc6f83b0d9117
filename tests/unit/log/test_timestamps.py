"""Looking up offsets by time: the first record that is not older, and the newest, over segments, batches and records."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log import timestamps as looking_up
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.batch import Compression, Record, encode_batch
from support.one_log import append, make_batch, new_disk, open_log, overwrite, stage
from support.sizes import sized

Batches = list[list[int]]


def filled(batches: Batches, *, segment_bytes: int = 400, epoch: int = 3) -> PartitionLog:
    log = open_log(new_disk(), LogConfig(segment_bytes=segment_bytes, index_interval_bytes=0), leader_epoch=epoch)
    for timestamps in batches:
        append(log, make_batch(*[b"v"] * len(timestamps), timestamps=timestamps))
    return log


def looked_up(log: PartitionLog, timestamp: int, limit: int | None = None) -> tuple[int, int] | None:
    found = log.offset_for_timestamp(timestamp, limit)
    return None if found is None else (found.timestamp_ms, found.offset)


@settings(deadline=None, max_examples=sized(60))
@given(
    st.lists(st.lists(st.integers(-1, 30), min_size=1, max_size=4), max_size=12),
    st.integers(0, 31),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([150, 400, 10_000]),
)
def test_every_look_up_gives_what_a_walk_over_all_records_gives(
    batches: Batches, wanted: int, deleted: float, visible: float, segment_bytes: int
) -> None:
    """Also when only the first few batches can be seen: those before the limit, where a batch begins."""
    log = filled(batches, segment_bytes=segment_bytes)
    limit = sum(map(len, batches[: int(visible * (len(batches) + 1))]))
    log.delete_records(int(deleted * limit))
    rows = [(timestamp, offset) for offset, timestamp in enumerate(chain.from_iterable(batches)) if log.start_offset <= offset < limit]
    assert looked_up(log, wanted, limit) == next((row for row in rows if row[0] >= wanted), None)
    newest = max((timestamp for timestamp, _ in rows), default=-1)
    largest = log.max_timestamp_offset(limit)
    expected = next((row for row in rows if row[0] == newest), None) if newest >= 0 else None
    assert (None if largest is None else (largest.timestamp_ms, largest.offset)) == expected


def test_the_answer_names_the_epoch_of_the_leader_that_wrote_the_record() -> None:
    log = filled([[1], [2]], epoch=3)
    log.assign_leader_epoch(8)
    append(log, make_batch(b"v", timestamps=[5]))
    assert [found and found.leader_epoch for found in map(log.offset_for_timestamp, (1, 2, 3))] == [3, 3, 8]


def test_with_log_append_time_every_record_of_a_batch_has_its_time() -> None:
    log = open_log(new_disk(), LogConfig(message_timestamp_type="LogAppendTime"))
    append(log, make_batch(b"a", b"b", timestamps=[1, 2]), now_ms=1000)
    append(log, make_batch(b"c", b"d", timestamps=[1, 2]), now_ms=2000)
    assert looked_up(log, 500) == (1000, 0)
    assert looked_up(log, 1001) == (2000, 2)
    assert looked_up(log, 2001) is None
    log.delete_records(3)
    assert looked_up(log, 0) == (2000, 3)


@pytest.mark.parametrize("codec", list(Compression))
def test_records_of_compressed_batches_are_found(codec: Compression) -> None:
    log = open_log(new_disk())
    records = [Record(number, 10 * number, 0, None, b"v" * 50, []) for number in range(100)]
    append(log, memoryview(bytearray(encode_batch(records, compression=codec))))
    assert looked_up(log, 501) == (510, 51)


def test_nothing_is_found_in_what_is_staged() -> None:
    log = filled([[1], [2]])
    batch = make_batch(b"v", timestamps=[9])
    stage(log, batch)
    assert looked_up(log, 5) is None
    log.write_staged()
    assert looked_up(log, 5) == (9, 2)


def test_a_look_up_that_meets_damage_says_so_and_remembers_it() -> None:
    disk = new_disk()
    log = open_log(disk)
    for timestamp in (1, 2, 3):
        append(log, make_batch(b"value", timestamps=[timestamp]))
    size = len(make_batch(b"value"))
    overwrite(disk, f"{0:020d}.log", size + 65, b"?")
    assert looked_up(log, 1) == (1, 0)
    with pytest.raises(PeerError) as caught:
        log.offset_for_timestamp(2)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert looked_up(log, 3) == (3, 2)
    with pytest.raises(PeerError):
        log.read(1, 1000, 3, at_least_one=True)
    records = log.read(0, 1000, 3, at_least_one=True).records
    assert records is not None
    assert records.length == size


def test_a_batch_that_is_too_large_to_look_into_is_not_taken_for_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum is right: the look-up fails, and consumers get it all the same."""
    monkeypatch.setattr(looking_up, "DECOMPRESSED_BYTES_MAX", 1000)
    log = open_log(new_disk())
    append(log, memoryview(bytearray(encode_batch([Record(0, 5, 0, None, b"v" * 5000, [])], compression=Compression.GZIP))))
    with pytest.raises(PeerError) as caught:
        log.offset_for_timestamp(5)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.read(0, 1000, 1, at_least_one=True).records is not None
