"""What passes of compaction make of a log (mission E1): each test fills a log, compacts it, and looks at what a consumer finds."""

import pytest

from moldau.log import names, transactions
from moldau.log.cleaning.groups import SEGMENTS_MAX
from moldau.log.findings import Severity
from moldau.log.verify import verify
from moldau.model.steps import drain
from moldau.protocol.records.header import LENGTH_OFFSET, BatchHeader, stamp_crc
from support.compaction import CONFIG, FOLDER, KEY, CompactionWorld, KeyValue
from support.logs import NOW_MS, flush
from support.searches import max_timestamp_offset, offset_for_timestamp

DAY_MS = 86_400_000


def kept(*records: tuple[int, KeyValue]) -> dict[int, KeyValue]:
    return dict(records)


def headers(world: CompactionWorld) -> list[BatchHeader]:
    return [header for header, _ in world.batches()]


def assert_sound(world: CompactionWorld) -> None:
    serious = [str(each) for each in verify(world.disk, FOLDER, records=True) if each.severity is not Severity.NOTE]
    assert serious == []


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"), (b"b", b"1"))
    world.append((b"c", b"1"), (b"a", b"2"), (b"c", b"2"))
    world.append((b"b", b"2"))
    world.roll_and_clean()
    assert world.content() == kept((3, (b"a", b"2")), (4, (b"c", b"2")), (5, (b"b", b"2")))
    world.append((b"a", b"3"))
    assert world.content()[3] == (b"a", b"2"), "the active segment decides nothing"
    world.roll_and_clean()
    assert world.content() == kept((4, (b"c", b"2")), (5, (b"b", b"2")), (6, (b"a", b"3")))
    assert_sound(world)


def test_start_and_end_of_the_log_stay() -> None:
    world = CompactionWorld()
    for _ in range(3):
        world.append((b"a", b"1"))
    world.roll_and_clean()
    assert (world.log.start_offset, world.log.log_end_offset, world.log.high_watermark) == (0, 3, 3)
    world.restart()
    assert (world.log.start_offset, world.log.log_end_offset) == (0, 3)
    assert world.append((b"b", b"1")) == 3


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_keeps_its_codec(codec: int) -> None:
    world = CompactionWorld()
    world.append(*((b"%d" % number, b"v" * 50) for number in range(20)), compression=codec)
    world.append(*((b"%d" % number, b"w" * 50) for number in range(0, 20, 2)), compression=codec)
    world.roll_and_clean()
    assert sorted(world.content()) == [*range(1, 20, 2), *range(20, 30)]
    assert [header.compression for header in headers(world)] == [codec, codec]
    assert_sound(world)


def test_a_batch_that_loses_nothing_is_the_same_bytes() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"), (b"b", b"1"))
    world.append((b"c", b"1"))
    before = world.batches()
    world.roll_and_clean()
    assert world.batches() == before


def test_a_record_without_a_key_goes() -> None:
    """It comes from the time before the topic was compacted."""
    world = CompactionWorld()
    world.append((None, b"1"), (b"a", b"1"), (None, b"2"))
    world.roll_and_clean()
    assert world.content() == kept((1, (b"a", b"1")))


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    world = CompactionWorld(CONFIG._replace(delete_retention_ms=DAY_MS))
    world.append((b"a", b"1"), (b"b", b"1"))
    world.append((b"a", None))
    world.roll_and_clean()
    assert world.content() == kept((1, (b"b", b"1")), (2, (b"a", None)))
    (horizon,) = [header for header in headers(world) if header.has_delete_horizon]
    assert horizon.base_timestamp == NOW_MS + DAY_MS, "counted from this pass, not from when the record was written"
    assert world.records()[1].timestamp == NOW_MS, "and the record's time is what it was"
    world.now_ms += DAY_MS - 1
    world.append((b"c", b"1"))
    world.roll_and_clean()
    assert 2 in world.content()
    assert [header.base_timestamp for header in headers(world) if header.has_delete_horizon] == [NOW_MS + DAY_MS]
    world.now_ms += 1
    world.append((b"c", b"2"))
    world.roll_and_clean()
    assert world.content() == kept((1, (b"b", b"1")), (4, (b"c", b"2")))
    assert_sound(world)


def test_a_tombstone_goes_with_a_newer_record_of_its_key() -> None:
    world = CompactionWorld(CONFIG._replace(delete_retention_ms=DAY_MS))
    world.append((b"a", None))
    world.append((b"a", b"2"))
    world.roll_and_clean()
    assert world.content() == kept((1, (b"a", b"2")))


def test_a_retention_beyond_all_time_keeps_tombstones_for_ever() -> None:
    world = CompactionWorld(CONFIG._replace(delete_retention_ms=2**63 - 1))
    world.append((b"a", None))
    world.append((b"b", b"1"))
    world.roll_and_clean()
    assert headers(world)[0].base_timestamp == 2**63 - 1
    assert [record.timestamp for record in world.records()] == [NOW_MS, NOW_MS]


def test_times_set_by_the_broker_stay_with_a_delete_horizon() -> None:
    world = CompactionWorld(CONFIG._replace(message_timestamp_type="LogAppendTime"))
    world.append((b"a", None), (b"b", b"1"), timestamps=[5, 6])
    world.append((b"b", b"2"))
    world.roll_and_clean()
    assert [(record.offset, record.timestamp) for record in world.records()] == [(0, NOW_MS), (2, NOW_MS)]
    assert_sound(world)


def test_the_largest_timestamp_of_a_batch_is_of_a_record_that_is_there() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), timestamps=[NOW_MS, NOW_MS + 500, NOW_MS + 100])
    world.append((b"b", b"2"), timestamps=[NOW_MS + 50])
    world.roll_and_clean()
    assert [header.max_timestamp for header in headers(world)] == [NOW_MS + 100, NOW_MS + 50]
    found = offset_for_timestamp(world.log, NOW_MS + 60)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (2, NOW_MS + 100)
    largest = max_timestamp_offset(world.log)
    assert largest is not None
    assert largest.offset == 2


# Producers


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"), (b"b", b"1"), producer=(5, 2, 0))
    world.append((b"a", b"2"), (b"b", b"2"), producer=(5, 2, 2))
    world.append((b"a", b"3"), (b"b", b"3"))
    world.roll_and_clean()
    assert world.content() == kept((4, (b"a", b"3")), (5, (b"b", b"3")))
    header = headers(world)[1]
    assert (header.base_offset, header.last_offset, header.producer_id, header.producer_epoch) == (2, 3, 5, 2)
    assert (header.base_sequence, header.last_sequence, header.record_count, header.size) == (2, 3, 0, 61)
    for name in world.names(names.SNAPSHOT):
        world.disk.remove(f"{FOLDER}/{name}")
    world.disk.sync_directory(FOLDER)
    world.disk.crash()
    world.start()
    assert world.append((b"c", b"1"), producer=(5, 2, 4)) == 6, "the sequence goes on from what the log says"
    world.roll_and_clean()
    assert [header.base_offset for header in headers(world)] == [0, 4, 6], "a newer batch has the sequence now"


def test_the_last_batch_of_a_group_stays_so_that_its_end_is_known() -> None:
    world = CompactionWorld(CONFIG._replace(segment_bytes=200))
    for number in range(4):
        world.append((b"a", b"v" * 20))
        if number == 1:
            world.roll()
    world.append((b"a", b"new"))
    world.roll_and_clean()
    assert [(header.base_offset, header.record_count) for header in headers(world)] == [(0, 0), (1, 0), (3, 0), (4, 1)]
    world.append((b"b", b"1"))
    world.roll_and_clean()
    assert [(header.base_offset, header.record_count) for header in headers(world)] == [(0, 0), (3, 0), (4, 1), (5, 1)], (
        "only while it is the last"
    )


def test_the_first_batch_of_a_leader_epoch_stays_so_that_its_start_is_known() -> None:
    """Claim: to whatever reads the batches alone, as a follower that is new does; not more of them."""
    world = CompactionWorld()
    world.append((b"a", b"1"))
    world.append((b"a", b"2"))
    for _ in range(2):
        world.log.lead_epoch(world.log.latest_epoch + 1)
        for _ in range(3):
            world.append((b"a", b"3"), (b"b", b"3"))
    first = world.log.latest_epoch - 2
    for newest in (12, 14):
        world.roll_and_clean()
        assert [(header.base_offset, header.partition_leader_epoch) for header in headers(world) if not header.record_count] == [
            (0, first), (2, first + 1), (8, first + 2),
        ]  # fmt: skip
        assert [header.base_offset for header in headers(world) if header.record_count] == [newest]
        world.append((b"a", b"4"), (b"b", b"4"))


# Transactions


def test_committed_records_count_and_aborted_ones_go() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"))
    world.append((b"b", b"1"))
    world.append((b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    world.append((b"b", b"committed"), producer=(8, 0, 0), transactional=True)
    world.end_transaction(7, 0, commit=False)
    world.end_transaction(8, 0, commit=True)
    world.roll_and_clean()
    assert world.content() == kept((0, (b"a", b"1")), (3, (b"b", b"committed")))
    assert_sound(world)


def test_a_marker_goes_when_its_records_are_gone_and_time_has_passed() -> None:
    world = CompactionWorld(CONFIG._replace(delete_retention_ms=1000))
    world.append((b"c", b"0"))
    world.append((b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    world.end_transaction(7, 0, commit=False)
    world.append((b"a", b"committed"), producer=(7, 0, 1), transactional=True)
    world.end_transaction(7, 0, commit=True)
    world.append((b"b", b"1"), producer=(7, 0, 2), transactional=True)
    world.end_transaction(7, 0, commit=True)
    assert world.log.aborted_transactions(0, 7) == [(7, 1)]
    world.roll_and_clean()
    markers = [(header.base_offset, header.has_delete_horizon) for header in headers(world) if header.is_control]
    assert markers == [(2, False), (4, False), (6, False)], "this pass has met their records"
    assert world.log.aborted_transactions(0, 7) == [(7, 1)], "for readers that met them too"
    world.append((b"a", b"newer"))
    world.roll_and_clean()
    markers = [(header.base_offset, header.has_delete_horizon) for header in headers(world) if header.is_control]
    assert markers == [(2, True), (4, False), (6, False)]
    assert world.log.aborted_transactions(0, 7) == []
    world.now_ms += 1000
    world.append((b"c", b"1"))
    world.roll_and_clean()
    assert [(header.base_offset, header.has_delete_horizon) for header in headers(world) if header.is_control] == [(4, True), (6, False)]
    assert world.content() == kept((5, (b"b", b"1")), (7, (b"a", b"newer")), (8, (b"c", b"1")))
    assert_sound(world)


def test_a_transaction_that_was_aborted_in_a_later_segment() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"))
    world.append((b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    world.roll()
    world.append((b"b", b"1"))
    world.end_transaction(7, 0, commit=False)
    world.flush()
    world.clean()
    assert world.content() == kept((0, (b"a", b"1")), (2, (b"b", b"1"))), "the index is in the active segment"
    world.append((b"c", b"1"))
    world.roll_and_clean()
    assert_sound(world)


def three_transactions() -> CompactionWorld:
    """Aborted, aborted, committed, of one key that had a value before."""
    world = CompactionWorld()
    world.append((b"a", b"1"))
    for sequence, commit in enumerate((False, False, True)):
        world.append((b"a" if not commit else b"b", b"by 7"), producer=(7, 0, sequence), transactional=True)
        world.end_transaction(7, 0, commit=commit)
    world.append((b"c", b"1"))
    world.roll()
    return world


@pytest.mark.parametrize("left", [0, 1], ids=["no entry is left", "the first is left"])
def test_an_index_that_lost_entries_but_looks_whole_is_made_anew_before_anything_is_lost(
    left: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Taken for committed, the aborted record of a key would take the place of the committed one."""
    world = three_transactions()
    world.restart()
    path = f"{FOLDER}/{names.file_name(0, names.TRANSACTION_INDEX)}"
    whole = world.disk.read(path)
    size = len(whole) // 2
    world.disk.write_atomically(path, whole[: left * size])
    world.restart()
    world.clean()
    assert world.disk.read(path) == whole, "the first pass stops there"
    assert "index of aborted transactions is damaged and rebuilt" in caplog.text
    world.append((b"d", b"1"))
    world.roll_and_clean()
    assert world.content() == kept((0, (b"a", b"1")), (5, (b"b", b"by 7")), (7, (b"c", b"1")), (8, (b"d", b"1")))
    assert_sound(world)


def test_where_making_it_anew_is_of_no_use_the_log_is_not_compacted_any_more(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = three_transactions()
    world.restart()
    path = f"{FOLDER}/{names.file_name(0, names.TRANSACTION_INDEX)}"
    world.disk.write_atomically(path, b"")
    world.restart()
    monkeypatch.setattr(transactions, "mend", lambda *arguments: None)
    for _ in range(3):
        world.clean()
    assert caplog.text.count("log is not compacted any more") == 1
    assert world.cleaner is not None
    assert world.cleaner.statistics()["compaction_uncleanable"] == 1


def test_nothing_behind_the_last_stable_offset_is_touched() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"))
    world.roll()
    world.append((b"a", b"2"), producer=(7, 0, 0), transactional=True)
    world.roll()
    world.append((b"a", b"3"))
    world.roll_and_clean()
    assert world.content() == kept((0, (b"a", b"1")), (1, (b"a", b"2")), (2, (b"a", b"3")))
    world.end_transaction(7, 0, commit=False)
    world.roll_and_clean()
    assert world.content() == kept((2, (b"a", b"3")))


def test_the_marker_of_a_producer_that_wrote_nothing_else_stays() -> None:
    """It has the epoch, which fences its predecessors."""
    world = CompactionWorld()
    world.end_transaction(7, 3, commit=True)
    for _ in range(4):
        world.append((b"a", b"1"))
        world.roll_and_clean()
        world.now_ms += 1000
    markers = [header for header in headers(world) if header.is_control]
    assert [(header.producer_epoch, header.record_count) for header in markers] == [(3, 0)]
    world.restart()
    assert world.content() == kept((4, (b"a", b"1")))


# Segments


def test_small_segments_become_one_and_none_longer_than_a_segment_may_be() -> None:
    world = CompactionWorld(CONFIG._replace(segment_bytes=1000))
    for number in range(30):
        world.append((b"%d" % (number % 20), b"v" * 200))
    assert len(world.bases()) == 10
    world.roll_and_clean()
    assert len(world.bases()) == 11, "as they are before anything is removed, no two fit into one"
    world.append((b"x", b"v"))
    world.roll_and_clean()
    bases = world.bases()
    assert len(bases) < 9
    assert all(segment.size <= 1000 for segment in world.log.sealed_segments())
    assert sorted(world.content()) == list(range(10, 31))
    assert_sound(world)


def test_no_more_segments_at_a_time_than_a_swap_should_hold_up_the_broker_for() -> None:
    world = CompactionWorld()
    for number in range(SEGMENTS_MAX + 10):
        world.append((b"%d" % number, b"v"))
        world.roll()
    world.clean()
    assert len(world.log.sealed_segments()) == 2
    assert len(world.content()) == SEGMENTS_MAX + 10


def test_every_offset_is_found_after_it() -> None:
    world = CompactionWorld(CONFIG._replace(segment_bytes=2000))
    for number in range(100):
        world.append(*((b"%d" % (7 * number * each % 130), b"v" * 30) for each in range(4)))
    world.roll_and_clean()
    there = sorted(world.content())
    assert len(there) < 140
    for offset in range(400):
        part = world.log.read(offset, 1, 400, at_least_one=True).records
        assert part is not None
        first = BatchHeader._make(_unpack(part.file.pread(61, part.position)))
        part.release()
        assert first.last_offset >= offset
        assert not [other for other in there if offset <= other < first.base_offset], "nothing is passed over"
    assert_sound(world)


def _unpack(data: bytes) -> tuple[int, ...]:
    from struct import unpack

    return unpack(">qiibIhiqqqhii", data)


def test_the_time_of_the_last_write_is_that_of_the_newest_replaced() -> None:
    """Retention goes by it where records have no timestamps."""
    world = CompactionWorld()
    for _ in range(2):
        world.append((b"a", b"1"), timestamps=[-1])
        written_ms = world.now_ms
        world.roll()
        world.now_ms += DAY_MS
    world.clean()
    (segment,) = world.log.sealed_segments()
    assert segment.retention_timestamp() == written_ms


def test_replaced_files_are_unlinked_after_the_delay() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"))
    world.roll_and_clean()
    assert [name for name in world.names(names.DELETED) if ".log" in name] == [f"{0:020d}.log.deleted"]
    world.now_ms += CONFIG.file_delete_delay_ms
    drain(world.manager.remove_due(world.now_ms))
    assert world.names(names.DELETED, names.CLEANED, names.SWAP) == []


def test_with_deletion_whole_segments_go_by_age_too() -> None:
    world = CompactionWorld(CONFIG._replace(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=DAY_MS))
    world.append((b"a", b"1"), (b"b", b"1"))
    world.append((b"a", b"2"))
    world.roll_and_clean()
    assert sorted(world.content()) == [1, 2]
    world.now_ms += 2 * DAY_MS
    world.append((b"c", b"1"))
    drain(world.manager.apply_retention(world.now_ms))
    assert (sorted(world.content()), world.log.start_offset) == ([3], 3)
    world.roll_and_clean()
    assert world.content() == kept((3, (b"c", b"1")))


def test_records_deleted_by_offset_leave_the_rest_of_their_keys() -> None:
    world = CompactionWorld()
    for number in range(6):
        world.append((b"%d" % (number % 2), b"v"))
    world.log.delete_records(3)
    world.roll_and_clean()
    assert sorted(offset for offset in world.content() if offset >= 3) == [4, 5]


# As far as a pass gets


def test_a_map_that_is_full_ends_the_pass_and_the_next_goes_on_there() -> None:
    world = CompactionWorld(map_bytes=10_000)
    for number in range(300):
        world.append((b"%d" % (number % 150), b"1"), (b"%d" % (number % 150), b"2"))
    world.roll()
    world.look()
    while world.statistics()["compaction_passes"] == 0:
        world.workers.step()
    cleaned = world.log.start_offset, *_cleaned_offset(world)
    assert 0 < cleaned[1] < 600
    assert cleaned[1] % 2 == 0, "between two batches"
    world.clean()
    assert sorted(world.content()) == list(range(301, 601, 2))
    assert _cleaned_offset(world) == [600]
    assert world.statistics()["compaction_passes"] > 2


def _cleaned_offset(world: CompactionWorld) -> list[int]:
    lines = world.disk.read("/data/cleaner-offset-checkpoint").decode().splitlines()[2:]
    assert all(line.startswith(f"{KEY.topic} {KEY.partition} ") for line in lines)
    return [int(line.split()[2]) for line in lines]


def test_a_map_without_any_room_takes_a_batch_all_the_same() -> None:
    world = CompactionWorld(map_bytes=0)
    for _ in range(5):
        world.append((b"a", b"1"), (b"b", b"1"))
    world.roll_and_clean()
    assert sorted(world.content()) == [8, 9]
    assert world.statistics()["compaction_passes"] == 5


def test_the_checkpoint_says_how_far_it_came_and_is_believed() -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"))
    world.append((b"a", b"2"))
    world.roll_and_clean()
    assert _cleaned_offset(world) == [2]
    world.restart()
    world.clean()
    assert world.cleaner is not None
    assert world.statistics()["compaction_passes"] == 0
    world.append((b"b", b"1"))
    world.roll_and_clean()
    assert _cleaned_offset(world) == [3]


# What is not as it should be


def test_a_batch_whose_records_are_malformed_stays_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    world = CompactionWorld()
    world.append((b"a", b"1"))
    world.append((b"b", b"x"))
    world.append((b"a", b"2"))
    file = world.disk.open(f"{FOLDER}/{0:020d}.log", writable=True)
    batch = bytearray(file.pread(200, 70))
    batch = batch[: 12 + int.from_bytes(batch[LENGTH_OFFSET : LENGTH_OFFSET + 4], "big")]
    batch[61] = 0x7E
    stamp_crc(batch)
    file.pwrite(batch, 70)
    world.roll_and_clean()
    assert [header.base_offset for header in headers(world)] == [0, 1, 2]
    assert "malformed records left as they are by compaction: partition=c-0 batches=1" in caplog.text
    world.append((b"a", b"3"))
    world.roll_and_clean()
    assert [header.base_offset for header in headers(world)] == [0, 1, 3]


def test_a_damaged_batch_ends_compaction_of_that_log(caplog: pytest.LogCaptureFixture) -> None:
    world = CompactionWorld()
    for _ in range(3):
        world.append((b"a", b"12345"), (b"b", b"1"))
    world.roll()
    file = world.disk.open(f"{FOLDER}/{0:020d}.log", writable=True)
    file.pwrite(b"?", 90)
    world.clean()
    assert "damaged batch, log is not compacted any more: partition=c-0" in caplog.text
    assert world.statistics()["compaction_uncleanable"] == 1
    assert world.names(names.CLEANED) == []
    assert world.log.statistics()["bad_batches"] == 1, "fetches end before it"
    world.append((b"a", b"2"))
    world.roll()
    flush(world.log)
    world.clean()
    assert world.statistics()["compaction_passes_failed"] == 1, "no other try until the log is opened anew"
    world.restart()
    world.clean()
    assert world.statistics()["compaction_passes_failed"] == 1


def test_an_index_that_is_missing_is_made_anew() -> None:
    world = CompactionWorld()
    for number in range(50):
        world.append((b"%d" % number, b"v" * 20))
    world.roll()
    world.manager.shutdown()
    for name in world.names(names.INDEX, names.TIME_INDEX):
        world.disk.remove(f"{FOLDER}/{name}")
    world.start()
    world.clean()
    assert len(world.content()) == 50
    assert_sound(world)
    assert world.disk.size(f"{FOLDER}/{0:020d}{names.INDEX}") > 0
