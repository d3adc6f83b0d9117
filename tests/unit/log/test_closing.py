"""A stop with many logs: synced in the background, marked clean only when all are on disk, left as they are when it is late."""

import pytest

from moldau.log.checkpoints import RECOVERY_POINTS, parse_offsets
from moldau.log.closing import SYNCS_MAX
from moldau.log.manager import LogManager
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, Suspension
from moldau.testing.background import FakeBackground
from moldau.testing.disk import ForgetfulDisk
from support.logs import NOW_MS, append_values, create, manager_over, values_of

LOGS = 3 * SYNCS_MAX
CLEAN = "/data/.kafka_cleanshutdown"


class Stop:
    """A stop in steps, with a look at the disk after each."""

    def __init__(self, disk: ForgetfulDisk, manager: LogManager) -> None:
        self.disk = disk
        self.background = FakeBackground()
        self.is_late = False
        self.syncs_in_a_step: set[int] = set()
        self.opened_in_a_step: set[int] = set()
        self._steps = manager.shutting_down(self.background, lambda: self.is_late)

    def step(self) -> bool:
        """One step on the broker's thread, and one job elsewhere where it waits for that; whether there are more."""
        syncs, opened = self.syncs, self.disk.operations["open"]
        pause: Pause | str = next(self._steps, "ended")
        self.syncs_in_a_step.add(self.syncs - syncs)
        self.opened_in_a_step.add(self.disk.operations["open"] - opened)
        if isinstance(pause, Suspension):
            resumed: list[bool] = []
            pause.begin(lambda: resumed.append(True))
            while not resumed:
                self.background.run_next()
        return pause != "ended"

    def run(self) -> None:
        """To the end."""
        while self.step():
            pass

    @property
    def syncs(self) -> int:
        """Calls so far that wait for the disk."""
        operations = self.disk.operations
        return operations["sync"] + operations["sync_directory"] + operations["write_atomically"]


def started(disk: ForgetfulDisk, *directories: str) -> LogManager:
    manager = manager_over(disk, *directories)
    manager.start(NOW_MS)
    return manager


def filled(disk: ForgetfulDisk, *directories: str, logs: int = LOGS) -> LogManager:
    """A manager with many logs, a batch in each that is not on disk."""
    manager = started(disk, *directories)
    for partition in range(logs):
        append_values(create(manager, "t", partition), b"%d" % partition)
    return manager


def has_all(manager: LogManager) -> bool:
    return all(values_of(log) == [b"%d" % key.partition] for key, log in manager.logs())


def test_a_step_of_a_stop_syncs_nothing_on_the_brokers_thread_and_opens_the_files_of_one_log() -> None:
    disk = ForgetfulDisk()
    stop = Stop(disk, filled(disk))
    stop.run()
    assert stop.syncs_in_a_step == {0}
    assert max(stop.opened_in_a_step) < 20
    assert disk.exists(CLEAN)
    disk.crash()
    manager = started(disk)
    assert has_all(manager)
    assert all(log.recovery is None for _, log in manager.logs())


def test_syncs_of_some_logs_wait_at_a_time_and_no_more() -> None:
    disk = ForgetfulDisk()
    stop = Stop(disk, filled(disk))
    waiting = set()
    while stop.step():
        waiting.add(len(stop.background.jobs))
    assert max(waiting) == SYNCS_MAX


def test_a_crash_at_any_step_of_a_stop_leaves_a_clean_mark_only_with_all_records() -> None:
    marked = []
    for steps in range(100):
        disk = ForgetfulDisk()
        stop = Stop(disk, filled(disk, logs=SYNCS_MAX + 2))
        ended = not all(stop.step() for _ in range(steps))
        disk.crash()
        marked.append(disk.exists(CLEAN))
        if marked[-1]:
            assert has_all(started(disk))
        if ended:
            break
    assert ended
    assert marked[-1]
    assert not any(marked[: SYNCS_MAX + 2])


def test_a_sync_that_fails_takes_the_clean_mark_from_its_directory_alone_and_the_other_logs_are_synced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = ForgetfulDisk()
    manager = filled(disk, "/a", "/b")
    failing = next(name for name in disk.list("/a") if name.startswith("t-"))
    disk.fail = lambda operation, path: operation == "sync" and path.startswith(f"/a/{failing}/")
    Stop(disk, manager).run()
    disk.fail = None
    assert not disk.exists("/a/.kafka_cleanshutdown")
    assert disk.exists("/b/.kafka_cleanshutdown")
    assert f"log not closed cleanly: partition={failing} reason=" in caplog.text
    disk.crash()
    assert sum(bool(values_of(log)) for _, log in started(disk, "/a", "/b").logs()) == LOGS - 1


def test_logs_for_which_there_is_no_time_are_left_to_the_next_start_and_what_was_synced_is_not_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = ForgetfulDisk()
    stop = Stop(disk, filled(disk))
    for _ in range(LOGS):
        stop.step()
    stop.is_late = True
    before = stop.syncs
    stop.run()
    assert stop.syncs - before < 10 * SYNCS_MAX, "those that ran came to their end, no others began"
    points = parse_offsets(disk.read(f"/data/{RECOVERY_POINTS}"), "")
    left = sum(not points[TopicPartition("t", partition)] for partition in range(LOGS))
    assert 0 < left < LOGS
    assert f"no time to flush all logs to disk: path=/data logs={left};" in caplog.text
    assert "log not closed cleanly" not in caplog.text
    assert not disk.exists(CLEAN)
    assert not disk.exists("/data/.moldau_failed"), "the disk is sound, what is in memory is good"
    manager = started(disk)
    assert has_all(manager)
    assert sum(log.recovery.recovery_point == 0 for _, log in manager.logs() if log.recovery is not None) == left
