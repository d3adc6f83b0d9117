"""Moves logs between the directories of a manager, step by step, as a broker does in the background.

futures.begin(key, "/b", NOW_MS)
copy_all(manager, key)                 # its folder is made, and the copy has all
take_over(manager, key)                # settled, and in the place of the log
"""

from moldau.log.log_set import FutureLog
from moldau.log.manager import LogManager
from moldau.log.partition_log import PartitionLog
from moldau.model.identity import TopicPartition
from support.logs import NOW_MS

PIECE = 200


def made(manager: LogManager, key: TopicPartition, now_ms: int = NOW_MS) -> FutureLog:
    """The copy of a log that moves; its folder is made if there is none."""
    future = manager.futures.current(key, now_ms)
    assert future is not None
    if not future.is_made:
        manager.futures.making(future)()
        manager.futures.made(future, now_ms)
    return future


def copy_all(manager: LogManager, key: TopicPartition, size: int = PIECE, now_ms: int = NOW_MS) -> FutureLog:
    """Copy all that the log has, `size` bytes at a time."""
    futures, future = manager.futures, made(manager, key, now_ms)
    while not futures.is_level(future):
        futures.copy(future, size, now_ms)
        assert futures.holds(future)
        if futures.sync_wanted(future, now_ms):
            sync(manager, future, now_ms)
    return future


def sync(manager: LogManager, future: FutureLog, now_ms: int = NOW_MS) -> None:
    """Bring all of a copy to disk."""
    log, job = future.log, manager.futures.flush_job(future, now_ms)
    if log is not None and job is not None:
        job.run()
        log.flush_done(job)


def settle(manager: LogManager, future: FutureLog, now_ms: int = NOW_MS) -> None:
    """Sync a copy that has all, and put lines of it into the checkpoints of its directory."""
    sync(manager, future, now_ms)
    work = manager.futures.settling(future, now_ms)
    assert work is not None
    work()


def take_over(manager: LogManager, key: TopicPartition, now_ms: int = NOW_MS) -> PartitionLog:
    """Copy what is missing, and have the copy take the place of the log."""
    future = copy_all(manager, key, now_ms=now_ms)
    if not manager.futures.is_settled(future):
        settle(manager, future, now_ms)
    log = manager.futures.take_over(future, now_ms)
    assert log is not None
    return log
