"""Processes of a mirror share its partitions: at no moment do two work on one in the same generation, and in the end each is worked on.

Workers here do nothing but to know what they work on; to end that takes them some time.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import pytest

from moldau.mirror.reachability import Reachability
from moldau.mirror.sharing.protocol import MirrorSharing
from moldau.mirror.sharing.shares import Share
from moldau.mirror.sharing.work import BALANCE_INTERVAL_S, FencedInstanceError, SharedWork
from moldau.model.errors import ErrorCode, PeerError
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import BROKER, Simulation
from moldau.wire.brokers import Brokers
from moldau.wire.group import Membership

pytestmark = pytest.mark.system
SESSION_S = 10.0


def shares(count: int, topic: str = "t") -> list[Share]:
    return [Share("paris", topic, number) for number in range(count)]


class Group:
    """The processes of a mirror. It looks at what they work on before anything arrives anywhere, and when their workers change that."""

    def __init__(self, sim: Simulation, seen: Sequence[Share]) -> None:
        self.sim = sim
        self.seen = list(seen)
        self.processes: list[Process] = []
        self.problems: list[str] = []
        sim.network.on_arriving = lambda _end: self.check()

    def start(self, instance: str, **timing: float) -> "Process":
        process = Process(self, instance, **timing)
        self.processes.append(process)
        return process

    def see(self, seen: Sequence[Share]) -> None:
        self.seen = list(seen)
        for process in self.processes:
            process.work.see("paris", self.seen)

    def check(self) -> None:
        workers: dict[tuple[Share, int], str] = {}
        for process in self.processes:
            for share in process.working:
                key = share, process.work.metadata.generation_id
                if key in workers:
                    self.problems.append(f"{share} in generation {key[1]}: {workers[key]} and {process.instance}")
                workers[key] = process.instance

    def are_settled(self) -> bool:
        """Whether each partition is worked on by one process, and nothing is about to change."""
        generations = {process.work.metadata.generation_id for process in self.processes}
        working = sorted(share for process in self.processes for share in process.working)
        return working == sorted(self.seen) and all(process.is_calm for process in self.processes) and len(generations) <= 1

    async def settle(self, limit_s: float = 120.0) -> None:
        await self.sim.until(self.are_settled, limit_s)
        assert self.problems == []

    def counts(self) -> list[int]:
        return [len(process.working) for process in self.processes]

    def close(self) -> None:
        self.sim.network.on_arriving = None
        for process in list(self.processes):
            process.kill()
        assert self.problems == []


class Process:
    """A process of the mirror, with a worker."""

    def __init__(self, group: Group, instance: str, **timing: float) -> None:
        self.group = group
        self.instance = instance
        self.context = group.sim.client(f"mirror-{instance}")
        self.brokers = Brokers(self.context, watch=Reachability("m", "target", group.sim.clock))
        self.work = SharedWork(self.brokers, "m", instance, ["paris"], self, **timing)
        self.work.see("paris", group.seen)
        self.working: dict[Share, None] = {}
        self.measured: dict[Share, float] = {}
        self.revocation_s = self.beginning_s = 0.05
        self.is_asked = False
        """Whether its worker has something to do."""
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        """What the worker was asked for: the method, and what departed or how many partitions."""
        self.task = group.sim.start(self.work.run(), f"{self.context.name} runs")

    @property
    def is_calm(self) -> bool:
        membership = self.work._membership
        return not (membership.needs_rejoin or self.is_asked) and tuple(self.working) == self.work.owned

    async def assign(self, added: Sequence[Share], departed: Sequence[str]) -> None:
        self.calls.append(("assign", tuple(departed)))
        self.is_asked = True
        await asyncio.sleep(self.context.random.uniform(self.beginning_s / 2, self.beginning_s))
        self.is_asked = False
        self.working = dict.fromkeys(sorted({**self.working, **dict.fromkeys(added)}))
        self.group.check()

    async def revoke(self, removed: Sequence[Share]) -> None:
        self.calls.append(("revoke", (str(len(removed)),)))
        self.is_asked = True
        await asyncio.sleep(self.context.random.uniform(self.revocation_s / 2, self.revocation_s))
        self.is_asked = False
        self.group.check()
        for share in removed:
            self.working.pop(share, None)  # an assignment may have been interrupted

    async def lost(self) -> None:
        self.calls.append(("lost", ()))
        self.group.check()
        self.working.clear()

    def rates(self) -> Mapping[Share, float]:
        return {share: self.measured[share] for share in self.working if share in self.measured}

    def departed(self) -> list[str]:
        return [name for kind, names in self.calls if kind == "assign" for name in names]

    def end(self) -> None:
        self.group.processes.remove(self)
        self.task.cancel()
        self.work._membership.stop()
        self.working.clear()

    def kill(self) -> None:
        self.end()
        self.brokers.abort()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.work.close()
        assert not self.working
        self.end()
        self.brokers.close()


@pytest.fixture
def sim() -> Iterator[Simulation]:
    simulation = Simulation(Options(1))
    simulation.host.start()
    yield simulation
    simulation.close()


def test_members_join_are_killed_come_back_and_leave(sim: Simulation) -> None:
    async def main() -> None:
        group = Group(sim, shares(12))
        one = group.start("1")
        await group.settle()
        two, three = group.start("2"), group.start("3")
        await group.settle()
        assert group.counts() == [4, 4, 4]
        assert [len(names) for kind, names in one.calls if kind == "assign"] == [0]  # what it kept was not assigned again

        had, generation = list(two.working), two.work.metadata.generation_id
        two.kill()
        await sim.sleep(1)
        two = group.start("2")
        await group.settle(2)
        assert list(two.working) == had
        assert two.work.metadata.generation_id == generation

        two.kill()
        began = sim.clock.monotonic()
        await group.settle()
        assert SESSION_S - 1 < sim.clock.monotonic() - began < SESSION_S + 5
        assert group.counts() == [6, 6]
        assert one.departed() == three.departed() == ["2"]

        await three.close()
        await group.settle()
        assert group.counts() == [12]
        assert one.departed() == ["2", "3"]
        group.close()

    sim.run(main())


@pytest.mark.parametrize("seed", [*range(8), 108, 119])  # 108: a generation that was not stored; 119: lost what it should have revoked
def test_whatever_happens_to_processes_broker_and_network_no_partition_is_worked_on_twice(seed: int) -> None:
    """In one generation. A process that is cut off works on in an older one, in which it cannot commit."""
    sim = Simulation(Options(seed, settings={"log.flush.interval.messages": 1}))
    sim.host.start()

    async def main() -> None:
        random = sim.random("disturb")
        group = Group(sim, shares(10))
        for _ in range(40):
            await disturb(group, random)
            await sim.sleep(random.expovariate(1 / 3))
        if sim.host.process is None:
            sim.host.start()
        for process in group.processes:
            connect(sim, process)
            process.revocation_s = process.beginning_s = 0.05
        for instance in ("1", "2", "3"):
            if instance not in [process.instance for process in group.processes]:
                group.start(instance)
        await group.settle()
        assert min(group.counts()) >= 1
        group.close()

    try:
        sim.run(main())
    finally:
        sim.close()


async def disturb(group: Group, random: Random) -> None:
    sim = group.sim
    absent = [name for name in ("1", "2", "3") if name not in [process.instance for process in group.processes]]
    kind = random.choice(["start", "start", "start", "kill", "close", "cut", "connect", "break", "restart", "grow", "load"])
    process = random.choice(group.processes) if group.processes else None
    if kind == "start" and absent:
        started = group.start(random.choice(absent), rebalance_timeout_s=3.0, heartbeat_s=random.choice([0.5, 5.0]))
        started.revocation_s, started.beginning_s = random.choice([0.01, 1.0, 8.0]), random.choice([0.01, 1.0, 8.0])
    elif kind == "kill" and process is not None:
        process.kill()
    elif kind == "close" and process is not None:
        await process.close()
    elif kind == "cut" and process is not None:
        sim.network.block(process.context.name, BROKER)
    elif kind == "connect" and process is not None:
        connect(sim, process)
    elif kind == "break":
        for connection in sim.network.open_connections():
            random.choice(connection.ends).abort()
    elif kind == "restart":
        sim.host.kill()
        await sim.sleep(random.choice([0.1, 15.0]))
        sim.host.start()
    elif kind == "grow":
        group.see(shares(random.randrange(8, 14)))
    elif kind == "load" and process is not None:
        process.measured.update((share, random.choice([0.0, 1e6, 1e7])) for share in process.working)


def connect(sim: Simulation, process: Process) -> None:
    if sim.network.is_blocked(process.context.name, BROKER):
        sim.network.unblock(process.context.name, BROKER)


def test_a_second_process_of_an_instance_replaces_the_first_which_says_so(sim: Simulation) -> None:
    async def main() -> None:
        group = Group(sim, shares(4))
        first = group.start("1")
        await group.settle()
        group.processes.remove(first)
        group.start("1")
        await asyncio.wait([first.task])
        with pytest.raises(FencedInstanceError, match="another process runs as instance 1 of mirror m now, and this one ends"):
            first.task.result()
        assert first.calls[-1] == ("lost", ())
        await group.settle()
        group.close()

    sim.run(main())


def test_one_that_is_cut_off_is_expelled_and_drops_what_it_had_without_committing(sim: Simulation) -> None:
    async def main() -> None:
        group = Group(sim, shares(6))
        one, two = group.start("1"), group.start("2")
        await group.settle()
        sim.network.block(two.context.name, BROKER)
        await sim.until(lambda: len(one.working) == 6)
        assert len(two.working) == 3  # of an older generation
        connect(sim, two)
        await group.settle()
        assert ("lost", ()) in two.calls
        assert group.counts() == [3, 3]
        group.close()

    sim.run(main())


def test_one_that_has_missed_a_generation_drops_what_it_had_before_it_commits_in_the_next(sim: Simulation) -> None:
    """It begins so slowly that the group rebalances without it, by what it sent before it was assigned anything."""

    async def main() -> None:
        group = Group(sim, shares(6))
        timing = {"rebalance_timeout_s": 3.0, "session_timeout_s": 20.0}
        group.start("1", **timing)
        await group.settle()
        slow = group.start("2", **timing)
        await sim.until(lambda: len(slow.work.owned) == 1)
        slow.beginning_s = 20.0
        await sim.until(lambda: len(slow.work.owned) == 2)
        slow.work._membership._heartbeat_s = 60.0  # it joins again before it is refused a heartbeat
        await sim.sleep(2)
        slow.work._membership.needs_rejoin = True
        three = group.start("3", **timing)
        await sim.until(lambda: len(three.working) > 0)
        slow.beginning_s = 0.05
        slow.work._membership._heartbeat_s = 1.0
        await sim.until(lambda: ("lost", ()) in slow.calls)
        await group.settle()
        assert group.counts() == [2, 2, 2]
        group.close()

    sim.run(main())


def test_a_slow_revocation_does_not_end_the_membership(sim: Simulation) -> None:
    async def main() -> None:
        group = Group(sim, shares(4))
        one = group.start("1", rebalance_timeout_s=60.0)
        await group.settle()
        one.revocation_s = 4 * SESSION_S
        group.start("2")
        group.start("3")
        await group.settle(300)
        assert ("lost", ()) not in one.calls
        assert sorted(group.counts()) == [1, 1, 2]
        group.close()

    sim.run(main())


def test_partitions_that_are_added_are_assigned_and_not_at_each_change(sim: Simulation) -> None:
    async def main() -> None:
        group = Group(sim, shares(2))
        group.start("1")
        group.start("2")
        await group.settle()
        generation = group.processes[0].work.metadata.generation_id
        for count in range(3, 60):
            group.see(shares(count))
            await sim.sleep(0.2)
        await group.settle()
        assert group.processes[0].work.metadata.generation_id - generation <= 4
        group.see(shares(1))
        await group.settle()
        group.close()

    sim.run(main())


def test_a_leader_that_came_back_assigns_at_once_what_its_sources_have_now(sim: Simulation) -> None:
    async def main() -> None:
        # a mirror with one process, which leads its group
        group = Group(sim, shares(4))
        leader = group.start("1")
        await group.settle()

        # is killed, and other topics are selected before it comes back: the coordinator has the assignment of before for it (KIP-814)
        leader.kill()
        await sim.sleep(1)
        group.see(shares(2, "u"))
        leader = group.start("1")

        # it has the new partitions without the wait that is meant for topics that change while it runs
        await group.settle(1)
        assert list(leader.working) == shares(2, "u")
        group.close()

    sim.run(main())


def test_partitions_move_when_measured_loads_differ_from_what_the_leader_assumed(sim: Simulation) -> None:
    async def main() -> None:
        group = Group(sim, shares(12))
        one, two = group.start("1"), group.start("2")
        await group.settle()
        assert group.counts() == [6, 6]
        one.measured = two.measured = {share: 1e6 if share in two.working else 1e5 for share in group.seen}
        generation = one.work.metadata.generation_id
        await sim.sleep(BALANCE_INTERVAL_S - 60)
        assert one.work.metadata.generation_id == generation
        await sim.sleep(120)
        await group.settle()
        assert group.counts() == [9, 3]
        generation = one.work.metadata.generation_id
        await sim.sleep(3 * BALANCE_INTERVAL_S)
        assert one.work.metadata.generation_id <= generation + 1
        group.close()

    sim.run(main())


def test_while_the_broker_is_away_it_is_tried_again_and_logged_now_and_then(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        sim.host.kill()
        group = Group(sim, shares(4))
        one = group.start("1")
        await sim.sleep(600)
        assert 9 <= sum("broker does not answer" in message for message in caplog.messages) <= 11
        assert not any("cannot join the group" in message for message in caplog.messages), "for the reason that a line has already"
        sim.host.start()
        await group.settle()
        caplog.clear()
        sim.host.kill()
        await sim.sleep(90)
        assert any("broker does not answer" in message for message in caplog.messages)
        assert one.work.failure.startswith("heartbeat failed")
        assert len(one.working) == 4
        sim.host.start()
        await group.settle()
        group.close()

    with caplog.at_level(logging.WARNING, "moldau.mirror"):
        sim.run(main())


def test_a_group_that_may_not_be_joined_ends_it(sim: Simulation) -> None:
    """Another protocol has the group: asking again does not help."""

    class Other(MirrorSharing):
        protocol_type = "other"

    async def main() -> None:
        membership = Membership(Brokers(sim.client()), "mirror.m", Other("m", []))
        await membership.rejoin(b"")
        group = Group(sim, shares(1))
        one = group.start("1")
        await asyncio.wait([one.task])
        with pytest.raises(PeerError) as failure:
            one.task.result()
        assert failure.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await membership.leave()
        group.close()

    sim.run(main())


def test_a_member_whose_state_cannot_be_read_owns_nothing(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        group = Group(sim, shares(3))
        one = group.start("1")
        await group.settle()
        stranger = Membership(Brokers(sim.client()), "mirror.m", MirrorSharing("m", []))
        assert await stranger.rejoin(b"what?")
        await sim.until(lambda: len(one.working) == 2)
        assert "cannot read the state of a member" in caplog.text
        await stranger.leave()
        await group.settle()
        assert one.departed() == []
        group.close()

    sim.run(main())
