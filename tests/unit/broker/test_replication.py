"""Brokers that replicate a partition: what is acknowledged is on them, and a follower's log becomes its leader's. R numbers name what
others got wrong.
"""

from typing import Any

import pytest

from moldau.broker.handlers import offset_lookups
from moldau.broker.replicas import fetchers
from moldau.broker.replicas.follower_log import FollowerLogs
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.broker.replicas.replication import Replication
from moldau.fetching.events import LogEnd
from moldau.log import fetched as fetched_batches
from moldau.log.checkpoints import CLEANED, HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import CoordinationError, ErrorCode, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.ports.coordination import Delete, SessionEvent, SessionExpiredError, SessionState
from support.one_log import flush
from support.replica_world import STATE, ZERO, ReplicaWorld, fetched, produced


def three(**settings: Any) -> ReplicaWorld:
    """Broker 1 leads epoch 5, 2 and 3 follow in sync."""
    world = ReplicaWorld(3, **settings)
    world.lead(1)
    world.run()
    return world


def ends(world: ReplicaWorld) -> list[tuple[int, int]]:
    """Log end offset and high watermark of each broker."""
    return [(world.machine(each).log_end_offset, world.machine(each).high_watermark) for each in world.worlds]


def test_a_record_with_acks_all_is_on_three_brokers_before_its_answer() -> None:
    world = three()
    producer = world.append(1, b"a")
    logs = [[world.values(each) for each in world.ids]]
    while not (answers := produced(producer)):
        world.clock.settle()
        world.network.move()
        logs.append([world.values(each) for each in world.ids])
        assert len(logs) < 100
    assert answers == [(0, 0)]
    assert logs[0] == [[b"a"], [], []], "the world begins without"
    assert logs[-1] == [[b"a"]] * 3


def test_followers_learn_the_high_watermark_by_their_next_fetch() -> None:
    world = three()
    world.append(1, b"a")
    world.run(1.0)
    assert ends(world) == [(1, 1)] * 3


def test_consumers_see_only_what_all_in_sync_have() -> None:
    world = ReplicaWorld(3)
    world.lead(1, followers=[2])
    world.append(1, b"a", acks=1)
    world.run(0.2)
    found = fetched(world.client(1))
    assert (found.error_code, found.high_watermark, world.values(2)) == (0, 0, [b"a"])


def test_a_leader_is_killed_and_the_next_has_what_was_acknowledged() -> None:
    world = three()
    producer = world.append(1, b"a", b"b")
    world.run()
    assert produced(producer) == [(0, 0)]
    world.kill(1)
    world.lead(2, isr=(2, 3))
    world.run(1.0)
    assert world.values(2) == world.values(3) == [b"a", b"b"]
    again = world.append(2, b"c")
    world.run(1.0)
    assert produced(again) == [(0, 2)]
    assert ends(world) == [(3, 3), (3, 3)]


def test_a_diverged_follower_truncates_and_has_what_the_leader_has() -> None:
    """Broker 1 has a record of epoch 5 that broker 2 never had; broker 2 writes others in epoch 6."""
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"both")
    world.run(1.0)
    world.lead(1, followers=[])
    world.append(1, b"lost", b"lost too", acks=1)
    world.lead(2)
    world.append(2, b"other")
    world.run(2.0)
    assert world.values(1) == world.values(2) == [b"both", b"other"]
    assert ends(world) == [(2, 2), (2, 2)]
    assert world.hosted(1).log.latest_epoch == world.epoch


def test_r1_a_follower_that_missed_an_epoch_of_the_same_leader_reconciles() -> None:
    """Broker 1 leads 5 and 7, broker 2 led 6 and follows again: what it wrote in 6 goes."""
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a")
    world.run(1.0)
    world.lead(2, followers=[])
    world.append(2, b"of epoch 6", acks=1)
    world.lead(1)
    world.append(1, b"of epoch 7")
    world.run(2.0)
    assert world.values(1) == world.values(2) == [b"a", b"of epoch 7"]
    world.lead(1, followers=[])
    world.lead(1)
    producer = world.append(1, b"of epoch 9")
    world.run(2.0)
    assert produced(producer) == [(0, 2)]
    assert world.values(2) == [b"a", b"of epoch 7", b"of epoch 9"]


def test_r5_a_diverging_answer_shows_nothing_before_the_log_is_truncated(caplog: pytest.LogCaptureFixture) -> None:
    """The leader's high watermark reaches beyond where the follower's own records differ."""
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a")
    world.run(1.0)
    world.lead(1, followers=[])
    world.append(1, b"x", b"y", b"z", acks=1)
    world.lead(2, isr=(2,), followers=[])
    world.append(2, b"b", b"c")
    shown: list[int] = []
    world.lead(2, isr=(2,))
    for _ in range(60):
        world.clock.settle()
        world.network.move()
        log = world.hosted(1).log
        shown.append(log.high_watermark)
        assert world.values(1)[: log.high_watermark] == world.values(2)[: log.high_watermark]
    world.run(2.0)
    assert world.values(1) == [b"a", b"b", b"c"]
    assert "below its high watermark" not in caplog.text


def test_a_follower_truncates_below_its_high_watermark_without_a_warning_where_the_leader_has_compacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It knows the epoch after that one not at all, as all records of that were removed before it fetched them (seed 287)."""
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a")
    world.lead(1)
    world.append(1, b"b", b"c")
    world.run(2.0)
    hosted, epoch = world.hosted(2), world.epoch - 1
    assert hosted.log.high_watermark == 3
    FollowerLogs(world.worlds[2].broker.replicas, world.clock).truncate(hosted, epoch, 9)
    assert (hosted.log.log_end_offset, hosted.log.high_watermark) == (1, 1)
    assert "below its high watermark" not in caplog.text
    FollowerLogs(world.worlds[2].broker.replicas, world.clock).truncate(hosted, epoch, 0)
    assert "below its high watermark" in caplog.text


def test_no_checkpoint_reaches_beyond_the_end_of_a_log_that_is_truncated_inside_a_batch() -> None:
    """The batch goes as a whole: after a crash a start would miss the part of it that the checkpoints had as synced."""
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a")
    world.append(1, b"b", b"c", b"d")
    world.run(1.0)
    broker, hosted = world.worlds[2].broker, world.hosted(2)
    flush(hosted.log)
    drain(broker.logs.checkpoint())
    assert read_offsets(world.worlds[2].disk, f"/data/{RECOVERY_POINTS}")[ZERO] == 4
    FollowerLogs(broker.replicas, world.clock).truncate_to(hosted, 3)
    assert hosted.log.log_end_offset == 1
    found = [read_offsets(world.worlds[2].disk, f"/data/{name}").get(ZERO, 0) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)]
    assert found == [1, 1]


def test_a_follower_marks_its_log_before_it_appends_what_has_holes() -> None:
    """A start goes by that, whatever the policy is then."""
    world = ReplicaWorld(2)
    world.lead(1, followers=[])
    world.append(1, b"a", acks=1)
    world.hosted(1).log.skip_to(5, 0)
    world.append(1, b"b", acks=1)
    world.lead(1)
    marked, disk = [], world.worlds[2].disk
    while not (log := world.hosted(2).log).log_end_offset:
        world.clock.advance(0.01)
        world.network.move()
        marked.append(read_offsets(disk, f"/data/{CLEANED}"))
    assert (log.log_end_offset, marked[0], marked[-1]) == (1, {}, {})
    while log.log_end_offset == 1:
        world.clock.advance(0.01)
        world.network.move()
    assert (log.log_end_offset, read_offsets(disk, f"/data/{CLEANED}")) == (6, {ZERO: 0})


def test_r7_a_follower_that_had_an_answer_without_records_still_sees_that_it_diverges() -> None:
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a", b"x", acks=1)
    world.run(2.0)  # several answers without records
    world.lead(2, isr=(2,))
    world.run(1.0)
    world.lead(1, isr=(1,), followers=[])
    world.append(1, b"of 7", acks=1)
    world.lead(2, isr=(2,), followers=[1])
    world.append(2, b"of 8")
    world.run(2.0)
    assert world.values(1) == world.values(2) == [b"a", b"x", b"of 8"]


def test_r8_elections_without_records_leave_no_epochs_behind() -> None:
    """Broker 1 leads 5 and 6 without a record after the first; its own terms end when it follows."""
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a")
    world.run(1.0)
    world.lead(1)
    world.lead(2)
    assert world.hosted(1).log.end_offset_for_epoch(6) == (-1, -1)
    world.run(1.0)
    assert world.hosted(2).log.end_offset_for_epoch(world.epoch) == (world.epoch, 1), "known before its first record"
    world.append(2, b"b")
    world.run(1.0)
    assert world.values(1) == [b"a", b"b"]


def test_r9_a_follower_whose_log_ends_before_the_leaders_start_begins_there_with_everything() -> None:
    world = ReplicaWorld(2)
    world.lead(1, isr=(1,))
    world.append(1, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    world.run(1.0)
    follower = world.hosted(2)
    assert [each.producer_id for each in follower.log.active_producers()] == [7]
    world.lead(1, isr=(1,), followers=[])
    world.cut()
    for number in range(5):
        world.append(1, b"%d" % number, acks=1)
    world.hosted(1).log.delete_records(4)
    world.lead(1, isr=(1,))
    while follower.log.start_offset == 0:
        world.clock.advance(0.01)
        world.network.move()
    log, machine = follower.log, follower.machine
    assert (log.start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (4, 4, 4, 4)
    assert (machine.log_end_offset, machine.high_watermark) == (4, 4)
    assert log.active_producers() == []
    world.run(2.0)
    assert (log.start_offset, log.log_end_offset, machine.high_watermark) == (4, 6, 6)


def test_r13_many_partitions_that_end_after_their_leader_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer of a fetch has all of them: with a request for each, those beyond the bound of the connection would end it for all."""
    count, lookups = 130, list[int]()
    world = ReplicaWorld(2, partitions=count)
    for index in range(count):
        world.lead(2, index=index, isr=(2,), followers=[])
        world.append(2, b"a", b"b", acks=1, partition=index)
    look_up = offset_lookups._look_up_epochs

    def count_partitions(services: Any, message: Any, reply: Any) -> Any:
        lookups.append(sum(len(topic.partitions) for topic in message.topics))
        return look_up(services, message, reply)

    monkeypatch.setattr(offset_lookups, "_look_up_epochs", count_partitions)
    monkeypatch.setattr(fetchers, "end_of", lambda log: LogEnd(log.log_end_offset, -1, log.start_offset))  # as where none is known
    for index in range(count):
        world.lead(1, index=index, isr=(1,))
    world.run(3.0)
    logs = [world.worlds[2].broker.replicas.hosted[TopicPartition("t", index)].log for index in range(count)]
    assert {log.log_end_offset for log in logs} == {0}
    assert (sum(lookups), len(lookups) < 10) == (count, True)


def test_r10_a_log_that_starts_in_the_middle_of_a_batch_is_fetched_from_there() -> None:
    world = ReplicaWorld(2)
    world.lead(1, isr=(1,), followers=[])
    world.append(1, b"a", b"b", b"c", acks=1)
    world.hosted(1).log.delete_records(2)
    world.lead(1, isr=(1,))
    world.run(2.0)
    log = world.hosted(2).log
    assert (log.start_offset, log.log_end_offset) == (2, 3)


def test_r11_a_follower_takes_what_its_own_settings_would_refuse() -> None:
    world = ReplicaWorld(2)
    world.lead(1)
    world.hosted(2).limits = world.hosted(2).limits._replace(max_message_bytes=1)
    producer = world.append(1, b"a")
    world.run(1.0)
    assert produced(producer) == [(0, 0)]


def test_deleted_records_go_on_followers_too() -> None:
    world = three()
    world.append(1, b"a", b"b")
    world.run(1.0)
    world.hosted(1).log.delete_records(1)
    world.run(1.0)
    assert [world.hosted(each).log.start_offset for each in world.ids] == [1, 1, 1]


def test_a_follower_that_catches_up_joins_and_the_tree_and_the_controller_learn_of_it() -> None:
    world = ReplicaWorld(3)
    world.lead(1, isr=(1,))
    world.append(1, b"a", acks=1)
    world.run(1.0)
    assert world.state(1).isr == (1, 2, 3)
    assert world.machine(1).isr == (1, 2, 3)
    assert world.machine(1).state_version == world.worlds[1].store.get(STATE).stat.version
    assert len(world.worlds[1].store.children("/isr_change_notification")) >= 1


def test_a_follower_that_is_gone_leaves_after_the_lag_time_and_what_waits_is_acknowledged() -> None:
    world = three(replica_lag_time_max_ms=2000)
    world.kill(3)
    producer = world.append(1, b"a")
    world.run(1.5)
    assert (produced(producer), world.state(1).isr) == ([], (1, 2, 3))
    world.run(2.5)
    assert world.state(1).isr == (1, 2)
    assert produced(producer) == [(0, 0)], "evaluated when the tree has answered, not at the next fetch (R15)"


def test_below_the_minimum_nothing_is_committed_and_who_left_stays_eligible() -> None:
    world = three(replica_lag_time_max_ms=2000, min_insync_replicas=2)
    world.kill(2)
    world.kill(3)
    producer = world.append(1, b"a")
    world.run(4.0)
    assert produced(producer) == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]
    assert (world.state(1).isr, world.state(1).elr) == ((1,), (2, 3))
    again = world.append(1, b"b")
    world.run()
    assert produced(again) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert ends(world) == [(1, 0)]


def test_r18_a_batch_that_was_appended_with_too_few_in_sync_and_is_sent_again_is_there_once() -> None:
    """Where its producer is idempotent; the other one's is there twice, as Kafka documents."""
    for producer, ends_at in (({"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}, 1), ({}, 2)):
        world = three(min_insync_replicas=2)
        world.lead(1, followers=[])
        first = world.append(1, b"a", **producer)
        world.run()
        world.lead(1, isr=(1,), followers=[])
        assert produced(first) == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]
        world.lead(1)
        again = world.append(1, b"a", **producer)
        world.run(1.0)
        assert produced(again) == [(0, ends_at - 1)]
        assert ends(world) == [(ends_at, ends_at)] * 3


def test_z8_a_state_that_names_another_leader_ends_this_leadership() -> None:
    world = three(replica_lag_time_max_ms=2000)
    store = world.worlds[1].store
    store.set(STATE, store.get(STATE).data.replace(b'"leader":1', b'"leader":2').replace(b'"leader_epoch":5', b'"leader_epoch":6'))
    world.kill(3)
    producer = world.append(1, b"a")
    world.run(4.0)
    assert produced(producer) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert world.machine(1).role is ReplicaRole.FOLLOWER
    assert ZERO in world.worlds[1].broker.replicas.hosted
    world.lead(1, epochs=2)
    assert world.machine(1).role is ReplicaRole.LEADER


def test_z8_a_later_state_of_this_leader_is_adopted() -> None:
    world = three(replica_lag_time_max_ms=2000)
    store = world.worlds[1].store
    store.set(STATE, store.get(STATE).data.replace(b"[1,2,3]", b"[1,2]"))
    world.kill(3)
    producer = world.append(1, b"a")
    world.run(4.0)
    assert produced(producer) == [(0, 0)]
    assert world.machine(1).isr == world.state(1).isr == (1, 2)


def test_z8_a_state_from_before_this_term_ends_no_leadership() -> None:
    """A server of the tree gives it that lags: this broker's may, and not that of the controller. No other election would follow."""
    world = ReplicaWorld(3)
    world.lead(1, isr=(1, 2))
    earlier = world.worlds[1].store.get(STATE)
    world.lead(1, isr=(1, 2), followers=[])
    store = world.worlds[1].broker.store
    read_many = store.read_many
    store.read_many = lambda requests, done: read_many(requests, lambda found: done([earlier, *found[1:]]))  # type: ignore[method-assign,index]
    world.fetch_as(3, 1, offset=0)
    assert world.machine(1).role is ReplicaRole.LEADER
    assert world.state(1).isr == (1, 2)
    store.read_many = read_many  # type: ignore[method-assign]
    world.fetch_as(3, 1, offset=0)
    assert world.state(1).isr == (1, 2, 3)


def test_a_replica_of_another_incarnation_than_the_registered_one_does_not_join() -> None:
    world = ReplicaWorld(2)
    world.lead(1, isr=(1,))
    registered = world.broker_epoch(1, 2)
    world.worlds[2].broker.applier.broker_epoch = registered + 1000
    world.append(1, b"a", acks=1)
    world.run(1.0)
    assert world.state(1).isr == (1,)
    while world.broker_epoch(1, 2) < registered + 1000:
        world.register_again(1, 2)
    world.worlds[2].broker.applier.broker_epoch = world.broker_epoch(1, 2)
    world.append(1, b"b", acks=1)
    world.run(1.0)
    assert world.state(1).isr == (1, 2)


def test_a_leader_writes_in_which_incarnations_replicas_have_joined() -> None:
    """So that the controller sees those that restart after they were looked up."""
    world = ReplicaWorld(3, replica_lag_time_max_ms=2000)
    world.lead(1, isr=(1,))
    second, third = (world.broker_epoch(1, each) for each in (2, 3))
    world.append(1, b"a", acks=1)
    world.run(1.0)
    assert dict(world.state(1).joined) == {2: second, 3: third}
    world.kill(3)
    world.append(1, b"b", acks=1)
    world.run(4.0)
    assert (world.state(1).isr, world.state(1).joined) == ((1, 2), ((2, second),))


@pytest.mark.parametrize("back", [True, False])
def test_in_doubt_about_its_session_a_leader_acknowledges_nothing_with_acks_all(back: bool) -> None:
    """18 s of session: in doubt 4.2 s after the connection is lost."""
    world = three()
    replication = world.worlds[1].broker.replicas.replication
    assert isinstance(replication, Replication)
    doubt = replication.doubt
    doubt.heard(SessionEvent(SessionState.SUSPENDED, 1))
    producer = world.append(1, b"a")
    world.run(4.0)
    assert produced(producer) == [(0, 0)]
    world.run(0.5)
    late = world.append(1, b"b")
    world.run(2.0)
    assert produced(late) == []
    assert world.machine(1).high_watermark == 1
    if back:
        doubt.heard(SessionEvent(SessionState.CONNECTED, 1))
        assert produced(late) == [(0, 1)]
    else:
        doubt.heard(SessionEvent(SessionState.EXPIRED, 1))
        assert produced(late) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        assert world.machine(1).role is ReplicaRole.FOLLOWER
        world.lead(2)
        world.run(2.0)
        assert world.values(1) == world.values(2) == [b"a", b"b"]


def test_doubt_begins_by_the_session_timeout_that_is_granted() -> None:
    """A server may grant less than the 18 s: of 9 s others are elected after 3 s without contact that this broker notices late."""
    world = three()
    replication = world.worlds[1].broker.replicas.replication
    assert isinstance(replication, Replication)
    for granted_ms, expected in ((9_000, [False, True, True]), (36_000, [False, False, False]), (None, [False, False, True])):
        replication.doubt.heard(SessionEvent(SessionState.CONNECTED, 1, granted_ms))
        replication.doubt.heard(SessionEvent(SessionState.SUSPENDED, 1))
        seen = []
        for _ in range(3):
            world.run(1.9)
            seen.append(replication.doubt.in_doubt)
        assert seen == expected, granted_ms


def test_r12_a_batch_that_comes_damaged_stops_its_partition_alone_until_it_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = [b"damaged"]
    monkeypatch.setattr(fetched_batches, "verify_crc", lambda view: not any(each in bytes(view) for each in damaged))
    world = ReplicaWorld(2, partitions=2)
    world.lead(1)
    world.lead(1, index=1)
    world.append(1, b"damaged", acks=1)
    world.run(0.5)
    for number in range(4):
        other = world.append(1, b"other", partition=1)
        world.run(0.7)
        assert produced(other) == [(0, number)]
    assert world.values(2) == []
    damaged.clear()
    world.run(2.0)
    assert world.values(2) == [b"damaged"]


def test_r12_a_batch_that_the_leader_finds_damaged_stops_its_partition_alone() -> None:
    world = ReplicaWorld(2, partitions=2)
    world.lead(1, followers=[])
    path = world.hosted(1).log.active_path
    world.append(1, b"to be damaged", acks=1)
    position = world.worlds[1].disk.size(path) - 3
    world.flip(1, path, position)
    world.lead(1)
    world.lead(1, index=1)
    world.run(1.0)
    other = world.append(1, b"other", partition=1)
    world.run(1.0)
    assert produced(other) == [(0, 0)]
    world.flip(1, path, position)
    world.run(2.0)
    assert world.values(2) == [b"to be damaged"]


def test_r12_a_bug_with_one_partition_takes_that_offline_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    world = ReplicaWorld(2, partitions=2)
    world.lead(1)
    world.lead(1, index=1)
    apply = FollowerLogs.apply

    def fail(self: FollowerLogs, hosted: HostedPartition, *arguments: Any) -> None:
        assert hosted.topic_partition != ZERO, "a bug"
        apply(self, hosted, *arguments)

    monkeypatch.setattr(FollowerLogs, "apply", fail)
    world.append(1, b"a", acks=1)
    other = world.append(1, b"other", partition=1)
    world.run(2.0)
    assert produced(other) == [(0, 0)]
    assert [each.partition for each in world.worlds[2].broker.replicas.hosted] == [1]
    assert "because of a bug: partition=t-0 leader=1" in caplog.text


def test_a_disk_that_fails_as_records_are_deleted_takes_the_followers_log_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where they are written: it would be tried again for ever, with part of it done."""
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a", b"b")
    world.run(1.0)
    world.hosted(1).log.delete_records(1)

    def fail(log: PartitionLog, _offset: int) -> int:
        raise StorageError("no such device", path=log.directory)

    monkeypatch.setattr(PartitionLog, "delete_records", fail)
    world.run(1.0)
    assert ZERO not in world.worlds[2].broker.replicas.hosted


def test_r2_a_follower_before_the_start_of_the_leaders_term_does_not_join() -> None:
    """A fresh leader's high watermark is an early one, and a follower that has all before it may lack what was committed."""
    world = ReplicaWorld(3)
    world.lead(1, isr=(1, 3), followers=[])
    world.append(1, b"a", b"b", b"c", acks=1)
    world.lead(1, isr=(1, 3), followers=[])
    assert (world.machine(1).high_watermark, world.machine(1).term_offset) == (0, 3)
    world.fetch_as(2, 1, offset=1)
    assert world.state(1).isr == (1, 3)
    world.fetch_as(2, 1, offset=3)
    assert world.state(1).isr == (1, 2, 3)


def test_r4_while_a_proposal_is_out_who_may_be_in_the_tree_counts() -> None:
    """Broker 3 may be in sync for the controller already: what it does not have is not committed."""
    world = ReplicaWorld(3)
    world.lead(1, isr=(1, 2), followers=[])
    world.fetch_as(2, 1, offset=0)
    held = world.hold_writes(1)
    world.fetch_as(3, 1, offset=0)
    assert (world.machine(1).proposed_isr, len(held)) == ((1, 2, 3), 1)
    producer = world.append(1, b"a")
    world.fetch_as(2, 1, offset=1)
    assert produced(producer) == []
    assert world.machine(1).high_watermark == 0
    world.fetch_as(3, 1, offset=1)
    assert produced(producer) == [(0, 0)]
    held.pop()()
    assert world.machine(1).isr == world.state(1).isr == (1, 2, 3)


def test_a_state_that_is_gone_or_cannot_be_written_is_not_read_again_at_once() -> None:
    """But with the follower's next fetch."""
    world = ReplicaWorld(2)
    world.lead(1, isr=(1,), followers=[])
    store = world.worlds[1].broker.store
    reads: list[object] = []
    read_many = store.read_many
    store.read_many = lambda requests, done: (reads.append(requests), read_many(requests, done))[1]  # type: ignore[method-assign,func-returns-value]
    held = world.hold_writes(1)
    world.fetch_as(2, 1, offset=0)
    world.answers[1].pop()(CoordinationError("no room", retriable=True))
    assert (len(reads), len(held)) == (2, 1), "who is registered, and what became of the write"
    world.worlds[1].store.multi([Delete(STATE)])
    world.fetch_as(2, 1, offset=0)
    assert (len(reads), len(held)) == (3, 1)
    assert world.machine(1).proposed_isr is None


def test_z16_a_write_that_another_was_faster_than_frees_the_slot_and_theirs_is_adopted() -> None:
    world = ReplicaWorld(3)
    world.lead(1, isr=(1, 2), followers=[])
    held = world.hold_writes(1)
    world.fetch_as(3, 1, offset=0)
    store = world.worlds[1].store
    store.set(STATE, store.get(STATE).data.replace(b"[1,2]", b"[1]"))
    held.pop()()
    machine = world.machine(1)
    assert (machine.isr, machine.state_version) == ((1,), store.get(STATE).stat.version)
    while held:
        held.pop()()
    assert machine.isr == world.state(1).isr == (1, 3), "those who may join do so, by another write"


def test_z16_a_write_whose_outcome_is_not_known_is_read_until_it_is() -> None:
    world = ReplicaWorld(3)
    world.lead(1, isr=(1, 2), followers=[])
    held = world.hold_writes(1)
    world.fetch_as(3, 1, offset=0)
    assert world.machine(1).proposed_isr == (1, 2, 3)
    store = world.worlds[1].store
    store.set(STATE, store.get(STATE).data.replace(b"[1,2]", b"[1,2,3]"))  # it was written, and the answer is lost with the session
    world.answers[1].pop()(SessionExpiredError())
    assert (world.machine(1).isr, world.machine(1).proposed_isr) == ((1, 2, 3), None)
    assert len(held) == 1
