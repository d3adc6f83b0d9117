"""What the checks of a simulated cluster take for the same committed records."""

from moldau.testing.disk import ForgetfulDisk
from moldau.testing.simulation.cluster_invariants import CommittedRecords
from support.one_log import append, flush, make_batch, open_log


def test_records_of_another_epoch_are_others() -> None:
    logs = [open_log(ForgetfulDisk(), leader_epoch=epoch) for epoch in (1, 1, 2)]
    for log in logs:
        append(log, make_batch(b"x", b"x", b"x"))
    committed = CommittedRecords()
    committed.grow(logs[0], 3)
    assert [committed.agrees(log, 3) for log in logs] == [True, True, False]


def test_deleted_records_that_a_crash_brings_back_have_no_epoch_and_agree_and_those_that_were_not_deleted_must_have_theirs() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk)
    append(log, make_batch(b"x", b"x"), make_batch(b"x", b"x"))
    committed = CommittedRecords()
    committed.grow(log, 4)
    log.delete_records(2)
    flush(log)
    restarted = open_log(disk, recovery_point=4, start_offset=0)
    assert (restarted.start_offset, restarted.epoch_at(1), restarted.epoch_at(3)) == (0, -1, 0)
    assert not committed.agrees(restarted, 1)
    committed.start = 2
    assert all(committed.agrees(restarted, end) for end in (1, 2, 3, 4))
    committed.start = 1
    assert not committed.agrees(restarted, 2)


def test_records_that_are_deleted_before_they_are_looked_at_may_be_of_any_epoch() -> None:
    """Seed 83: committed and deleted by time at the same moment, while a follower still has them."""
    leader, follower = [open_log(ForgetfulDisk(), leader_epoch=epoch) for epoch in (2, 2)]
    committed = CommittedRecords()
    for log in (leader, follower):
        append(log, make_batch(b"x"))
    committed.grow(leader, 1)
    for log in (leader, follower):
        log.lead_epoch(3)
        append(log, make_batch(b"x"))
    leader.delete_records(2)
    committed.grow(leader, 2)
    assert committed.agrees(follower, 1)
    assert committed.agrees(follower, 2)
    append(leader, make_batch(b"x"))
    committed.grow(leader, 3)
    assert (committed.epoch_of(0), committed.epoch_of(1), committed.epoch_of(2)) == (2, -1, 3)
