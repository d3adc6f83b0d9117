"""What a merge writes beside the records can be read again, and damage is an error that shows it."""

import pytest

from moldau.mirror.merge.announcements import Announcement, announcement_in
from moldau.mirror.merge.outgoing import Outgoing, Run, whole
from moldau.mirror.merge.positions import POSITIONS, Key, Stored, positions_batches, stored_in
from moldau.mirror.merge.runs import OFFSETS, RUNS_MAX, StoredRun, StoredRuns, offsets_batches, runs_in
from moldau.mirror.partitions import Position
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.header import read_header
from moldau.protocol.records.record import CREATE_TIME, Record
from support.pages import ROOT, blocks

PAGE = ROOT / "docs" / "formats" / "mirror-offsets.md"
KEY = Key("aggregate", "east", bytes(range(16)), 3)


_DATA = memoryview(bytearray(encode_batch([Record(0, 0, CREATE_TIME, None, b"", [])])))
_EMPTY = _DATA, read_header(_DATA)


def test_a_position_is_read_as_it_was_written() -> None:
    stored = Stored(Position(71, 6), "orders", "1", 40)
    (batch,) = positions_batches([(KEY, stored)], 5)
    assert batch.target == POSITIONS
    assert [stored_in(each) for each in iterate(batch.data, max_decompressed_bytes=1 << 20)] == [(KEY, stored)]


def test_a_position_that_was_taken_back_is_none() -> None:
    assert stored_in(Record(0, 0, CREATE_TIME, KEY.encode(), None, [])) == (KEY, None)


def batch_of(*offsets: int, base: int, origins: tuple[str, ...] = ()) -> Outgoing:
    records = [Record(each, 0, CREATE_TIME, None, b"", []) for each in offsets]
    data = memoryview(bytearray(encode_batch(records, base_offset=offsets[0])))
    outgoing = whole((read_header(data), data), TopicPartition("east.orders", 3), origins)
    outgoing.base_offset = base
    return outgoing


def runs_of(*batches: Outgoing) -> list[StoredRuns]:
    (stored,) = offsets_batches([(KEY, batches)], 5)
    assert stored.target == OFFSETS
    return [runs_in(each) for each in iterate(stored.data, max_decompressed_bytes=1 << 20)]


def test_runs_name_the_offsets_that_records_have_got() -> None:
    # of three batches of a partition two were stored one after the other, and another producer's record came before the third
    assert runs_of(batch_of(70, base=500), batch_of(71, 72, base=501), batch_of(73, base=900)) == [
        StoredRuns(KEY, "east.orders", (), (StoredRun(70, 3, 3, 500), StoredRun(73, 1, 3, 900)))
    ]


def test_runs_name_the_clusters_that_records_were_in_before_the_source() -> None:
    native, foreign = runs_of(batch_of(70, base=500), batch_of(71, base=501, origins=("south", "west")), batch_of(72, base=502))
    assert (native.chain, native.runs) == (("east",), (StoredRun(70, 1, 3, 500), StoredRun(72, 1, 3, 502)))
    assert (foreign.chain, foreign.runs) == (("south", "west", "east"), (StoredRun(71, 1, 3, 501),))


def test_no_batch_is_too_large_for_a_topic_as_it_is_by_default() -> None:
    """A transaction may have some thousand partitions. A topic takes batches of a mebibyte."""
    wanted = [(KEY._replace(partition=each), Stored(Position(1_000_000 + each, 6), "orders", "1", 40)) for each in range(10_000)]
    batches = positions_batches(wanted, 5)
    assert max(len(each.data) for each in batches) < 1_000_000
    assert [stored_in(each) for batch in batches for each in iterate(batch.data, max_decompressed_bytes=1 << 20)] == wanted


def test_a_transaction_with_many_runs_has_batches_that_follow_each_other_in_the_source() -> None:
    """As where keys choose the partition of each record. Two chains alternate: who reads the second batch alone misses no run after its
    first offset.
    """
    count = RUNS_MAX + 6
    written = [
        Outgoing(TopicPartition("orders", origin), *_EMPTY, [Run(2 * each + origin, 1) for each in range(count)], ("west",) * origin)
        for origin in (0, 1)
    ]
    for each in written:
        each.base_offset = 0
    batches = offsets_batches([(KEY, written)], 5)
    assert max(len(each.data) for each in batches) < 1_000_000
    found = [[runs_in(each) for each in iterate(batch.data, max_decompressed_bytes=1 << 20)] for batch in batches]
    offsets = [sorted((run.first, run.target) for stored in batch for run in stored.runs) for batch in found]
    assert [pair for batch in offsets for pair in batch] == [(each, each // 2) for each in range(2 * count)]
    assert {(stored.origins, run.partition) for batch in found for stored in batch for run in stored.runs} == {((), 0), (("west",), 1)}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"topic":"a","origins":[],"runs":[[1,2]]}', b'{"topic":"a","origins":[],"runs":[1]}']
)
def test_damaged_runs_are_an_error_that_names_the_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^_mirror_offsets-0, offset 7: not the runs"):
        runs_in(Record(7, 0, CREATE_TIME, KEY.encode(), data, []))


def test_an_announcement_is_read_as_it_was_written() -> None:
    announced = Announcement(1_234, "east")
    assert announcement_in(Record(0, 0, CREATE_TIME, announced.encode(), b"{}", [])) == announced


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"producer_id":"x","cluster":"east"}'])
def test_a_damaged_announcement_is_an_error_that_names_the_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^_mirror_producers-0, offset 7: not an announcement"):
        announcement_in(Record(7, 0, CREATE_TIME, data, b"", []))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"mirror":"a"}', b"\xff", b'{"mirror":1,"cluster":2,"topic_id":3,"partition":4}'])
def test_a_damaged_key_is_an_error_that_names_the_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^_mirror_positions-0, offset 7: not the key of a position"):
        stored_in(Record(7, 0, CREATE_TIME, data, None, []))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"offset":1}', b'{"offset":"x","epoch":1,"topic":"","instance":""}'])
def test_a_damaged_position_is_an_error_that_names_the_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^_mirror_positions-0, offset 7: not a position"):
        stored_in(Record(7, 0, CREATE_TIME, KEY.encode(), data, []))


def test_the_page_shows_records_as_they_are() -> None:
    (lines,) = blocks(PAGE, "")
    position_key, position, producer_key, _, offsets_key, offsets = (line.encode() for line in lines.splitlines())
    key, stored = stored_in(Record(0, 0, CREATE_TIME, position_key, position, []))
    assert stored is not None
    assert (key.encode(), stored.encode()) == (position_key, position)
    announced = announcement_in(Record(0, 0, CREATE_TIME, producer_key, b"", []))
    assert announced.encode() == producer_key
    runs = runs_in(Record(0, 0, CREATE_TIME, offsets_key, offsets, []))
    assert (runs.key, runs.chain[1:]) == (key, (key.cluster,))
    assert [run.end for run in runs.runs] == [1200, 1204]
