"""Folder names are parsed as Kafka parses them, and what is no partition's is recognised as such. Which folder is a partition's: neither
one of an earlier topic of that name nor one that was never used is taken for it, and a deleted one is not taken for a lost one.
"""

import logging
from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.checkpoints import RECOVERY_POINTS, parse_offsets
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.names import Folder, FolderKind, mark_of, marked_name, marks, parse_folder
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.testing.disk import ForgetfulDisk
from support.logs import CLUSTER, NOW_MS, TOPIC_ID, append_values, create, flush, values_of

HEX = "0123456789abcdef0123456789abcdef"
OTHER_ID = bytes(range(50, 66))
T0 = TopicPartition("t", 0)
A, B = "/a", "/b"


@pytest.mark.parametrize(
    ("name", "kind", "topic", "partition"),
    [
        ("orders-0", FolderKind.LOG, "orders", 0),
        ("a-b.c_d-17", FolderKind.LOG, "a-b.c_d", 17),
        ("t-1-2", FolderKind.LOG, "t-1", 2),
        ("__consumer_offsets-49", FolderKind.LOG, "__consumer_offsets", 49),
        (f"orders-3.{HEX}-delete", FolderKind.DELETE, "orders", 3),
        (f"o.r-d-3.{HEX}-stray", FolderKind.STRAY, "o.r-d", 3),
        (f"orders-3.{HEX}-future", FolderKind.FUTURE, "orders", 3),
        ("some-delete-3", FolderKind.LOG, "some-delete", 3),
    ],
)
def test_names_of_partitions(name: str, kind: FolderKind, topic: str, partition: int) -> None:
    assert parse_folder(name) == Folder(name, kind, TopicPartition(topic, partition))


@pytest.mark.parametrize(
    "name",
    ["", "-", "-0", "orders", "orders-", "orders-x", "orders--", "orders-2147483648", "orders-99999999999999999999", "orders-٣",
     "lost+found",
     "meta.properties", "__cluster_metadata-0", "remote-log-index-cache", f"orders.{HEX}-delete", "orders-0-delete", "orders-0.-delete"],
)  # fmt: skip
def test_names_that_are_no_partitions(name: str) -> None:
    assert parse_folder(name) is None


@given(st.integers(1, 249), st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16), st.sampled_from(list(FolderKind)[1:]))
def test_a_marked_name_fits_and_tells_its_kind(length: int, partition: int, unique: bytes, kind: FolderKind) -> None:
    name = marked_name(TopicPartition("t" * length, partition), kind, unique)
    assert len(name) <= 255
    folder = parse_folder(name)
    assert folder is not None
    assert folder.kind is kind
    assert folder.topic_partition.partition == partition
    if length < 190:
        assert folder.topic_partition.topic == "t" * length
    assert marks([name, "t-0"], kind) == {mark_of(TopicPartition("t" * length, partition), kind)}
    assert mark_of(TopicPartition("u" * length, partition), kind) not in marks([name], kind)
    assert mark_of(TopicPartition("t" * length, partition + 1), kind) not in marks([name], kind)


class ProcessKilledError(Exception):
    """The process ends in the middle of an operation."""


def start(disk: ForgetfulDisk, *paths: str) -> LogManager:
    """A manager for which topic t is registered, started."""
    config = LogConfig(file_delete_delay_ms=0)
    manager = LogManager(
        disk,
        paths,
        config,
        broker_id=0,
        cluster_id=CLUSTER,
        random_bytes=Random(disk.crashes).randbytes,
        topic_config=lambda topic: config if topic == "t" else None,
    )
    manager.start(NOW_MS)
    return manager


def crash(disk: ForgetfulDisk, *, power_cut: bool) -> None:
    if power_cut:
        disk.crash(Random(disk.crashes))
    else:
        disk.process_ended()


def checkpointed(disk: ForgetfulDisk, path: str, topic_id: bytes, *values: bytes) -> LogManager:
    """A directory with partition 0 of topic t, all of it on disk."""
    manager = start(disk, path)
    log = manager.create(T0, topic_id, LogConfig(file_delete_delay_ms=0), NOW_MS)
    for value in values:
        append_values(log, value)
    flush(log)
    drain(manager.checkpoint())
    return manager


def killed_after(disk: ForgetfulDisk, operations: int) -> Callable[[str, str], bool]:
    """A fault that ends the process after so many operations."""
    left = iter(range(operations))

    def fail(_operation: str, _path: str) -> bool:
        if next(left, None) is None:
            raise ProcessKilledError
        return False

    return fail


def kills(disk_of: Callable[[], ForgetfulDisk], work: Callable[[ForgetfulDisk], object]) -> Iterator[ForgetfulDisk]:
    """The disk after `work` was ended before each of its operations, by a kill and by a power cut; at last after all of it."""
    operations, is_killed = 0, True
    while is_killed:
        for power_cut in (False, True):
            disk, is_killed = disk_of(), False
            disk.fail = killed_after(disk, operations)
            try:
                work(disk)
            except ProcessKilledError:
                is_killed = True
            disk.fail, disk.capacity = None, None
            crash(disk, power_cut=power_cut)
            yield disk
        operations += 1


def stray_folders(disk: ForgetfulDisk, path: str) -> list[str]:
    return [name for name in disk.list(path) if name.endswith("-stray")]


# A deleted partition is not a lost one


@pytest.mark.parametrize("is_full", [False, True])
def test_a_deleted_partition_whose_topic_is_made_again_is_never_taken_for_a_lost_one(is_full: bool) -> None:
    """Wherever a kill or a power cut ends the deletion and the removal of its bytes, also where the disk takes no checkpoint."""

    def deleted(disk: ForgetfulDisk) -> None:
        manager = managers[-1]
        manager.delete([T0], NOW_MS)
        drain(manager.remove_due(NOW_MS))

    def disk_of() -> ForgetfulDisk:
        disk = ForgetfulDisk()
        managers.append(checkpointed(disk, A, TOPIC_ID, b"a", b"b"))
        if is_full:
            disk.capacity = disk.used()
        return disk

    managers: list[LogManager] = []
    ends = 0
    for disk in kills(disk_of, deleted):
        manager = start(disk, A)
        assert manager.problem(T0) is None
        log = manager.create(T0, OTHER_ID, LogConfig(), NOW_MS)
        append_values(log, b"c")
        flush(log)
        disk.crash()
        found = start(disk, A).get(T0)
        assert found is not None
        assert values_of(found) == [b"c"]
        ends += 1
    assert ends > 10


def test_the_folder_of_a_deleted_partition_stays_without_its_bytes_until_the_checkpoints_are_without_its_lines() -> None:
    disk = ForgetfulDisk()
    manager = checkpointed(disk, A, TOPIC_ID, b"a" * 1000)
    before = disk.used()
    disk.capacity = before
    manager.delete([T0], NOW_MS)
    assert drain(manager.remove_due(NOW_MS)) == 1
    [folder] = [name for name in disk.list(A) if name.endswith("-delete")]
    assert disk.list(f"{A}/{folder}") == []
    assert disk.used() < before - 1000
    assert parse_offsets(disk.read(f"{A}/{RECOVERY_POINTS}"), "") == {T0: 1}
    drain(manager.retry_full(NOW_MS))
    assert parse_offsets(disk.read(f"{A}/{RECOVERY_POINTS}"), "") == {}
    due_ms = manager.next_removal_ms()
    assert due_ms is not None
    drain(manager.remove_due(due_ms))
    assert not disk.exists(f"{A}/{folder}")
    assert manager.next_removal_ms() is None


def test_a_start_on_a_full_disk_makes_no_partition_over_the_lines_of_a_deleted_one() -> None:
    disk = ForgetfulDisk()
    manager = checkpointed(disk, A, TOPIC_ID, b"a", b"b")
    disk.capacity = disk.used()
    manager.delete([T0], NOW_MS)
    disk.process_ended()
    manager = start(disk, A)
    assert manager.problem(T0) is None
    drain(manager.make_folders([(T0, OTHER_ID)]))
    with pytest.raises(StorageError, match="no space"):
        manager.create(T0, OTHER_ID, LogConfig(), NOW_MS)
    disk.capacity = None
    append_values(log := manager.create(T0, OTHER_ID, LogConfig(), NOW_MS), b"c")
    flush(log)
    disk.crash()
    found = start(disk, A).get(T0)
    assert found is not None
    assert values_of(found) == [b"c"]


def test_a_folder_is_lost_also_beside_deleted_ones_of_other_partitions() -> None:
    disk = ForgetfulDisk()
    manager = checkpointed(disk, A, TOPIC_ID, b"a")
    others = [TopicPartition("t", 1), TopicPartition("tt", 0)]
    for other in others:
        manager.create(other, TOPIC_ID, LogConfig(), NOW_MS)
    manager.delete(others, NOW_MS)
    disk.process_ended()
    disk.remove_tree(f"{A}/t-0")
    assert "/a/t-0 is missing" in str(start(disk, A).problem(T0))


@pytest.mark.parametrize("count", [2, 20])
def test_a_start_after_a_deletion_that_no_checkpoint_knows_lists_its_directory_as_often_for_any_number_of_partitions(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ForgetfulDisk()
    manager = start(disk, A)
    deleted = [TopicPartition("t", number) for number in range(count)]
    for each in deleted:
        flush(manager.create(each, TOPIC_ID, LogConfig(), NOW_MS))
    drain(manager.checkpoint())
    disk.process_ended()
    for each in deleted:
        disk.rename(f"{A}/{each}", f"{A}/{marked_name(each, FolderKind.DELETE, bytes(16))}")
    listed, real = [], disk.list
    monkeypatch.setattr(disk, "list", lambda path: listed.append(path) or real(path))  # type: ignore[func-returns-value]
    manager = start(disk, A)
    assert [manager.problem(each) for each in deleted] == [None] * count
    assert listed.count(A) <= 3


# Which folder is the partition's


@pytest.mark.parametrize("right", [A, B])
@pytest.mark.parametrize("is_clean", [False, True])
def test_of_two_folders_the_one_with_the_topics_id_is_served_and_the_other_set_aside(
    right: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    wrong = B if right == A else A
    disk = ForgetfulDisk()
    for path, topic_id, value in ((wrong, TOPIC_ID, b"old"), (right, OTHER_ID, b"new")):
        manager = checkpointed(disk, path, topic_id, value)
        if is_clean:
            manager.shutdown()
    disk.process_ended()
    manager = start(disk, A, B)
    assert manager.get(T0) is None
    manager.choose_folder(T0, OTHER_ID, NOW_MS)
    log = manager.get(T0)
    assert log is not None
    assert values_of(log) == [b"new"]
    assert log.flushed_offset == 1, "its recovery point is still known"
    assert manager.create(T0, OTHER_ID, LogConfig(), NOW_MS) is log
    assert manager.topic_id(T0) == OTHER_ID
    [stray] = stray_folders(disk, wrong)
    assert stray_folders(disk, right) == []
    assert b"old" in disk.read(f"{wrong}/{stray}/00000000000000000000.log")
    assert parse_offsets(disk.read(f"{wrong}/{RECOVERY_POINTS}"), "") == {}
    assert f"set aside: folder={wrong}/t-0 path={wrong}/{stray}" in caplog.text
    disk.crash()
    manager = start(disk, A, B)
    assert manager.problem(T0) is None


def test_two_folders_of_earlier_topics_are_both_set_aside() -> None:
    disk = ForgetfulDisk()
    for path, topic_id in ((A, bytes(16)[:-1] + b"x"), (B, TOPIC_ID)):
        checkpointed(disk, path, topic_id, b"old")
    disk.process_ended()
    manager = start(disk, A, B)
    assert manager.create(T0, OTHER_ID, LogConfig(), NOW_MS).log_end_offset == 0
    assert [len(stray_folders(disk, path)) for path in (A, B)] == [1, 1]


def test_two_folders_of_the_topic_with_records_keep_their_partition_offline_and_stay() -> None:
    disk = ForgetfulDisk()
    for path in (A, B):
        checkpointed(disk, path, TOPIC_ID, path.encode())
    disk.process_ended()
    manager = start(disk, A, B)
    with pytest.raises(PeerError, match="two folders, /a/t-0 and /b/t-0") as refused:
        create(manager, "t")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [disk.exists(f"{path}/t-0") for path in (A, B)] == [True, True]


def test_of_two_folders_one_with_a_link_for_its_metadata_takes_no_other_partition_offline() -> None:
    disk = ForgetfulDisk()
    checkpointed(disk, A, TOPIC_ID, b"a")
    manager = checkpointed(disk, B, TOPIC_ID, b"b")
    append_values(manager.create(TopicPartition("t", 1), TOPIC_ID, LogConfig(), NOW_MS), b"other")
    disk.process_ended()
    disk.remove(f"{B}/t-0/partition.metadata")
    disk.make_special(f"{B}/t-0/partition.metadata", "link", f"{A}/t-0/partition.metadata")
    other = start(disk, A, B).get(TopicPartition("t", 1))
    assert other is not None
    assert values_of(other) == [b"other"]


@pytest.mark.parametrize("has_id", [False, True])
@pytest.mark.parametrize("unused", [A, B])
def test_a_folder_that_never_held_a_record_is_set_aside_for_the_one_that_did(unused: str, has_id: bool) -> None:
    """A power cut brings back what was made and removed again in a directory that could not be synced."""
    used = B if unused == A else A
    disk = ForgetfulDisk()
    checkpointed(disk, unused, TOPIC_ID)
    if not has_id:
        disk.remove(f"{unused}/t-0/partition.metadata")
    checkpointed(disk, used, TOPIC_ID, b"a")
    disk.process_ended()
    manager = start(disk, A, B)
    assert values_of(create(manager, "t")) == [b"a"]
    assert len(stray_folders(disk, unused)) == 1


def test_of_two_folders_that_never_held_a_record_one_is_used() -> None:
    disk = ForgetfulDisk()
    for path in (A, B):
        checkpointed(disk, path, TOPIC_ID)
    disk.process_ended()
    manager = start(disk, A, B)
    assert create(manager, "t").log_end_offset == 0
    assert [len(stray_folders(disk, path)) for path in (A, B)] == [0, 1]


def test_a_topic_that_is_made_while_a_folder_of_an_earlier_one_is_set_aside_is_never_taken_for_lost() -> None:
    """Wherever a kill or a power cut ends it."""

    def disk_of() -> ForgetfulDisk:
        disk = ForgetfulDisk()
        checkpointed(disk, A, TOPIC_ID, b"old", b"old")
        disk.process_ended()
        managers.append(start(disk, A))
        return disk

    managers: list[LogManager] = []
    ends = 0
    for disk in kills(disk_of, lambda _disk: managers[-1].create(T0, OTHER_ID, LogConfig(), NOW_MS)):
        manager = start(disk, A)
        assert manager.problem(T0) is None
        assert manager.create(T0, OTHER_ID, LogConfig(), NOW_MS).log_end_offset == 0
        ends += 1
    assert ends > 10


@pytest.mark.parametrize("has_room", [False, True])
def test_a_folder_of_an_earlier_topic_that_cannot_be_set_aside_keeps_the_partition_offline(has_room: bool) -> None:
    disk = ForgetfulDisk()
    checkpointed(disk, A, TOPIC_ID, b"old")
    disk.process_ended()
    manager = start(disk, A)
    if has_room:
        disk.fail = lambda operation, _path: operation == "rename"
    else:
        disk.capacity = disk.used()
    with pytest.raises(PeerError) as refused:
        manager.create(T0, OTHER_ID, LogConfig(), NOW_MS)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = disk.capacity = None
    if has_room:
        disk.process_ended()
        manager = start(disk, A)
    else:
        drain(manager.retry_full(NOW_MS))
    assert manager.create(T0, OTHER_ID, LogConfig(), NOW_MS).log_end_offset == 0
    assert len(stray_folders(disk, A)) == 1
