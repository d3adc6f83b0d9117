"""A log that moves to another directory has in its copy what it has itself, whatever is done to it meanwhile."""

from functools import partial
from random import Random

import pytest

from moldau.log.checkpoints import CLEANED, read_offsets
from moldau.log.config import LogConfig
from moldau.log.future_logs import FutureLogs
from moldau.log.manager import LogManager
from moldau.log.partition_log import AppendResult, PartitionLog
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.protocol.records.batch import Record, encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.protocol.records.header import check_batch, read_header, stamp
from moldau.testing.disk import ForgetfulDisk
from support import compaction
from support.compaction import CompactionWorld
from support.log_moves import copy_all, made, settle, take_over
from support.logs import CLUSTER, NOW_MS, append, append_values, flush, make_batch, ongoing, values_of

KEY = TopicPartition("t", 0)
LONG = TopicPartition("t" * 249, 7)
CONFIG = LogConfig(segment_bytes=600, file_delete_delay_ms=0)
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))
TOPIC_ID = bytes(15) + b"t"
A, B, C = 7, 8, 9
TEN = [b"%d" % number for number in range(10)]


def append_each(log: PartitionLog, *values: bytes) -> None:
    """A batch for each."""
    for value in values:
        append_values(log, value)


def stage(log: PartitionLog, batch: memoryview) -> AppendResult:
    """Append a batch that is not written yet."""
    return log.append_as_leader(batch, check_batch(batch), NOW_MS)


class World:
    """A broker's logs in two directories, and one partition in the first."""

    def __init__(self, key: TopicPartition = KEY, config: LogConfig = CONFIG) -> None:
        self.disk = ForgetfulDisk()
        self.random = Random(0)
        self.key = key
        self.config = config
        self.start()
        self.manager.create(key, TOPIC_ID, config, NOW_MS)

    def start(self) -> None:
        self.manager = LogManager(
            self.disk,
            ["/a", "/b"],
            self.config,
            broker_id=0,
            cluster_id=CLUSTER,
            random_bytes=self.random.randbytes,
            topic_config=lambda _topic: self.config,
        )
        self.manager.start(NOW_MS)

    def crash(self) -> None:
        """With the loss of all that was not synced, and start again."""
        self.disk.crash()
        self.start()

    @property
    def log(self) -> PartitionLog:
        log = self.manager.get(self.key)
        assert log is not None
        return log

    @property
    def futures(self) -> FutureLogs:
        return self.manager.futures

    def begin(self, path: str = "/b") -> bool:
        return self.futures.begin(self.key, path, NOW_MS)

    def copy_all(self) -> None:
        copy_all(self.manager, self.key)

    def take_over(self) -> None:
        assert take_over(self.manager, self.key) is self.log

    def keep_house(self) -> None:
        drain(self.manager.checkpoint())
        drain(self.manager.remove_due(NOW_MS))

    def folders(self) -> list[str]:
        """Those of partitions, marked ones too."""
        return [f"{path}/{name}" for path in ("/a", "/b") for name in self.disk.list(path) if self.disk.is_directory(f"{path}/{name}")]


def test_the_copy_has_records_offsets_epochs_and_takes_the_place() -> None:
    world = World()
    world.log.lead_epoch(3)
    append_each(world.log, *[b"%d" % number for number in range(50)])
    assert world.begin()
    world.copy_all()
    append_values(world.log, b"later")
    assert not world.futures.is_level(made(world.manager, KEY))
    values, epoch, high_watermark = values_of(world.log), world.log.latest_epoch, world.log.high_watermark
    world.take_over()
    assert world.log.directory == "/b/t-0"
    assert (values_of(world.log), world.log.latest_epoch, world.log.high_watermark) == (values, epoch, high_watermark)
    assert world.manager.topic_id(KEY) == TOPIC_ID
    append_values(world.log, b"last")
    assert values_of(world.log) == [*values, b"last"]
    world.keep_house()
    world.keep_house()
    assert world.folders() == ["/b/t-0"]
    assert "moldau-move" not in world.disk.list("/b/t-0")
    assert world.futures.moving() == []


def test_what_consumers_may_not_see_yet_they_may_not_see_of_the_copy() -> None:
    world = World()
    append_each(world.log, b"a", b"b")
    stage(world.log, make_batch([b"c"]))
    world.log.write_staged()
    world.begin()
    world.take_over()
    assert (world.log.high_watermark, world.log.log_end_offset) == (2, 3)


def transactional(log: PartitionLog, producer_id: int, sequence: int = 0) -> None:
    """Append a batch of a transaction."""
    records = [Record(0, NOW_MS, 0, None, b"v", [])]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    append(log, memoryview(bytearray(data)))


def end(log: PartitionLog, producer_id: int, how: ControlType) -> None:
    """Append the marker that ends it."""
    log.append_marker_as_leader(producer_id, 0, EndTxnMarker(how, 0), NOW_MS, transaction_version=1)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)


def test_open_transactions_stay_open_aborted_ones_aborted_and_producers_known() -> None:
    world = World()
    append(world.log, make_batch([b"idempotent"], producer_id=C, sequence=0))
    transactional(world.log, A)
    transactional(world.log, B)
    world.begin()
    world.copy_all()
    end(world.log, A, ControlType.ABORT)
    before, end_offset = world.log, world.log.log_end_offset
    known = (ongoing(before), before.last_stable_offset, before.aborted_transactions(0, end_offset), before.producer_ends())
    world.take_over()
    after = world.log
    assert after is not before
    assert (ongoing(after), after.last_stable_offset, after.aborted_transactions(0, end_offset), after.producer_ends()) == known
    assert stage(after, make_batch([b"idempotent"], producer_id=C, sequence=0)).duplicate
    end(after, B, ControlType.COMMIT)
    assert after.last_stable_offset == after.log_end_offset


def test_what_is_cut_off_and_written_again_is_copied_as_it_is_then() -> None:
    world = World()
    append_each(world.log, b"a", b"b", b"c")
    world.begin()
    world.copy_all()
    world.log.truncate_to(1)
    append_each(world.log, b"B", b"C")
    world.take_over()
    assert values_of(world.log) == [b"a", b"B", b"C"]
    world.keep_house()
    world.keep_house()
    assert world.folders() == ["/b/t-0"], "that of the first copy is removed"


def test_a_log_that_is_opened_again_is_copied_as_it_is_then() -> None:
    """A full disk keeps a log closed for a while; recovery may cut it, and counts no cut."""
    world = World()
    append_each(world.log, b"a", b"b", b"c")
    world.begin()
    world.copy_all()
    first = made(world.manager, KEY)
    placement = world.manager._logs.placements[KEY]
    placement.fail(StorageError("no room", path="/a", no_space=True))
    drain(world.manager.retry_full(NOW_MS))
    second = made(world.manager, KEY)
    assert second is not first
    world.take_over()
    assert values_of(world.log) == [b"a", b"b", b"c"]


def test_what_is_deleted_at_the_beginning_is_not_in_the_copy_whether_it_was_copied_or_not() -> None:
    for deleted_when_settled in (False, True):
        world = World()
        append_each(world.log, *[b"x" * 100 for _ in range(20)])
        world.log.delete_records(4)
        world.begin()
        world.copy_all()
        if deleted_when_settled:
            settle(world.manager, made(world.manager, KEY))
        world.log.delete_records(15)
        assert not world.futures.is_settled(made(world.manager, KEY))
        world.take_over()
        assert (world.log.start_offset, len(values_of(world.log))) == (15, 5)
        world.crash()
        assert (world.log.start_offset, len(values_of(world.log))) == (15, 5), "its checkpoints are those of its new directory"


def test_a_log_that_begins_after_the_end_of_its_copy_is_copied_from_its_start() -> None:
    world = World()
    append_each(world.log, *TEN)
    world.begin()
    world.futures.copy(made(world.manager, KEY), 1, NOW_MS)
    world.log.delete_records(7)
    world.take_over()
    assert (world.log.start_offset, values_of(world.log)) == (7, TEN[7:])


def test_a_log_that_begins_in_the_middle_of_a_batch_moves_with_that_batch() -> None:
    world = World()
    append_values(world.log, b"a", b"b", b"c")
    world.log.delete_records(1)
    world.begin()
    world.take_over()
    assert (world.log.start_offset, values_of(world.log)) == (1, [b"b", b"c"])


def test_offsets_that_compaction_has_left_out_are_left_out_of_the_copy_also_at_its_end() -> None:
    """As after the expiry of the tombstone that was the last record."""
    world = World(config=COMPACTED)
    append_each(world.log, b"a")
    world.log.skip_to(5, NOW_MS)
    append_each(world.log, b"f")
    world.log.skip_to(9, NOW_MS)
    world.log.advance_high_watermark(9)
    world.manager._logs.directories[0].record(CLEANED, {KEY: 9})
    world.begin()
    world.take_over()
    assert (world.log.log_end_offset, world.log.high_watermark) == (9, 9)
    drain(world.manager.checkpoint())
    assert read_offsets(world.disk, "/b/cleaner-offset-checkpoint") == {KEY: 0}, "compacted from its beginning"
    world.crash()
    assert world.log.log_end_offset == 9
    append_values(world.log, b"j")
    read = world.log.read(6, 1000, 10, at_least_one=True)
    assert read.records is not None
    assert read_header(read.records.file.pread(read.records.length, read.records.position)).base_offset == 9


def test_a_copy_knows_where_an_epoch_ended_of_which_compaction_has_left_it_no_record() -> None:
    """A leader that takes an epoch for longer than it was agrees with records that were never committed (seed 752)."""
    world = CompactionWorld(others=["/more"])
    for epoch, count in ((1, 1), (2, 2), (3, 1)):
        world.log.lead_epoch(epoch)
        for _ in range(count):
            world.append((b"key", b"%d" % epoch))
    world.roll_and_clean()
    assert list(world.content()) == [3]
    ends = [(1, 1), (2, 3), (3, 4)]
    assert [world.log.end_offset_for_epoch(epoch) for epoch in (1, 2, 3)] == ends
    world.manager.futures.begin(compaction.KEY, "/more", world.now_ms)
    moved = take_over(world.manager, compaction.KEY, world.now_ms)
    assert (moved.directory, [moved.end_offset_for_epoch(epoch) for epoch in (1, 2, 3)]) == ("/more/c-0", ends)
    world.disk.crash()
    world.start()
    assert (world.log.directory, [world.log.end_offset_for_epoch(epoch) for epoch in (1, 2, 3)]) == ("/more/c-0", ends)


def test_a_partition_whose_name_is_too_long_for_the_mark_of_its_folder_moves_too() -> None:
    world = World(LONG)
    append_values(world.log, b"a")
    world.begin()
    world.take_over()
    assert world.log.directory == f"/b/{LONG}"


def test_full_segments_of_a_copy_are_synced_before_it_grows_further() -> None:
    """So no sync has more files to open than that of any log."""
    world = World()
    append_each(world.log, *[b"x" * 100 for _ in range(20)])
    world.begin()
    future = made(world.manager, KEY)
    while not world.futures.sync_wanted(future, NOW_MS):
        assert not world.futures.is_level(future)
        world.futures.copy(future, 200, NOW_MS)
    assert future.log is not None
    assert future.log.segment_count == 2


def test_errors_of_the_wish() -> None:
    world = World()
    for key, path, code in (
        (KEY, "/c", ErrorCode.LOG_DIR_NOT_FOUND),
        (TopicPartition("u", 0), "/b", ErrorCode.REPLICA_NOT_AVAILABLE),
    ):
        with pytest.raises(PeerError) as raised:
            world.futures.begin(key, path, NOW_MS)
        assert raised.value.code is code
    assert not world.begin("/a"), "it is there"
    assert world.begin()
    assert not world.begin(), "it moves there already"
    assert world.begin("/a") is False
    assert world.futures.moving() == [], "that cancels"


def test_a_folder_of_that_name_which_is_no_log_is_not_replaced() -> None:
    world = World()
    world.disk.make_directory("/b/t-0")
    with pytest.raises(PeerError) as raised:
        world.begin()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_copy_that_finds_no_room_is_dropped_and_the_log_stays() -> None:
    world = World()
    append_each(world.log, *TEN)
    world.begin()
    future = made(world.manager, KEY)
    world.disk.capacity = world.disk.used() + 10
    world.futures.copy(future, 1000, NOW_MS)
    world.disk.capacity = None
    assert world.futures.moving() == []
    world.keep_house()
    assert world.folders() == ["/a/t-0"]
    assert values_of(world.log) == TEN


def test_a_log_with_a_damaged_batch_stays_where_it_is() -> None:
    world = World()
    append_each(world.log, *TEN)
    world.log.remember_bad_batch(4, 4)
    world.begin()
    future = made(world.manager, KEY)
    for _ in range(10):
        if world.futures.holds(future):
            world.futures.copy(future, 1000, NOW_MS)
    assert world.futures.moving() == []
    assert world.log.directory == "/a/t-0"


def test_a_partition_that_is_deleted_while_it_moves_leaves_nothing_and_may_be_made_again_there() -> None:
    world = World()
    append_each(world.log, *TEN)
    world.begin()
    world.copy_all()
    settle(world.manager, made(world.manager, KEY))
    world.manager.delete([KEY], NOW_MS)
    world.keep_house()
    world.keep_house()
    assert world.folders() == []
    world.manager.create(TopicPartition("other", 0), TOPIC_ID, CONFIG, NOW_MS)
    world.manager.create(KEY, bytes(15) + b"n", CONFIG, NOW_MS)
    assert world.log.directory == "/b/t-0", "which has fewer"
    append_values(world.log, b"new")
    world.crash()
    assert world.manager.problem(KEY) is None, "no checkpoint has lines of the copy"


class PowerCutError(Exception):
    """In the middle of a change."""


class Cut:
    """A power cut at an operation of the disk, by its number."""

    def __init__(self, disk: ForgetfulDisk, number: int) -> None:
        self.left = number
        disk.fail = self

    def __call__(self, operation: str, path: str) -> bool:
        self.left -= 1
        if self.left <= 0:
            raise PowerCutError
        return False


def test_a_power_cut_at_any_operation_of_a_move_leaves_one_log_with_everything() -> None:
    """Claim: names and bytes that are not synced are kept or lost in any combination (None: all lost)."""
    for seed in (None, *range(3)):
        number = 0
        is_cut = True
        while is_cut:
            number += 1
            world = World()
            append_each(world.log, *TEN)
            flush(world.log)
            drain(world.manager.checkpoint())
            flushed = TEN
            Cut(world.disk, number)
            try:
                world.begin()
                world.copy_all()
                settle(world.manager, made(world.manager, KEY))
                append_values(world.log, b"late")
                flush(world.log)
                flushed = [*TEN, b"late"]
                world.take_over()
                world.keep_house()
            except PowerCutError:
                pass
            else:
                is_cut = False
            world.disk.fail = None
            world.disk.crash(None if seed is None else Random(seed))
            world.start()
            assert world.manager.problem(KEY) is None, (seed, number)
            found = values_of(world.log)
            assert found in (flushed, [*TEN, b"late"]), (seed, number)
            append_values(world.log, b"more")
            world.manager.shutdown()
            world.start()
            assert values_of(world.log) == [*found, b"more"], (seed, number)
            world.keep_house()
            world.keep_house()
            assert len(world.folders()) == 1, (seed, number)
        assert number > 40, "the disk was used"


def cut_while_taken_over(end: str) -> World:
    """A power cut when the folder whose path ends like this is about to be renamed; with the loss of all that was not synced."""
    world = World()
    append_each(world.log, *TEN)
    flush(world.log)
    world.begin()
    world.copy_all()
    settle(world.manager, made(world.manager, KEY))

    def cut(operation: str, path: str) -> bool:
        if operation == "rename" and path.endswith(end):
            raise PowerCutError
        return False

    world.disk.fail = cut
    with pytest.raises(PowerCutError):
        world.take_over()
    world.disk.fail = None
    world.disk.crash()
    return world


def test_a_whole_copy_waits_for_the_directory_that_may_have_the_log() -> None:
    """Where that is offline it is not known whether the log or the copy has what was written last."""
    for is_renamed in (False, True):
        world = cut_while_taken_over("-future" if is_renamed else "/t-0")
        world.disk.fail = lambda _operation, path: path.startswith("/a")
        world.start()
        assert world.manager.get(KEY) is None
        world.keep_house()
        world.disk.fail = None
        world.crash()
        assert world.log.directory == ("/b/t-0" if is_renamed else "/a/t-0")
        assert values_of(world.log) == TEN


def test_a_whole_copy_whose_log_is_there_is_removed_also_after_another_crash() -> None:
    world = cut_while_taken_over("/t-0")
    world.start()
    world.crash()
    world.keep_house()
    assert world.folders() == ["/a/t-0"]
    assert values_of(world.log) == TEN


def test_a_log_whose_folder_cannot_be_renamed_is_offline_until_a_start_finds_it() -> None:
    world = World()
    append_each(world.log, *TEN)
    flush(world.log)
    world.begin()
    world.copy_all()
    settle(world.manager, made(world.manager, KEY))
    world.disk.fail = lambda operation, path: operation == "rename" and path == "/a/t-0"
    with pytest.raises(StorageError):
        world.futures.take_over(made(world.manager, KEY), NOW_MS)
    assert world.manager.problem(KEY) is not None
    assert world.futures.moving() == []
    world.disk.fail = None
    world.keep_house()
    assert world.folders() == ["/a/t-0"]
    world.crash()
    assert (world.log.directory, values_of(world.log)) == ("/a/t-0", TEN)


def test_a_copy_that_cannot_be_renamed_is_offline_until_a_start_finds_it() -> None:
    world = World()
    append_each(world.log, *TEN)
    world.begin()
    world.copy_all()
    settle(world.manager, made(world.manager, KEY))
    world.disk.fail = lambda operation, path: operation == "rename" and path.endswith("-future")
    with pytest.raises(StorageError):
        world.futures.take_over(made(world.manager, KEY), NOW_MS)
    assert world.manager.problem(KEY) is not None
    world.disk.fail = None
    world.crash()
    assert (world.log.directory, values_of(world.log)) == ("/b/t-0", TEN)


def test_a_disk_that_fails_once_the_log_has_left_it_takes_nothing_of_it_along() -> None:
    world = World()
    append_each(world.log, *TEN)
    world.begin()
    world.copy_all()
    settle(world.manager, made(world.manager, KEY))
    world.disk.fail = lambda operation, path: operation == "sync_directory" and path == "/a"
    world.take_over()
    assert (world.log.directory, values_of(world.log)) == ("/b/t-0", TEN)
    assert [each.error is None for each in world.manager.describe()] == [False, True]


def test_a_copy_whose_lines_are_written_gets_another_for_the_holes_that_its_log_has_since() -> None:
    """It is a follower's, and the leader has compacted."""
    world = World()
    append_each(world.log, *TEN)
    world.begin()
    world.copy_all()
    settle(world.manager, made(world.manager, KEY))
    batch = make_batch([b"k"])
    stamp(batch, 20, world.log.leader_epoch)
    world.log.append_as_follower(batch, NOW_MS, partial(world.manager.note_holes, KEY))
    world.log.advance_high_watermark(21)
    world.copy_all()
    assert not world.futures.is_settled(made(world.manager, KEY))
    world.take_over()
    world.crash()
    assert (world.log.directory, values_of(world.log), world.log.log_end_offset) == ("/b/t-0", [*TEN, b"k"], 21)
