"""Reading from followers and permanent partitions (W), and histories of losses and of split clusters (D): named defects of others, each as
an interleaving that must not hurt here, and does without its cure.
"""

import asyncio
from typing import Any

import pytest

from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.api_keys import ApiKey
from moldau.testing.simulation.mutant import Function, Mutant
from simulation.scenarios import Scenario, check_cure, cures_of, known, scenario, without
from simulation.small_cluster import CONTROLLER, FOLLOWER, IDS, LEADER, Cluster

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


# W1, W2, W3


def prefer_any_replica(real: Function) -> Function:
    def preferred_replica(broker: Any, channel: Any, partition: Any, rack: str, offset: int) -> int:
        machine, isr = partition.machine, partition.machine.isr
        machine.isr = machine.replicas
        try:
            return int(real(broker, channel, partition, rack, offset))
        finally:
            machine.isr = isr

    return preferred_replica


@scenario(
    without("name a replica outside the in-sync set", "moldau.broker.handlers.fetch.read_replicas:preferred_replica", prefer_any_replica),
    racks=True,
    replica_selector_class=RACK_AWARE,
)
async def test_w1_a_leader_names_a_replica_in_sync_and_a_follower_names_none(cluster: Cluster) -> None:
    """KAFKA-13778, KAFKA-15390."""
    await cluster.write(b"0")
    await cluster.until(lambda: cluster.log(FOLLOWER).high_watermark == 1)
    assert (await cluster.fetch(LEADER, 0, "r3")).preferred_read_replica == FOLLOWER
    found = await cluster.fetch(FOLLOWER, 0, "r3")
    assert (found.error_code, found.preferred_read_replica, bool(found.records)) == (ErrorCode.NONE, -1, True)
    assert (await cluster.fetch(FOLLOWER, 0, "r1")).preferred_read_replica == -1
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER))
    await cluster.write(b"1")
    assert cluster.isr() == [CONTROLLER, LEADER]
    cluster.session(LEADER).hold()
    cluster.release()
    await cluster.until(lambda: FOLLOWER in (followers := cluster.machine(LEADER).followers) and followers[FOLLOWER].log_end_offset == 2)
    found = await cluster.fetch(LEADER, 0, "r3")
    assert (found.preferred_read_replica, bool(found.records)) == (-1, True)
    cluster.session(LEADER).release()
    await cluster.ends_with(b"0", b"1")


def out_of_range(_real: Function) -> Function:
    return lambda partition, what: PeerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.topic_partition}: {what}")


@scenario(
    without("answer out of range what the log does not have yet", "moldau.broker.handlers.fetch.operation:_not_in_log", out_of_range),
    known("show all that a follower has"),
    racks=True,
)
async def test_w2_a_follower_that_has_less_than_a_consumer_has_seen_does_not_reset_it(cluster: Cluster) -> None:
    """KAFKA-8542, KAFKA-10223: what is not there yet is not available; what may not be shown yet is no record."""
    await cluster.write(b"0")
    await cluster.until(lambda: cluster.log(FOLLOWER).high_watermark == 1)
    to_follower = cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER)
    cluster.hold(lambda end: to_follower(end) and cluster.end(FOLLOWER) == 2)
    await cluster.write(b"1")
    assert (cluster.end(FOLLOWER), cluster.log(FOLLOWER).high_watermark) == (2, 1)
    found = await cluster.fetch(FOLLOWER, 1, "r3")
    assert (found.error_code, found.high_watermark, bool(found.records)) == (ErrorCode.NONE, 1, False)
    await cluster.write(b"2")
    found = await cluster.fetch(FOLLOWER, 3, "r3")
    assert found.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    cluster.release()
    await cluster.ends_with(b"0", b"1", b"2")
    found = await cluster.fetch(FOLLOWER, 3, "r3")
    assert found.error_code == ErrorCode.NONE


def at_once(_real: Function) -> Function:
    return lambda _self, _what, _now_ms: True


@pytest.mark.system
@scenario(
    without("act on each suspicion at once", "moldau.cluster.controller.back_offs:BackOffs.may", at_once),
    suspicion_timeout_ms=500,
)
async def test_w3_a_broker_that_others_hear_nothing_of_for_ever_does_not_move_leaderships_again_and_again(cluster: Cluster) -> None:
    """TigerBeetle: one way of a link is cut for ever. Who hears of the other and who does not suspect each other as controllers."""
    await cluster.write(b"0")
    cluster.cut(FOLLOWER, CONTROLLER)
    await cluster.sleep(20.0)
    before = cluster.controller_epoch(), cluster.state().leader_epoch
    await cluster.sleep(15.0)
    after = cluster.controller_epoch(), cluster.state().leader_epoch
    assert after[0] - before[0] <= 2
    assert after[1] - before[1] <= 4
    await asyncio.wait_for(cluster.write_later(b"1"), 30.0)
    cluster.mend()
    await cluster.in_sync(*IDS)
    await cluster.ends_with(b"0", b"1")


# D1, D2


def trust_the_disk(_real: Function) -> Function:
    return lambda *_positional, **_named: True


@scenario(
    without("do not compare checksums in recovery", "moldau.log.batches:verify_crc", trust_the_disk),
)
async def test_d1_a_minority_that_has_damaged_records_neither_serves_nor_leads_with_less(cluster: Cluster) -> None:
    """NATS 2.12.1: acknowledged before it was synced, and a bit of it is another one after a power cut."""
    await cluster.write(b"zero", b"one", b"two")
    await cluster.until(lambda: cluster.end(FOLLOWER) == 3)
    cluster.sim.tree.linger_s = 0.01
    cluster.lose_a_bit(FOLLOWER, b"one")
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER))
    cluster.start(FOLLOWER)
    await cluster.until(lambda: cluster.end(FOLLOWER) >= 0)
    assert cluster.end(FOLLOWER) == 1
    cluster.kill(LEADER, CONTROLLER)
    await cluster.sleep(5.0)
    assert not cluster.leads(FOLLOWER)
    cluster.release()
    cluster.start(LEADER, CONTROLLER)
    await cluster.ends_with(b"zero", b"one", b"two")


@scenario(known("never truncate"))
async def test_d2_a_cluster_that_was_split_is_one_again(cluster: Cluster) -> None:
    """The leader is cut off from the others and the tree; clients reach both sides."""
    await cluster.write(b"0")
    cluster.isolate(LEADER)
    cluster.sim.tree.away_s = 15.0
    cluster.session(LEADER).suspend()
    assert await cluster.append(LEADER, b"split", b"brain") is ErrorCode.NONE
    await cluster.led_by(CONTROLLER)
    await cluster.write(b"1")
    assert cluster.leads(LEADER)
    cluster.mend()
    await cluster.until(lambda: not cluster.leads(LEADER))
    await cluster.write(b"2")
    await cluster.ends_with(b"0", b"1", b"2")


@pytest.mark.system
@pytest.mark.parametrize(("test", "cure"), cures_of(globals()))
def test_a_scenario_fails_without_its_cure(test: Scenario, cure: tuple[Mutant, ...]) -> None:
    check_cure(test, cure)
