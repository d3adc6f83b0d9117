"""A log with transactions: what is decided, what readers of committed records see, which markers are taken."""

from random import Random

import pytest

from moldau.log.config import LogConfig
from moldau.log.partition_log import AppendResult, PartitionLog
from moldau.log.transaction_index import TransactionIndexEntry
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.protocol.records.batch import Record, batches, encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.protocol.records.header import check_batch, read_header
from moldau.testing.disk import ForgetfulDisk
from support.logs import ongoing
from support.one_log import DIRECTORY, NOW_MS, append, close_clean, flush, headers, make_batch, names, new_disk, open_log, overwrite, stage

A, B, C = 7, 8, 9
SEGMENT = f"{DIRECTORY}/00000000000000000000"


def transactional(producer_id: int, epoch: int, sequence: int, count: int = 1, size: int = 1) -> memoryview:
    """A batch of a transaction."""
    records = [Record(number, NOW_MS, 0, None, b"v" * size, []) for number in range(count)]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    return memoryview(bytearray(data))


def produce(log: PartitionLog, producer_id: int, sequence: int, count: int = 1, epoch: int = 0) -> int:
    """Append a batch of a transaction and let it be read; its first offset."""
    offset = log.log_end_offset
    append(log, transactional(producer_id, epoch, sequence, count))
    return offset


def follow(log: PartitionLog, leader: PartitionLog) -> None:
    """Append what the leader has beyond the end of this log."""
    found = leader.read(log.log_end_offset, 1 << 20, leader.log_end_offset, at_least_one=True).records
    assert found is not None
    log.append_as_follower(memoryview(found.file.pread(found.length, found.position)), NOW_MS)


def end(log: PartitionLog, producer_id: int, how: ControlType, epoch: int = 0, coordinator: int = 0, version: int = 1) -> int:
    """End the producer's transaction and let the marker be read; its offset."""
    result = mark(log, producer_id, how, epoch, coordinator, version)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)
    return result.base_offset


def mark(log: PartitionLog, producer_id: int, how: ControlType, epoch: int = 0, coordinator: int = 0, version: int = 1) -> AppendResult:
    """Stage a marker."""
    return log.append_marker_as_leader(producer_id, epoch, EndTxnMarker(how, coordinator), NOW_MS, transaction_version=version)


def commit(log: PartitionLog, producer_id: int, epoch: int = 0, coordinator: int = 0, version: int = 1) -> int:
    return end(log, producer_id, ControlType.COMMIT, epoch, coordinator, version)


def abort(log: PartitionLog, producer_id: int, epoch: int = 0, coordinator: int = 0, version: int = 1) -> int:
    return end(log, producer_id, ControlType.ABORT, epoch, coordinator, version)


def refused(log: PartitionLog, producer_id: int, epoch: int, coordinator: int = 0, version: int = 1) -> ErrorCode:
    end_offset = log.staged_end_offset
    with pytest.raises(PeerError) as error:
        commit(log, producer_id, epoch, coordinator, version)
    assert log.staged_end_offset == end_offset
    return error.value.code


@pytest.fixture
def disk() -> ForgetfulDisk:
    return new_disk()


@pytest.fixture
def log(disk: ForgetfulDisk) -> PartitionLog:
    return open_log(disk)


# The last stable offset


def test_the_last_stable_offset_is_the_first_record_of_the_oldest_transaction_without_a_marker(log: PartitionLog) -> None:
    append(log, make_batch(b"x"))
    assert log.last_stable_offset == 1
    produce(log, A, 0)
    produce(log, B, 0, count=3)
    assert (log.high_watermark, log.last_stable_offset) == (5, 1)
    assert ongoing(log) == {A: 1, B: 2}
    commit(log, A)
    assert log.last_stable_offset == 2
    produce(log, A, 1)
    assert log.last_stable_offset == 2
    abort(log, B)
    assert log.last_stable_offset == 6
    commit(log, A)
    assert log.last_stable_offset == log.high_watermark == 9
    assert ongoing(log) == {}


def test_a_marker_counts_once_it_lies_before_the_high_watermark(log: PartitionLog) -> None:
    produce(log, A, 0)
    mark(log, A, ControlType.COMMIT)
    assert log.last_stable_offset == 0
    assert not log.has_ongoing_transaction(A)
    log.write_staged()
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2


def test_records_beyond_the_high_watermark_are_not_stable_either(log: PartitionLog) -> None:
    append(log, make_batch(b"x"))
    stage(log, transactional(A, 0, 0))
    assert log.last_stable_offset == 1
    log.write_staged()
    assert log.last_stable_offset == 1
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 1


def test_deleting_the_first_records_of_a_transaction_moves_the_last_stable_offset_with_the_start(log: PartitionLog) -> None:
    produce(log, A, 0, count=2)
    produce(log, A, 2, count=2)
    log.delete_records(3)
    assert (log.start_offset, log.last_stable_offset) == (3, 3)


def test_thousands_of_transactions_behind_one_that_hangs_take_no_more_memory_than_they_must(log: PartitionLog) -> None:
    produce(log, A, 0)
    for sequence in range(1000):
        produce(log, B, sequence)
        abort(log, B)
    assert log.last_stable_offset == 0
    assert len(log.unsettled) < 200
    commit(log, A)
    assert log.last_stable_offset == log.high_watermark
    assert len(log.unsettled) == 0


# Aborted transactions


def test_readers_are_told_of_the_aborted_transactions_that_overlap_their_range(log: PartitionLog) -> None:
    """0 A   1 B   2 abort A   3 A   4 commit A   5 abort B   6 B   7 abort B"""
    produce(log, A, 0)
    produce(log, B, 0)
    abort(log, A)
    produce(log, A, 1)
    commit(log, A)
    abort(log, B)
    produce(log, B, 1)
    abort(log, B)
    assert log.aborted_transactions(0, 8) == [(A, 0), (B, 1), (B, 6)]
    assert log.aborted_transactions(0, 1) == [(A, 0)]
    assert log.aborted_transactions(3, 5) == [(B, 1)]
    assert log.aborted_transactions(6, 7) == [(B, 6)]
    assert log.aborted_transactions(8, 9) == []


def test_a_transaction_that_spans_segments_is_listed_for_each_of_them(disk: ForgetfulDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=200))
    produce(log, A, 0)
    for sequence in range(1, 8):
        produce(log, A, sequence)
    abort(log, A)
    assert len(names(disk, ".log")) > 3
    for offset in range(9):
        assert log.aborted_transactions(offset, offset + 1) == [(A, 0)]


def test_a_segment_is_rolled_when_its_index_of_aborted_transactions_is_full(disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.log.segment_appender.ENTRIES_MAX", 3)
    log = open_log(disk, LogConfig())
    for sequence in range(4):
        produce(log, A, sequence)
        abort(log, A)
    assert names(disk, ".log") == [0, 6]
    assert log.aborted_transactions(0, 8) == [(A, 0), (A, 2), (A, 4), (A, 6)]


def test_no_file_is_made_for_segments_in_which_nothing_was_aborted(disk: ForgetfulDisk, log: PartitionLog) -> None:
    produce(log, A, 0)
    commit(log, A)
    abort(log, B)  # marks a transaction that never wrote here
    close_clean(log)
    assert names(disk, ".txnindex") == []


def test_the_index_says_what_the_last_stable_offset_was_after_the_marker(disk: ForgetfulDisk, log: PartitionLog) -> None:
    produce(log, A, 0)
    produce(log, B, 0)
    abort(log, B)
    abort(log, A)
    index = log._segments.active.transaction_index
    assert list(index) == [(B, 1, 2, 0), (A, 0, 3, 4)]
    flush(log)
    assert len(disk.read(f"{SEGMENT}.txnindex")) == 2 * 34


# Which batches and markers are taken


def test_a_batch_outside_of_the_ongoing_transaction_is_refused(log: PartitionLog) -> None:
    produce(log, A, 0)
    with pytest.raises(PeerError, match="outside of its transaction, ongoing since offset 0") as error:
        append(log, make_batch(b"x", producer=(A, 0, 1)))
    assert error.value.code == ErrorCode.INVALID_TXN_STATE
    commit(log, A)
    append(log, make_batch(b"x", producer=(A, 0, 1)))


def test_markers_of_older_epochs_and_older_coordinators_are_refused(log: PartitionLog) -> None:
    produce(log, A, 0, epoch=3)
    assert refused(log, A, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    commit(log, A, epoch=3, coordinator=5)
    produce(log, A, 1, epoch=3)
    assert refused(log, A, epoch=3, coordinator=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.last_stable_offset == 2
    commit(log, A, epoch=3, coordinator=6)


def test_under_version_2_a_late_marker_never_ends_a_newer_transaction(log: PartitionLog) -> None:
    """T1: the end of the transaction of epoch 0 is epoch 1, which is the epoch of the next transaction."""
    produce(log, A, 0, epoch=0)
    commit(log, A, epoch=1, version=2)
    produce(log, A, 0, epoch=1)
    assert refused(log, A, epoch=1, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.has_ongoing_transaction(A, 1)
    commit(log, A, epoch=2, version=2)


def test_a_batch_of_the_ongoing_transaction_is_repeated_with_its_offset(log: PartitionLog) -> None:
    produce(log, A, 0)
    offset = produce(log, A, 1)
    assert stage(log, transactional(A, 0, 1)).base_offset == offset


@pytest.mark.parametrize("how", [ControlType.ABORT, ControlType.COMMIT])
def test_a_sequence_of_a_transaction_that_has_ended_is_not_acknowledged_again(log: PartitionLog, how: ControlType) -> None:
    """Its records would be lost: they are new ones that got old numbers."""
    produce(log, A, 0)
    end(log, A, how)
    with pytest.raises(PeerError) as error:
        append(log, transactional(A, 0, 0))
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, A, 1)
    with pytest.raises(PeerError, match="in a transaction that has ended"):
        append(log, transactional(A, 0, 0))


@pytest.mark.parametrize("version", [1, 2])
def test_a_repeated_marker_is_harmless(log: PartitionLog, version: int) -> None:
    produce(log, A, 0, epoch=0)
    abort(log, A, epoch=1, version=version)
    abort(log, A, epoch=1, coordinator=2, version=version)
    assert log.aborted_transactions(0, 10) == [(A, 0)]
    assert log.last_stable_offset == log.high_watermark == 3
    assert [header.is_control for header in headers(log)] == [False, True, True]
    assert refused(log, A, epoch=1, coordinator=1) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_the_last_epoch_that_there_is_ends_its_own_transaction(log: PartitionLog) -> None:
    produce(log, A, 0, epoch=32767)
    commit(log, A, epoch=32767, version=2)
    assert log.last_stable_offset == 2


def test_after_a_marker_of_a_newer_epoch_the_producer_starts_at_0_again(log: PartitionLog) -> None:
    produce(log, A, 0, count=5, epoch=0)
    commit(log, A, epoch=1, version=2)
    for epoch, sequence, code in [
        (0, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ]:
        with pytest.raises(PeerError) as error:
            produce(log, A, sequence, epoch=epoch)
        assert error.value.code == code
    produce(log, A, 0, epoch=1)


def test_without_a_newer_epoch_the_sequence_goes_on_across_transactions(log: PartitionLog) -> None:
    produce(log, A, 0, count=5)
    commit(log, A)
    produce(log, A, 5)
    assert stage(log, transactional(A, 0, 5)).duplicate


def test_a_coordinator_writes_for_a_producer_without_sequences(log: PartitionLog) -> None:
    """So are the offsets of a transaction written to the topic of a group's coordinator."""

    def write(epoch: int) -> None:
        batch = transactional(A, epoch, -1)
        log.append_as_leader(batch, read_header(batch), NOW_MS)
        log.write_staged()

    write(epoch=4)
    write(epoch=4)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 0
    with pytest.raises(PeerError) as error:
        write(epoch=3)
    assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    abort(log, A, epoch=4)
    assert log.aborted_transactions(0, 10) == [(A, 0)]


# Who may begin


def test_the_first_batch_of_a_transaction_asks_and_the_others_do_not(log: PartitionLog) -> None:
    header = check_batch(transactional(A, 0, 0))
    verification = log.begin_verification(header, NOW_MS, bumps_epoch=False)
    assert verification is not None
    log.check_first(header, verification)
    produce(log, A, 0)
    assert log.begin_verification(check_batch(transactional(A, 0, 1)), NOW_MS, bumps_epoch=False) is None
    assert log.begin_verification(check_batch(transactional(A, 1, 0)), NOW_MS, bumps_epoch=False) is not None
    commit(log, A, epoch=2)
    with pytest.raises(PeerError) as error:
        log.begin_verification(check_batch(transactional(A, 1, 0)), NOW_MS, bumps_epoch=False)
    assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_answer_that_comes_after_the_end_of_the_transaction_lets_nothing_in(log: PartitionLog) -> None:
    header = check_batch(transactional(A, 0, 0))
    verification = log.begin_verification(header, NOW_MS, bumps_epoch=False)
    assert verification is not None
    abort(log, A)  # a time-out, say
    with pytest.raises(PeerError, match="has ended while its batch was waiting") as error:
        log.check_first(header, verification)
    assert error.value.code == ErrorCode.INVALID_TXN_STATE
    again = log.begin_verification(header, NOW_MS, bumps_epoch=False)
    assert again is not None
    log.check_first(header, again)
    with pytest.raises(PeerError):
        log.check_first(header, verification)


def test_the_end_of_the_last_transaction_is_none_of_the_next_ones_that_is_being_asked_about(log: PartitionLog) -> None:
    """A producer goes on when its end is decided; the marker may come while the coordinator is asked about what it sends next."""
    produce(log, A, 0, epoch=0)
    header = check_batch(transactional(A, 1, 0))
    verification = log.begin_verification(header, NOW_MS, bumps_epoch=True)
    assert verification is not None
    commit(log, A, epoch=1, version=2)
    log.check_first(header, verification)
    abort(log, A, epoch=2, version=2)
    with pytest.raises(PeerError) as error:
        log.check_first(header, verification)
    assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_does_not_overtake_one_whose_verification_failed(log: PartitionLog) -> None:
    first, second = check_batch(transactional(A, 0, 0, count=3)), check_batch(transactional(A, 0, 3))
    assert log.begin_verification(first, NOW_MS, bumps_epoch=False) is not None  # and the coordinator was not there
    verification = log.begin_verification(second, NOW_MS, bumps_epoch=False)
    assert verification is not None
    with pytest.raises(PeerError, match="0 is still to come") as error:
        log.check_first(second, verification)
    assert error.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = check_batch(transactional(A, 1, 3))
    verification = log.begin_verification(newer, NOW_MS, bumps_epoch=False)
    assert verification is not None
    log.check_first(newer, verification)


@pytest.mark.parametrize("unknown", [True, False])
def test_a_verification_that_failed_is_settled_by_what_another_leader_has_taken_meanwhile(log: PartitionLog, unknown: bool) -> None:
    leader = open_log(new_disk())
    first = 0
    if not unknown:
        produce(leader, A, 0)
        commit(leader, A)
        first = 1
        follow(log, leader)
    assert log.begin_verification(check_batch(transactional(A, 0, first, count=3)), NOW_MS, bumps_epoch=False) is not None
    produce(leader, A, first, count=3)
    commit(leader, A)
    follow(log, leader)
    following = check_batch(transactional(A, 0, first + 3))
    verification = log.begin_verification(following, NOW_MS, bumps_epoch=False)
    assert verification is not None
    log.check_first(following, verification)
    assert produce(log, A, first + 3) == leader.log_end_offset


@pytest.mark.parametrize(("bumps_epoch", "taken"), [(False, True), (True, False)])
def test_a_producer_of_which_nothing_is_known_starts_at_0_under_version_2(log: PartitionLog, bumps_epoch: bool, taken: bool) -> None:
    header = check_batch(transactional(A, 4, 17))
    verification = log.begin_verification(header, NOW_MS, bumps_epoch=bumps_epoch)
    assert verification is not None
    if taken:
        log.check_first(header, verification)
    else:
        with pytest.raises(PeerError, match="starts a transaction of epoch 4 with sequence 17, not 0") as error:
            log.check_first(header, verification)
        assert error.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# Failed writes, retention, restarts


def test_a_write_that_fails_takes_beginnings_and_ends_back(disk: ForgetfulDisk, log: PartitionLog) -> None:
    produce(log, A, 0)
    produce(log, B, 0)
    before = log.active_producers()
    disk.capacity = disk.used() + 10
    mark(log, A, ControlType.ABORT, epoch=1, coordinator=3)
    stage(log, transactional(A, 1, 0))
    stage(log, transactional(C, 0, 0))
    mark(log, C, ControlType.COMMIT)
    mark(log, B, ControlType.COMMIT)
    stage(log, transactional(B, 0, 1))
    with pytest.raises(StorageError):
        log.write_staged()
    disk.capacity = None
    assert log.active_producers() == before
    assert dict(log.unsettled) == {0: -1, 1: -1}
    assert log.aborted_transactions(0, 10) == []
    abort(log, A, epoch=1, coordinator=3)
    assert log.aborted_transactions(0, 10) == [(A, 0)]
    assert log.last_stable_offset == 1


def test_retention_spares_what_is_not_decided_and_all_behind_it(disk: ForgetfulDisk) -> None:
    config = LogConfig(segment_bytes=200)
    log = open_log(disk, config)
    append(log, *(make_batch(b"x" * 100) for _ in range(3)))
    produce(log, A, 0)
    append(log, *(make_batch(b"x" * 100) for _ in range(3)))
    log.reconfigure(config._replace(retention_bytes=0))
    log.apply_retention(NOW_MS)
    assert log.start_offset == 3
    log.reconfigure(config._replace(retention_ms=0))
    log.apply_retention(NOW_MS + 10_000)
    assert log.start_offset == 3
    commit(log, A)
    log.apply_retention(NOW_MS + 10_000)
    assert log.start_offset == 8


def test_a_producer_is_not_forgotten_during_its_transaction(log: PartitionLog) -> None:
    produce(log, A, 0)
    assert log.expire_producers(NOW_MS + 10**12) == 0
    commit(log, A)
    assert log.expire_producers(NOW_MS + 10**12) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_transactions_as_they_were(disk: ForgetfulDisk, clean: bool) -> None:
    config = LogConfig(segment_bytes=400)
    log = open_log(disk, config)
    for sequence in range(4):
        produce(log, A, sequence, epoch=5)
        produce(log, B, sequence)
    abort(log, B, coordinator=2)
    produce(log, C, 0)
    produce(log, B, 4)
    abort(log, C, epoch=1, coordinator=2)
    flush(log)
    expected = (sorted(log.active_producers()), log.last_stable_offset, log.aborted_transactions(0, 99))
    close_clean(log) if clean else log.close()
    if not clean:
        disk.crash()
    log = open_log(disk, config, clean=clean, recovery_point=0)
    assert (sorted(log.active_producers()), log.last_stable_offset, log.aborted_transactions(0, 99)) == expected
    assert log.aborted_transactions(0, 99) == [(B, 1), (C, 9)]


def test_what_the_index_says_before_the_recovery_point_survives_a_crash(disk: ForgetfulDisk, log: PartitionLog) -> None:
    produce(log, A, 0)
    abort(log, A)
    flush(log)
    recovery_point = log.flushed_offset
    produce(log, A, 1)
    abort(log, A)
    disk.crash()
    log = open_log(disk, recovery_point=recovery_point)
    assert (log.log_end_offset, log.aborted_transactions(0, 10)) == (2, [(A, 0)])
    produce(log, A, 1)
    abort(log, A)
    assert log.aborted_transactions(0, 10) == [(A, 0), (A, 2)]


def aborted_often(disk: ForgetfulDisk, config: LogConfig) -> PartitionLog:
    """Transactions of three producers that overlap, in several segments; all but the last ones are flushed."""
    log, random = open_log(disk, config), Random(4)
    sequences = dict.fromkeys((A, B, C), 0)
    for step in range(120):
        if step == 110:
            flush(log)
        producer = random.choice((A, B, C))
        if random.random() < 0.6:
            produce(log, producer, sequences[producer])
            sequences[producer] += 1
        else:
            end(log, producer, random.choice((ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT)))
    return log


def all_entries(log: PartitionLog) -> list[TransactionIndexEntry]:
    return [entry for segment in log._segments.items for entry in segment.transaction_index]


@pytest.mark.parametrize("has_checksums", [True, False])
def test_recovery_finds_in_the_log_what_the_index_holds_and_leaves_that_alone(
    disk: ForgetfulDisk, has_checksums: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = aborted_often(disk, LogConfig(segment_bytes=4000))
    entries, recovery_point = all_entries(log), log.flushed_offset
    assert len(log._segments) > 2
    assert len(entries) > 15
    disk.process_ended()
    for base in names(disk, ".checksums") if not has_checksums else ():
        disk.remove(f"{DIRECTORY}/{base:020}.checksums")
    log = open_log(disk, LogConfig(segment_bytes=4000), recovery_point=recovery_point)
    assert all_entries(log) == entries
    assert "rebuilt" not in caplog.text


@pytest.mark.parametrize("power_cut", [False, True])
def test_recovery_mends_any_bit_of_an_index_of_a_segment_that_it_reads(disk: ForgetfulDisk, power_cut: bool) -> None:
    """Also where no checksum shows the damage: those of the newest segment are as old as its last recovery, or its first."""
    log = aborted_often(disk, LogConfig())
    entries = all_entries(log)
    recovery_point = log.flushed_offset
    entries = [entry for entry in entries if entry.last_offset < recovery_point]
    if power_cut:
        disk.crash()
    else:
        disk.process_ended()
    whole = disk.read(f"{SEGMENT}.txnindex")
    for bit in range(0, 8 * len(whole), 7):
        overwrite(disk, f"{0:020}.txnindex", 0, whole)
        overwrite(disk, f"{0:020}.txnindex", bit // 8, bytes((whole[bit // 8] ^ 1 << bit % 8,)))
        log = open_log(disk, recovery_point=recovery_point)
        assert [entry for entry in all_entries(log) if entry.last_offset < recovery_point] == entries
        disk.process_ended()
        disk.remove(f"{SEGMENT}.checksums")


@pytest.mark.parametrize("max_bytes", [300, 1 << 20])
def test_no_bit_of_an_offset_index_hides_an_aborted_transaction_from_a_reader(disk: ForgetfulDisk, max_bytes: int) -> None:
    """Also where no checksum shows the damage: an end of what was read that is too early would leave out transactions that lie in it."""
    config = LogConfig(segment_bytes=4000, index_interval_bytes=500)
    log = aborted_often(disk, config)
    entries, end_offset = all_entries(log), log.log_end_offset
    close_clean(log)
    first = f"{0:020}.index"
    whole = disk.read(f"{DIRECTORY}/{first}")
    assert len(whole) > 30
    for bit in range(0, 8 * len(whole), 5):
        overwrite(disk, first, 0, whole)
        overwrite(disk, first, bit // 8, bytes((whole[bit // 8] ^ 1 << bit % 8,)))
        for base in names(disk, ".checksums"):
            disk.remove(f"{DIRECTORY}/{base:020}.checksums")
        log = open_log(disk, config, clean=True)
        for offset in range(names(disk, ".log")[1]):
            read = log.read(offset, max_bytes, end_offset, at_least_one=True)
            assert read.records is not None
            found = list(batches(memoryview(read.records.file.pread(read.records.length, read.records.position))))
            read.records.release()
            last_offset = found[-1][0].last_offset if found else offset
            wanted = [each for each in entries if each.last_offset >= offset and each.first_offset <= last_offset]
            assert {(each.producer_id, each.first_offset) for each in wanted} <= {*log.aborted_in(read, offset, end_offset)}
        disk.process_ended()


@pytest.mark.parametrize("slot", [0, 1])
def test_a_power_cut_leaves_the_checksums_by_which_a_damaged_index_of_a_sealed_segment_is_noticed(disk: ForgetfulDisk, slot: int) -> None:
    log = aborted_often(disk, LogConfig(segment_bytes=4000))
    recovery_point = log.flushed_offset
    entries = [entry for entry in all_entries(log) if entry.last_offset < recovery_point]
    disk.crash()
    base = names(disk, ".txnindex")[slot]
    overwrite(disk, f"{base:020}.txnindex", 9, b"\x77")
    log = open_log(disk, LogConfig(segment_bytes=4000), recovery_point=recovery_point)
    log.aborted_transactions(0, recovery_point)  # as readers ask, who find the damage
    assert [entry for entry in all_entries(log) if entry.last_offset < recovery_point] == entries


def test_entries_after_a_batch_that_cannot_be_read_stay(disk: ForgetfulDisk) -> None:
    log = aborted_often(disk, LogConfig())
    entries = all_entries(log)
    found = log._segments.active.locate(20)
    assert found is not None
    overwrite(disk, f"{0:020}.log", found[0] + 8, b"\xff" * 4)
    assert log.mend_aborted(entries[-1].last_offset)
    assert all_entries(log) == entries


def test_truncation_takes_aborts_back_also_after_a_crash(disk: ForgetfulDisk, log: PartitionLog) -> None:
    produce(log, A, 0)
    abort(log, A)
    produce(log, A, 1)
    abort(log, A)
    flush(log)
    assert log.truncate_to(3) == 3
    assert log.aborted_transactions(0, 10) == [(A, 0)]
    assert (log.last_stable_offset, log.has_ongoing_transaction(A)) == (2, True)
    commit(log, A)
    flush(log)
    disk.crash()
    log = open_log(disk, recovery_point=4)
    assert log.aborted_transactions(0, 10) == [(A, 0)]
    assert log.last_stable_offset == 4


@pytest.mark.parametrize("position", [0, 34 + 10])
def test_an_index_that_is_damaged_is_made_anew_from_the_log(disk: ForgetfulDisk, position: int) -> None:
    config = LogConfig(segment_bytes=300)
    log = open_log(disk, config)
    for sequence in range(8):
        produce(log, A, sequence)
        produce(log, B, sequence)
        abort(log, A)
        commit(log, B)
    aborted = log.aborted_transactions(0, 99)
    assert len(aborted) == 8
    close_clean(log)
    for base in names(disk, ".txnindex"):
        size = disk.size(f"{DIRECTORY}/{base:020}.txnindex")
        if position < size:
            overwrite(disk, f"{base:020}.txnindex", position, b"\xff\xff")
    log = open_log(disk, config, clean=True)
    assert log.aborted_transactions(0, 99) == aborted


def test_a_damaged_index_is_noticed_also_when_an_abort_comes_before_the_first_reader(disk: ForgetfulDisk, log: PartitionLog) -> None:
    produce(log, A, 0)
    abort(log, A)
    close_clean(log)
    overwrite(disk, f"{0:020}.txnindex", 0, b"\xff\xff")
    log = open_log(disk, clean=True)
    produce(log, B, 0)
    abort(log, B)
    assert log.aborted_transactions(0, 99) == [(A, 0), (B, 2)]


@pytest.mark.parametrize("rolls", [False, True])
def test_a_damaged_index_is_noticed_also_when_nobody_reads_before_the_next_clean_stop(disk: ForgetfulDisk, rolls: bool) -> None:
    """What the damaged file holds is not noted as right when the segment is sealed or the log closed."""
    log = open_log(disk)
    produce(log, A, 0)
    abort(log, A)
    close_clean(log)
    overwrite(disk, f"{0:020}.txnindex", 2, B.to_bytes(8, "big"))
    log = open_log(disk, LogConfig(segment_bytes=300) if rolls else LogConfig(), clean=True)
    for sequence in range(4):
        produce(log, B, sequence)
    abort(log, B)
    assert (len(log._segments) > 1) == rolls
    close_clean(log)
    log = open_log(disk, clean=True)
    assert log.aborted_transactions(0, 99) == [(A, 0), (B, 2)]
    close_clean(log)
    log = open_log(disk, clean=True)
    assert log.aborted_transactions(0, 99) == [(A, 0), (B, 2)]


def test_a_reader_is_told_of_aborts_in_its_own_segment_only(disk: ForgetfulDisk) -> None:
    """A read ends with its segment; the aborts of all later ones could be longer than the answer may be."""
    log = open_log(disk, LogConfig(segment_bytes=300))
    for sequence in range(8):
        produce(log, A, sequence)
        abort(log, A)
    assert len(log.aborted_transactions(0, 99)) == 8
    read = log.read(0, 10_000, log.last_stable_offset, at_least_one=True)
    assert read.records is not None
    read.records.release()
    in_first = log._segments.bases[1]
    assert log.aborted_in(read, 0, log.last_stable_offset) == [(A, offset) for offset in range(0, in_first, 2)]


def test_a_log_that_starts_in_the_middle_of_a_batch_knows_whose_it_is_after_a_crash(disk: ForgetfulDisk, log: PartitionLog) -> None:
    produce(log, A, 0, count=3)
    flush(log)
    commit(log, A)
    log.delete_records(1)
    disk.crash()
    log = open_log(disk, recovery_point=3, start_offset=1)
    assert list(ongoing(log)) == [A]
    assert (log.log_end_offset, log.last_stable_offset) == (3, 1)
