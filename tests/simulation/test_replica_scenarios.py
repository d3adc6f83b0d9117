"""Named defects of others' replication (R), each as an interleaving that must not hurt here, and does without its cure."""

import asyncio
from typing import Any

import pytest

from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError, StorageError
from moldau.protocol.api_keys import ApiKey
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.mutant import Function, Mutant
from simulation.scenarios import Scenario, check_cure, cures_of, known, nothing, scenario, without
from simulation.small_cluster import CONTROL, CONTROLLER, FOLLOWER, IDS, LEADER, SEGMENT, T0, WAIT_S, Cluster

LONG_LAG_MS = 60_000
"""Replicas stay in sync however late they are."""
FETCHER = "moldau.fetching.fetcher:Fetcher"
FETCHERS = "moldau.broker.replicas.fetchers"
PARTITION = "moldau.broker.replicas.partition:Partition"
FOLLOWER_LOGS = "moldau.broker.replicas.follower_log:FollowerLogs"


async def only_on(cluster: Cluster, follower: int, value: bytes) -> Any:
    """Have the leader write a record that one of its followers gets, and the other does not; and neither hears that it has it."""
    (other,) = [each for each in (CONTROLLER, FOLLOWER) if each != follower]
    before = cluster.end(LEADER)
    held = cluster.responses(ApiKey.FETCH, by=LEADER, to=other)
    cluster.hold(held)
    delivery = cluster.write_later(value)
    await cluster.until(lambda: cluster.end(follower) == cluster.end(LEADER) == before + 1)
    assert cluster.end(other) == before
    return delivery


# R1


def follow_another_leader_only(real: Function) -> Function:
    def follow(self: Any, hosted: Any) -> None:
        if self._source_of.get(hosted.topic_partition) != hosted.machine.leader_id:
            real(self, hosted)

    return follow


@scenario(without("follow in the next epoch only another leader", f"{FETCHERS}:ReplicaFetchers.follow", follow_another_leader_only))
async def test_r1_a_follower_that_has_missed_an_epoch_of_the_same_leader_reconciles(cluster: Cluster) -> None:
    """KAFKA-7164: leader 2, then 1, then 2 again; broker 3 hears of the last only, and has a record that the second leader had not."""
    await cluster.write(b"0")
    to_follower = cluster.requests(*CONTROL, to=FOLLOWER)
    cluster.hold(to_follower)
    await only_on(cluster, FOLLOWER, b"1")
    epoch = cluster.machine(FOLLOWER).leader_epoch
    cluster.producer.crash()
    cluster.session(LEADER).expire()
    await cluster.led_by(CONTROLLER)
    await cluster.until(lambda: LEADER in cluster.isr())
    await cluster.elect(LEADER)
    await cluster.led_by(LEADER)
    assert cluster.machine(FOLLOWER).leader_epoch == epoch < cluster.state().leader_epoch - 1
    assert cluster.end(FOLLOWER) == 2
    assert await cluster.append(LEADER, b"2", acks=1) is ErrorCode.NONE
    cluster.release()
    await cluster.ends_with(b"0", b"2")


# R2, R4, R5


@scenario(known("join at the committed offset, before the leader's term"))
async def test_r2_a_follower_before_the_start_of_the_leaders_epoch_does_not_join(cluster: Cluster) -> None:
    """KAFKA-7128: the new leader's high watermark is low, and a follower that lags is at it. Were that enough to be in sync, it could be
    elected without what was acknowledged.
    """
    await cluster.write(b"0")
    await cluster.until(lambda: cluster.end(CONTROLLER) == cluster.end(FOLLOWER) == 1)
    to_follower = cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER)
    to_next = cluster.responses(ApiKey.FETCH, by=LEADER, to=CONTROLLER)
    cluster.hold(to_follower, lambda end: to_next(end) and cluster.end(CONTROLLER) == 2)  # it never hears of the watermark
    await cluster.write(b"1")
    assert cluster.isr() == [CONTROLLER, LEADER]
    cluster.hold(cluster.responses(ApiKey.FETCH, by=CONTROLLER, to=FOLLOWER))
    cluster.kill(LEADER)
    await cluster.led_by(CONTROLLER)
    await cluster.sleep(2.0)
    assert cluster.end(FOLLOWER) == 1
    assert cluster.isr() == [CONTROLLER]
    cluster.release()
    await cluster.until(lambda: FOLLOWER in cluster.isr())
    assert cluster.end(FOLLOWER) == 2
    cluster.start(LEADER)
    await cluster.ends_with(b"0", b"1")


# R3


@scenario(known("keep the progress of followers in a new term"))
async def test_r3_a_replica_that_was_removed_and_added_again_has_nothing_until_it_fetches(cluster: Cluster) -> None:
    """The leader hears of both changes at once: the same replicas, of which one comes back empty."""
    await cluster.write(b"0", b"1")
    cluster.hold(cluster.requests(*CONTROL, to=LEADER))
    await cluster.move(LEADER, CONTROLLER)
    await cluster.until(lambda: cluster.end(FOLLOWER) == -1)
    fetches = cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER)
    cluster.hold(fetches)
    await cluster.admin.move_partition(T0, [LEADER, CONTROLLER, FOLLOWER])
    await cluster.until(lambda: cluster.end(FOLLOWER) == 0)
    cluster.release()
    cluster.hold(fetches)
    await cluster.sleep(2.0)
    assert cluster.machine(LEADER).replicas == (LEADER, CONTROLLER, FOLLOWER)
    assert cluster.isr() == [CONTROLLER, LEADER]
    cluster.release()
    await cluster.ends_with(b"0", b"1")


@scenario(known("commit without those that are proposed"))
async def test_r4_an_expansion_whose_answer_is_late_counts_before_it_is_known(cluster: Cluster) -> None:
    """KIP-497: the tree has three in sync, the leader knows of two. What it acknowledges must be on all three."""
    await cluster.write(b"0")
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    cluster.start(FOLLOWER)
    await cluster.until(lambda: FOLLOWER in cluster.registered())
    cluster.session(LEADER).late_s = 2.0
    await cluster.until(lambda: cluster.isr() == [CONTROLLER, LEADER, FOLLOWER])
    assert sorted(cluster.machine(LEADER).isr) == [CONTROLLER, LEADER]
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER))
    late = cluster.write_later(b"1")
    await cluster.sleep(0.5)
    assert sorted(cluster.machine(LEADER).isr) == [CONTROLLER, LEADER]
    assert not late.done()
    cluster.release()
    cluster.session(LEADER).late_s = 0.0
    await late
    assert [cluster.end(broker_id) for broker_id in (CONTROLLER, LEADER, FOLLOWER)] == [2, 2, 2]


@scenario(known("take the high watermark of an answer with a diverging epoch"))
async def test_r5_a_follower_that_has_diverged_truncates_before_it_takes_anything(cluster: Cluster) -> None:
    """KAFKA-14704: the answer with the diverging epoch carries the leader's high watermark, which is beyond records of the follower that
    were never committed.
    """
    await cluster.write(b"0")
    cluster.cut(LEADER, CONTROLLER)
    cluster.cut(LEADER, FOLLOWER)
    assert await cluster.append(LEADER, b"doomed", b"too") is ErrorCode.NONE
    cluster.session(LEADER).expire()
    await cluster.led_by(CONTROLLER)
    cluster.hold(cluster.requests(ApiKey.FETCH, by=LEADER, to=CONTROLLER))
    await cluster.write(b"1", b"2", b"3")
    assert cluster.end(LEADER) >= 3
    cluster.release()
    cluster.mend()
    await cluster.ends_with(b"0", b"1", b"2", b"3")
    assert cluster.reached["cluster: a follower truncated its log"] == 1
    assert not cluster.reached["cluster: a follower truncated below its own high watermark"]


# R6


def take_any_answer(real: Function) -> Function:
    def asked(self: Any, number: int, key: Any) -> Any:
        found = real(self, number, key)
        return self.former.get(key) if found is None else found

    return asked


def remember_what_is_left(real: Function) -> Function:
    def drop(self: Any, topic_partition: Any) -> None:
        if not hasattr(self, "former"):
            self.former = {}
        if topic_partition in self.partitions:
            self.former[self.partitions[topic_partition].key] = self.partitions[topic_partition]
        real(self, topic_partition)

    return drop


@scenario(
    (
        without("take an answer of a term that has ended", f"{FETCHER}._asked", take_any_answer),
        without("remember the term", f"{FETCHER}._drop", remember_what_is_left),
    )
)
async def test_r6_an_answer_that_comes_when_another_broker_leads_changes_nothing(cluster: Cluster) -> None:
    """KAFKA-13207: broker 3 follows 1 by now, and what 2 has sent arrives; it still follows 2 in another topic."""
    await cluster.create("u", (LEADER, FOLLOWER))
    await cluster.write(b"0")
    cluster.hold(from_leader := cluster.responses(ApiKey.FETCH, by=LEADER))
    assert await cluster.append(LEADER, b"1") is ErrorCode.NONE
    await cluster.until(lambda: cluster.network.held == 2)
    await cluster.elect(CONTROLLER)
    await cluster.until(lambda: cluster.machine(FOLLOWER).leader_id == CONTROLLER)
    assert [cluster.end(broker_id) for broker_id in (CONTROLLER, FOLLOWER)] == [1, 1]
    cluster.hold(from_next := cluster.responses(ApiKey.FETCH, by=CONTROLLER, to=FOLLOWER))
    cluster.release(from_leader)
    await cluster.sleep(0.1)
    assert [cluster.end(broker_id) for broker_id in (CONTROLLER, FOLLOWER)] == [1, 1]
    cluster.release(from_next)
    await cluster.write(b"2")
    await cluster.write(b"of u", topic="u")
    await cluster.ends_with(b"0", b"2")


# R7


def forget_epochs_after_empty_answers(real: Function) -> Function:
    ends: dict[int, Any] = {}

    def end_of(log: Any) -> Any:
        end = real(log)
        seen, ends[id(log)] = ends.get(id(log)), end
        return end._replace(last_epoch=-1) if seen == end else end

    return end_of


@scenario(
    without("forget the last fetched epoch", f"{FETCHERS}:end_of", forget_epochs_after_empty_answers), replica_lag_time_max_ms=LONG_LAG_MS
)
async def test_r7_a_follower_that_had_answers_without_records_still_sees_that_it_diverges(cluster: Cluster) -> None:
    """KAFKA-15510."""
    await cluster.write(b"0")
    await only_on(cluster, FOLLOWER, b"1")
    await cluster.sleep(2.0)  # several answers without records
    cluster.producer.crash()
    cluster.session(LEADER).expire()
    await cluster.led_by(CONTROLLER)
    assert await cluster.append(CONTROLLER, b"2") is ErrorCode.NONE
    cluster.release()
    await cluster.ends_with(b"0", b"2")


# R8


def begin_term_later(_real: Function) -> Function:
    return lambda _self, _epoch, _end: False


@scenario(without("know an epoch by its first record only", "moldau.log.leader_epochs:LeaderEpochs.begin_term", begin_term_later))
async def test_r8_elections_without_records_leave_no_epochs_that_conflict(cluster: Cluster) -> None:
    """KAFKA-10706, KAFKA-7415: a leader knows its own epoch before the first record of it, and not for longer than it leads."""
    await cluster.write(b"0")
    for leader in (CONTROLLER, LEADER, CONTROLLER, LEADER):
        await cluster.elect(leader)
        await cluster.led_by(leader)
        epoch = cluster.state().leader_epoch
        assert cluster.log(leader).end_offset_for_epoch(epoch) == (epoch, 1)
        assert await cluster.admin.epoch_end(T0, epoch) == (epoch, 1)
        for follower in {CONTROLLER: (LEADER, FOLLOWER), LEADER: (CONTROLLER, FOLLOWER)}[leader]:
            await cluster.until(lambda: cluster.machine(follower).leader_epoch == epoch)  # noqa: B023
            assert cluster.log(follower).latest_epoch == cluster.log(leader).epoch_at(0)
    await cluster.write(b"1")
    await cluster.ends_with(b"0", b"1")


# R9, R10


def keep_producers(real: Function) -> Function:
    def truncate_fully_and_start_at(self: Any, offset: int) -> None:
        producers = self._parts.producers.entries
        kept = dict(producers)
        real(self, offset)
        producers.update(kept)

    return truncate_fully_and_start_at


def cut_the_end_only(real: Function) -> Function:
    def cut(self: Any, hosted: Any, offset: int, *, fully: bool = False) -> None:
        real(self, hosted, offset)

    return cut


@scenario(
    without("keep the producers", "moldau.log.trimmer:LogTrimmer.truncate_fully_and_start_at", keep_producers),
    without("cut the end off, and begin nowhere else", f"{FOLLOWER_LOGS}._cut", cut_the_end_only),
)
async def test_r9_a_follower_whose_log_ends_before_the_leaders_start_begins_there_with_everything(cluster: Cluster) -> None:
    """KAFKA-9491, KAFKA-12153: log start, high watermark and producers."""
    await cluster.write(b"0")
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    for value in range(1, 5):
        assert await cluster.append(LEADER, b"%d" % value, acks=-1) is ErrorCode.NONE
    assert await cluster.admin.delete_records(T0, 4) == 4
    cluster.start(FOLLOWER)
    await cluster.in_sync(*IDS)
    log = cluster.log(FOLLOWER)
    assert (log.start_offset, log.log_end_offset, cluster.values(FOLLOWER)) == (4, 5, [b"4"])
    assert log.active_producers() == []
    await cluster.ends_with(b"4")


def accept_from_the_end_only(real: Function) -> Function:
    return lambda *positional, is_empty: real(*positional, is_empty=False)


@scenario(without("refuse a first batch that begins before the log", "moldau.log.fetched:check_fetched", accept_from_the_end_only))
async def test_r10_a_new_replica_of_a_log_that_starts_in_the_middle_of_a_batch_takes_that_batch(cluster: Cluster) -> None:
    """KAFKA-6975."""
    await cluster.move(LEADER, CONTROLLER)
    assert await cluster.append(LEADER, b"0", b"1", b"2", acks=-1) is ErrorCode.NONE
    assert await cluster.admin.delete_records(T0, 2) == 2
    await cluster.move(LEADER, CONTROLLER, FOLLOWER)
    await cluster.ends_with(b"2")
    assert cluster.log(FOLLOWER).start_offset == 2


# R11, R12


def validate_again(real: Function) -> Function:
    def apply(self: Any, hosted: Any, records: memoryview, *rest: Any) -> None:
        if len(records) > hosted.limits.max_message_bytes:
            raise CorruptBatchError("a batch is too long")
        real(self, hosted, records, *rest)

    return apply


@scenario(without("validate what the leader has accepted", f"{FOLLOWER_LOGS}.apply", validate_again), broker_3_message_max_bytes=500)
async def test_r11_a_follower_takes_what_its_own_settings_would_refuse(cluster: Cluster) -> None:
    """KAFKA-9617, KAFKA-6016: broker 3 accepts shorter batches."""
    await cluster.write(b"0" * 1000)
    await cluster.ends_with(b"0" * 1000)


def fail_as_a_whole(_real: Function) -> Function:
    from moldau.broker.replicas.follower_log import end_of
    from moldau.fetching.events import Moved

    def move(self: Any, topic_partition: Any, change: Any) -> None:
        hosted = self._owner.replicas.hosted[topic_partition]
        change(hosted)
        self.step(Moved(topic_partition, end_of(hosted.log)))

    return move


def stop_for_ever(_real: Function) -> Function:
    return lambda _self, _number, _now_s: []


@pytest.mark.system
@scenario(
    (
        without("fail with all partitions of a fetch", f"{FETCHERS}:SourceFetcher._move", fail_as_a_whole),
        without("fetch no more after that", f"{FETCHER}._request_failed", stop_for_ever),
    )
)
async def test_r12_a_partition_that_cannot_be_applied_stops_alone_until_it_can(cluster: Cluster) -> None:
    """KIP-461: a batch comes damaged, again and again."""
    for topic in ("a", "z"):
        await cluster.create(topic, (LEADER, FOLLOWER))
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    await cluster.write(b"one of t")
    careless = SimulatedProducer(cluster.sim.client(), acks=1)
    for topic in ("a", "z"):
        await cluster.in_sync(LEADER, topic=topic)
        await careless.send_and_wait(topic, b"of " + topic.encode(), partition=0)
    mend = cluster.damage(b"one of t", by=LEADER, to=FOLLOWER)
    cluster.start(FOLLOWER)
    for topic in ("a", "z"):
        await cluster.in_sync(LEADER, FOLLOWER, topic=topic)
        await cluster.write(b"more", topic=topic)
    assert cluster.isr() == [CONTROLLER, LEADER]
    mend()
    await cluster.ends_with(b"one of t")


# R13


def refuse_below_high_watermark(_real: Function) -> Function:
    def note_loss(_self: Any, hosted: Any, end_offset: int) -> None:
        if end_offset < hosted.log.high_watermark:
            raise StorageError("the leader's log is shorter than what is committed", path=str(hosted.topic_partition))

    return note_loss


@scenario(
    without("do not truncate below the high watermark", f"{FOLLOWER_LOGS}._note_loss", refuse_below_high_watermark),
    checks=False,
    unclean_leader_election_enable=True,
)
async def test_r13_followers_ahead_of_an_unclean_leader_truncate_and_follow(cluster: Cluster) -> None:
    """KAFKA-7414."""
    await cluster.write(b"0")
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    await cluster.write(b"1", b"2")
    await cluster.stop(CONTROLLER)
    await cluster.stop(LEADER)
    cluster.start(FOLLOWER)
    await cluster.led_by(FOLLOWER)
    assert await cluster.append(FOLLOWER, b"other") is ErrorCode.NONE
    cluster.start(LEADER, CONTROLLER)
    await cluster.ends_with(b"0", b"other")


# R14


@scenario(
    known("remove what is not committed"),
    replica_lag_time_max_ms=LONG_LAG_MS,
    suspicion_timeout_ms=LONG_LAG_MS,
    log_retention_check_interval_ms=100,
)
async def test_r14_neither_retention_nor_delete_records_pass_the_high_watermark(cluster: Cluster) -> None:
    """KAFKA-5634."""
    await cluster.write(b"0")
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER))
    assert await cluster.append(LEADER, b"1") is ErrorCode.NONE
    await cluster.admin.configure_topic("t", {"retention.ms": 1})
    with pytest.raises(PeerError, match="offset out of range"):
        await cluster.admin.delete_records(T0, 2)
    await cluster.sleep(2.0)
    assert (cluster.log(LEADER).start_offset, cluster.log(LEADER).high_watermark) == (0, 1)
    cluster.release()
    await cluster.until(lambda: cluster.log(LEADER).start_offset == 2)


# R15, R16, R17


def settle_without_a_look(_real: Function) -> Function:
    def derived(self: Any) -> Any:
        self._derive()
        return []

    return derived


@scenario(without("do not look at the high watermark when a set is settled", f"{PARTITION}._derived", settle_without_a_look))
async def test_r15_a_shrink_commits_what_the_others_have_when_the_tree_has_answered(cluster: Cluster) -> None:
    """KAFKA-13091: no fetch comes after it."""
    await cluster.write(b"0")
    delivery = await only_on(cluster, CONTROLLER, b"1")
    await cluster.until(lambda: cluster.machine(LEADER).followers[CONTROLLER].log_end_offset == 2)
    cluster.hold(cluster.requests(ApiKey.FETCH, to=LEADER))
    await asyncio.wait_for(delivery, 5.0)
    assert cluster.isr() == [CONTROLLER, LEADER]
    cluster.release()
    await cluster.ends_with(b"0", b"1")


@scenario(known("commit with fewer in sync than the minimum"))
async def test_r16_what_too_few_have_is_not_shown_and_the_last_one_in_sync_loses_nothing_that_was(cluster: Cluster) -> None:
    """KAFKA-15583: a producer with acks=1 writes to the last replica in sync."""
    await cluster.write(b"0")
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    await cluster.stop(CONTROLLER)
    await cluster.in_sync(LEADER)
    assert await cluster.append(LEADER, b"alone") is ErrorCode.NONE
    consumer = SimulatedConsumer(cluster.sim.client())
    await consumer.assign({T0: 0})
    assert [message.value for message in await consumer.consume(10, 1.0)] == [b"0"]
    assert await consumer.consume(10, 1.0) == []
    assert cluster.log(LEADER).high_watermark == 1
    cluster.power_cut(LEADER)
    cluster.start(CONTROLLER, FOLLOWER)
    await cluster.led_by(CONTROLLER)
    cluster.start(LEADER)
    await cluster.write(b"1")
    await cluster.ends_with(b"0", b"1")


def keep_eligible(real: Function) -> Function:
    return lambda self, topic, index: real(self, topic, index)._replace(elr=topic.info(index).elr)


def elect_eligible(real: Function) -> Function:
    def elect(state: Any, replicas: Any, candidates: Any, rules: Any, *rest: Any, **named: Any) -> Any:
        return real(state, replicas, candidates, rules._replace(min_isr=len(replicas)), *rest, **named)

    return elect


@scenario(
    (
        without(
            "keep those eligible that were so below another minimum",
            "moldau.cluster.controller.elections:Elections.without_eligible",
            keep_eligible,
        ),
        without("elect eligible replicas whatever the minimum is", "moldau.cluster.controller.elections:elect", elect_eligible),
    )
)
async def test_r17_where_the_minimum_is_lowered_live_none_is_eligible_by_the_one_before(cluster: Cluster) -> None:
    """KAFKA-16540: the leader commits alone from then on."""
    await cluster.write(b"0")
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    await cluster.stop(CONTROLLER)
    await cluster.in_sync(LEADER)
    assert cluster.state().elr == (CONTROLLER,)
    await cluster.admin.configure_topic("t", {"min.insync.replicas": 1})
    await cluster.write(b"1")
    cluster.kill(LEADER)
    cluster.start(CONTROLLER)
    await cluster.until(lambda: cluster.registered() == [CONTROLLER])
    await cluster.sleep(2.0)
    assert cluster.state().leader == -1
    cluster.start(LEADER, FOLLOWER)
    await cluster.ends_with(b"0", b"1")


# R18, R19


@scenario(without("append what a producer sends again", "moldau.log.producer_states:ProducerStates._repeated_or_refused", nothing))
async def test_r18_a_batch_that_was_refused_after_its_append_and_is_sent_again_is_there_once(cluster: Cluster) -> None:
    """Vanlightly 2.7: NOT_ENOUGH_REPLICAS_AFTER_APPEND, and it commits later."""
    await cluster.write(b"0")
    cluster.kill(CONTROLLER, FOLLOWER)
    delivery = cluster.write_later(b"1")
    await cluster.in_sync(LEADER)
    assert cluster.end(LEADER) == 2
    await cluster.sleep(1.0)
    assert not delivery.done()
    cluster.start(CONTROLLER, FOLLOWER)
    await asyncio.wait_for(delivery, WAIT_S)
    await cluster.ends_with(b"0", b"1")


@scenario(without("go on after an append has failed", "moldau.broker.replicas.manager:ReplicaManager.storage_failed", nothing))
async def test_r19_after_an_append_that_failed_nothing_is_appended_until_the_directory_is_opened_again(cluster: Cluster) -> None:
    """KAFKA-10778: of two batches at the same time the first fails to be written."""
    await cluster.write(b"0")
    disk = cluster.host(LEADER).disk
    failed: list[str] = []

    def fail(operation: str, path: str) -> bool:
        if operation != "append" or path != SEGMENT or failed:
            return False
        failed.append(path)
        return True

    disk.fail = fail
    first, second = cluster.write_later(b"1"), cluster.write_later(b"2")
    await cluster.until(lambda: bool(failed))
    await cluster.until(lambda: not cluster.leads(LEADER))
    assert cluster.state().leader_epoch >= 0
    await asyncio.wait_for(asyncio.gather(first, second), WAIT_S)
    await cluster.until(lambda: cluster.host(LEADER).process is None)
    cluster.start(LEADER)
    await cluster.ends_with(b"0", b"1", b"2")


# R20, R21


def parse_unchecked(_real: Function) -> Function:
    return lambda data, _path: data.decode().split("\n")[2:-1]


@pytest.mark.system
@scenario(without("use a checkpoint whose checksum does not match", "moldau.log.checkpoints:parse_lines", parse_unchecked))
async def test_r20_a_checkpoint_that_a_power_cut_has_damaged_is_not_used(cluster: Cluster) -> None:
    """KAFKA-16541: the recovery point is beyond a batch of which a part has not reached the disk."""
    await cluster.write(b"0")
    await cluster.stop(FOLLOWER)
    cluster.start(FOLLOWER)
    await cluster.in_sync(*IDS)
    await cluster.write(b"one", b"two")
    await cluster.until(lambda: cluster.end(FOLLOWER) == 3)
    cluster.lose_a_bit(FOLLOWER, b"two")
    cluster.flip(FOLLOWER, "/data/recovery-point-offset-checkpoint", b"t 0 1", 1)
    cluster.start(FOLLOWER)
    await cluster.ends_with(b"0", b"one", b"two")


@pytest.mark.system
@scenario(log_index_interval_bytes=1)
async def test_r21_a_start_that_crashed_after_a_clean_stop_is_no_clean_stop(cluster: Cluster) -> None:
    """KAFKA-10471: the mark goes durably before anything else. What was written since is checked by the next start that gets through."""
    await cluster.write(b"0")
    await cluster.stop(FOLLOWER)
    cluster.start(FOLLOWER)
    await cluster.in_sync(*IDS)
    await cluster.write(b"one", b"two")
    await cluster.until(lambda: cluster.end(FOLLOWER) == 3)
    cluster.lose_a_bit(FOLLOWER, b"one")
    process = cluster.host(FOLLOWER).start(crash_at=50)
    await cluster.until(lambda: cluster.host(FOLLOWER).process is None)
    assert not process.is_serving
    cluster.start(FOLLOWER)
    await cluster.ends_with(b"0", b"one", b"two")


# R22, R23


@scenario(known("elect who has restarted uncleanly"))
async def test_r22_who_has_lost_its_page_cache_does_not_lead_when_the_leader_stops(cluster: Cluster) -> None:
    """fluss#662: it is in sync still when the leader hands over to it, and stops in order."""
    cluster.kill(CONTROLLER)
    await cluster.in_sync(LEADER, FOLLOWER)
    await cluster.write(b"0", b"1")
    cluster.power_cut(FOLLOWER)
    await cluster.stop(LEADER)
    cluster.start(FOLLOWER)
    await cluster.until(lambda: cluster.registered() == [FOLLOWER])
    await cluster.sleep(3.0)
    assert cluster.state().leader == -1
    cluster.start(LEADER, CONTROLLER)
    await cluster.ends_with(b"0", b"1")


@scenario(known("truncate to the high watermark"))
async def test_r23_a_follower_whose_high_watermark_lags_keeps_its_records_when_it_follows_another(cluster: Cluster) -> None:
    """KIP-101, fluss#674: it has a record that is acknowledged, and has not heard so; the next leader ends before it is asked."""
    await cluster.write(b"0")
    await cluster.until(lambda: cluster.log(FOLLOWER).high_watermark == 1)
    cluster.hold(lambda end: cluster.end(FOLLOWER) == 2 and cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER)(end))
    await cluster.write(b"1")
    assert (cluster.end(FOLLOWER), cluster.log(FOLLOWER).high_watermark) == (2, 1)
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=CONTROLLER))
    cluster.kill(LEADER)
    await cluster.until(lambda: cluster.machine(FOLLOWER).leader_id == CONTROLLER)
    cluster.kill(CONTROLLER)
    await cluster.led_by(FOLLOWER)
    cluster.release()
    cluster.start(LEADER, CONTROLLER)
    await cluster.ends_with(b"0", b"1")


@pytest.mark.system
@pytest.mark.parametrize(("test", "cure"), cures_of(globals()))
def test_a_scenario_fails_without_its_cure(test: Scenario, cure: tuple[Mutant, ...]) -> None:
    check_cure(test, cure)
