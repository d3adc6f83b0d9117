"""Looking up offsets by time: the first record that is not older, and the newest, over segments, batches and records."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log import timestamps as lookups
from moldau.log.batches import BadBatchError
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.log.timestamps import VAIN_LOOKS_MAX, SearchProgress, SearchStep, TimeSearch
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.batch import Compression, Record, encode_batch
from moldau.protocol.records.header import MAX_TIMESTAMP_OFFSET, stamp_crc
from support.one_log import append, make_batch, new_disk, open_log, overwrite, stage
from support.searches import max_timestamp_offset, offset_for_timestamp
from support.sizes import sized

Batches = list[list[int]]
MAX_BYTES = 1 << 24


def filled(batches: Batches, *, segment_bytes: int = 400, epoch: int = 3) -> PartitionLog:
    log = open_log(new_disk(), LogConfig(segment_bytes=segment_bytes, index_interval_bytes=0), leader_epoch=epoch)
    for timestamps in batches:
        append(log, make_batch(*[b"v"] * len(timestamps), timestamps=timestamps))
    return log


def looked_up(log: PartitionLog, timestamp: int, limit: int | None = None) -> tuple[int, int] | None:
    found = offset_for_timestamp(log, timestamp, limit)
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
    largest = max_timestamp_offset(log, limit)
    expected = next((row for row in rows if row[0] == newest), None) if newest >= 0 else None
    assert (None if largest is None else (largest.timestamp_ms, largest.offset)) == expected


def test_the_answer_names_the_epoch_of_the_leader_that_wrote_the_record() -> None:
    log = filled([[1], [2]], epoch=3)
    log.lead_epoch(8)
    append(log, make_batch(b"v", timestamps=[5]))
    assert [found and found.leader_epoch for found in (offset_for_timestamp(log, each) for each in (1, 2, 3))] == [3, 3, 8]


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
        offset_for_timestamp(log, 2)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert looked_up(log, 3) == (3, 2)
    with pytest.raises(PeerError):
        log.read(1, 1000, 3, at_least_one=True)
    records = log.read(0, 1000, 3, at_least_one=True).records
    assert records is not None
    assert records.length == size


def test_a_batch_that_cannot_be_looked_into_is_believed_by_its_header() -> None:
    """Its checksum is right: the answer is its first offset, so that nothing is missed; and consumers get it all the same."""
    log = open_log(new_disk())
    append(log, make_batch(b"a", timestamps=[1]))
    records = [Record(number, 5 + number, 0, None, b"v" * 5000, []) for number in range(3)]
    append(log, memoryview(bytearray(encode_batch(records, compression=Compression.GZIP))))
    assert offset_for_timestamp(log, 6) == (6, 2, 0)
    assert offset_for_timestamp(log, 6, decompressed_bytes_max=1000) == (7, 1, 0)
    log.delete_records(2)
    assert offset_for_timestamp(log, 6, decompressed_bytes_max=1000) == (7, 2, 0)
    assert log.read(2, 1000, 4, at_least_one=True).records is not None


def promising(*timestamps: int, promised: int) -> memoryview:
    """A batch whose header claims a larger timestamp than any record has."""
    batch = make_batch(*[b"v"] * len(timestamps), timestamps=timestamps)
    batch[MAX_TIMESTAMP_OFFSET : MAX_TIMESTAMP_OFFSET + 8] = promised.to_bytes(8, "big")
    stamp_crc(batch)
    return batch


def pieces_of(search: TimeSearch) -> Iterator[tuple[SearchStep, SearchProgress]]:
    """Each piece of work and what comes of it."""
    piece = next(search)
    with suppress(StopIteration):
        while True:
            assert piece is not None
            reached = piece.run()
            yield piece, reached
            piece = search.send(reached)


def test_headers_that_promise_in_vain_are_believed_after_a_few() -> None:
    log = open_log(new_disk())
    for _ in range(20):
        append(log, promising(1, 1, promised=9))
    looked = [reached.in_vain for _, reached in pieces_of(log.search_timestamp(5, log.log_end_offset, MAX_BYTES))]
    assert looked == [True] * VAIN_LOOKS_MAX + [False]
    assert offset_for_timestamp(log, 5) == (9, 2 * VAIN_LOOKS_MAX, 0)
    append(honest := open_log(new_disk()), promising(1, promised=9), make_batch(b"v", timestamps=[7]))
    assert offset_for_timestamp(honest, 5) == (7, 1, 0)


def test_a_long_walk_over_headers_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "HEADERS_AT_A_TIME", 10)
    log = open_log(new_disk(), LogConfig(index_interval_bytes=1 << 20))
    append(log, *(make_batch(b"v", timestamps=[1]) for _ in range(95)), make_batch(b"v", timestamps=[2]))
    assert len(list(pieces_of(log.search_timestamp(2, log.log_end_offset, MAX_BYTES)))) == 10
    assert offset_for_timestamp(log, 2) == (2, 95, 0)


def segmented() -> PartitionLog:
    """Segments of two batches; the times rise, but for a promise in each first batch that it does not keep."""
    log = filled([], segment_bytes=160)
    for number in range(10):
        append(log, promising(number * 10, promised=1000) if number % 2 == 0 else make_batch(b"v", timestamps=[number * 10]))
    return log


def test_records_that_are_removed_while_they_are_looked_for_are_not_the_answer() -> None:
    log = segmented()
    search = log.search_timestamp(30, log.log_end_offset, MAX_BYTES)
    piece = next(search)
    assert piece is not None
    piece.file.retain()
    log.delete_records(7)
    found = resumed(search, piece)
    assert found == (70, 7, 3)


def test_a_search_goes_on_in_what_has_taken_the_place_of_its_segment() -> None:
    log = segmented()
    search = log.search_timestamp(30, log.log_end_offset, MAX_BYTES)
    piece = next(search)
    assert piece is not None
    piece.file.retain()
    log.truncate_to(3)
    append(log, make_batch(b"v", timestamps=[31]))
    assert resumed(search, piece) == (31, 3, 3)


def test_damage_in_a_segment_that_is_gone_is_not_remembered() -> None:
    log = segmented()
    search = log.search_timestamp(30, log.log_end_offset, MAX_BYTES)
    assert next(search) is not None
    log.delete_records(5)
    piece = search.throw(BadBatchError("gone", 0, 0, "checksum does not match"))
    assert piece is not None
    piece.file.retain()
    assert resumed(search, piece) == (50, 5, 3)
    assert log.statistics()["bad_batches"] == 0


def resumed(search: TimeSearch, piece: SearchStep) -> tuple[int, int, int] | None:
    """What the search finds that waits for this piece."""
    try:
        while True:
            reached = piece.run()
            piece.file.release()
            following = search.send(reached)
            assert following is not None
            piece = following
            piece.file.retain()
    except StopIteration as end:
        found: tuple[int, int, int] | None = end.value
        return found
