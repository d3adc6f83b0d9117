"""Logs in directories: started, stopped, crashed, created, deleted, set aside; and one directory failing while the others go on."""

import logging
import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

import pytest

from moldau.log.accepting import accept_loss
from moldau.log.batches import OldFormatError
from moldau.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, format_offsets, parse_offsets, read_offsets
from moldau.log.config import LogConfig
from moldau.log.directory import ForeignDirectoryError
from moldau.log.log_set import AllDirectoriesFailedError
from moldau.log.manager import LogManager
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.ports.background import T
from moldau.ports.filesystem import LockHeldError, MissingFileError
from moldau.protocol.records.header import stamp
from moldau.testing.disk import ForgetfulDisk
from support.logs import CLUSTER, NOW_MS, TOPIC_ID, append_values, create, flush, make_batch, manager_over, values_of

OTHER_ID = bytes(range(50, 66))
T0 = TopicPartition("t", 0)


def restart(disk: ForgetfulDisk, *directories: str, config: LogConfig | None = None) -> LogManager:
    manager = manager_over(disk, *directories, config=config)
    manager.start(NOW_MS)
    return manager


def test_an_empty_directory_becomes_ours_and_survives_a_crash_from_then_on() -> None:
    disk = ForgetfulDisk()
    restart(disk, "/srv/moldau/data")
    disk.crash()
    assert disk.read("/srv/moldau/data/meta.properties") == f"#\nbroker.id=0\ncluster.id={CLUSTER}\nmoldau=made\nversion=0\n".encode()
    restart(disk, "/srv/moldau/data")


def test_a_created_partition_survives_a_crash_with_its_id() -> None:
    disk = ForgetfulDisk()
    create(restart(disk), "t")
    disk.crash()
    manager = restart(disk)
    assert manager.partitions() == [T0]
    assert manager.topic_id(T0) == TOPIC_ID
    log = manager.get(T0)
    assert log is not None
    assert (log.start_offset, log.log_end_offset) == (0, 0)


def test_records_and_watermarks_survive_a_clean_stop() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    append_values(create(manager, "t"), b"a", b"b")
    append_values(create(manager, "t", 1), b"c")
    manager.shutdown()
    assert disk.read("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    assert parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "") == {T0: 2, TopicPartition("t", 1): 1}
    disk.crash()
    manager = restart(disk)
    assert [values_of(log) for _, log in manager.logs()] == [[b"a", b"b"], [b"c"]]
    assert all(log.recovery is None for _, log in manager.logs())


def test_the_registrations_up_to_a_clean_stop_are_known_at_the_next_start_and_at_no_other() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk, "/a", "/b")
    assert manager.clean_epochs() == ()
    manager.broker_epochs = (42,)
    manager.shutdown()
    assert disk.read("/b/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    manager = restart(disk, "/a", "/b")
    assert manager.clean_epochs() == (42,)
    manager.broker_epochs = (42, 50, 77)
    manager.shutdown()
    assert disk.read("/b/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":77}\n{"previousBrokerEpochs":[42,50]}'
    manager = restart(disk, "/a", "/b")
    assert manager.clean_epochs() == (42, 50, 77)
    manager.shutdown()
    assert restart(disk, "/a", "/b").clean_epochs() == (42, 50, 77), "after a start that was given up before the broker registered"
    disk.crash()
    assert restart(disk, "/a", "/b").clean_epochs() == (), "the marks were removed when they were read"


@pytest.mark.parametrize("mark", [b"", b"{", b"[]", b'{"version":0,"brokerEpoch":41}', b'{"brokerEpoch":"42"}', None])
def test_a_registration_that_one_directory_does_not_know_is_no_clean_stop(mark: bytes | None) -> None:
    disk = ForgetfulDisk()
    manager = restart(disk, "/a", "/b")
    manager.broker_epochs = (42,)
    manager.shutdown()
    disk.remove("/b/.kafka_cleanshutdown")
    if mark is not None:
        disk.write_atomically("/b/.kafka_cleanshutdown", mark)
    assert restart(disk, "/a", "/b").clean_epochs() == ()


@pytest.mark.parametrize("crashes", [True, False])
def test_the_high_watermark_of_a_partition_with_other_replicas_is_that_of_the_checkpoint(crashes: bool) -> None:
    """Also of the one before, if the broker starts twice before it is known which partitions have others. Without any all may be read."""
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    manager.decide_high_watermark(T0, is_replicated=True)
    append_values(log, b"a", b"b")
    log.restore_high_watermark(1)
    flush(log)
    drain(manager.checkpoint())
    for _ in range(2):
        if crashes:
            disk.crash()
        else:
            manager.shutdown()
        manager = restart(disk)
        drain(manager.checkpoint())
    left = manager.get(T0)
    assert left is not None
    assert left.high_watermark == 2
    manager.decide_high_watermark(T0, is_replicated=True)
    assert left.high_watermark == 1
    manager.shutdown()
    manager = restart(disk)
    manager.decide_high_watermark(T0, is_replicated=False)
    left = manager.get(T0)
    assert left is not None
    assert left.high_watermark == 2


@pytest.mark.parametrize("is_replicated", [True, False])
def test_until_a_log_has_a_role_nothing_is_removed_from_it(is_replicated: bool) -> None:
    """Its end may be about to be cut off, and what retention would start it with was never committed."""
    disk = ForgetfulDisk()
    config = LogConfig(segment_bytes=150, retention_ms=0, file_delete_delay_ms=0)
    manager = restart(disk, config=config)
    log = create(manager, "t", config=config)
    append_values(log, b"committed")
    log.restore_high_watermark(log.log_end_offset)
    committed = log.log_end_offset
    for _ in range(3):
        append_values(log, b"x" * 60)
    log.restore_high_watermark(committed)
    manager.shutdown()
    manager = LogManager(disk, ["/data"], config, broker_id=0, cluster_id=CLUSTER, random_bytes=bytes, topic_config=lambda _topic: config)
    manager.start(NOW_MS)
    later_ms = NOW_MS + 10**12
    drain(manager.apply_retention(later_ms))
    assert (left := manager.get(T0)) is not None
    assert (left.start_offset, left.log_end_offset) == (0, committed + 3)
    assert manager.create(T0, TOPIC_ID, config, later_ms) is left
    manager.decide_high_watermark(T0, is_replicated=is_replicated)
    drain(manager.apply_retention(later_ms))
    assert left.start_offset == (committed if is_replicated else committed + 3)


def test_the_clean_mark_is_gone_durably_before_logs_are_opened() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    create(manager, "t")
    manager.shutdown()
    restart(disk)
    disk.crash()
    assert not disk.exists("/data/.kafka_cleanshutdown")
    log = restart(disk).get(T0)
    assert log is not None
    assert log.recovery is not None


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_takes_nothing_that_was_flushed(seed: int) -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    append_values(log, b"a", b"b")
    flush(log)
    append_values(log, b"unsafe" * 50)
    if seed % 3 == 0:
        drain(manager.checkpoint())
    disk.crash(Random(seed))
    manager = restart(disk)
    left = manager.get(T0)
    assert left is not None
    assert values_of(left)[:2] == [b"a", b"b"]
    assert values_of(left)[2:] in ([], [b"unsafe" * 50])


def test_a_log_that_cannot_be_flushed_leaves_no_clean_mark() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk, "/a", "/b")
    for partition in range(4):
        append_values(create(manager, "t", partition), b"a")
    disk.fail = lambda operation, path: operation == "sync" and path.startswith("/a/t-0/")
    manager.shutdown()
    disk.fail = None
    assert not disk.exists("/a/.kafka_cleanshutdown")
    assert disk.exists("/b/.kafka_cleanshutdown")
    manager = restart(disk, "/a", "/b")
    recovered = {log.topic_partition.partition for _, log in manager.logs() if log.recovery is not None}
    assert recovered == {0, 2}


def test_what_recovery_cut_is_logged_once_with_file_and_position(caplog: pytest.LogCaptureFixture) -> None:
    disk = ForgetfulDisk()
    log = create(restart(disk), "t")
    append_values(log, b"a")
    flush(log)
    file = disk.open("/data/t-0/00000000000000000000.log", writable=True)
    file.append([b"torn"])
    file.sync()
    disk.crash()
    with caplog.at_level(logging.INFO):
        restart(disk)
    assert "log recovered: partition=t-0 from=0 end=1 segments=1 batches=1 bytes_cut=4" in caplog.text
    (cut,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert cut.startswith("log cut: path=/data/t-0/00000000000000000000.log position=")


def test_each_cut_of_recovery_is_logged_with_file_place_and_number_of_bytes_and_each_removed_segment_with_its_files(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    size = len(make_batch([b"a"]))
    first, second = "/data/t-0/00000000000000000000.log", "/data/t-1/00000000000000000002.log"
    for partition in (0, 1):
        log = create(manager, "t", partition, LogConfig(segment_bytes=2 * size))
        for value in (b"a", b"b", b"c"):
            append_values(log, value)
        flush(log)
    for path, left in ((first, 2 * size - 5), (second, size - 7)):
        file = disk.open(path, writable=True)
        file.truncate(left)
        file.sync()
    disk.crash()
    with caplog.at_level(logging.WARNING):
        restart(disk)
    assert f"log cut: path={first} position={size} bytes={size - 5} offset=1 reason=" in caplog.text
    assert f"log cut: path={second} position=0 bytes={size - 7} offset=2 reason=" in caplog.text
    (removed,) = [line for line in caplog.text.splitlines() if "segment removed: " in line]
    assert len(caplog.records) == 3, "each once"
    assert "segment removed: paths=" in removed
    assert "/data/t-0/00000000000000000002.log" in removed
    assert f"bytes={size} reason=follows the cut at offset 1" in removed


def test_a_recovery_point_beyond_the_log_is_lowered_on_disk_before_anything_is_appended() -> None:
    """Else the records that take those offsets would be believed to be synced after the next crash."""
    disk = ForgetfulDisk()
    manager = restart(disk)
    append_values(create(manager, "t"), b"a", b"b", b"c")
    manager.shutdown()
    disk.remove("/data/.kafka_cleanshutdown")
    log_file = disk.open("/data/t-0/00000000000000000000.log", writable=True)
    log_file.truncate(0)
    log_file.sync()
    disk.sync_directory("/data")
    disk.crash()
    accept_loss(disk, "/data", [T0])
    restart(disk)
    disk.crash()
    assert parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "") == {T0: 0}


def test_on_a_full_disk_a_log_waits_for_its_lower_recovery_point_and_the_others_are_served() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    for partition in (0, 1):
        append_values(create(manager, "t", partition), b"a", b"b", b"c")
    manager.shutdown()
    disk.remove("/data/.kafka_cleanshutdown")
    disk.open("/data/t-0/00000000000000000000.log", writable=True).truncate(0)
    accept_loss(disk, "/data", [T0])
    full = [True]

    def fail(operation: str, path: str) -> bool:
        if full[0] and operation == "write_atomically" and path.endswith(RECOVERY_POINTS):
            raise StorageError("no space left on device", path=path, no_space=True)
        return False

    disk.fail = fail
    manager = restart(disk)
    assert manager.get(T0) is None
    assert "no space" in str(manager.problem(T0))
    other = manager.get(TopicPartition("t", 1))
    assert other is not None
    assert values_of(other) == [b"a", b"b", b"c"]
    drain(manager.retry_full(NOW_MS))
    assert manager.get(T0) is None
    full[0] = False
    drain(manager.retry_full(NOW_MS))
    assert manager.get(T0) is not None
    assert parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "")[T0] == 0


@pytest.mark.parametrize("is_recreated", ["with room", "without room, then tried again", "in a folder made before"])
def test_what_takes_the_name_of_a_partition_that_was_deleted_on_a_full_disk_is_not_taken_for_it_after_a_crash(is_recreated: str) -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    append_values(log, b"a", b"b")
    flush(log)
    drain(manager.checkpoint())
    disk.capacity = disk.used()
    manager.mark_deleted([T0], NOW_MS)
    drain(manager.settle_deleted())
    assert parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "") == {T0: 2}
    if is_recreated.startswith("without"):
        with pytest.raises(StorageError, match="no space"):
            create(manager, "t")
    disk.capacity = None
    if is_recreated.startswith("without"):
        drain(manager.retry_full(NOW_MS))
        assert parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "") == {}
    if is_recreated.startswith("in"):
        drain(manager.make_folders([(T0, TOPIC_ID)]))
    log = create(manager, "t")
    append_values(log, b"c")
    flush(log)
    disk.crash()
    log_after = restart(disk).get(T0)
    assert log_after is not None
    assert values_of(log_after) == [b"c"]


def test_a_partition_that_is_deleted_while_full_logs_are_tried_again_is_not_made_again() -> None:
    disk = ForgetfulDisk()
    append_values(create(manager := restart(disk), "t"), b"a")
    manager.shutdown()
    disk.remove("/data/.kafka_cleanshutdown")

    def fail(operation: str, path: str) -> bool:
        if "/t-0/" in path and operation != "read":
            raise StorageError("no space left on device", path=path, no_space=True)
        return False

    disk.fail = fail
    manager = restart(disk)
    assert manager.get(T0) is None
    disk.fail = None
    steps = manager.retry_full(NOW_MS)
    next(steps)
    manager.delete([T0], NOW_MS)
    drain(steps)
    assert not disk.exists("/data/t-0")


def test_damaged_checkpoints_cost_time_but_no_records() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    append_values(create(manager, "t"), b"a")
    manager.shutdown()
    disk.remove("/data/.kafka_cleanshutdown")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        disk.write_atomically(f"/data/{name}", b"garbage")
    log = restart(disk).get(T0)
    assert log is not None
    assert values_of(log) == [b"a"]


def test_deleted_records_stay_deleted_over_a_crash_after_a_checkpoint() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    append_values(log, b"a", b"b", b"c")
    flush(log)
    log.delete_records(2)
    drain(manager.checkpoint())
    disk.crash()
    log_after = restart(disk).get(T0)
    assert log_after is not None
    assert (log_after.start_offset, log_after.log_end_offset) == (2, 3)


def test_no_checkpoint_has_a_log_begin_beyond_what_is_on_disk(caplog: pytest.LogCaptureFixture) -> None:
    """A start offset beyond the end that a power cut has left would not be used."""
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    append_values(log, b"a", b"b")
    flush(log)
    append_values(log, b"c", b"d")
    log.delete_records(4)
    drain(manager.checkpoint())
    disk.crash()
    log_after = restart(disk).get(T0)
    assert log_after is not None
    assert (log_after.start_offset, log_after.log_end_offset) == (2, 2)
    assert "start offset not used" not in caplog.text


# Whose directory


def test_a_directory_is_used_by_one_broker_at_a_time() -> None:
    disk = ForgetfulDisk()
    first = restart(disk)
    second = manager_over(disk)
    with pytest.raises(LockHeldError, match=r"/data/\.lock"):
        second.start(NOW_MS)
    first.shutdown()
    second.start(NOW_MS)


def test_a_start_that_is_refused_gives_the_other_locks_back() -> None:
    disk = ForgetfulDisk()
    blocker = restart(disk, "/b")
    with pytest.raises(LockHeldError):
        restart(disk, "/a", "/b")
    blocker.shutdown()
    restart(disk, "/a", "/b")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version=0\nbroker.id=0\ncluster.id=" + CLUSTER.encode(), "was written by another system"),
        (b"version=1\nnode.id=0\ncluster.id=" + CLUSTER.encode(), "was written by another system"),
        (b"version=0\nmoldau=made\nbroker.id=0\ncluster.id=x", r"this broker to .* \(another --metadata .* has the metadata of x\)"),
        (b"version=0\nmoldau=made\nbroker.id=7\ncluster.id=" + CLUSTER.encode(), "belongs to broker 7, this is broker 0"),
    ],
)
def test_the_directory_of_somebody_else_is_refused_and_untouched(content: bytes, reason: str) -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/data")
    disk.write_atomically("/data/meta.properties", content)
    with pytest.raises(ForeignDirectoryError, match=f"{reason}.*--adopt"):
        restart(disk)
    assert disk.list("/data") == ["meta.properties"]
    assert disk.read("/data/meta.properties") == content


def test_partition_folders_without_properties_are_somebody_elses() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/data/t-0")
    with pytest.raises(ForeignDirectoryError, match=r"holds 1 partition folders \(t-0, \.\.\.\) but no meta.properties"):
        restart(disk)


def test_damaged_properties_take_the_directory_offline_and_not_the_others() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/a")
    disk.write_atomically("/a/meta.properties", b"version=9")
    manager = restart(disk, "/a", "/b")
    assert [description.error is None for description in manager.describe()] == [False, True]
    with pytest.raises(AllDirectoriesFailedError, match=r"/a/meta\.properties, line 1: version 9"):
        restart(disk, "/a")


# Partitions that cannot be opened


def test_a_batch_of_an_old_format_keeps_its_partition_offline_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    for partition in (0, 1):
        append_values(create(manager, "t", partition), b"a")
    manager.shutdown()
    body = struct.pack(">bbqii", 1, 0, NOW_MS, -1, 3) + b"old"
    message = struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body
    file = disk.open("/data/t-1/00000000000000000000.log", writable=True)
    file.truncate(0)
    file.append([message])
    disk.remove("/data/.kafka_cleanshutdown")
    with caplog.at_level(logging.ERROR):
        manager = restart(disk)
    assert manager.get(T0) is not None
    assert manager.get(TopicPartition("t", 1)) is None
    expected = "t-1/00000000000000000000.log: batch of message format 1 at byte 0, offset 0"
    assert expected in caplog.text
    assert expected in str(manager.problem(TopicPartition("t", 1)))
    with pytest.raises(PeerError, match="t-1 is offline") as caught:
        create(manager, "t", 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.shutdown()
    assert disk.read("/data/t-1/00000000000000000000.log") == message
    assert not disk.exists("/data/.kafka_cleanshutdown"), "that log still has to be recovered"


def test_a_batch_of_an_old_format_met_later_takes_nothing_offline(caplog: pytest.LogCaptureFixture) -> None:
    manager = restart(ForgetfulDisk())
    create(manager, "t")
    manager.storage_failed(T0, OldFormatError("/data/t-0/00000000000000000000.log", 4711, 12, 1))
    assert manager.get(T0) is not None
    assert "batch of message format 1 at byte 4711, offset 12" in caplog.text


def test_a_damaged_topic_id_keeps_its_partition_offline() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    create(manager, "t")
    manager.shutdown()
    disk.write_atomically("/data/t-0/partition.metadata", b"???")
    manager = restart(disk)
    assert manager.partitions() == [T0]
    assert manager.get(T0) is None
    assert "/data/t-0/partition.metadata, line 1" in str(manager.problem(T0))
    manager.shutdown()
    assert disk.exists("/data/.kafka_cleanshutdown"), "it was as clean before, and nobody wrote to it"


def test_a_folder_that_could_not_be_made_whole_does_not_come_back_beside_the_one_in_another_directory() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk, "/a", "/b")
    disk.fail = lambda operation, path: operation == "open" and path == "/a/t-0/00000000000000000000.log"
    create(manager, "t")
    disk.fail = None
    disk.crash()
    manager = restart(disk, "/a", "/b")
    assert manager.problem(T0) is None
    assert not disk.exists("/a/t-0")
    assert disk.exists("/b/t-0")


def test_what_is_no_partition_is_left_alone() -> None:
    disk = ForgetfulDisk()
    restart(disk).shutdown()
    for name in ("lost+found", "__cluster_metadata-0", "t-0.0123-future", "t-1.0123-stray"):
        disk.make_directory(f"/data/{name}")
    disk.write_atomically(
        "/data/t-0.0123-future/00000000000000000000.log", b"of another system: an empty folder is ours, from before a crash"
    )
    disk.write_atomically("/data/notes-1", b"a file, not a folder")
    before = [name for name in disk.list("/data") if not name.startswith(".")]
    manager = restart(disk)
    drain(manager.apply_retention(NOW_MS))
    drain(manager.remove_due(NOW_MS + 10**12))
    manager.shutdown()
    assert manager.partitions() == []
    assert [name for name in disk.list("/data") if not name.startswith(".")] == before


# Creating and deleting


def test_a_folder_that_is_no_log_of_ours_is_not_written_into() -> None:
    """Kafka's own log of cluster metadata stays as it is even if somebody asks for a topic of that name."""
    disk = ForgetfulDisk()
    manager = restart(disk)
    disk.make_directory("/data/__cluster_metadata-0")
    with pytest.raises(PeerError, match="__cluster_metadata-0 is there"):
        create(manager, "__cluster_metadata")
    assert disk.list("/data/__cluster_metadata-0") == []


def test_partitions_spread_over_the_directories() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk, "/a", "/b", "/c")
    for partition in range(7):
        create(manager, "t", partition)
    assert [len(list(description.partitions)) for description in manager.describe()] == [3, 2, 2]
    manager.shutdown()
    manager = restart(disk, "/a", "/b", "/c")
    create(manager, "u")
    assert [len(list(description.partitions)) for description in manager.describe()] == [3, 3, 2]


def test_creating_what_is_there_gives_the_log_with_the_new_settings() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    assert manager.create(T0, TOPIC_ID, LogConfig(retention_ms=5), NOW_MS) is log
    assert log.config.retention_ms == 5


def test_a_folder_without_an_id_gets_the_one_of_its_topic() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    create(manager, "t")
    manager.shutdown()
    disk.remove("/data/t-0/partition.metadata")
    manager = restart(disk)
    assert manager.topic_id(T0) is None
    create(manager, "t")
    disk.crash()
    assert restart(disk).topic_id(T0) == TOPIC_ID


def test_the_folder_of_an_earlier_topic_of_that_name_is_set_aside_whole() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    append_values(create(manager, "t"), b"old")
    manager.shutdown()
    manager = restart(disk)
    log = manager.create(T0, OTHER_ID, LogConfig(), NOW_MS)
    assert (log.start_offset, log.log_end_offset) == (0, 0)
    [stray] = [name for name in disk.list("/data") if name.endswith("-stray")]
    assert b"old" in disk.read(f"/data/{stray}/00000000000000000000.log")
    disk.crash()
    manager = restart(disk)
    assert manager.topic_id(T0) == OTHER_ID
    assert disk.exists(f"/data/{stray}")


def test_a_deleted_partition_is_gone_at_once_and_its_bytes_after_the_delay() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    append_values(create(manager, "t", config=LogConfig(file_delete_delay_ms=1000)), b"a")
    create(manager, "kept")
    assert manager.delete([T0, TopicPartition("unknown", 0)], NOW_MS) == []
    assert manager.get(T0) is None
    assert manager.partitions() == [TopicPartition("kept", 0)]
    [marked] = [name for name in disk.list("/data") if name.endswith("-delete")]
    assert manager.next_removal_ms() == NOW_MS + 1000
    assert drain(manager.remove_due(NOW_MS + 999)) == 0
    assert disk.exists(f"/data/{marked}")
    assert drain(manager.remove_due(NOW_MS + 1000)) == 1
    assert not disk.exists(f"/data/{marked}")


def test_a_deletion_survives_a_crash_and_is_finished_by_the_next_start() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    append_values(create(manager, "t"), b"a")
    drain(manager.checkpoint())
    manager.delete([T0], NOW_MS)
    disk.crash()
    assert parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "") == {}, "a new t-0 must not inherit the recovery point"
    manager = restart(disk)
    assert manager.partitions() == []
    assert drain(manager.remove_due(NOW_MS)) == 1
    assert disk.list("/data") == [".lock", LOG_STARTS, "meta.properties", RECOVERY_POINTS, HIGH_WATERMARKS]


def test_a_deletion_that_was_killed_before_its_checkpoint_leaves_nothing_to_a_new_partition_of_that_name() -> None:
    disk = ForgetfulDisk()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    log = create(manager, "t")
    for _ in range(10):
        append_values(log, b"x")
    flush(log)
    log.delete_records(5)
    drain(manager.checkpoint())
    disk.rename("/data/t-0", f"/data/t-0.{'0' * 32}-delete")
    disk.sync_directory("/data")
    disk.crash()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    for name in (RECOVERY_POINTS, LOG_STARTS):
        assert parse_offsets(disk.read(f"/data/{name}"), name) == {}, "on disk: a crash must not find them either"
    log = create(manager, "t")
    assert (log.start_offset, log.log_end_offset) == (0, 0)


def test_a_deletion_is_durable_also_when_no_checkpoint_has_to_be_written() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    for _ in range(2):
        create(manager, "t")
        manager.delete([T0], NOW_MS)
    disk.crash()
    assert restart(disk).partitions() == []


def test_a_late_checkpoint_of_the_background_never_replaces_a_newer_one() -> None:
    """Checkpoints written by a thread that was slow would bring back the recovery point of a deleted partition."""
    disk = ForgetfulDisk()
    waiting: list[Callable[[], object]] = []

    class Slow:
        def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
            waiting.append(work)

    manager = LogManager(disk, ["/data"], LogConfig(), broker_id=0, cluster_id=CLUSTER, random_bytes=bytes, background=Slow())
    manager.start(NOW_MS)
    log = create(manager, "t")
    append_values(log, b"a")
    flush(log)
    drain(manager.checkpoint())
    manager.delete([T0], NOW_MS)
    for work in waiting:
        work()
    assert parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "") == {}


# Retention


def test_retention_takes_segments_out_of_use_and_removes_them_after_the_delay() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t", config=LogConfig(segment_bytes=100, retention_bytes=100, file_delete_delay_ms=1000))
    for _ in range(5):
        append_values(log, b"x" * 20)
    assert drain(manager.apply_retention(NOW_MS)) > 0
    assert any(name.endswith(".deleted") for name in disk.list("/data/t-0"))
    drain(manager.remove_due(NOW_MS + 999))
    assert any(name.endswith(".deleted") for name in disk.list("/data/t-0"))
    drain(manager.remove_due(NOW_MS + 1000))
    assert not any(name.endswith(".deleted") for name in disk.list("/data/t-0"))
    assert log.start_offset > 0


def test_nothing_of_an_unregistered_topic_is_ever_removed() -> None:
    disk = ForgetfulDisk()
    config = LogConfig(segment_bytes=100, retention_bytes=0, retention_ms=0, file_delete_delay_ms=0)
    manager = restart(disk, config=config)
    log = create(manager, "t", config=config)
    for _ in range(5):
        append_values(log, b"x" * 20)
    manager.shutdown()
    manager = restart(disk, config=config)
    assert drain(manager.apply_retention(NOW_MS + 10**12)) == 0
    assert manager.get(T0) is not None


# Disks


def test_a_failing_directory_goes_offline_alone() -> None:
    told: list[tuple[str, list[TopicPartition]]] = []
    disk = ForgetfulDisk()
    manager = LogManager(
        disk,
        ["/a", "/b"],
        LogConfig(),
        broker_id=0,
        cluster_id=CLUSTER,
        random_bytes=bytes,
        on_offline=lambda path, partitions: told.append((path, partitions)),
    )
    manager.start(NOW_MS)
    lost, good = create(manager, "t", 0), create(manager, "t", 1)
    append_values(lost, b"a")
    disk.fail = lambda _operation, path: path.startswith("/a")
    with pytest.raises(StorageError) as caught:
        append_values(lost, b"b")
    manager.storage_failed(T0, caught.value)
    assert told == [("/a", [T0])]
    assert manager.get(T0) is None
    assert "input/output error" in str(manager.problem(T0))
    append_values(good, b"still")
    assert values_of(good) == [b"still"]
    assert not manager.all_failed
    create(manager, "t", 2)
    with pytest.raises(PeerError, match="t-9 may be in a log directory that is offline"):
        manager.create(TopicPartition("t", 9), TOPIC_ID, LogConfig(), NOW_MS, is_new=False)
    assert manager.delete([T0], NOW_MS) == [T0]
    first, second = manager.describe()
    assert (first.path, list(first.partitions)) == ("/a", [])
    assert first.error is not None
    assert second.error is None
    drain(manager.checkpoint())
    manager.shutdown()
    disk.fail = None
    assert not disk.exists("/a/.kafka_cleanshutdown")
    assert disk.exists("/b/.kafka_cleanshutdown")
    manager = restart(disk, "/a", "/b")
    assert sorted(manager.partitions()) == [TopicPartition("t", number) for number in range(3)]
    assert manager.statistics()["partitions"] == 3


@pytest.mark.parametrize(("at_shutdown", "altogether"), [(False, False), (True, False), (False, True)])
def test_after_a_failed_sync_a_start_believes_the_disk_and_not_what_memory_still_has(at_shutdown: bool, altogether: bool) -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    append_values(log, b"safe")
    flush(log)
    drain(manager.checkpoint())
    append_values(log, b"lost")
    disk.fail = lambda operation, path: operation == "sync" and path.endswith(".log")
    if at_shutdown:
        manager.shutdown()
    else:
        with pytest.raises(StorageError) as caught:
            flush(log)
        if altogether:  # it cannot be marked either
            disk.fail = lambda _operation, _path: True
        manager.storage_failed(T0, caught.value)
        assert disk.exists("/data/.moldau_failed") is not altogether
    disk.fail = None

    manager = restart(disk)  # another process, while the machine has gone on
    found = manager.get(T0)
    assert found is not None
    assert values_of(found) == [b"safe"]
    append_values(found, b"new")
    flush(found)
    drain(manager.checkpoint())
    disk.crash()
    found = restart(disk).get(T0)
    assert found is not None
    assert values_of(found) == [b"safe", b"new"], "with the lost bytes between them the file would have a hole here"
    assert ".moldau_failed" not in disk.list("/data")


def test_a_start_after_a_kill_reads_what_the_process_had_written_and_not_synced() -> None:
    disk = ForgetfulDisk()
    append_values(create(restart(disk), "t"), b"written")
    disk.crashes += 1  # the process is gone, with its lock; the machine is not
    disk._locks.clear()
    found = restart(disk).get(T0)
    assert found is not None
    assert values_of(found) == [b"written"]


def test_the_last_directory_that_fails_is_told() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    create(manager, "t")
    drain(manager.checkpoint())
    disk.fail = lambda operation, _path: operation == "sync"
    drain(manager.checkpoint())
    assert not manager.all_failed, "nothing had changed since the last one"
    disk.fail = lambda _operation, _path: True
    with pytest.raises(StorageError):
        create(manager, "u")
    assert manager.all_failed
    with pytest.raises(AllDirectoriesFailedError):
        create(manager, "u")


def test_the_loss_of_the_last_directory_is_told_once() -> None:
    told: list[AllDirectoriesFailedError] = []
    manager = manager_with(on_all_failed=told.append)
    manager.start(NOW_MS)
    for number in range(4):  # in /a, /b, /a, /b
        create(manager, "t", number)
    for number, path in ((0, "/a"), (2, "/a"), (1, "/b"), (3, "/b")):
        manager.storage_failed(TopicPartition("t", number), StorageError("gone", path=path))
        assert len(told) == (path == "/b")
    assert "/a: gone; /b: gone" in str(told[0])


def test_a_shortage_is_told_with_its_reason_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    seconds = [0.0]
    manager = manager_with(monotonic=lambda: seconds[0])
    manager.start(NOW_MS)
    create(manager, "t")
    caplog.clear()
    for now in (0.0, 0.5, 1.0, 1.9):
        seconds[0] = now
        manager.storage_failed(T0, StorageError("Too many open files", path="/a/t-0/x", no_space=True))
    assert caplog.messages == ["storage short: path=/a/t-0/x reason=Too many open files"] * 2
    assert not manager.all_failed


def test_a_start_that_is_refused_for_one_directory_has_written_into_none() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/b")
    disk.write_atomically("/b/meta.properties", b"version=0\nbroker.id=0\ncluster.id=another\n")
    with pytest.raises(ForeignDirectoryError, match="/b"):
        manager_with(disk).start(NOW_MS)
    assert not disk.exists("/a")
    assert disk.list("/b") == ["meta.properties"]


def test_the_log_names_the_directories_loaded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    manager_with().start(NOW_MS)
    assert any(message.startswith("logs loaded: paths=/a,/b directories=2 ") for message in caplog.messages)


def manager_with(disk: ForgetfulDisk | None = None, **options: Any) -> LogManager:
    """A manager of two directories that has not been started."""
    disk = ForgetfulDisk() if disk is None else disk
    return LogManager(disk, ["/a", "/b"], LogConfig(), broker_id=0, cluster_id=CLUSTER, random_bytes=bytes, **options)


def test_a_full_disk_takes_nothing_offline() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    append_values(log, b"a")
    disk.capacity = disk.used()
    with pytest.raises(StorageError) as caught:
        append_values(log, b"b")
    manager.storage_failed(T0, caught.value)
    drain(manager.checkpoint())
    with pytest.raises(StorageError) as caught:
        create(manager, "u")
    assert caught.value.no_space
    assert not disk.exists("/data/u-0")
    assert not manager.all_failed
    assert values_of(log) == [b"a"]
    disk.capacity = None
    append_values(log, b"b")
    assert values_of(log) == [b"a", b"b"]
    create(manager, "u")


def test_a_directory_that_cannot_be_listed_at_start_goes_offline_alone() -> None:
    disk = ForgetfulDisk()
    restart(disk, "/a", "/b").shutdown()
    disk.fail = lambda operation, path: operation == "list" and path == "/a"
    manager = restart(disk, "/a", "/b")
    assert [description.error is None for description in manager.describe()] == [False, True]


def test_description_tells_sizes_and_space() -> None:
    disk = ForgetfulDisk(capacity=1_000_000)
    manager = restart(disk)
    log = create(manager, "t")
    append_values(log, b"a")
    [description] = manager.describe()
    [partition] = description.partitions
    assert (partition.topic_partition, partition.size_bytes, partition.offset_lag) == (T0, log.size_bytes, 0)
    assert description.total_bytes == 1_000_000
    assert 0 < description.usable_bytes < 1_000_000


# Folders and files that are gone, or are none


def registered(disk: ForgetfulDisk, *directories: str) -> LogManager:
    """A manager for which topic t is registered, started."""
    manager = LogManager(
        disk,
        directories or ("/data",),
        LogConfig(),
        broker_id=0,
        cluster_id=CLUSTER,
        random_bytes=Random(0).randbytes,
        topic_config=lambda topic: LogConfig() if topic == "t" else None,
    )
    manager.start(NOW_MS)
    return manager


@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_that_is_gone_keeps_its_partition_offline_until_the_loss_is_accepted(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It once came back as an empty log, without a line."""
    disk = ForgetfulDisk()
    manager = registered(disk)
    append_values(create(manager, "t"), b"a")
    drain(manager.checkpoint())
    if clean:
        manager.shutdown()
    else:
        disk.crash()
    disk.remove_tree("/data/t-0")
    disk.sync_directory("/data")
    disk.crash()
    for _ in range(2):  # nor does a second start take it for new
        manager = registered(disk)
        assert manager.get(T0) is None
        assert "/data/t-0 is missing" in str(manager.problem(T0))
        with pytest.raises(PeerError) as refused:
            create(manager, "t")
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not disk.exists("/data/t-0")
        manager.shutdown()
    assert "partition offline: partition=t-0 reason=/data/t-0 is missing" in caplog.text
    assert "moldau log accept-loss /data t-0" in caplog.text
    accept_loss(disk, "/data", [T0])
    manager = registered(disk)
    assert create(manager, "t").log_end_offset == 0
    assert not disk.exists("/data/.moldau_accepted_loss")
    assert "loss accepted: partition=t-0 folder=/data/t-0" in caplog.text


def test_a_partition_that_never_had_a_folder_is_new() -> None:
    """The metadata is committed before the folder is made, and a crash may come between."""
    disk = ForgetfulDisk()
    registered(disk).shutdown()
    manager = registered(disk)
    assert manager.problem(T0) is None
    assert create(manager, "t").log_end_offset == 0


def test_a_deleted_topics_lines_in_checkpoints_are_no_loss() -> None:
    disk = ForgetfulDisk()
    manager = registered(disk)
    create(manager, "u")
    manager.shutdown()
    disk.remove_tree("/data/u-0")
    manager = registered(disk)
    assert manager.partitions() == []


def test_a_folder_that_was_moved_to_another_directory_is_not_lost() -> None:
    disk = ForgetfulDisk()
    manager = registered(disk, "/a", "/b")
    append_values(create(manager, "t"), b"a")
    manager.shutdown()
    disk.make_directory("/b/t-0")
    for name in disk.list("/a/t-0"):
        disk.write_atomically(f"/b/t-0/{name}", disk.read(f"/a/t-0/{name}"))
    disk.remove_tree("/a/t-0")
    for _ in range(2):
        manager = registered(disk, "/a", "/b")
        log = manager.get(T0)
        assert log is not None
        assert values_of(log) == [b"a"]
        manager.shutdown()


def test_a_lost_partition_can_be_deleted_with_its_topic() -> None:
    disk = ForgetfulDisk()
    manager = registered(disk)
    create(manager, "t")
    manager.shutdown()
    disk.remove_tree("/data/t-0")
    manager = registered(disk)
    assert manager.delete([T0], NOW_MS) == []
    drain(manager.remove_due(NOW_MS + 10**9))
    manager.shutdown()
    assert registered(disk).partitions() == []


@pytest.mark.parametrize("kind", ["a symbolic link", "a FIFO"])
def test_a_folder_that_is_a_link_is_neither_followed_nor_replaced(kind: str) -> None:
    """A folder linked to /etc was once written into."""
    disk = ForgetfulDisk()
    registered(disk).shutdown()
    disk.make_directory("/etc")
    disk.make_special("/data/t-0", kind, "/etc" if "link" in kind else None)
    manager = registered(disk)
    assert "/data/t-0: is not a directory" in str(manager.problem(T0))
    with pytest.raises(PeerError):
        create(manager, "t")
    create(manager, "t", 1)
    manager.delete([T0], NOW_MS)
    drain(manager.remove_due(NOW_MS + 10**9))
    manager.shutdown()
    assert disk.list("/etc") == []
    assert disk.exists("/data/.kafka_cleanshutdown"), "the directory itself is sound"


@pytest.mark.parametrize("name", ["00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"])
@pytest.mark.parametrize("kind", ["a symbolic link", "a FIFO", "a directory"])
def test_a_file_that_is_none_keeps_its_partition_offline_and_no_other(name: str, kind: str) -> None:
    disk = ForgetfulDisk()
    manager = registered(disk)
    append_values(create(manager, "t"), b"a")
    append_values(create(manager, "t", 1), b"b")
    manager.shutdown()
    if disk.exists(f"/data/t-0/{name}"):
        disk.remove(f"/data/t-0/{name}")
    if kind == "a directory":
        disk.make_directory(f"/data/t-0/{name}")
    else:
        disk.make_special(f"/data/t-0/{name}", kind, "/data/meta.properties" if "link" in kind else None)
    manager = registered(disk)
    assert f"/data/t-0/{name}: is {kind}, not a regular file; move it away" in str(manager.problem(T0))
    other = manager.get(TopicPartition("t", 1))
    assert other is not None
    assert values_of(other) == [b"b"]


def test_a_folder_removed_under_a_running_broker_takes_its_partition_offline_and_no_other() -> None:
    """Appends go on into files without a name, so the next checkpoint looks whether they still have one."""
    disk = ForgetfulDisk()
    told: list[tuple[str, list[TopicPartition]]] = []
    manager = LogManager(
        disk,
        ["/data"],
        LogConfig(),
        broker_id=0,
        cluster_id=CLUSTER,
        random_bytes=Random(0).randbytes,
        topic_config=lambda _topic: LogConfig(),
        on_offline=lambda path, partitions: told.append((path, partitions)),
    )
    manager.start(NOW_MS)
    append_values(create(manager, "t"), b"a")
    other = create(manager, "t", 1)
    disk.remove_tree("/data/t-0")
    drain(manager.checkpoint())
    assert told == [("/data", [T0])]
    assert "00000000000000000000.log: is missing" in str(manager.problem(T0))
    append_values(other, b"b")
    assert values_of(other) == [b"b"]
    manager.shutdown()
    manager = registered(disk)
    assert "/data/t-0 is missing" in str(manager.problem(T0))
    left = manager.get(TopicPartition("t", 1))
    assert left is not None
    assert values_of(left) == [b"b"]


def test_a_file_that_is_gone_takes_its_partition_offline_and_a_disk_that_is_gone_its_directory() -> None:
    disk = ForgetfulDisk()
    manager = registered(disk, "/a", "/b")
    for partition in range(4):
        create(manager, "t", partition)
    manager.storage_failed(T0, MissingFileError("no such file", path="/a/t-0/00000000000000000000.log"))
    assert manager.get(T0) is None
    assert sorted(key.partition for key, _ in manager.logs()) == [1, 2, 3]
    disk.remove("/b/meta.properties")
    manager.storage_failed(TopicPartition("t", 1), MissingFileError("no such file", path="/b/t-1/x"))
    assert sorted(key.partition for key, _ in manager.logs()) == [2]


@pytest.mark.parametrize("damage", ["flipped", "emptied", "removed"])
@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_checkpoint_is_not_used_and_costs_nothing(name: str, damage: str, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = ForgetfulDisk()
    manager = registered(disk)
    log = create(manager, "t", config=LogConfig(segment_bytes=200))
    for value in (b"a", b"b", b"c", b"d"):
        append_values(log, value)
    log.delete_records(1)
    drain(manager.checkpoint())
    manager.shutdown()
    path = f"/data/{name}"
    if name == CLEANED:
        disk.write_atomically(path, format_offsets({T0: 3}))
    if damage == "flipped":
        data = disk.read(path)
        disk.write_atomically(path, data.replace(b"t 0 ", b"t 0 9"))
    elif damage == "emptied":
        disk.write_atomically(path, b"")
    else:
        disk.remove(path)
    if not clean:
        disk.remove("/data/.kafka_cleanshutdown")
    manager = registered(disk)
    left = manager.get(T0)
    assert left is not None
    assert values_of(left)[-3:] == [b"b", b"c", b"d"]
    assert left.take_removed() == []
    if name != CLEANED or damage == "flipped":
        assert f"{path}" in caplog.text
        assert "checkpoint not used" in caplog.text or "checkpoint is missing or empty" in caplog.text


def hole_before(offset: int, value: bytes) -> memoryview:
    """A batch of a leader whose log was compacted."""
    batch = make_batch([value])
    stamp(batch, offset, 0)
    return batch


@pytest.mark.parametrize("how", ["killed", "no power", "stopped"])
def test_a_follower_keeps_what_it_fetched_of_a_log_that_was_compacted_before_its_policy_changed(how: str) -> None:
    """A hole would be damage to readers of a log that was never compacted, and after a crash its end."""
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    for offset in (0, 5, 9):
        log.append_as_follower(hole_before(offset, b"%d" % offset), NOW_MS, partial(manager.note_holes, T0))
    if how == "stopped":
        manager.shutdown()
    elif how == "killed":
        disk.process_ended()
    else:
        flush(log)
        disk.crash()
    found = restart(disk).get(T0)
    assert found is not None
    assert (found.log_end_offset, values_of(found)) == (10, [b"0", b"5", b"9"])


def test_a_mark_that_cannot_be_written_is_written_before_the_next_holes() -> None:
    disk = ForgetfulDisk()
    manager = restart(disk)
    log = create(manager, "t")
    disk.fail = lambda _operation, path: path.startswith("/data/cleaner-offset")
    with pytest.raises(StorageError):
        log.append_as_follower(hole_before(5, b"a"), NOW_MS, partial(manager.note_holes, T0))
    assert log.log_end_offset == 0
    disk.fail = None
    log.append_as_follower(hole_before(5, b"a"), NOW_MS, partial(manager.note_holes, T0))
    assert read_offsets(disk, f"/data/{CLEANED}") == {T0: 0}
