"""All logs together remember no more producers than `producer.ids.max`: the one that has been idle for longest makes room, those with an
open transaction stay. It holds for what is read at a start too."""

import logging
import random

import pytest

from moldau.log.config import LogConfig
from moldau.log.damage import LostRecordsError
from moldau.log.open_transactions import Verifications
from moldau.log.partition_log import PartitionLog
from moldau.log.producer_bound import ProducerBound
from moldau.log.producer_entry import ProducerEntry
from moldau.log.producer_snapshots import SnapshotEntries, decode_snapshot, encode_snapshot, producers_of
from moldau.log.producer_states import ProducerStates
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.header import read_header
from support.one_log import DIRECTORY, NOW_MS, PARTITION, append, close_clean, make_batch, new_disk, open_log


class Logs:
    """The producers of some logs under one bound that may change."""

    def __init__(self, limit: int, count: int = 2) -> None:
        self.limit = limit
        self.bound = ProducerBound(lambda: self.limit)
        self.logs = [ProducerStates(f"t-{index}", self.bound) for index in range(count)]
        self.now_ms = 0

    def append(self, producer_id: int, sequence: int = 0, *, log: int = 0, transactional: bool = False) -> None:
        self.now_ms += 1
        self.logs[log].stage(producer_id, 0, sequence, 0, self.now_ms, 0, self.now_ms, transactional)
        self.logs[log].commit()

    def known(self, log: int = 0) -> set[int]:
        return set(self.logs[log].entries)

    def check(self) -> None:
        assert self.bound.held == sum(len(log.entries) + len(log.verifications._waiting) for log in self.logs)


def test_the_one_that_was_idle_for_longest_makes_room_in_whatever_log_it_is() -> None:
    logs = Logs(4)
    for producer_id in (1, 2):
        logs.append(producer_id, log=0)
        logs.append(producer_id, log=1)
    logs.append(1, 1, log=0)
    logs.append(3, log=1)
    assert (logs.known(0), logs.known(1)) == ({1, 2}, {2, 3})
    logs.append(4, log=1)
    assert (logs.known(0), logs.known(1)) == ({1}, {2, 3, 4})
    logs.check()


def test_while_logs_are_loaded_the_one_that_wrote_first_makes_room_whatever_folder_comes_first() -> None:
    """A producer that wrote just before a kill may send its last batch again; its log may be the first one that is loaded."""
    written = {"t-0": {1: 50, 2: 10}, "t-1": {3: 20, 4: 40}, "t-2": {5: 30}}
    logs = Logs(3, 3)
    with logs.bound.loading():
        for log, times in zip(logs.logs, written.values(), strict=True):
            for producer_id, timestamp in times.items():
                header = read_header(make_batch(b"v", timestamps=[timestamp], producer=(producer_id, 0, 0)))
                log.replay(header, now_ms=1000)
            logs.check()
    assert [logs.known(index) for index in range(3)] == [{1}, {4}, {5}]
    logs.now_ms = 2000
    logs.append(6, log=1)
    assert [logs.known(index) for index in range(3)] == [{1}, {4, 6}, set()], "the order stays when logs are loaded"


def test_while_logs_are_loaded_one_with_an_open_transaction_stays() -> None:
    logs = Logs(2, 1)
    with logs.bound.loading():
        for producer_id in range(1, 5):
            logs.append(producer_id, transactional=producer_id == 1)
    assert logs.known() == {1, 4}
    logs.check()


def test_one_that_was_evicted_goes_on_whatever_its_sequence() -> None:
    logs = Logs(1)
    logs.append(7)
    logs.append(8)
    logs.append(7, 1)
    assert logs.known() == {7}


def test_forged_ids_do_not_push_out_who_writes(caplog: pytest.LogCaptureFixture) -> None:
    """Issue: 300,000 forged ids took 116 MB, and 188 MB after a restart."""
    logs = Logs(100)
    with caplog.at_level(logging.WARNING):
        for number in range(30_000):
            logs.append(1000 + number)
            if number % 20 == 0:
                logs.append(7, number // 20)
    assert 7 in logs.known()
    assert logs.bound.held == 100
    assert len(logs.bound._line) <= 2 * 100 + 1001
    assert logs.bound.statistics()["producer_ids_evicted"] == 30_001 - 100
    assert len(caplog.messages) == 1
    logs.check()


def test_open_transactions_are_never_evicted_and_where_there_is_nothing_else_a_new_producer_is_refused() -> None:
    logs = Logs(3)
    for producer_id in (1, 2, 3):
        logs.append(producer_id, transactional=True)
    with pytest.raises(PeerError) as caught:
        logs.append(4)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert "producer.ids.max is 3" in caught.value.message
    logs.append(1, 1, transactional=True)
    logs.logs[0].stage_marker(2, 0, 0, 100, 0, 100, abort=False)
    with pytest.raises(PeerError):
        logs.append(4, log=0)
    logs.logs[0].undo()
    assert logs.logs[0].transactions.first_ongoing() == 1
    logs.logs[0].stage_marker(2, 0, 0, 100, 0, 100, abort=False)
    logs.logs[0].commit()
    logs.append(4)
    assert logs.known() == {1, 3, 4}
    logs.check()


def test_what_was_staged_and_evicted_may_still_be_undone() -> None:
    logs = Logs(2)
    one = logs.logs[0]
    for producer_id in range(5):
        one.stage(producer_id, 0, 0, 0, producer_id, 0, 1, 0)
    one.undo()
    assert not one.entries
    logs.check()


def test_a_lowered_limit_is_reached_step_by_step() -> None:
    logs = Logs(100)
    for number in range(100):
        logs.append(number)
    logs.limit = 50
    for number in range(100, 150):
        logs.append(number)
    assert logs.bound.held == 50


def test_expiry_and_closing_give_back_what_they_took() -> None:
    logs = Logs(100)
    for number in range(20):
        logs.append(number)
        logs.append(number, log=1)
    logs.logs[0].expire(1000, 10)
    assert logs.bound.held == 20
    logs.logs[1].clear()
    assert logs.bound.held == 0
    logs.append(1)
    logs.check()


def test_questions_to_the_coordinator_count_too() -> None:
    bound = ProducerBound(lambda: 10)
    waiting = Verifications(bound)
    for producer_id in range(50):
        waiting.begin(producer_id, 0, 0, producer_id, bumps_epoch=True)
    assert bound.held == 10
    assert waiting.get(0) is None, "so its batch is refused, and the transaction aborted"
    waiting.end(49)
    waiting.expire(1000, 10)
    assert bound.held == 0


def snapshot(count: int, *, open_one: int) -> SnapshotEntries:
    entries = {number: ProducerEntry(0, 0) for number in range(count)}
    for number, entry in entries.items():
        entry.timestamp = number
    entries[open_one].transaction_start = 50
    return decode_snapshot(encode_snapshot(entries))


def test_of_a_snapshot_the_newest_are_taken_and_all_with_a_transaction() -> None:
    found = producers_of(snapshot(1000, open_one=3), 0, 10)
    assert set(found) == {3, *range(990, 1000)}
    logs = Logs(5)
    logs.logs[0].load(found)
    assert 3 in logs.known()
    assert logs.known() == {3, 996, 997, 998, 999}
    logs.check()
    logs.logs[0].load({1: ProducerEntry(0, 0)})
    assert logs.known() == {1}
    logs.check()


def test_what_is_replayed_is_bounded_too() -> None:
    logs = Logs(10)
    for number in range(1000):
        logs.logs[0].replay(read_header(make_batch(b"x", producer=(number, 0, 0))), 0)
    assert logs.known() == set(range(990, 1000))


def test_the_count_is_what_a_recount_gives_whatever_happens() -> None:
    chance = random.Random(11)
    logs = Logs(8, 3)
    for step in range(20_000):
        log = logs.logs[chance.randrange(3)]
        producer_id = chance.randrange(30)
        logs.now_ms += 1
        try:
            match chance.randrange(12):
                case 0:
                    log.undo()
                case 1 | 2:
                    log.commit()
                case 3:
                    log.undo()
                    log.stage_marker(producer_id, 0, 0, step, 0, logs.now_ms, abort=chance.random() < 0.5)
                case 4:
                    log.verifications.begin(producer_id, 0, 0, logs.now_ms, bumps_epoch=True)
                case 5 if chance.random() < 0.1:
                    log.commit()
                    log.expire(logs.now_ms, 100)
                case 6 if chance.random() < 0.01:
                    log.clear()
                case 7:
                    logs.limit = chance.randrange(1, 12)
                case _:
                    log.stage(producer_id, 0, chance.randrange(2), 0, step, 0, logs.now_ms, chance.random() < 0.1)
        except PeerError:
            pass
        logs.check()
        for each in logs.logs:
            ongoing = {entry.transaction_start for entry in each.entries.values() if entry.transaction_start >= 0}
            assert ongoing == {first for first, marker in each.transactions.unsettled.items() if marker == -1}


def test_a_log_that_cannot_be_opened_remembers_nobody() -> None:
    """One that a full disk keeps closed is tried again and again."""
    disk, bound = new_disk(), ProducerBound(lambda: 100)
    log = open_log(disk)
    append(log, *(make_batch(b"v", producer=(producer_id, 0, 0)) for producer_id in range(10)))
    close_clean(log)
    for _ in range(3):
        with pytest.raises(LostRecordsError):
            PartitionLog.open(
                disk, DIRECTORY, PARTITION, LogConfig(), recovery_point=20, start_offset=0, clean=False, now_ms=NOW_MS, producer_bound=bound
            )
    assert bound.held == 0
