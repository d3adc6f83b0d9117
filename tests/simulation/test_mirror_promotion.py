"""A promotion cuts at what is decided, whichever broker dies meanwhile; to repeat it continues.

The invariants of clusters know no cuts, which drop what is committed: the scenarios look at what all replicas have in the end.
"""

import pytest

from moldau.mirror import altering
from moldau.mirror.log_ends import EpochRun, LogEnd, epoch_runs, look
from moldau.mirror.promotion import Outcome, Promotion, SourceAwayError, State
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from moldau.protocol.versions import VersionRange
from moldau.wire.brokers import Brokers
from simulation.scenarios import scenario
from simulation.small_cluster import CONTROLLER, FOLLOWER, IDS, LEADER, Cluster

M0 = TopicPartition("m", 0)
OPEN = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}


async def mirrored(cluster: Cluster, *batches: bytes) -> Brokers:
    """A copy with these batches, committed; a client of its cluster."""
    await cluster.create("m", (LEADER, CONTROLLER, FOLLOWER), mirror_source="cluster topic")
    if batches:
        await bring(cluster, *batches)
    return Brokers(cluster.sim.client())


async def bring(cluster: Cluster, *batches: bytes) -> None:
    data = [TopicProduceData("m", partition_data=[PartitionProduceData(0, b"".join(batches))])]
    request = ProduceRequest(None, -1, 5000, data, mirror="there")
    response = await cluster.ask(cluster.state("m").leader, ApiKey.PRODUCE, request, VersionRange(12, 12))
    assert response.responses[0].partition_responses[0].error_code == 0


def batch(base_offset: int, epoch: int, *values: bytes, **options: object) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, leader_epoch=epoch, **options)  # type: ignore[arg-type]
    for value in values:
        builder.append(1_000_000, None, value)
    return builder.build()


async def ready(promotion: Promotion) -> list[Outcome]:
    return await promotion.prepare(await promotion.partitions(), 10.0)


def promotion_of(brokers: Brokers) -> Promotion:
    return Promotion(brokers, None, lambda names: [name for name in names if name == "m"])


@scenario(checks=False)
async def test_the_cut_is_where_the_first_open_transaction_begins(cluster: Cluster) -> None:
    """Claim: what comes after it is dropped and named; clients write from there, in all replicas."""
    brokers = await mirrored(cluster, batch(0, 5, b"a", b"b"), batch(2, 6, b"open", **OPEN), batch(3, 6, b"c"))
    assert await look(brokers, M0) == LogEnd(6, 2, 4, 4)
    promotion = promotion_of(brokers)
    (outcome,) = await ready(promotion)
    assert (outcome.state, outcome.epoch, outcome.offset, outcome.end, outcome.dropped) == (State.READY, 6, 2, 4, 2)
    assert "transaction is open from offset 2" in outcome.reason
    (promoted,) = await promotion.promote([outcome])
    assert (promoted.state, promoted.offset) == (State.PROMOTED, 2)
    await cluster.write(b"x", topic="m")
    await cluster.in_sync(*IDS, topic="m")
    await cluster.until(lambda: [cluster.values(each, "m") for each in IDS] == [[b"a", b"b", b"x"]] * 3)
    own = cluster.state("m").leader_epoch
    assert await epoch_runs(brokers, M0) == [EpochRun(5, 0, 2), EpochRun(own, 2, 3)]
    assert await promotion.partitions() == [], "to repeat it changes nothing"


@scenario(checks=False)
async def test_no_transaction_is_open_before_the_cut(cluster: Cluster) -> None:
    """Claim: a transaction that began before the last stable offset and ended after it does not stay open in the copy for ever."""
    other = {**OPEN, "producer_id": 8}
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, 0), producer_id=8, producer_epoch=0, timestamp=1_000_000, base_offset=3, leader_epoch=6
    )
    brokers = await mirrored(cluster, batch(0, 6, b"a"), batch(1, 6, b"ends later", **other), batch(2, 6, b"open", **OPEN), marker)
    assert await look(brokers, M0) == LogEnd(6, 2, 4, 4)
    promotion = promotion_of(brokers)
    (promoted,) = await promotion.promote(await ready(promotion))
    assert (promoted.state, promoted.offset, promoted.dropped) == (State.PROMOTED, 1, 3)
    await cluster.write(b"x", topic="m")
    await cluster.in_sync(*IDS, topic="m")
    await cluster.until(lambda: [cluster.values(each, "m") for each in IDS] == [[b"a", b"x"]] * 3)
    end = await look(brokers, M0)
    assert end.is_settled, end


@scenario(checks=False)
async def test_what_the_mirror_brings_between_look_and_cut_is_dropped(cluster: Cluster) -> None:
    """Claim: the outcome says where clients write, whatever came later; nothing before it is lost."""
    brokers = await mirrored(cluster, batch(0, 5, b"a"))
    promotion = promotion_of(brokers)
    outcomes = await ready(promotion)
    await bring(cluster, batch(1, 5, b"later"), batch(2, 70_000, b"and later still"))
    (promoted,) = await promotion.promote(outcomes)
    assert (promoted.state, promoted.offset) == (State.PROMOTED, 1)
    await cluster.write(b"x", topic="m")
    await cluster.until(lambda: [cluster.values(each, "m") for each in IDS] == [[b"a", b"x"]] * 3)


@scenario(checks=False)
async def test_what_the_mirror_brings_to_an_empty_partition_between_look_and_cut_is_dropped(cluster: Cluster) -> None:
    """Claim: a log without an epoch is cut, too; else a transaction of the source would stay open in it for ever."""
    brokers = await mirrored(cluster)
    promotion = promotion_of(brokers)
    outcomes = await ready(promotion)
    await bring(cluster, batch(0, 5, b"later"), batch(1, 5, b"open", **OPEN))
    (promoted,) = await promotion.promote(outcomes)
    assert (promoted.state, promoted.offset) == (State.PROMOTED, 0)
    await cluster.write(b"x", topic="m")
    await cluster.until(lambda: [cluster.values(each, "m") for each in IDS] == [[b"x"]] * 3)


@pytest.mark.parametrize("victim", [LEADER, CONTROLLER])
def test_leader_or_controller_die_between_look_and_cut(victim: int) -> None:
    """Claim: the next one does it; nothing before the cut is lost."""

    async def story(cluster: Cluster) -> None:
        brokers = await mirrored(cluster, batch(0, 5, b"a", b"b"), batch(2, 6, b"open", **OPEN))
        promotion = promotion_of(brokers)
        outcomes = await ready(promotion)
        cluster.kill(victim)
        (promoted,) = await promotion.promote(outcomes)
        if promoted.state is State.FAILED:  # the controller took longer than one command waits
            (promoted,) = await promotion.promote(await ready(promotion))
        assert (promoted.state, promoted.offset) == (State.PROMOTED, 2)
        cluster.start(victim)
        await cluster.write(b"x", topic="m")
        await cluster.in_sync(*IDS, topic="m")
        await cluster.until(lambda: [cluster.values(each, "m") for each in IDS] == [[b"a", b"b", b"x"]] * 3)

    Cluster(checks=False).run(story)


@scenario(checks=False)
async def test_only_a_copy_is_promoted(cluster: Cluster) -> None:
    """Claim: leaders say which partitions are a mirror's, and store nothing for it."""
    brokers = await mirrored(cluster)
    assert await altering.is_mirrors(brokers, M0)
    assert not await altering.is_mirrors(brokers, TopicPartition("t", 0))
    assert await Promotion(brokers, None, list).partitions() == [M0]
    assert await look(brokers, M0) == LogEnd(-1, 0, 0, 0)
    assert await epoch_runs(brokers, M0) == [EpochRun(-1, 0, 0)]
    promotion = promotion_of(brokers)
    (promoted,) = await promotion.promote(await ready(promotion))
    assert (promoted.state, promoted.offset, promoted.dropped) == (State.PROMOTED, 0, 0)
    await cluster.write(b"x", topic="m")


@scenario(checks=False)
async def test_a_planned_promotion_waits_for_the_source_and_needs_it(cluster: Cluster) -> None:
    """Claim: nothing is promoted that is behind its source, and the source has to answer. The cluster is its own source here."""
    brokers = await mirrored(cluster, batch(0, 5, b"a", b"b"), batch(2, 6, b"open", **OPEN))
    (outcome,) = await Promotion(brokers, brokers, lambda names: [name for name in names if name == "m"]).prepare([M0], 1.0)
    assert (outcome.state, outcome.reason) == (State.WAITS, "a transaction is open from offset 2 on")
    nowhere = Brokers(cluster.sim.client())
    cluster.kill(*IDS)
    with pytest.raises(SourceAwayError, match="the source does not answer"):
        await Promotion(brokers, nowhere, list).partitions()
