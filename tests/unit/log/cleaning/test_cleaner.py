"""Which log is compacted, how many at once, and what becomes of a pass that something gets in the way of: nothing, but for its time."""

import pytest

from moldau.log import names
from moldau.log.cleaning.cleaner import LogCleaner
from moldau.log.cleaning.task import WORK, CleaningTask, GroupWritten, decode_message
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import StorageError
from moldau.model.identity import TopicPartition
from support.compaction import CONFIG, FOLDER, KEY, CompactionWorld
from support.logs import NOW_MS, TOPIC_ID, append_values, flush

DELETES = CONFIG._replace(cleanup_policy=frozenset({"delete"}))


def another(world: CompactionWorld, topic: str, batches: int, config: LogConfig = CONFIG, *, has_role: bool = True) -> PartitionLog:
    """A log with a sealed segment of so many batches."""
    topic_partition = TopicPartition(topic, 0)
    log = world.manager.create(topic_partition, TOPIC_ID, config, NOW_MS)
    if has_role:
        world.manager.decide_high_watermark(topic_partition, is_replicated=False)
    fill(log, batches)
    return log


def fill(log: PartitionLog, batches: int) -> None:
    for _ in range(batches):
        append_values(log, b"v" * 50, b"w" * 50)
    log._appender.roll(NOW_MS)
    flush(log)


def cleaner_of(world: CompactionWorld) -> LogCleaner:
    found = world.cleaner
    assert found is not None
    return found


def folders(world: CompactionWorld) -> list[str]:
    """What the workers have been given."""
    return [CleaningTask.decode(job.task).folder for job in world.workers.jobs]


def two_groups() -> CompactionWorld:
    """A log whose pass writes two groups: offsets 0 to 9, and 10 to 19; the last record replaces all before."""
    world = CompactionWorld(CONFIG._replace(segment_bytes=1000))
    for number in range(20):
        if number == 10:
            world.roll()
        world.append((b"a", b"v" * 20))
    world.roll()
    return world


def left(world: CompactionWorld) -> list[int]:
    """Offsets of the records that are there, and nothing of compaction beside."""
    assert world.names(names.CLEANED, names.SWAP) == []
    return sorted(world.content())


# Which, and how many


def test_a_broker_without_anything_to_compact_has_no_cleaner() -> None:
    world = CompactionWorld(DELETES)
    world.append((b"a", b"1"))
    world.roll()
    assert world.cleaner is None
    world = CompactionWorld()
    world.append((b"a", b"1"))
    assert world.cleaner is None, "only an active segment"


def test_the_dirtiest_first_and_none_that_is_not_worth_while() -> None:
    world = CompactionWorld()
    logs = {topic: another(world, topic, 6) for topic in "abcd"}
    world.clean()
    for topic, batches in (("a", 9), ("b", 1), ("c", 20), ("d", 12)):
        logs[topic].reconfigure(CONFIG._replace(min_cleanable_dirty_ratio=0.5))
        fill(logs[topic], batches)
    order = []
    world.look()
    while world.workers.running:
        order += folders(world)
        while world.workers.jobs and folders(world) == order[-1:]:
            world.workers.step()
    assert order == ["/data/c-0", "/data/d-0", "/data/a-0"]
    assert 0 < world.statistics()["compaction_dirtiest_percent"] <= 50


def test_no_log_before_its_role_is_known() -> None:
    """Records at its end may be about to be cut off: what they replace is still the newest then."""
    world = CompactionWorld()
    another(world, "t", 6, has_role=False)
    world.look()
    assert not world.workers.running
    world.manager.decide_high_watermark(TopicPartition("t", 0), is_replicated=False)
    world.look()
    assert folders(world) == ["/data/t-0"]


def test_as_many_at_once_as_there_are_to_be() -> None:
    world = CompactionWorld()
    for topic in "abcd":
        another(world, topic, 2)
    world.settings = world.settings._replace(threads=2)
    world.look()
    assert (world.workers.running, world.statistics()["compaction_running"]) == (2, 2)
    world.look()
    assert world.workers.running == 2
    world.workers.run_all()
    assert world.statistics()["compaction_passes"] == 4, "one that ends makes room for the next"
    for topic in "efg":
        another(world, topic, 2)
    world.settings = world.settings._replace(threads=0)
    world.look()
    assert world.workers.running == 0


def test_the_work_is_named_so_that_any_process_finds_it() -> None:
    world = CompactionWorld()
    another(world, "a", 1)
    world.look()
    assert [job.work for job in world.workers.jobs] == [WORK]


# What gets in the way


def test_a_worker_that_dies(caplog: pytest.LogCaptureFixture) -> None:
    world = two_groups()
    world.look()
    world.workers.step()
    world.workers.die()
    assert "compaction given up for now: partition=c-0 reason=worker process 0 has died: signal 9" in caplog.text
    assert left(world) == list(range(10, 20)), "the first group is in place"
    assert world.workers.running == 0, "the next try is for the next look"
    world.clean()
    assert left(world) == [19]
    assert world.statistics()["compaction_passes_failed"] == 1


def test_work_that_raises() -> None:
    world = two_groups()
    world.look()
    world.workers.jobs[0].work = "no.such.module:compact"
    world.workers.run_all()
    assert left(world) == list(range(20))


def test_a_deleted_log() -> None:
    world = two_groups()
    world.look()
    world.workers.step()
    assert world.manager.delete([KEY], world.now_ms) == []
    world.workers.run_all()
    assert cleaner_of(world).running == []
    again = world.manager.create(KEY, bytes(16), world.config, world.now_ms)
    assert (again.log_end_offset, world.names(names.CLEANED)) == (0, [])


def test_a_log_that_is_closed_with_its_directory() -> None:
    world = two_groups()
    world.look()
    world.workers.step()
    world.manager.storage_failed(KEY, StorageError("gone", path="/data"))
    world.workers.run_all()
    assert cleaner_of(world).running == []


def test_a_log_that_is_cut_below_what_was_planned() -> None:
    world = two_groups()
    world.look()
    world.log.truncate_to(5)
    for _ in range(15):
        world.append((b"b", b"v" * 20))
    world.workers.run_all()
    assert sorted({key for key, _ in world.content().values() if key}) == [b"a", b"b"]
    assert left(world) == list(range(20))
    world.roll_and_clean()
    assert left(world) == [4, 19]


def test_offsets_that_were_clean_and_are_used_again_are_dirty() -> None:
    world = two_groups()
    world.clean()
    world.append((b"b", b"1"))
    world.roll_and_clean()
    assert left(world) == [19, 20]
    world.log.truncate_to(20)
    world.append((b"a", b"2"))
    world.append((b"a", b"3"))
    world.roll_and_clean()
    assert left(world) == [21]


def test_a_log_that_is_cut_and_then_restarted() -> None:
    world = two_groups()
    world.clean()
    world.log.truncate_to(10)
    world.flush()
    for _ in range(20):
        world.append((b"a", b"1"))
    world.restart()
    world.roll_and_clean()
    assert left(world) == [29]


def test_a_log_that_is_compacted_no_more() -> None:
    world = two_groups()
    world.look()
    world.log.reconfigure(DELETES)
    world.workers.run_all()
    assert left(world) == list(range(20))


def test_segments_that_retention_takes_while_they_are_read() -> None:
    world = two_groups()
    world.look()
    world.log.delete_records(10)
    world.workers.run_all()
    assert left(world) == list(range(10, 20))
    assert not world.manager.all_failed, "that a file is not there is no fault of the disk's"
    world.clean()
    assert left(world) == [19]


def test_segments_that_retention_takes_before_the_swap() -> None:
    world = two_groups()
    world.look()
    job, messages = world.workers.jobs[0], list[bytes]()
    told, job.on_message = job.on_message, messages.append
    world.workers.step()
    world.log.delete_records(10)
    job.on_message = told
    told(*messages)
    world.workers.run_all()
    assert left(world) == [19], "the other group is put in place"
    assert world.statistics()["compaction_passes_failed"] == 1, "but what is behind is not called clean"
    world.clean()
    assert world.statistics()["compaction_passes"] == 1


def test_nothing_is_put_in_place_behind_a_segment_that_stays_as_it_was() -> None:
    """A tombstone may go only when the values before it have: two passes are hindered, and the value does not come back."""
    world = CompactionWorld(CONFIG._replace(segment_bytes=350))
    for records in ([(b"x", b"1")], [(b"y", b"1")], [(b"a", b"v" * 130)], [(b"a", None), (b"z", b"v" * 150)], [(b"b", b"v" * 200)]):
        world.append(*records)
        world.roll()
    for before in (1, 2):
        world.look()
        job, messages = world.workers.jobs[0], list[bytes]()
        told, job.on_message = job.on_message, messages.append
        while len(messages) < 2:
            world.workers.step()
        groups = [decode_message(message) for message in messages]
        assert [source.base_offset for group in groups if isinstance(group, GroupWritten) for source in group.sources][-1] == 3
        world.log.delete_records(before)
        job.on_message = told
        for message in messages:
            told(message)
        world.workers.run_all()
        assert world.statistics()["compaction_passes_failed"] == before
        assert {2, 3} <= set(left(world)), "the old value, and the tombstone"
        world.now_ms += 1
    world.clean()
    assert 2 not in left(world)


def test_a_disk_that_is_full() -> None:
    world = two_groups()
    world.disk.capacity = world.disk.used() + 50
    world.look()
    world.workers.run_all()
    assert left(world) == list(range(20))
    assert world.manager.describe()[0].error is None, "a shortage passes"
    world.disk.capacity = None
    world.clean()
    assert left(world) == [19]


@pytest.mark.parametrize("operation", ["open", "sync", "pread", "set_modified_ms"])
def test_a_disk_that_fails_the_worker_takes_its_directory_offline(operation: str) -> None:
    world = two_groups()
    world.disk.fail = lambda name, path: name == operation and (path.endswith(names.CLEANED) or name == "pread")
    world.look()
    world.workers.run_all()
    assert world.manager.all_failed
    assert cleaner_of(world).running == []


def test_a_swap_that_cannot_be_finished_takes_the_directory_offline_and_the_next_start_finishes_it() -> None:
    world = two_groups()
    world.disk.fail = lambda name, path: name == "rename" and path.endswith(f"{0:020d}.index")
    world.look()
    world.workers.run_all()
    assert world.manager.all_failed
    world.disk.fail = None
    world.start()
    assert left(world) == list(range(10, 20))


def test_a_checkpoint_that_cannot_be_written_lets_nothing_begin() -> None:
    world = two_groups()
    world.disk.fail = lambda name, path: name == "write_atomically" and "checkpoint" in path
    world.look()
    assert world.workers.running == 0
    assert world.manager.all_failed


def test_stopping_in_the_middle(caplog: pytest.LogCaptureFixture) -> None:
    world = two_groups()
    world.look()
    world.workers.step()
    world.manager.stop_cleaning()
    world.workers.run_all()
    assert cleaner_of(world).running == []
    assert left(world) == list(range(10, 20))
    assert "given up" not in caplog.text
    world.look()
    assert world.workers.running == 0
    world.restart()
    world.clean()
    assert left(world) == [19]


def test_what_an_earlier_pass_has_left_is_gone_before_the_next_swap() -> None:
    """Were it still there, a crash in the middle of the swap would be taken for one in the middle of a split."""
    world = two_groups()
    world.look()
    world.workers.step()
    stray = f"{FOLDER}/{3:020d}.log.cleaned"
    world.disk.write_atomically(stray, b"stray")
    world.workers.run_all()
    assert left(world) == [19]
