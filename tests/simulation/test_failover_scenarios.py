"""Failovers by which others have lost what was acknowledged (K), each as an interleaving that must not hurt here, and does without its
cure; and what holds back messages.
"""

from typing import Any

import pytest

from moldau.cluster import znodes
from moldau.model.errors import ErrorCode
from moldau.ports.coordination import Delete
from moldau.protocol.api_keys import ApiKey
from moldau.testing.simulation.mutant import Function, Mutant
from moldau.testing.simulation.network import ConnectionEnd
from simulation.scenarios import Scenario, any_incarnation, check_cure, cures_of, known, scenario, without
from simulation.small_cluster import CONTROL, CONTROLLER, FOLLOWER, IDS, LEADER, Cluster

LONG_MS = 60_000
"""Longer than a scenario lasts."""
ISR_CHANGES = "moldau.broker.replicas.isr_changes"


# K1


def accept_all(real: Function) -> Function:
    def check_acks(self: Any, _acks: int) -> None:
        real(self, 1)

    return check_acks


@scenario(
    without("begin an append with acks=all when too few are in sync", "moldau.broker.replicas.partition:Partition.check_acks", accept_all),
    known("commit with fewer in sync than the minimum"),
    suspicion_timeout_ms=LONG_MS,
)
async def test_k1_a_leader_that_is_alone_in_sync_acknowledges_nothing_that_the_minimum_protects(cluster: Cluster) -> None:
    """Aphyr on Kafka 0.8: it acknowledges alone, is cut off, and another one is elected without what it has acknowledged."""
    await cluster.write(b"0")
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER))
    assert await cluster.append(LEADER, b"late") is ErrorCode.NONE
    await cluster.in_sync(LEADER)
    assert await cluster.append(LEADER, b"refused", acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (cluster.end(LEADER), cluster.log(LEADER).high_watermark) == (2, 1)
    cluster.kill(LEADER)
    await cluster.led_by(CONTROLLER)
    cluster.release()
    await cluster.write(b"1")
    cluster.start(LEADER)
    await cluster.ends_with(b"0", b"1")


@scenario(known("elect uncleanly by default"), min_insync_replicas=1, suspicion_timeout_ms=LONG_MS)
async def test_k1_with_a_minimum_of_one_no_other_leads_where_a_leader_acknowledged_alone(cluster: Cluster) -> None:
    """The same where the leader alone is enough: by default it is waited for."""
    await cluster.write(b"0")
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER))
    assert await cluster.append(LEADER, b"1") is ErrorCode.NONE
    await cluster.in_sync(LEADER)
    assert await cluster.append(LEADER, b"2", acks=-1) is ErrorCode.NONE
    cluster.kill(LEADER)
    await cluster.until(lambda: cluster.registered() == [CONTROLLER, FOLLOWER])
    await cluster.sleep(2.0)
    assert cluster.state().leader == -1
    cluster.release()
    cluster.start(LEADER)
    await cluster.ends_with(b"0", b"1", b"2")


# K2, K3, K4


@scenario(known("truncate to the high watermark"), suspicion_timeout_ms=LONG_MS)
async def test_k2_a_follower_that_restarts_with_an_early_high_watermark_and_leads_at_once_has_all_it_had(cluster: Cluster) -> None:
    """KIP-101, the first scenario: what it has is acknowledged; it stops in order before it hears so, and the leader ends as soon as it is
    back.
    """
    await cluster.write(b"0")
    await cluster.until(lambda: cluster.log(FOLLOWER).high_watermark == 1)
    cluster.kill(CONTROLLER)
    await cluster.in_sync(LEADER, FOLLOWER)
    to_follower = cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER)
    cluster.hold(lambda end: to_follower(end) and cluster.end(FOLLOWER) != 1)
    await cluster.write(b"1")
    assert (cluster.end(FOLLOWER), cluster.log(FOLLOWER).high_watermark) == (2, 1)
    await cluster.stop(FOLLOWER)
    cluster.start(FOLLOWER)
    await cluster.until(lambda: cluster.end(FOLLOWER) >= 0 and cluster.machine(FOLLOWER).leader_id == LEADER)
    assert cluster.log(FOLLOWER).high_watermark == 1
    cluster.kill(LEADER)
    await cluster.led_by(FOLLOWER)
    assert cluster.values(FOLLOWER) == [b"0", b"1"]
    cluster.release()
    cluster.start(LEADER, CONTROLLER)
    await cluster.ends_with(b"0", b"1")


def forget_last_epochs(real: Function) -> Function:
    return lambda log: real(log)._replace(last_epoch=-1)


@scenario(
    without("fetch without the epoch of the last record", "moldau.broker.replicas.fetchers:end_of", forget_last_epochs),
    checks=False,
    unclean_leader_election_enable=True,
    replica_high_watermark_checkpoint_interval_ms=100,
)
async def test_k3_logs_of_the_same_length_that_diverged_in_a_double_crash_are_one_again(cluster: Cluster) -> None:
    """KIP-101, the second scenario: the one that has lost a record leads first, and writes another one at its offset. To the other one
    both are before its high watermark.
    """
    await cluster.write(b"0")
    await cluster.stop(FOLLOWER)
    cluster.start(FOLLOWER)
    await cluster.in_sync(*IDS)
    cluster.kill(CONTROLLER)
    await cluster.in_sync(LEADER, FOLLOWER)
    await cluster.write(b"1")
    await cluster.sleep(0.5)  # the checkpoint of high watermarks
    cluster.power_cut(FOLLOWER)
    cluster.kill(LEADER)
    cluster.start(FOLLOWER)
    await cluster.led_by(FOLLOWER)
    assert cluster.values(FOLLOWER) == [b"0"]
    assert await cluster.append(FOLLOWER, b"other") is ErrorCode.NONE
    cluster.start(LEADER, CONTROLLER)
    await cluster.ends_with(b"0", b"other")


def look_up_as_asked(real: Function) -> Function:
    def end_offset_of(self: Any, epoch: int, log_end_offset: int) -> tuple[int, int]:
        found, end = real(self, epoch, log_end_offset)
        return (epoch if found >= 0 else found), end

    return end_offset_of


@scenario(
    without("look up a leader epoch as it is asked for", "moldau.log.leader_epochs:LeaderEpochs.end_offset_of", look_up_as_asked),
    replica_lag_time_max_ms=LONG_MS,
    suspicion_timeout_ms=LONG_MS,
)
async def test_k4_after_two_failovers_a_log_with_an_epoch_that_the_leader_never_had_is_cut_where_they_agree(cluster: Cluster) -> None:
    """KIP-279: broker 3 has a record of the first leader that the second one lacks; it misses the epoch of the second, and leads after it.
    Its epochs have a hole where those of the second have a record.
    """
    await cluster.write(b"0")
    await cluster.until(lambda: cluster.end(CONTROLLER) == cluster.end(FOLLOWER) == 1)
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER, to=CONTROLLER))
    assert await cluster.append(LEADER, b"1") is ErrorCode.NONE
    await cluster.until(lambda: cluster.end(FOLLOWER) == 2)
    assert cluster.end(CONTROLLER) == 1
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=CONTROLLER))
    cluster.kill(LEADER)
    await cluster.led_by(CONTROLLER)
    for value in (b"doomed", b"too"):
        assert await cluster.append(CONTROLLER, value) is ErrorCode.NONE
    cluster.kill(CONTROLLER)
    await cluster.led_by(FOLLOWER)
    assert await cluster.append(FOLLOWER, b"2") is ErrorCode.NONE
    assert cluster.end(FOLLOWER) == 3
    cluster.release()
    cluster.start(LEADER, CONTROLLER)
    await cluster.ends_with(b"0", b"1", b"2")


# K5


@scenario(known("commit with fewer in sync than the minimum"))
async def test_k5_the_last_replica_in_sync_has_shown_nothing_that_the_others_lack(cluster: Cluster) -> None:
    """KIP-966: it loses what it had alone. The others have restarted uncleanly too, and wait for it."""
    await cluster.write(b"0", b"1")
    cluster.kill(CONTROLLER, FOLLOWER)
    await cluster.in_sync(LEADER)
    await cluster.append(LEADER, b"alone")
    assert (cluster.end(LEADER), cluster.log(LEADER).high_watermark) == (3, 2)
    cluster.power_cut(LEADER)
    cluster.start(LEADER)
    await cluster.sleep(10.0)
    assert cluster.state().leader == -1
    cluster.start(CONTROLLER, FOLLOWER)
    await cluster.write(b"2")
    await cluster.ends_with(b"0", b"1", b"2")


# K6


@scenario(known("acknowledge after the session is lost"), suspicion_timeout_ms=LONG_MS)
async def test_k6_a_leader_whose_session_has_expired_acknowledges_nothing(cluster: Cluster) -> None:
    """Clients reach it, and the controller does not."""
    await cluster.write(b"0")
    cluster.hold(cluster.requests(*CONTROL, to=LEADER))
    cluster.sim.tree.away_s = 12.0
    cluster.session(LEADER).suspend()
    await cluster.led_by(CONTROLLER)
    assert cluster.leads(LEADER)
    assert await cluster.append(LEADER, b"doomed", acks=-1) is not ErrorCode.NONE
    assert (cluster.end(LEADER), cluster.log(LEADER).high_watermark) == (2, 1)
    assert await cluster.append(CONTROLLER, b"1", acks=-1) is ErrorCode.NONE
    cluster.release()
    await cluster.ends_with(b"0", b"1")


def write_at_any_version(real: Function) -> Function:
    return lambda name, partition, state, _version: real(name, partition, state, -1)


@scenario(
    without("write the in-sync set whatever the version of the state is", f"{ISR_CHANGES}:PutIsr", write_at_any_version),
    suspicion_timeout_ms=LONG_MS,
)
async def test_k6_a_leader_that_was_replaced_and_does_not_know_it_is_not_alone_in_sync(cluster: Cluster) -> None:
    """It has read the state while it led, and has its answer when another one leads: without followers, it wants to remove them."""
    await cluster.write(b"0")
    cluster.hold(cluster.requests(*CONTROL, to=LEADER))
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER))
    assert await cluster.append(LEADER, b"doomed") is ErrorCode.NONE
    cluster.session(LEADER).late_s = 4.0
    await cluster.sleep(2.0)  # it has begun to read
    await cluster.elect(CONTROLLER)
    await cluster.led_by(CONTROLLER)
    epoch = cluster.state().leader_epoch
    assert cluster.leads(LEADER)
    await cluster.until(lambda: cluster.machine(LEADER).proposed_isr == (LEADER,))
    cluster.session(LEADER).late_s = 0.0
    await cluster.until(lambda: not cluster.leads(LEADER))
    assert (cluster.state().leader, cluster.state().leader_epoch) == (CONTROLLER, epoch)
    cluster.release()
    await cluster.write(b"1")
    await cluster.ends_with(b"0", b"1")


# K7


def obey_any_controller(real: Function) -> Function:
    def apply_received(self: Any, broker_epoch: int, control: Any, _sequence: int, done: Any) -> None:
        epoch = max(control.controller_epoch, self.controller_epoch)
        real(self, broker_epoch, control._replace(controller_epoch=epoch), 0, done)

    return apply_received


@scenario(
    without("apply what any controller sends", "moldau.broker.metadata.applier:MetadataApplier.apply_received", obey_any_controller),
    suspicion_timeout_ms=LONG_MS,
)
async def test_k7_what_a_controller_has_sent_and_arrives_after_that_of_the_next_one_is_not_applied(cluster: Cluster) -> None:
    """Two controllers: the old one has had broker 1 lead; the next one has had broker 2 lead again."""
    await cluster.write(b"0")
    cluster.hold(old := cluster.requests(ApiKey.UPDATE_METADATA, by=CONTROLLER))
    await cluster.elect(CONTROLLER)
    cluster.session(CONTROLLER).late_s = 2.0
    cluster.sim.tree.nodes.session().submit(Delete(znodes.CONTROLLER), lambda _: None)
    await cluster.until(lambda: cluster.controller() not in (0, CONTROLLER))
    cluster.session(CONTROLLER).late_s = 0.0
    await cluster.until(lambda: cluster.machine(FOLLOWER).leader_id == CONTROLLER)
    await cluster.in_sync(*IDS)
    await cluster.elect(LEADER)
    await cluster.led_by(LEADER)
    epoch = cluster.state().leader_epoch
    await cluster.until(lambda: [cluster.known_epoch(broker_id) for broker_id in IDS] == [epoch] * 3)
    assert cluster.network.held > 0
    cluster.release(old)
    await cluster.sleep(1.0)
    assert cluster.leads(LEADER)
    assert [cluster.known_epoch(broker_id) for broker_id in IDS] == [epoch] * 3
    await cluster.write(b"1")
    await cluster.ends_with(b"0", b"1")


# K8


@scenario(without("add whichever incarnation is registered", f"{ISR_CHANGES}:wanted_isr", any_incarnation), suspicion_timeout_ms=LONG_MS)
async def test_k8_a_fetch_of_before_an_unclean_restart_that_comes_late_lets_no_empty_replica_join(cluster: Cluster) -> None:
    """KIP-903: the broker had everything when it sent it, and has nothing when it arrives."""
    await cluster.write(b"0")
    cluster.sim.tree.linger_s = 0.01
    cluster.hold(to_follower := cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER))
    await cluster.write(b"1")
    assert cluster.isr() == [CONTROLLER, LEADER]
    fetches, late = cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER), list[ConnectionEnd]()

    def is_last(end: ConnectionEnd) -> bool:
        if not late and cluster.end(FOLLOWER) == 2 and fetches(end):
            late.append(end)
        return end in late

    cluster.hold(is_last)
    cluster.release(to_follower)
    await cluster.until(lambda: bool(late))
    cluster.power_cut(FOLLOWER)
    cluster.hold(lambda end: end not in late and fetches(end))
    cluster.start(FOLLOWER)
    await cluster.until(lambda: cluster.end(FOLLOWER) == 0)
    cluster.lossy.clear()
    assert FOLLOWER not in cluster.machine(LEADER).followers
    cluster.release(is_last)
    await cluster.until(lambda: FOLLOWER in (followers := cluster.machine(LEADER).followers) and followers[FOLLOWER].log_end_offset == 2)
    await cluster.sleep(2.0)
    assert cluster.isr() == [CONTROLLER, LEADER]
    cluster.release()
    await cluster.ends_with(b"0", b"1")


# What holds back messages


@scenario()
async def test_a_hold_knows_requests_and_responses_by_their_kind_and_ends(cluster: Cluster) -> None:
    cluster.hold(cluster.requests(ApiKey.PRODUCE, to=LEADER))
    late = cluster.write_later(b"0")
    await cluster.until(lambda: cluster.network.held == 1)
    assert await cluster.producer.partitions_for("t") == 1
    await cluster.sleep(0.5)
    assert cluster.end(LEADER) == 0
    assert cluster.isr() == [*IDS]
    cluster.release()
    await late
    assert cluster.end(LEADER) == 1


@pytest.mark.system
@pytest.mark.parametrize(("test", "cure"), cures_of(globals()))
def test_a_scenario_fails_without_its_cure(test: Scenario, cure: tuple[Mutant, ...]) -> None:
    check_cure(test, cure)
