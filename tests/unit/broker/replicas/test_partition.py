"""The machine of a replica: one dialogue per cell of the table of transitions, and scenarios that other systems got wrong.

This broker is number 1; the other replicas are 2 and 3.
"""

from collections.abc import Callable

import pytest

from moldau.broker.replicas.isr import elr_after, is_followed, lags, may_join, may_propose, wanted_isr
from moldau.broker.replicas.partition import Partition
from moldau.broker.replicas.partition_events import (
    BecomeFollower,
    BecomeLeader,
    DirectoryFailed,
    FailAppends,
    IsrSettled,
    LeaderHighWatermark,
    LeadershipLost,
    Level,
    LogTruncated,
    OpenedLogOffsets,
    PartitionEvent,
    ProposeIsr,
    ReplicaRole,
    ReplicaStopped,
    RulesChanged,
    SessionDoubted,
    StaleEpochError,
)
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition

REPLICAS = (1, 2, 3)
OPENED = OpenedLogOffsets(log_end_offset=10, flushed_offset=6, high_watermark=4)
BROKEN = StorageError("input/output error", path="/data/t-0")
GONE = PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-0 is deleted")
ALL = Level.REPLICATED


def offline(minimum: int = 1, *, shows_flushed: bool = False) -> Partition:
    return Partition(TopicPartition("t", 0), 1, minimum, shows_flushed=shows_flushed)


def follower(epoch: int = 5, version: int = 50, minimum: int = 1, *, shows_flushed: bool = False) -> Partition:
    partition = offline(minimum, shows_flushed=shows_flushed)
    partition.step(BecomeFollower(epoch, version, REPLICAS, leader_id=2, opened=OPENED))
    return partition


def leader(isr: tuple[int, ...] = REPLICAS, minimum: int = 1, *, shows_flushed: bool = False) -> Partition:
    """Of epoch 5, version 50; its log ends at 10, 6 records are on disk, 4 are known to be committed."""
    partition = offline(minimum, shows_flushed=shows_flushed)
    partition.step(BecomeLeader(5, 50, REPLICAS, isr, OPENED))
    return partition


def step(partition: Partition, event: PartitionEvent) -> list[str]:
    """Effects as text: their names and what they carry; an error by its code."""
    said = []
    for effect in partition.step(event):
        words = [type(effect).__name__]
        if isinstance(effect, FailAppends):
            words += [effect.error.code.name if isinstance(effect.error, PeerError) else "KAFKA_STORAGE_ERROR", str(effect.level.name)]
        else:
            words += [str(each) for each in effect]
        said.append(" ".join(words))
    return said


def offsets(partition: Partition) -> tuple[int, int, int, int]:
    """Log end, flushed, committed, high watermark."""
    return partition.log_end_offset, partition.flushed_offset, partition.committed_offset, partition.high_watermark


def whole(partition: Partition) -> dict[str, object]:
    progress = {broker_id: (each.log_end_offset, each.caught_up_s) for broker_id, each in partition.followers.items()}
    return {name: getattr(partition, name) for name in Partition.__slots__ if name != "followers"} | {"followers": progress}


def unchanged_by(partition: Partition, act: Callable[[], object], error: type[Exception]) -> Exception:
    before = whole(partition)
    with pytest.raises(error) as raised:
        act()
    assert whole(partition) == before
    return raised.value


def stale(partition: Partition, event: PartitionEvent) -> None:
    raised = unchanged_by(partition, lambda: partition.step(event), StaleEpochError)
    assert isinstance(raised, StaleEpochError)
    assert raised.code is ErrorCode.STALE_CONTROLLER_EPOCH


def bug(partition: Partition, act: Callable[[], object]) -> None:
    unchanged_by(partition, act, AssertionError)


def refused(partition: Partition, act: Callable[[], object]) -> ErrorCode:
    raised = unchanged_by(partition, act, PeerError)
    assert isinstance(raised, PeerError)
    return raised.code


class TestBecomeLeader:
    def test_an_offline_replica_begins_a_term_with_the_offsets_of_its_log(self) -> None:
        partition = offline()
        assert step(partition, BecomeLeader(5, 50, REPLICAS, REPLICAS, OPENED)) == ["LeadEpoch 5", "ShowUpTo 4"]
        assert (partition.role, partition.leader_epoch, partition.leader_id, partition.state_version) == (ReplicaRole.LEADER, 5, 1, 50)
        assert offsets(partition) == (10, 6, 4, 4)

    def test_a_mirrors_partition_begins_no_epoch_in_its_log(self) -> None:
        for partition in (offline(), follower()):
            opened = OPENED if partition.role is ReplicaRole.OFFLINE else None
            assert step(partition, BecomeLeader(6, 51, REPLICAS, REPLICAS, opened, is_mirror=True))[0] == "KeepEpochs"
            assert partition.is_mirror
            assert step(partition, BecomeLeader(7, 52, REPLICAS, REPLICAS))[0] == "LeadEpoch 7"
            assert not partition.is_mirror
            step(partition, BecomeFollower(8, 53, REPLICAS, 2, is_mirror=True))
            assert partition.is_mirror

    def test_alone_in_sync_it_has_committed_all_that_it_has(self) -> None:
        partition = offline()
        assert step(partition, BecomeLeader(5, 50, REPLICAS, (1,), OPENED)) == ["LeadEpoch 5", "ShowUpTo 10"]
        assert partition.is_sole

    def test_an_offline_replica_also_accepts_the_state_that_it_had_but_none_before_it(self) -> None:
        partition = leader()
        step(partition, DirectoryFailed(BROKEN))
        stale(partition, BecomeLeader(4, 60, REPLICAS, REPLICAS, OPENED))
        stale(partition, BecomeLeader(5, 49, REPLICAS, REPLICAS, OPENED))
        assert step(partition, BecomeLeader(5, 50, REPLICAS, REPLICAS, OpenedLogOffsets(9, 9, 3))) == ["LeadEpoch 5", "ShowUpTo 3"]
        assert offsets(partition) == (9, 9, 3, 3)

    def test_a_follower_leads_from_the_next_epoch_on(self) -> None:
        partition = follower()
        assert step(partition, BecomeLeader(6, 51, REPLICAS, (1, 2))) == ["LeadEpoch 6", "WakeFetches", "EndPermits"]
        assert offsets(partition) == (10, 6, 4, 4)

    def test_a_follower_that_leads_alone_shows_what_it_has_before_it_wakes_fetches(self) -> None:
        assert step(follower(), BecomeLeader(6, 51, REPLICAS, (1,))) == ["LeadEpoch 6", "ShowUpTo 10", "WakeFetches", "EndPermits"]

    @pytest.mark.parametrize(("epoch", "version"), [(4, 60), (5, 50), (5, 51)])
    def test_a_follower_does_not_lead_an_epoch_that_another_leads_or_led(self, epoch: int, version: int) -> None:
        stale(follower(), BecomeLeader(epoch, version, REPLICAS, REPLICAS))

    def test_a_leader_begins_a_new_term_with_what_waits_and_without_progress(self) -> None:
        partition = leader()
        partition.follower_fetched(2, 10, 5, 1.0)
        partition.follower_fetched(3, 7, 5, 1.0)
        assert partition.committed_offset == 7
        assert step(partition, BecomeLeader(6, 51, REPLICAS, REPLICAS)) == ["LeadEpoch 6", "EndPermits"]
        assert partition.followers == {}
        partition.follower_fetched(3, 10, 6, 2.0)
        assert partition.committed_offset == 7, "broker 2 has not fetched in this epoch"

    def test_a_new_term_with_too_few_in_sync_fails_what_waits_for_them(self) -> None:
        said = step(leader(minimum=2), BecomeLeader(6, 51, REPLICAS, (1,)))
        assert said == ["LeadEpoch 6", "FailAppends NOT_ENOUGH_REPLICAS_AFTER_APPEND REPLICATED", "EndPermits"]

    def test_a_leader_keeps_progress_when_only_the_in_sync_set_changes(self) -> None:
        partition = leader((1, 2))
        partition.follower_fetched(2, 8, 5, 1.0)
        partition.follower_fetched(3, 8, 5, 1.0)
        assert step(partition, BecomeLeader(5, 51, REPLICAS, REPLICAS)) == ["EndPermits"]
        assert sorted(partition.followers) == [2, 3]
        partition.follower_fetched(2, 10, 5, 2.0)
        assert partition.committed_offset == 8, "broker 3 is in sync now"

    def test_a_smaller_in_sync_set_below_the_minimum_fails_only_what_waits_for_it(self) -> None:
        said = step(leader(minimum=2), BecomeLeader(5, 51, REPLICAS, (1,)))
        assert said == ["FailAppends NOT_ENOUGH_REPLICAS_AFTER_APPEND REPLICATED", "EndPermits"]

    @pytest.mark.parametrize(("epoch", "version"), [(4, 60), (5, 49), (5, 50)])
    def test_a_leader_takes_no_state_that_is_not_newer(self, epoch: int, version: int) -> None:
        stale(leader(), BecomeLeader(epoch, version, REPLICAS, (1,)))

    def test_a_leader_outside_its_in_sync_set_is_a_bug(self) -> None:
        closed, opened = offline(), leader()
        bug(closed, lambda: closed.step(BecomeLeader(5, 50, REPLICAS, (2, 3), OPENED)))
        bug(opened, lambda: opened.step(BecomeLeader(5, 51, REPLICAS, (2, 3))))

    def test_offsets_come_with_an_opened_log_and_only_then(self) -> None:
        closed = offline()
        bug(closed, lambda: closed.step(BecomeLeader(5, 50, REPLICAS, REPLICAS)))
        bug(closed, lambda: closed.step(BecomeLeader(5, 50, REPLICAS, REPLICAS, OpenedLogOffsets(10, 10, 11))))
        opened = leader()
        bug(opened, lambda: opened.step(BecomeLeader(6, 51, REPLICAS, REPLICAS, OPENED)))


class TestBecomeFollower:
    def test_an_offline_replica_follows(self) -> None:
        partition = offline()
        assert step(partition, BecomeFollower(5, 50, REPLICAS, 2, OPENED)) == []
        assert (partition.role, partition.leader_epoch, partition.leader_id, partition.isr) == (ReplicaRole.FOLLOWER, 5, 2, ())
        assert offsets(partition) == (10, 6, 4, 4)

    def test_an_offline_replica_follows_nobody_of_an_earlier_epoch(self) -> None:
        partition = follower()
        step(partition, DirectoryFailed(BROKEN))
        stale(partition, BecomeFollower(4, 60, REPLICAS, 3, OPENED))
        assert step(partition, BecomeFollower(5, 50, REPLICAS, 2, OPENED)) == []

    def test_a_follower_follows_another_leader(self) -> None:
        partition = follower()
        assert step(partition, BecomeFollower(6, 51, REPLICAS, 3)) == []
        assert (partition.leader_epoch, partition.leader_id) == (6, 3)
        assert step(partition, BecomeFollower(6, 52, (1, 3), -1)) == []
        assert (partition.leader_id, partition.replicas) == (-1, (1, 3))

    @pytest.mark.parametrize(("epoch", "version"), [(4, 60), (5, 49), (5, 50)])
    def test_a_follower_takes_no_state_that_is_not_newer(self, epoch: int, version: int) -> None:
        stale(follower(), BecomeFollower(epoch, version, REPLICAS, 3))

    def test_a_leader_fails_what_waits_when_another_leads(self) -> None:
        partition = leader()
        partition.follower_fetched(2, 10, 5, 1.0)
        said = step(partition, BecomeFollower(6, 51, REPLICAS, 2))
        assert said == ["FailAppends NOT_LEADER_OR_FOLLOWER WRITTEN", "WakeFetches", "EndPermits"]
        assert (partition.role, partition.isr, partition.followers, partition.is_sole) == (ReplicaRole.FOLLOWER, (), {}, False)

    @pytest.mark.parametrize(("epoch", "version"), [(4, 60), (5, 49), (5, 51)])
    def test_nobody_else_leads_the_epoch_of_a_leader(self, epoch: int, version: int) -> None:
        stale(leader(), BecomeFollower(epoch, version, REPLICAS, 2))

    def test_to_follow_itself_is_a_bug(self) -> None:
        partition = leader()
        bug(partition, lambda: partition.step(BecomeFollower(6, 51, REPLICAS, 1)))


class TestGrewAndFlushed:
    def test_without_a_log_both_are_bugs(self) -> None:
        partition = offline()
        bug(partition, lambda: partition.flushed(0))
        bug(partition, lambda: partition.grew(0))

    def test_a_write_of_a_follower_moves_its_log_end_and_nothing_else(self) -> None:
        partition = follower()
        assert not partition.grew(12)
        assert offsets(partition) == (12, 6, 4, 4)

    def test_a_sync_of_a_follower_moves_the_high_watermark_where_only_synced_records_are_shown(self) -> None:
        partition = follower(shows_flushed=True)
        assert step(partition, LeaderHighWatermark(9)) == ["ShowUpTo 6"]
        assert offsets(partition) == (10, 6, 9, 6)
        assert partition.flushed(8)
        assert partition.flushed(10)
        assert offsets(partition) == (10, 10, 9, 9)
        assert not follower().flushed(10)

    def test_alone_in_sync_a_write_is_committed_and_shown(self) -> None:
        partition = leader((1,))
        assert partition.grew(11)
        assert offsets(partition) == (11, 6, 11, 11)
        assert not partition.grew(11)

    def test_with_others_in_sync_a_write_is_neither(self) -> None:
        partition = leader()
        assert not partition.grew(11)
        assert offsets(partition) == (11, 6, 4, 4)

    def test_a_write_moves_what_is_committed_also_where_only_synced_records_are_shown(self) -> None:
        partition = leader((1,), shows_flushed=True)
        assert offsets(partition) == (10, 6, 10, 6)
        assert partition.grew(12), "appends with acks=all are open"
        assert offsets(partition) == (12, 6, 12, 6)
        assert partition.flushed(11)
        assert offsets(partition) == (12, 11, 12, 11)
        assert not partition.flushed(7), "a late sync of less"
        assert offsets(partition) == (12, 11, 12, 11)

    def test_a_log_that_shrinks_by_a_write_is_a_bug_and_so_is_a_sync_of_what_is_not_written(self) -> None:
        partition = leader()
        bug(partition, lambda: partition.grew(9))
        bug(partition, lambda: partition.flushed(11))


class TestFollowerFetched:
    @pytest.mark.parametrize("make", [offline, follower])
    def test_who_does_not_lead_refuses(self, make: Callable[[], Partition]) -> None:
        partition = make()
        assert refused(partition, lambda: partition.follower_fetched(2, 5, 5, 1.0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_the_least_of_the_set_is_committed(self) -> None:
        partition = leader()
        assert not partition.follower_fetched(2, 9, 5, 1.0), "of broker 3 nothing is known"
        assert partition.follower_fetched(3, 7, 5, 1.0)
        assert offsets(partition) == (10, 6, 7, 7)
        assert partition.follower_fetched(3, 10, 5, 2.0)
        assert offsets(partition) == (10, 6, 9, 9)

    def test_a_follower_out_of_sync_moves_nothing(self) -> None:
        partition = leader((1, 2))
        partition.follower_fetched(2, 7, 5, 1.0)
        assert not partition.follower_fetched(3, 5, 5, 1.0)
        assert not partition.follower_fetched(3, 10, 5, 1.0)
        assert partition.committed_offset == 7

    def test_one_that_goes_back_takes_nothing_back(self) -> None:
        partition = leader((1, 2))
        assert partition.follower_fetched(2, 8, 5, 1.0)
        assert not partition.follower_fetched(2, 0, 5, 2.0)
        partition.grew(12)
        assert not partition.follower_fetched(2, 8, 5, 3.0)
        assert offsets(partition) == (12, 6, 8, 8)

    @pytest.mark.parametrize(
        ("broker_id", "offset", "epoch", "code"),
        [
            (2, 10, 4, ErrorCode.FENCED_LEADER_EPOCH),
            (2, 10, -1, ErrorCode.FENCED_LEADER_EPOCH),
            (2, 10, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (4, 10, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (1, 10, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (2, 11, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
            (2, -1, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
        ],
    )
    def test_a_fetch_that_proves_nothing_leaves_no_progress(self, broker_id: int, offset: int, epoch: int, code: ErrorCode) -> None:
        partition = leader((1, 2))
        partition.follower_fetched(2, 7, 5, 1.0)
        assert refused(partition, lambda: partition.follower_fetched(broker_id, offset, epoch, 2.0)) is code

    def test_caught_up_is_who_has_all_or_had_all_at_the_fetch_before(self) -> None:
        partition = leader()
        partition.follower_fetched(2, 8, 5, 1.0)
        progress = partition.followers[2]
        assert progress.caught_up_s == -float("inf")
        partition.grew(12)
        partition.follower_fetched(2, 10, 5, 2.0)
        assert progress.caught_up_s == 1.0, "10 was the end when it fetched at 1.0"
        partition.follower_fetched(2, 11, 5, 3.0)
        assert progress.caught_up_s == 1.0, "12 was the end when it fetched at 2.0"
        partition.follower_fetched(2, 12, 5, 4.0)
        assert progress.caught_up_s == 4.0


class TestLeaderHighWatermark:
    def test_without_a_log_and_on_a_leader_it_is_a_bug(self) -> None:
        for partition in (offline(), leader()):
            bug(partition, lambda partition=partition: partition.step(LeaderHighWatermark(5)))  # type: ignore[misc]

    def test_a_follower_shows_what_it_has_of_it_and_never_less(self) -> None:
        partition = follower()
        assert step(partition, LeaderHighWatermark(8)) == ["ShowUpTo 8"]
        assert step(partition, LeaderHighWatermark(5)) == []
        assert step(partition, LeaderHighWatermark(99)) == ["ShowUpTo 10"]
        assert offsets(partition) == (10, 6, 10, 10)


class TestTruncated:
    def test_without_a_log_and_on_a_leader_it_is_a_bug(self) -> None:
        for partition in (offline(), leader()):
            bug(partition, lambda partition=partition: partition.step(LogTruncated(5, 0)))  # type: ignore[misc]

    def test_all_offsets_of_a_follower_go_back(self) -> None:
        partition = follower()
        step(partition, LeaderHighWatermark(8))
        assert step(partition, LogTruncated(9, 0)) == ["WakeFetches"]
        assert offsets(partition) == (9, 6, 8, 8)
        assert step(partition, LogTruncated(5, 0)) == ["WakeFetches"]
        assert offsets(partition) == (5, 5, 5, 5)

    def test_an_emptied_log_takes_all_offsets_along_to_its_new_start(self) -> None:
        partition = follower()
        assert step(partition, LogTruncated(100, 100)) == ["WakeFetches"]
        assert offsets(partition) == (100, 100, 100, 100)


class TestReconfigured:
    @pytest.mark.parametrize("make", [offline, follower])
    def test_who_does_not_lead_keeps_it_for_later(self, make: Callable[[], Partition]) -> None:
        partition = make()
        before = offsets(partition)
        assert step(partition, RulesChanged(2, shows_flushed=True)) == []
        assert offsets(partition) == before
        assert (partition.min_insync_replicas, partition.shows_flushed) == (2, True)

    def test_a_lower_minimum_commits_what_the_set_has(self) -> None:
        partition = leader((1,), minimum=2)
        assert offsets(partition) == (10, 6, 4, 4)
        assert step(partition, RulesChanged(1, shows_flushed=False)) == ["ShowUpTo 10", "EndPermits"]
        assert partition.is_sole

    def test_a_higher_minimum_fails_what_waits_for_the_set(self) -> None:
        partition = leader((1, 2), minimum=2)
        said = step(partition, RulesChanged(3, shows_flushed=False))
        assert said == ["FailAppends NOT_ENOUGH_REPLICAS_AFTER_APPEND REPLICATED", "EndPermits"]
        assert not partition.follower_fetched(2, 10, 5, 1.0)
        assert partition.committed_offset == 4

    def test_records_that_are_shown_stay_shown_when_only_synced_ones_are(self) -> None:
        partition = leader((1,))
        assert step(partition, RulesChanged(1, shows_flushed=True)) == ["EndPermits"]
        assert not partition.flushed(9)
        assert partition.high_watermark == 10
        partition.grew(12)
        assert partition.flushed(11)
        assert partition.high_watermark == 11
        assert step(partition, RulesChanged(1, shows_flushed=False)) == ["ShowUpTo 12", "EndPermits"]


class TestEnds:
    def test_an_offline_replica_stays_offline(self) -> None:
        partition = offline()
        assert step(partition, DirectoryFailed(BROKEN)) == []
        assert partition.role is ReplicaRole.OFFLINE

    def test_a_follower_goes_offline(self) -> None:
        partition = follower()
        assert step(partition, DirectoryFailed(BROKEN)) == ["WakeFetches"]
        assert (partition.role, partition.leader_epoch, partition.leader_id) == (ReplicaRole.OFFLINE, 5, -1)

    def test_a_leader_goes_offline_and_fails_what_waits(self) -> None:
        partition = leader((1,))
        assert step(partition, DirectoryFailed(BROKEN)) == ["FailAppends KAFKA_STORAGE_ERROR WRITTEN", "WakeFetches", "EndPermits"]
        assert (partition.role, partition.is_sole) == (ReplicaRole.OFFLINE, False)
        assert refused(partition, lambda: partition.check_acks(1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_an_offline_replica_is_removed(self) -> None:
        assert step(offline(), ReplicaStopped(GONE)) == []

    def test_a_follower_is_removed(self) -> None:
        assert step(follower(), ReplicaStopped(GONE)) == ["WakeFetches"]

    def test_a_leader_is_removed_and_fails_what_waits_with_the_reason(self) -> None:
        said = step(leader(), ReplicaStopped(GONE))
        assert said == ["FailAppends UNKNOWN_TOPIC_OR_PARTITION WRITTEN", "WakeFetches", "EndPermits"]

    @pytest.mark.parametrize(
        "event",
        [
            BecomeLeader(6, 51, REPLICAS, REPLICAS, OPENED),
            BecomeFollower(6, 51, REPLICAS, 2, OPENED),
            RulesChanged(1, shows_flushed=False),
            LeaderHighWatermark(5),
            LogTruncated(5, 0),
            DirectoryFailed(BROKEN),
            ReplicaStopped(GONE),
        ],
    )
    def test_after_its_removal_every_event_is_a_bug(self, event: PartitionEvent) -> None:
        partition = leader()
        step(partition, ReplicaStopped(GONE))
        bug(partition, lambda: partition.step(event))
        bug(partition, lambda: partition.flushed(6))
        assert refused(partition, lambda: partition.follower_fetched(2, 10, 5, 1.0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestQuestions:
    def test_acks_all_needs_the_configured_minimum_and_the_others_only_a_leader(self) -> None:
        partition = leader((1, 2), minimum=2)
        for acks in (0, 1, -1):
            partition.check_acks(acks)
        step(partition, BecomeLeader(5, 51, REPLICAS, (1,)))
        partition.check_acks(0)
        partition.check_acks(1)
        with pytest.raises(PeerError, match=r"t-0: 1 of 3 replicas in sync, min\.insync\.replicas is 2") as raised:
            partition.check_acks(-1)
        assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        for other in (offline(), follower()):
            assert refused(other, lambda other=other: other.check_acks(0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[misc]

    def test_a_minimum_above_the_number_of_replicas_counts_up_to_that(self) -> None:
        """As in Kafka (`Partition.effectiveMinIsr`): a topic with one replica could never be written otherwise."""
        partition = offline(minimum=3)
        assert step(partition, BecomeLeader(5, 50, (1,), (1,), OPENED)) == ["LeadEpoch 5", "ShowUpTo 10"]
        partition.check_acks(-1)
        assert partition.grew(11)
        assert partition.open_offset(Level.REPLICATED) == partition.high_watermark == 11
        said = step(partition, BecomeLeader(5, 51, (1, 2), (1,)))  # it is being moved, or given another replica
        assert said == ["FailAppends NOT_ENOUGH_REPLICAS_AFTER_APPEND REPLICATED", "EndPermits"]
        assert refused(partition, lambda: partition.check_acks(-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert step(partition, BecomeLeader(6, 60, (1, 2), (1, 2))) == ["LeadEpoch 6", "EndPermits"]
        partition.check_acks(-1)
        assert step(partition, RulesChanged(4, shows_flushed=False)) == ["EndPermits"]
        step(partition, BecomeLeader(6, 61, (1,), (1,)))
        partition.check_acks(-1)

    def test_a_clients_epoch_is_compared_on_leaders_and_followers(self) -> None:
        for partition in (leader(), follower()):
            partition.check_leader_epoch(5)
            partition.check_leader_epoch(-1)
            for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
                with pytest.raises(PeerError) as raised:
                    partition.check_leader_epoch(epoch)
                assert raised.value.code is code

    def test_each_level_opens_up_to_the_least_of_what_it_asks_for(self) -> None:
        partition = leader((1, 2))
        partition.follower_fetched(2, 8, 5, 1.0)
        opened = {level: partition.open_offset(level) for level in (Level.WRITTEN, Level.FLUSHED, ALL, Level.FLUSHED | ALL)}
        assert opened == {Level.WRITTEN: 10, Level.FLUSHED: 6, ALL: 8, Level.FLUSHED | ALL: 6}

    def test_acks_all_waits_for_the_set_and_not_for_the_disk_that_readers_wait_for(self) -> None:
        partition = leader((1, 2), shows_flushed=True)
        assert partition.follower_fetched(2, 10, 5, 1.0)
        assert (partition.open_offset(ALL), partition.high_watermark) == (10, 6)

    def test_sole_is_who_is_the_set_where_one_is_enough(self) -> None:
        assert leader((1,)).is_sole
        assert not leader((1, 2)).is_sole
        assert not leader((1,), minimum=2).is_sole
        assert not follower().is_sole


class TestScenarios:
    def test_r1_a_follower_that_missed_an_epoch_of_the_same_leader_is_not_believed(self) -> None:
        partition = leader((1, 2))
        step(partition, BecomeLeader(6, 51, REPLICAS, (1, 2)))
        step(partition, BecomeLeader(7, 52, REPLICAS, (1, 2)))
        for epoch in (5, 6):
            assert refused(partition, lambda epoch=epoch: partition.follower_fetched(2, 10, epoch, 1.0)) is ErrorCode.FENCED_LEADER_EPOCH  # type: ignore[misc]
        assert partition.committed_offset == 4

    def test_r2_a_fresh_leader_commits_nothing_before_the_set_has_fetched_in_its_epoch(self) -> None:
        partition = follower()
        step(partition, BecomeLeader(6, 51, REPLICAS, REPLICAS))
        partition.follower_fetched(2, 10, 6, 1.0)
        assert partition.committed_offset == 4
        assert partition.follower_fetched(3, 10, 6, 1.0)

    def test_r3_a_replica_removed_and_added_again_does_not_keep_its_progress(self) -> None:
        partition = leader()
        partition.follower_fetched(2, 10, 5, 1.0)
        partition.follower_fetched(3, 10, 5, 1.0)
        step(partition, BecomeLeader(5, 51, (1, 2), (1, 2)))
        step(partition, BecomeLeader(5, 52, REPLICAS, (1, 2)))
        assert sorted(partition.followers) == [2]

    def test_r3_nor_does_one_that_was_not_in_sync(self) -> None:
        partition = leader((1, 2))
        partition.follower_fetched(3, 10, 5, 1.0)
        step(partition, BecomeLeader(5, 51, (1, 2), (1, 2)))
        step(partition, BecomeLeader(5, 52, REPLICAS, (1, 2)))
        assert partition.followers == {}

    def test_r3_nor_does_it_when_only_the_state_after_both_is_seen(self) -> None:
        partition = leader()
        partition.follower_fetched(3, 10, 5, 1.0)
        step(partition, BecomeLeader(5, 52, REPLICAS, (1, 2)))
        assert partition.followers == {}

    def test_r4_a_proposed_replica_counts_until_the_proposal_is_answered(self) -> None:
        partition = leader((1, 2))
        partition.proposed_isr = REPLICAS  # replication adds the event
        partition.follower_fetched(2, 10, 5, 1.0)
        partition.follower_fetched(3, 6, 5, 1.0)
        assert partition.committed_offset == 6
        assert step(partition, BecomeLeader(5, 51, REPLICAS, (1, 2))) == ["ShowUpTo 10", "EndPermits"]

    def test_r5_a_fetch_of_another_epoch_moves_nothing(self) -> None:
        partition = leader((1, 2))
        partition.follower_fetched(2, 6, 5, 1.0)
        assert refused(partition, lambda: partition.follower_fetched(2, 9, 4, 2.0)) is ErrorCode.FENCED_LEADER_EPOCH
        assert partition.committed_offset == 6

    def test_r5_a_follower_shows_nothing_beyond_where_it_was_cut(self) -> None:
        partition = follower()
        step(partition, LogTruncated(7, 0))
        assert step(partition, LeaderHighWatermark(9)) == ["ShowUpTo 7"]
        partition.grew(9)
        assert partition.high_watermark == 7, "the leader's high watermark was about other records"

    def test_r9_a_log_emptied_behind_the_leaders_start_has_no_offset_left_behind(self) -> None:
        partition = follower()
        step(partition, LogTruncated(50, 50))
        assert offsets(partition) == (50, 50, 50, 50)
        partition.grew(55)
        assert step(partition, LeaderHighWatermark(53)) == ["ShowUpTo 53"]

    def test_r15_a_smaller_set_commits_at_once_what_it_has(self) -> None:
        partition = leader()
        partition.follower_fetched(2, 10, 5, 1.0)
        partition.follower_fetched(3, 5, 5, 1.0)
        assert partition.open_offset(ALL) == 5
        assert step(partition, BecomeLeader(5, 51, REPLICAS, (1, 2))) == ["ShowUpTo 10", "EndPermits"]
        assert partition.open_offset(ALL) == 10

    def test_r16_nothing_is_shown_while_fewer_are_in_sync_than_the_minimum(self) -> None:
        partition = leader((1, 2), minimum=2)
        partition.follower_fetched(2, 10, 5, 1.0)
        step(partition, BecomeLeader(5, 51, REPLICAS, (1,)))
        assert not partition.grew(15), "acks=1 is taken"
        assert offsets(partition) == (15, 6, 10, 10)
        step(partition, BecomeLeader(5, 52, REPLICAS, (1, 2)))
        assert partition.follower_fetched(2, 15, 5, 2.0)
        assert partition.high_watermark == 15

    def test_r17_a_minimum_that_is_lowered_and_raised_takes_nothing_back(self) -> None:
        partition = leader((1,), minimum=2)
        step(partition, RulesChanged(1, shows_flushed=False))
        said = step(partition, RulesChanged(2, shows_flushed=False))
        assert said == ["FailAppends NOT_ENOUGH_REPLICAS_AFTER_APPEND REPLICATED", "EndPermits"]
        partition.grew(12)
        assert offsets(partition) == (12, 6, 10, 10)

    def test_r18_an_append_that_failed_for_lack_of_replicas_is_committed_later(self) -> None:
        partition = leader((1, 2), minimum=2)
        partition.grew(11)
        said = step(partition, BecomeLeader(5, 51, REPLICAS, (1,)))
        assert said == ["FailAppends NOT_ENOUGH_REPLICAS_AFTER_APPEND REPLICATED", "EndPermits"]
        step(partition, BecomeLeader(5, 52, REPLICAS, (1, 2)))
        assert partition.follower_fetched(2, 11, 5, 1.0)
        assert partition.open_offset(ALL) == 11

    def test_r19_a_failed_read_leaves_no_progress_of_minus_one(self) -> None:
        partition = leader((1, 2))
        partition.follower_fetched(2, 9, 5, 1.0)
        assert refused(partition, lambda: partition.follower_fetched(2, -1, 5, 2.0)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.followers[2].log_end_offset == 9

    def test_r23_a_new_leader_keeps_what_it_has_after_its_high_watermark(self) -> None:
        partition = follower()
        assert offsets(partition) == (10, 6, 4, 4)
        step(partition, BecomeLeader(6, 51, REPLICAS, (1, 2)))
        assert offsets(partition) == (10, 6, 4, 4)
        assert partition.follower_fetched(2, 10, 6, 1.0)
        assert partition.high_watermark == 10

    def test_z15_a_state_of_the_same_epoch_resets_no_progress(self) -> None:
        partition = leader()
        partition.follower_fetched(2, 10, 5, 3.0)
        step(partition, BecomeLeader(5, 51, REPLICAS, REPLICAS))
        assert partition.followers[2].caught_up_s == 3.0
        stale(partition, BecomeLeader(5, 51, REPLICAS, REPLICAS))


# The leader's in-sync set


def fetched_by(partition: Partition, broker_id: int, offset: int, now_s: float = 1.0, **options: int) -> bool:
    return partition.follower_fetched(broker_id, offset, partition.leader_epoch, now_s, **options)


def test_one_proposal_is_out_at_a_time_and_every_outcome_frees_the_slot() -> None:
    """Z16. Accepted, refused, and replaced by a state of the controller."""
    partition = leader((1, 2))
    assert step(partition, ProposeIsr((1, 2, 3))) == ["EndPermits"]
    assert not may_propose(partition)
    with pytest.raises(AssertionError):
        partition.step(ProposeIsr((1,)))
    step(partition, IsrSettled(5, (1, 2, 3), 51))
    assert (partition.isr, partition.state_version, may_propose(partition)) == ((1, 2, 3), 51, True)
    step(partition, ProposeIsr((1, 2)))
    step(partition, IsrSettled(5, (1, 2, 3), 51))
    assert (partition.isr, may_propose(partition)) == ((1, 2, 3), True)
    step(partition, ProposeIsr((1, 2)))
    step(partition, BecomeLeader(5, 52, REPLICAS, (1, 3)))
    assert (partition.isr, may_propose(partition)) == ((1, 3), True)


@pytest.mark.parametrize("late", [IsrSettled(4, (1, 2, 3), 60), IsrSettled(5, (1, 2, 3), 49)])
def test_the_outcome_of_an_earlier_term_or_state_is_ignored(late: IsrSettled) -> None:
    partition = leader((1, 2))
    assert step(partition, late) == []
    assert (partition.isr, partition.state_version) == ((1, 2), 50)


def test_a_follower_ignores_the_outcome_of_what_it_proposed_as_leader() -> None:
    """Z17."""
    partition = leader((1, 2))
    step(partition, ProposeIsr((1,)))
    step(partition, BecomeFollower(6, 60, REPLICAS, leader_id=2))
    assert step(partition, IsrSettled(5, (1,), 61)) == []
    assert (partition.role, partition.isr) == (ReplicaRole.FOLLOWER, ())


def test_r15_a_shrink_moves_the_high_watermark_when_the_tree_has_answered() -> None:
    partition = leader()
    fetched_by(partition, 2, 10)
    assert step(partition, ProposeIsr((1, 2))) == ["EndPermits"]
    assert partition.high_watermark == 4, "the maximal set counts"
    assert step(partition, IsrSettled(5, (1, 2), 51)) == ["ShowUpTo 10", "EndPermits"]


def test_r4_who_is_proposed_counts_at_once() -> None:
    partition = leader((1, 2))
    fetched_by(partition, 2, 10)
    fetched_by(partition, 3, 10)
    step(partition, ProposeIsr(REPLICAS))
    partition.grew(12)
    assert not fetched_by(partition, 2, 12)
    assert partition.committed_offset == 10
    assert fetched_by(partition, 3, 12)


def test_r2_who_joins_has_all_that_is_committed_and_all_from_before_the_term() -> None:
    partition = leader((1, 2))
    assert not may_join(partition, 3), "it has not fetched in this epoch"
    fetched_by(partition, 3, 9)
    assert not may_join(partition, 3), "the term begins at 10, though only 4 is known to be committed"
    fetched_by(partition, 3, 10)
    assert may_join(partition, 3)
    fetched_by(partition, 2, 10)
    partition.grew(12)
    fetched_by(partition, 2, 12)
    assert not may_join(partition, 3), "12 is committed now"


def test_the_same_leader_with_a_newer_state_keeps_where_its_term_began() -> None:
    """Z15: neither the term's offset nor its time begins again."""
    partition = leader((1, 2))
    partition.grew(12)
    step(partition, BecomeLeader(5, 51, REPLICAS, (1, 2), None, 100.0))
    assert (partition.term_offset, partition.term_s) == (10, 0.0)
    step(partition, BecomeLeader(6, 52, REPLICAS, (1, 2), None, 100.0))
    assert (partition.term_offset, partition.term_s) == (12, 100.0)


def test_a_member_lags_when_the_time_is_over_since_it_had_all_or_since_the_term_began() -> None:
    partition = leader()
    assert not lags(partition, 2, 30.0, 30.0)
    assert lags(partition, 2, 30.1, 30.0)
    fetched_by(partition, 2, 10, 20.0)
    partition.grew(12)
    assert not lags(partition, 2, 50.0, 30.0)
    assert lags(partition, 2, 50.1, 30.0)
    fetched_by(partition, 2, 12, 20.0)
    assert not lags(partition, 2, 1000.0, 30.0), "it has all that there is"


def test_a_member_that_registers_again_under_load_does_not_lag_for_that() -> None:
    """Its first fetch does not reach the end of the leader's log, which grows all the time (Z15)."""
    partition = leader()
    fetched_by(partition, 2, 10, 100.0, broker_epoch=7)
    partition.grew(20)
    fetched_by(partition, 2, 12, 101.0, broker_epoch=8)
    assert not lags(partition, 2, 130.0, 30.0)
    assert lags(partition, 2, 130.1, 30.0)


def test_z18_the_incarnation_that_fetched_is_the_one_that_joins() -> None:
    partition = leader((1, 2))
    fetched_by(partition, 3, 10, broker_epoch=7)
    assert wanted_isr(partition, {3: 8}, 1.0, 30.0) == (1, 2)
    assert wanted_isr(partition, {}, 1.0, 30.0) == (1, 2)
    assert wanted_isr(partition, {3: 7}, 1.0, 30.0) == REPLICAS
    fetched_by(partition, 3, 2, broker_epoch=8)
    assert not may_join(partition, 3), "what the earlier one had is forgotten"
    with pytest.raises(PeerError) as late:
        fetched_by(partition, 3, 10, broker_epoch=7)
    assert late.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("isr", "elr", "wanted", "minimum", "after"),
    [
        ((1, 2, 3), (), (1, 2), 2, ()),
        ((1, 2), (), (1,), 2, (2,)),
        ((1,), (2,), (1, 3), 3, (2,)),
        ((1, 2), (3,), (1,), 2, (3, 2)),
        ((1,), (2, 3), (1, 2), 2, ()),
    ],
)
def test_who_leaves_below_the_minimum_stays_eligible(
    isr: tuple[int, ...], elr: tuple[int, ...], wanted: tuple[int, ...], minimum: int, after: tuple[int, ...]
) -> None:
    assert elr_after(isr, elr, wanted, minimum) == after


def test_in_doubt_a_leader_with_other_replicas_commits_nothing_until_it_is_certain() -> None:
    partition = leader((1,))
    assert partition.is_sole
    assert step(partition, SessionDoubted(True)) == ["EndPermits"]
    assert not partition.grew(12)
    assert partition.open_offset(ALL) == 10
    assert not may_propose(partition)
    assert step(partition, SessionDoubted(False)) == ["ShowUpTo 12", "EndPermits"]
    assert partition.is_sole


def test_a_replica_without_others_is_never_in_doubt() -> None:
    partition = offline()
    partition.step(BecomeLeader(5, 50, (1,), (1,), OPENED))
    step(partition, SessionDoubted(True))
    assert partition.grew(12)
    assert partition.high_watermark == 12


def test_a_leader_is_followed_while_all_that_could_be_elected_fetch_from_it() -> None:
    """Who leads a later epoch, or follows another leader in one, fetches from this one no more."""
    partition = leader((1, 2, 3), minimum=2)
    assert not is_followed(partition, 2, 0.0)
    partition.follower_fetched(2, 10, 5, 1.0)
    partition.follower_fetched(3, 9, 5, 2.0)
    assert [is_followed(partition, 2, since_s) for since_s in (0.5, 1.0, 1.5)] == [True, True, False]
    step(partition, ProposeIsr((1, 3)))
    assert not is_followed(partition, 2, 1.5), "it may not have been accepted"
    step(partition, IsrSettled(5, (1, 3), 51))
    assert is_followed(partition, 2, 1.5)
    step(partition, IsrSettled(5, (1,), 52))
    assert [is_followed(partition, minimum, 9.0) for minimum in (1, 2)] == [True, False], "below the minimum those that have left may be"


def test_a_leadership_that_is_lost_fails_what_waits_and_ends_with_a_newer_state() -> None:
    partition = leader()
    assert step(partition, LeadershipLost(GONE)) == [f"FailAppends {GONE.code.name} WRITTEN", "WakeFetches", "EndPermits"]
    assert (partition.role, partition.leader_id) == (ReplicaRole.FOLLOWER, -1)
    assert step(partition, LeadershipLost(GONE)) == []
    step(partition, BecomeLeader(6, 51, REPLICAS, REPLICAS))
    assert partition.role is ReplicaRole.LEADER
