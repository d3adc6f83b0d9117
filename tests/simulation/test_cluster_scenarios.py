"""Named defects of others' replication (R), tree and controller (Z), and the last replica standing (K5), each as an interleaving that
must not hurt here. Invariants are checked after every step.
"""

from collections.abc import Awaitable, Callable, Iterator

import pytest

from moldau.cluster import znodes
from moldau.cluster.znodes import decode_controller
from moldau.model.errors import ErrorCode
from moldau.ports.coordination import Delete
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.brokers import Brokers
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.cluster_invariants import ClusterInvariants
from moldau.testing.simulation.cluster_mutants import CLUSTER_MUTANTS
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.probes import SimulatedProbe
from moldau.testing.simulation.process import PORT, Host
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_invariants import TreeInvariants
from moldau.testing.simulation.tree_view import partitions_in
from moldau.testing.simulation.wire import Wire
from simulation.test_cluster import SETTINGS, in_sync, leader
from simulation.test_determinism import T0, read


class Cluster:
    """Three brokers, with a topic t of one partition."""

    def __init__(self, **settings: object) -> None:
        given = {**SETTINGS, "replica.lag.time.max.ms": 1000, **{name.replace("_", "."): value for name, value in settings.items()}}
        self.sim = Simulation(Options(1, brokers=3, settings=given, tree_latency_s=0.002, tree_linger_s=3.0, session_s=3.0))
        self.wire = Wire(self.sim.network)
        self.lossy: list[Host] = []
        """Those that have lost something."""
        self.tree = TreeInvariants(self.sim.tree, self.sim.hosts)
        self.invariants = ClusterInvariants(self.sim.hosts, self.tree, self.lossy.__contains__)
        for host in self.sim.hosts:
            host.start()

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            await SimulatedAdmin(self.sim.client()).create_topic("t")
            await self.sim.until(lambda: in_sync(self.sim) == [1, 2, 3])
            self.producer = SimulatedProducer(self.sim.client("producer"))
            await main()
            self.invariants.check_all()

        with SimulatedProbe(1, ()) as probe:
            self.reached = probe.counts
            self.sim.run(whole())

    def host(self, broker_id: int) -> Host:
        return self.sim.hosts[broker_id - 1]

    def power_cut(self, broker_id: int) -> None:
        self.lossy.append(self.host(broker_id))
        self.host(broker_id).power_cut()

    async def write(self, *values: bytes) -> None:
        for value in values:
            await self.producer.send_and_wait("t", value, partition=0)

    async def leads(self, *, other_than: int = 0) -> int:
        """The id of the leader, once there is one, and another one."""
        await self.sim.until(lambda: leader(self.sim) not in (None, other_than - 1))
        found = leader(self.sim)
        assert found is not None
        return found + 1

    def followers(self, leader_id: int) -> list[int]:
        return [number for number in (1, 2, 3) if number != leader_id]

    def isr(self) -> list[int]:
        """As the tree has it."""
        (partition,) = partitions_in(self.sim.tree)
        assert partition.state is not None
        return sorted(partition.state.isr)

    def controller(self) -> int:
        """The id of the broker whose node says so; 0 while there is none."""
        node = self.sim.tree.get(znodes.CONTROLLER)
        return 0 if node is None else decode_controller(znodes.CONTROLLER, node.data)

    def epoch(self) -> int:
        (partition,) = partitions_in(self.sim.tree)
        assert partition.state is not None
        return partition.state.leader_epoch

    def end(self, broker_id: int) -> int:
        broker = self.host(broker_id).broker
        assert broker is not None
        return broker.replicas.hosted[T0].log.log_end_offset


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.sim.close()


def test_r2_a_follower_before_the_start_of_the_leaders_epoch_does_not_join(cluster: Cluster) -> None:
    """KAFKA-7128: the new leader's high watermark is low, and a follower that lags is at it. Were that enough to be in sync, it could be
    elected without what was acknowledged.
    """
    sim, network = cluster.sim, cluster.sim.network

    async def main() -> None:
        await cluster.write(b"0")
        first = await cluster.leads()
        second, lagging = cluster.followers(first)
        await sim.until(lambda: cluster.end(second) == cluster.end(lagging) == 1)
        to_second, to_lagging = (
            cluster.wire.response(ApiKey.FETCH, by=cluster.host(first).name, to=cluster.host(number).name) for number in (second, lagging)
        )
        network.hold(lambda end: to_lagging(end) or (to_second(end) and cluster.end(second) == 2))  # it never hears of the watermark
        await cluster.write(b"1")
        assert cluster.isr() == sorted((first, second))
        from_second = cluster.wire.response(ApiKey.FETCH, by=cluster.host(second).name, to=cluster.host(lagging).name)
        network.hold(lambda end: to_lagging(end) or to_second(end) or from_second(end))
        cluster.host(first).kill()
        assert await cluster.leads(other_than=first) == second
        await sim.sleep(2.0)
        assert cluster.end(lagging) == 1
        assert cluster.isr() == [second]
        network.release()
        await sim.until(lambda: lagging in cluster.isr())
        assert cluster.end(lagging) == 2
        cluster.host(first).start()
        await sim.until(lambda: cluster.isr() == [1, 2, 3])
        assert await read(sim) == [b"0", b"1"]

    cluster.run(main)


def test_r4_an_expansion_whose_answer_is_late_counts_before_it_is_known(cluster: Cluster) -> None:
    """KIP-497: the tree has three in sync, the leader knows of two. What it acknowledges must be on all three."""
    sim = cluster.sim

    async def main() -> None:
        first = await cluster.leads()
        _, away = cluster.followers(first)
        cluster.host(away).kill()
        await sim.until(lambda: len(cluster.isr()) == 2)
        cluster.host(away).start()
        process = cluster.host(first).process
        assert process is not None
        await sim.until(lambda: cluster.host(away).broker is not None and sim.tree.get(znodes.broker(away)) is not None)
        process.session.late_s = 2.0
        await sim.until(lambda: cluster.isr() == [1, 2, 3])
        assert len(in_sync(sim)) == 2
        sim.network.hold(cluster.wire.response(ApiKey.FETCH, by=cluster.host(first).name, to=cluster.host(away).name))
        late = await cluster.producer.send("t", b"0", partition=0)
        await sim.sleep(0.5)
        assert len(in_sync(sim)) == 2
        assert not late.done()
        sim.network.release()
        process.session.late_s = 0.0
        await late
        assert [cluster.end(number) for number in (1, 2, 3)] == [1, 1, 1]

    cluster.run(main)


def test_r5_a_follower_that_has_diverged_truncates_before_it_takes_anything(cluster: Cluster) -> None:
    """KAFKA-14704: the answer with the diverging epoch carries the leader's high watermark, which is beyond records of the follower that
    were never committed.
    """
    sim, network = cluster.sim, cluster.sim.network

    async def main() -> None:
        await cluster.write(b"0")
        first = await cluster.leads()
        others = [cluster.host(number).name for number in cluster.followers(first)]
        for other in others:
            network.block(cluster.host(first).name, other)
        doomed = [await cluster.producer.send("t", b"doomed %d" % number, partition=0) for number in range(3)]
        await sim.until(lambda: cluster.end(first) > 1)
        cluster.host(first).kill()
        for delivery in doomed:
            delivery.cancel()
        cluster.producer.crash()
        second = await cluster.leads(other_than=first)
        await sim.sleep(1.0)
        for other in others:
            network.unblock(cluster.host(first).name, other)
        cluster.producer = SimulatedProducer(sim.client("heir"))
        await cluster.write(*(b"%d" % value for value in range(1, 8)))
        cluster.host(first).start()
        await sim.until(lambda: cluster.isr() == [1, 2, 3])
        assert cluster.reached["cluster: a follower truncated its log"] == 1
        assert cluster.end(first) == cluster.end(second)
        assert await read(sim) == [b"%d" % value for value in range(8)]

    cluster.run(main)


def test_z1_a_broker_that_bounces_within_its_session_time_out_is_not_in_sync_with_what_it_has_lost(cluster: Cluster) -> None:
    """KAFKA-7235: no watch shows a difference, as the broker is registered before and after."""
    sim = cluster.sim

    async def main() -> None:
        await cluster.write(b"0", b"1", b"2")
        first = await cluster.leads()
        bounced, other = cluster.followers(first)
        if bounced == cluster.controller():
            bounced, other = other, bounced
        before = cluster.epoch()
        sizes: list[int] = []
        sim.tree.nodes.on_written.append(lambda *_: sizes.append(len(cluster.isr())))
        controller = cluster.host(cluster.controller()).process
        assert controller is not None
        controller.session.late_s = 6.0
        cluster.power_cut(bounced)
        cluster.host(bounced).start()
        await sim.sleep(5.0)
        assert sim.tree.get(znodes.broker(bounced)) is not None
        assert cluster.isr() == [1, 2, 3]
        controller.session.late_s = 0.0
        await sim.until(lambda: min(sizes, default=3) < 3)
        assert cluster.epoch() > before
        await sim.until(lambda: cluster.isr() == [1, 2, 3])
        cluster.lossy.clear()
        cluster.host(first).kill()
        cluster.host(other).kill()
        cluster.host(first).start()
        cluster.host(other).start()
        await cluster.write(b"3")
        assert await read(sim) == [b"0", b"1", b"2", b"3"]

    cluster.run(main)


def test_z5_a_controller_that_has_not_heard_of_its_successor_writes_nothing(cluster: Cluster) -> None:
    """KAFKA-6082: its session lives, and what tells it of the other is late."""
    sim = cluster.sim

    async def main() -> None:
        old = cluster.controller()
        process = cluster.host(old).process
        assert process is not None
        process.session.late_s = 3.0
        operator = sim.tree.nodes.session()
        operator.submit(Delete(znodes.CONTROLLER), lambda _: None)
        await sim.until(lambda: cluster.controller() not in (0, old))
        brokers = Brokers(sim.client())
        connection = await brokers.connection((cluster.host(old).name, PORT))
        request = CreateTopicsRequest([CreatableTopic("u", 1, 3)], 60_000)
        (answer,) = (await connection.send(ApiKey.CREATE_TOPICS, request, timeout_s=60.0)).topics
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert [partition.topic for partition in partitions_in(sim.tree)] == ["t"]
        process.session.late_s = 0.0
        await cluster.write(b"0")

    cluster.run(main)


def test_k5_the_last_replica_in_sync_has_shown_nothing_that_the_others_lack(cluster: Cluster) -> None:
    """KIP-966: it loses what it had alone, and an eligible replica is elected before it."""
    sim = cluster.sim

    async def main() -> None:
        await cluster.write(b"0", b"1")
        first = await cluster.leads()
        others = cluster.followers(first)
        for other in others:
            cluster.host(other).kill()
        await sim.until(lambda: cluster.isr() == [first])
        alone = SimulatedProducer(sim.client("alone"), acks=1)
        assert (await alone.send_and_wait("t", b"alone", partition=0)).offset == 2
        broker = cluster.host(first).broker
        assert broker is not None
        assert broker.replicas.hosted[T0].log.high_watermark == 2
        cluster.power_cut(first)
        cluster.host(first).start()
        await sim.sleep(10.0)
        assert leader(sim) is None
        cluster.host(others[0]).start()
        cluster.host(others[1]).start()
        await cluster.write(b"2")
        await sim.until(lambda: cluster.isr() == [1, 2, 3])
        assert [value for value in await read(sim) if value != b"alone"] == [b"0", b"1", b"2"]

    cluster.run(main)


def test_a_hold_knows_requests_and_responses_by_their_kind_and_ends(cluster: Cluster) -> None:
    sim, network = cluster.sim, cluster.sim.network

    async def main() -> None:
        first = await cluster.leads()
        network.hold(cluster.wire.request(ApiKey.PRODUCE, to=cluster.host(first).name))
        late = await cluster.producer.send("t", b"0", partition=0)
        await sim.until(lambda: network.held == 1)
        assert await cluster.producer.partitions_for("t") == 1
        await sim.sleep(0.5)
        assert cluster.end(first) == 0
        assert in_sync(sim) == [1, 2, 3]
        network.release()
        await late
        assert cluster.end(first) == 1

    cluster.run(main)


PLANTED: list[tuple[Callable[[Cluster], None], str]] = [
    (test_r2_a_follower_before_the_start_of_the_leaders_epoch_does_not_join, "join at the committed offset, before the leader's term"),
    (test_r4_an_expansion_whose_answer_is_late_counts_before_it_is_known, "commit without those that are proposed"),
    (test_r5_a_follower_that_has_diverged_truncates_before_it_takes_anything, "never truncate"),
    (
        test_z1_a_broker_that_bounces_within_its_session_time_out_is_not_in_sync_with_what_it_has_lost,
        "elect who has restarted uncleanly",
    ),
    (test_z5_a_controller_that_has_not_heard_of_its_successor_writes_nothing, "write without a check of the controller's epoch"),
    (test_k5_the_last_replica_in_sync_has_shown_nothing_that_the_others_lack, "commit with fewer in sync than the minimum"),
]


@pytest.mark.system
@pytest.mark.parametrize(("scenario", "name"), PLANTED, ids=[name for _, name in PLANTED])
def test_a_scenario_finds_the_bug_that_it_is_about(scenario: Callable[[Cluster], None], name: str) -> None:
    (mutant,) = [each for each in CLUSTER_MUTANTS if each.name == name]
    with mutant.planted():
        cluster = Cluster()
        try:
            with pytest.raises((InvariantError, AssertionError, TimeoutError)):
                scenario(cluster)
        finally:
            cluster.sim.close()
