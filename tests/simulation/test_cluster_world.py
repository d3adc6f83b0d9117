"""The parts of a simulated cluster: cuts between hosts, sessions of the tree, the bound on losses, what is checked of the tree."""

from functools import partial
from random import Random

import pytest

from moldau.cluster import znodes
from moldau.cluster.znodes import PartitionState, encode_state, encode_topic
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, GetData, Multi, MultiDone, SessionEvent, SessionState, SetData, TooManyRequestsError
from moldau.testing.coordination import FakeSession
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.cluster_invariants import ClusterInvariants
from moldau.testing.simulation.cluster_judge import ClusterJudge
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.loss_budget import LossBudget
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_invariants import TreeInvariants
from moldau.testing.simulation.tree_view import partitions_in
from simulation.test_cluster import in_sync, run, sim
from simulation.test_determinism import T0

__all__ = ["sim"]


def test_a_cut_keeps_what_is_sent_one_way_until_it_ends(sim: Simulation) -> None:
    one, two = (host.name for host in sim.hosts[:2])

    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        await sim.until(lambda: in_sync(sim) == [1, 2, 3])
        sim.network.block(one, two)
        await sim.sleep(1.0)
        assert sim.network.held > 0
        assert sim.network.is_blocked(one, two)
        assert not sim.network.is_blocked(two, one)
        sim.network.unblock(one, two)
        assert sim.network.held == 0
        await sim.until(lambda: in_sync(sim) == [1, 2, 3])

    run(sim, main)


def test_a_session_that_is_cut_off_expires_and_one_of_a_paused_process_too(sim: Simulation) -> None:
    async def main() -> None:
        await sim.until(lambda: all(sim.tree.get(znodes.broker(number)) is not None for number in (1, 2, 3)))
        events: list[object] = []
        session = sim.tree.session(lambda _call: None, lambda call, delay_s: sim.clock.call_later(delay_s, call))
        session.listen(events.append)
        sim.tree.away_s = 5.0
        session.suspend()
        process = sim.hosts[1].process
        assert process is not None
        before = process.session.session_id
        sim.hosts[1].pause(4.0)
        await sim.sleep(3.5)
        assert sim.tree.get(znodes.broker(2)) is None
        await sim.until(lambda: sim.tree.get(znodes.broker(2)) is not None)
        await sim.until(lambda: SessionEvent(SessionState.EXPIRED, 4) in events or len(events) >= 4)
        assert [each.state for each in events if isinstance(each, SessionEvent)][-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
        assert process.session.session_id != before

    run(sim, main)


def test_late_answers_of_the_tree_come_in_their_order(sim: Simulation) -> None:
    found: list[tuple[str, float]] = []
    session = sim.tree.session(lambda _call: None, lambda call, delay_s: sim.clock.call_later(delay_s, call))

    async def main() -> None:
        session.late_s = 1.0
        session.submit(Create("/a", b""), lambda _: found.append(("a", sim.schedule.now)))
        await sim.sleep(0.1)
        session.late_s = 0.0
        session.submit(GetData("/a"), lambda _: found.append(("b", sim.schedule.now)))
        await sim.sleep(2.0)

    run(sim, main)
    assert [name for name, _ in found] == ["a", "b"]
    assert all(at >= 1.0 for _, at in found)


def test_a_write_that_the_tree_refuses_changes_nothing_and_the_next_one_is_carried_out(sim: Simulation) -> None:
    found: list[object] = []
    session = sim.tree.session(lambda _call: None, lambda call, delay_s: sim.clock.call_later(delay_s, call))
    session.refused_writes = 1

    async def main() -> None:
        session.submit(GetData("/"), found.append)
        session.submit(Multi((Create("/a", b"refused"),)), found.append)
        session.submit(Multi((Create("/a", b"written"),)), found.append)
        await sim.sleep(1.0)

    run(sim, main)
    assert any(isinstance(each, TooManyRequestsError) for each in found)
    assert any(isinstance(each, MultiDone) for each in found)
    node = sim.tree.get("/a")
    assert node is not None
    assert node.data == b"written"


def test_so_many_brokers_may_have_lost_something_until_they_are_in_sync_again(sim: Simulation) -> None:
    budget = LossBudget(sim.tree, sim.hosts, 1)

    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        await sim.until(lambda: in_sync(sim) == [1, 2, 3])
        assert budget.take(sim.hosts[0])
        sim.hosts[0].power_cut()
        assert not budget.take(sim.hosts[1])
        sim.hosts[0].start()
        assert budget.may_lack(sim.hosts[0])
        await sim.sleep(0.1)
        assert not budget.take(sim.hosts[1])
        await sim.until(lambda: budget.take(sim.hosts[1]))
        (partition,) = partitions_in(sim.tree)
        assert partition.state is not None
        assert sorted(partition.state.isr) == [1, 2, 3]
        assert not budget.may_lack(sim.hosts[0])

    run(sim, main)
    assert all(LossBudget(sim.tree, sim.hosts, None).take(host) for host in sim.hosts)


class Lowest(Random):
    """Draws the first of all, and the lowest."""

    def random(self) -> float:
        """The lowest."""
        return 0.0


def judged(sim: Simulation, *faults: str) -> Nemesis:
    """What may go wrong in a run with these kinds of faults, where one broker may lose something at a time."""
    sim.options.faults = dict.fromkeys(faults, 1.0)
    nemesis = Nemesis(sim.hosts, (), may_cut_power=True)
    ClusterJudge(sim, nemesis)
    return nemesis


def test_a_broker_whose_next_start_crashes_has_not_recovered_while_it_stops(sim: Simulation) -> None:
    nemesis = judged(sim, "stop", "power_cut")
    stopped, other = sim.hosts[:2]

    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        await sim.until(lambda: in_sync(sim) == [1, 2, 3])
        assert nemesis.kinds["stop"](Lowest())
        assert stopped.process is not None, "it hands over first"
        assert nemesis.keepers[0].start_crash is not None
        assert not nemesis.may_crash(other)
        for processes in (2, 3):
            await sim.until(lambda: len(stopped.incarnations) == processes)  # noqa: B023
            assert not nemesis.may_crash(other)
        await sim.until(lambda: nemesis.may_crash(other))
        (partition,) = partitions_in(sim.tree)
        assert partition.state is not None
        assert sorted(partition.state.isr) == [1, 2, 3]

    run(sim, main)


def test_a_directory_that_fails_is_a_loss_and_a_broker_that_is_killed_beside_nothing_else_is_none(sim: Simulation) -> None:
    killed, losing = judged(sim, "kill"), judged(sim, "kill", "fail_directory")

    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        await sim.until(lambda: in_sync(sim) == [1, 2, 3])
        assert losing.kinds["fail_directory"](Lowest())
        assert [losing.may_crash(host) for host in sim.hosts] == [True, False, False], "it may end, and none but it"
        assert all(killed.may_crash(host) for host in sim.hosts)

    run(sim, main)


GOOD = PartitionState(1, 3, (1, 2), 7)
WRITES = [
    (GOOD._replace(isr=()), "the in-sync set is empty"),
    (GOOD._replace(leader=3), "is not in sync"),
    (GOOD._replace(leader_epoch=2), "leader epoch 2 after 3"),
    (GOOD._replace(leader_epoch=4, controller_epoch=6), "written by controller epoch 6"),
    (GOOD._replace(leader=2), "leader 2 after 1 in epoch 3"),
    (GOOD._replace(leader_epoch=4, leader=2), ""),
    (GOOD._replace(isr=(1,)), ""),
]


def with_topic(simulation: Simulation) -> tuple[TreeInvariants, FakeSession]:
    """A topic with replicas on brokers 1 and 2, what checks it, and a session to change it."""
    invariants, session = TreeInvariants(simulation.tree, simulation.hosts), simulation.tree.nodes.session()
    path = znodes.partition_state(*T0)
    for parent in ("/brokers", "/brokers/topics", "/brokers/topics/t", "/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"):
        data = b'{"version":3,"partitions":{"0":[1,2]}}' if parent.endswith("/t") else b""
        session.submit(Create(parent, data), lambda _: None)
    session.submit(Create(znodes.CONTROLLER_EPOCH, b"7"), lambda _: None)
    session.submit(Create(path, encode_state(GOOD)), lambda _: None)
    invariants.check()
    return invariants, session


@pytest.mark.parametrize(("state", "violation"), WRITES, ids=[str(number) for number in range(len(WRITES))])
def test_a_state_that_must_not_be_in_the_tree_is_found(state: PartitionState, violation: str) -> None:
    simulation = Simulation(Options(1))
    invariants, session = with_topic(simulation)
    path = znodes.partition_state(*T0)
    session.submit(SetData(path, encode_state(state)), lambda _: None)
    if violation:
        with pytest.raises(InvariantError, match=violation):
            invariants.check()
    else:
        invariants.check()
    simulation.close()


@pytest.mark.parametrize(("isr", "is_found"), [((1, 2), True), ((1, 3), False)])
def test_a_reassignment_that_ends_before_its_replicas_were_in_sync_is_found(isr: tuple[int, ...], is_found: bool) -> None:
    simulation = Simulation(Options(1))
    invariants, session = with_topic(simulation)
    topic = znodes.topic("t")
    session.submit(SetData(topic, encode_topic(bytes(16), [(1, 3, 2)], {0: (3,)}, {0: (2,)})), lambda _: None)
    session.submit(SetData(znodes.partition_state(*T0), encode_state(GOOD._replace(isr=isr))), lambda _: None)
    session.submit(SetData(topic, encode_topic(bytes(16), [(1, 3)])), lambda _: None)
    if is_found:
        with pytest.raises(InvariantError, match=r"reassigned to \(1, 3\), of which not all were in sync"):
            invariants.check()
    else:
        invariants.check()
    simulation.close()


def test_what_a_replica_has_shown_since_its_turn_is_committed_when_it_is_stopped(sim: Simulation) -> None:
    """Seed 1392: a leader in an orderly stop showed a record, a client read it, and the answer came after the replica was stopped.

    With many partitions each of them has its turn seldom.
    """
    tree = TreeInvariants(sim.tree, sim.hosts)
    invariants = ClusterInvariants(sim.hosts, tree, lambda _host: False)

    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t", 20)
        producer = SimulatedProducer(sim.client())
        for number in range(5):
            partition = TopicPartition("t", number)
            await producer.send_and_wait("t", b"0", partition=number)
            await sim.sleep(1.0)
            await producer.send_and_wait("t", b"1", partition=number)
            (host,) = [host for host in sim.hosts if host.broker is not None and host.broker.partitions.get(partition) is not None]
            process, broker = host.process, host.broker
            assert process is not None
            assert broker is not None
            process.post(process.thread, partial(broker.replicas.stop, [partition], delete=False))
            await sim.until(lambda: partition not in broker.replicas.hosted)  # noqa: B023
            invariants.check_read(partition, 1)
            with pytest.raises(InvariantError, match="offset 2 was read, committed are 2"):
                invariants.check_read(partition, 2)

    run(sim, main)
