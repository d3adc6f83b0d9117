"""What may be cleaned of a log, and when it is worth while: Kafka's rules, and only what is on disk."""

import pytest

from moldau.log.cleaning.planning import CleanerSettings, DirtyLog, find_dirt, first_dirty_offset, task_for
from moldau.log.config import UNLIMITED
from moldau.log.segment import Segment
from moldau.model.errors import StorageError
from support.compaction import CONFIG, CompactionWorld
from support.logs import NOW_MS


def filled(*ages_ms: int, **config: object) -> CompactionWorld:
    """A segment of two batches for each age, the last one active."""
    world = CompactionWorld(CONFIG._replace(min_cleanable_dirty_ratio=0.5, **config))  # type: ignore[arg-type]
    for age_ms in ages_ms:
        if world.log.log_end_offset:
            world.roll()
        for _ in range(2):
            world.append((b"k", b"v" * 100), timestamps=[NOW_MS - age_ms])
    return world


def dirt(world: CompactionWorld, cleaned: int | None = None) -> DirtyLog:
    found = find_dirt(world.log, cleaned, world.now_ms)
    assert found is not None
    return found


def test_a_log_with_nothing_but_its_active_segment_is_left_alone() -> None:
    assert find_dirt(filled(0).log, None, NOW_MS) is None


def test_everything_before_the_active_segment() -> None:
    found = dirt(filled(0, 0, 0))
    assert (found.first_dirty, found.end_offset) == (0, 4)
    assert [(source.base_offset, source.end_offset) for source in found.sources] == [(0, 2), (2, 4)]
    assert (found.ratio, found.is_due) == (1.0, True)


@pytest.mark.parametrize(("cleaned", "ratio", "due"), [(2, 0.75, True), (4, 0.5, False), (6, 0.25, False), (8, 0.0, False)])
def test_the_dirty_share_has_to_be_more_than_is_asked_for(cleaned: int, ratio: float, due: bool) -> None:
    found = dirt(filled(0, 0, 0, 0, 0), cleaned)
    assert (found.first_dirty, found.ratio, found.is_due) == (cleaned, ratio, due)
    assert found.end_offset == 8
    assert len(found.sources) == 4


def test_a_pass_that_ended_in_the_middle_of_a_segment_leaves_all_of_it_dirty() -> None:
    found = dirt(filled(0, 0, 0), 1)
    assert (found.first_dirty, found.ratio) == (1, 1.0)


@pytest.mark.parametrize("cleaned", [-5, 3, 7])
def test_a_checkpoint_that_does_not_fit_counts_as_none(cleaned: int) -> None:
    world = filled(0, 0, 0)
    world.log.delete_records(4)
    assert first_dirty_offset(world.log, cleaned) == 4
    assert first_dirty_offset(world.log, None) == 4


def test_what_is_young_stays_and_all_behind_it() -> None:
    world = filled(900, 100, 900, 0, min_compaction_lag_ms=500)
    assert dirt(world).end_offset == 2
    world.now_ms += 400
    assert dirt(world).end_offset == 6, "exactly as old as it has to be"


def test_nothing_young_is_looked_for_in_the_clean_part() -> None:
    world = filled(0, 900, 0, min_compaction_lag_ms=500)
    assert dirt(world).end_offset == 0
    assert dirt(world, 2).end_offset == 4


def test_what_a_transaction_holds_and_all_behind_it() -> None:
    world = filled(0, 0)
    world.append((b"k", b"v"), producer=(7, 0, 0), transactional=True)
    world.roll()
    world.append((b"k", b"v"))
    world.roll()
    assert dirt(world).end_offset == 2
    world.end_transaction(7, 0, commit=True)
    world.flush()
    assert dirt(world).end_offset == 6


def test_transactions_that_a_crash_would_leave_undecided() -> None:
    """The marker is in the active segment, and not on disk."""
    world = filled(0, 0)
    world.append((b"k", b"v"), producer=(7, 0, 0), transactional=True)
    world.roll()
    world.end_transaction(7, 0, commit=True)
    assert (world.log.last_stable_offset, world.log.flushed_offset) == (6, 5)
    assert dirt(world).end_offset == 2
    world.flush()
    assert dirt(world).end_offset == 5
    world.append((b"k", b"v"))
    assert dirt(world).end_offset == 5


def test_what_not_all_have_and_what_is_not_on_disk() -> None:
    world = filled(0, 0, 0)
    world.log.high_watermark = 3
    assert dirt(world).end_offset == 2
    world.log.high_watermark = 6
    world.log._appender.roll(NOW_MS)
    assert world.log.flushed_offset == 4
    assert dirt(world).end_offset == 4


def test_overdue_whatever_the_ratio() -> None:
    world = filled(100, 5000, 100, 0, max_compaction_lag_ms=1000)
    assert (dirt(world, 2).overdue, dirt(world, 4).overdue) == (True, False)
    assert (round(dirt(world, 4).ratio, 2), dirt(world, 4).is_due) == (0.33, False)
    world.now_ms += 901
    assert (dirt(world, 4).overdue, dirt(world, 4).is_due, dirt(world, 6).is_due) == (True, True, False)


def test_the_first_batches_are_not_read_unless_there_is_such_a_limit() -> None:
    world = filled(5000, 0)
    world.disk.fail = lambda operation, path: operation == "pread" and path.endswith(".log")
    assert not dirt(world).overdue
    world = filled(5000, 0, max_compaction_lag_ms=1000)
    world.disk.fail = lambda operation, path: operation == "pread" and path.endswith(".log")
    with pytest.raises(StorageError):
        dirt(world)


def test_a_compacted_log_goes_on_in_a_new_segment_when_records_are_to_be_compacted_by_then() -> None:
    world = filled(0, max_compaction_lag_ms=1000)
    world.now_ms += 1001
    world.append((b"k", b"v"))
    assert world.bases() == [0, 2]
    assert CONFIG._replace(max_compaction_lag_ms=5, cleanup_policy=frozenset({"delete"})).roll_ms == CONFIG.segment_ms
    assert CONFIG._replace(max_compaction_lag_ms=UNLIMITED).roll_ms == CONFIG.segment_ms


def test_what_a_worker_is_told() -> None:
    world = filled(0, 0, 0, delete_retention_ms=77)
    world.append((b"k", b"v"), producer=(5, 2, 0))
    world.roll()
    settings = CleanerSettings(threads=4, map_bytes=1000, map_load_factor=0.5, io_bytes=1 << 20, bytes_per_second=400.0)
    task = task_for(dirt(world), settings, NOW_MS)
    assert task.map_load_factor == 0.5
    assert (task.map_bytes, task.chunk_bytes, task.bytes_per_second, task.delete_retention_ms) == (250, 1 << 17, 100.0, 77)
    assert [tuple(producer) for producer in task.producers] == [(5, 6, 2)]
    assert type(task).decode(task.encode()) == task


def test_producers_that_write_behind_the_part_are_none_of_its_business() -> None:
    world = filled(0, 0)
    world.append((b"k", b"v"), producer=(5, 0, 0))
    assert task_for(dirt(world), CleanerSettings(), NOW_MS).producers == []


def test_many_segments_are_looked_at_without_opening_them() -> None:
    world = filled(*[0] * 40)
    world.disk.operations.clear()
    assert len(dirt(world).sources) == 39
    assert not world.disk.operations
    assert all(isinstance(segment, Segment) for segment in world.log.sealed_segments())
