"""Brokers end, restart, shut down, are suspected, leaders write in-sync sets, tools move replicas, controllers change: in any order.

After each step the tree is as it may become from what it was, and in the end all is led and all brokers know the same.
"""

from random import Random

import pytest

from moldau.cluster import znodes
from moldau.cluster.changes import PutState, writes_of
from moldau.cluster.controller.events import BrokerSuspected, ControllerSuspected
from moldau.cluster.controller.requests import AlterReassignments, ElectLeaders, ShutDownBroker
from moldau.cluster.znodes import PartitionState, decode_state, decode_topic, encode_isr_change
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Data, GetData, Multi, MultiDone, Outcome
from support.controllers import Cluster
from support.sizes import sized

BROKERS = 5
PARTITIONS = 3
STEPS = 40


class World:
    """A cluster, a topic, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(BROKERS, self.random.choice([0.0, 0.05]))
        self.cluster.settle(5)
        self.min_isr = self.random.choice([1, 2, 3])
        (controller,) = self.cluster.controllers()
        controller.create("t", PARTITIONS, 3, configs=[("min.insync.replicas", str(self.min_isr))])
        self.cluster.settle(5)
        self.states = self.read()
        self.ended: dict[int, None] = {}

    def read(self) -> list[PartitionState]:
        return [state for state in self.cluster.states("t") if state is not None]

    def replicas(self, index: int) -> tuple[int, ...]:
        return decode_topic("", self.cluster.data(znodes.topic("t")) or b"").replicas[index]

    def step(self) -> None:
        actions = [self.end, self.resume, self.resume, self.bounce, self.write_isr, self.write_isr, self.move, self.ask, self.suspect]
        self.random.choice(actions)()
        self.cluster.settle(self.random.choice([0.0, 0.1, 3.0]))
        self.check()

    def end(self) -> None:
        broker_id = self.random.randrange(BROKERS)
        if broker_id not in self.ended and len(self.ended) < BROKERS - 1:
            self.ended[broker_id] = None
            self.cluster.brokers[broker_id].session.expire()

    def resume(self) -> None:
        if self.ended:
            broker_id = self.random.choice(list(self.ended))
            del self.ended[broker_id]
            self.cluster.brokers[broker_id].is_clean = self.random.random() < 0.5
            self.cluster.brokers[broker_id].session.resume()

    def bounce(self) -> None:
        broker_id = self.random.randrange(BROKERS)
        if broker_id not in self.ended:
            self.cluster.brokers[broker_id].is_clean = self.random.random() < 0.5
            self.cluster.brokers[broker_id].session.expire()
            self.cluster.brokers[broker_id].session.resume()

    def write_isr(self) -> None:
        """By the leader, of the state that it knows; a replica joins or leaves."""
        index = self.random.randrange(PARTITIONS)
        outcomes: list[Outcome] = []
        self.cluster.other.submit(GetData(znodes.partition_state("t", index)), outcomes.append)
        found = outcomes[0]
        assert isinstance(found, Data)
        state = decode_state("", found.data)
        leader = self.cluster.brokers.get(state.leader)
        other = self.random.choice(self.replicas(index))
        if leader is None or state.leader in self.ended or leader.epoch != state.leader_broker_epoch or other == state.leader:
            return
        if other in state.isr:
            isr = tuple(each for each in state.isr if each != other)
        elif other not in self.ended:
            isr = (*state.isr, other)
        else:
            return
        elr = () if len(isr) >= self.min_isr else tuple(dict.fromkeys((*state.elr, *(each for each in state.isr if each not in isr))))
        after = state._replace(isr=isr, elr=tuple(each for each in elr if each not in isr), last_known_elr=())
        notification = Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", index)]), sequential=True)
        writes = writes_of(PutState("t", index, after, found.stat.version))

        def written(outcome: Outcome) -> None:
            if isinstance(outcome, MultiDone):
                self.states[index] = after

        self.check()
        self.cluster.other.submit(Multi((*writes, notification)), written)

    def move(self) -> None:
        target = self.random.choice([None, self.random.sample(range(BROKERS), 3)])
        self._ask(AlterReassignments({TopicPartition("t", self.random.randrange(PARTITIONS)): target}))

    def ask(self) -> None:
        request: ElectLeaders | ShutDownBroker = ElectLeaders(None)
        if self.random.random() < 0.5:
            request = ShutDownBroker(self.random.randrange(BROKERS))
        self._ask(request)

    def suspect(self) -> None:
        """Of a broker that lives, or has ended in the meantime; by the controller, or by another one of the controller."""
        broker_id, is_suspected = self.random.randrange(BROKERS), self.random.random() < 0.6
        for broker in self.cluster.controllers():
            broker.runner.take(BrokerSuspected(broker_id, self.cluster.brokers[broker_id].epoch, is_suspected))
            if self.random.random() < 0.3:
                self.cluster.brokers[broker_id].runner.take(ControllerSuspected(broker.broker_id, is_suspected))

    def _ask(self, request: AlterReassignments | ElectLeaders | ShutDownBroker) -> None:
        for broker in self.cluster.controllers()[:1]:
            broker.ask(request)

    def check(self) -> None:
        """From each state to the next; what happens between two looks is a chain of such steps."""
        for before, after in zip(self.states, self.read(), strict=True):
            assert after.isr
            assert after.leader == -1 or after.leader in after.isr
            assert not {*after.isr} & {*after.elr}
            assert not {*after.last_known_elr} & {*after.isr, *after.elr}
            assert after.leader_epoch >= before.leader_epoch
            if after.leader_epoch == before.leader_epoch:
                assert after.leader == before.leader
            if after.leader_epoch == before.leader_epoch + 1 and after.leader not in (-1, before.leader):
                assert after.leader in (*before.isr, *before.elr)
        self.states = self.read()

    def end_well(self) -> None:
        while self.ended:
            self.resume()
        for broker in self.cluster.brokers.values():
            broker.runner.take(ControllerSuspected(-1, False))
        for broker in self.cluster.brokers.values():  # those that shut down do so, and are suspected no more
            broker.is_clean = True
            broker.session.expire()
            broker.session.resume()
            self.cluster.settle(3)
        self.cluster.settle(30)
        self.check()
        (controller,) = self.cluster.controllers()
        assert controller.controller.image.is_free("t")
        assert controller.controller.image.lossy == {}
        assert self.cluster.children(znodes.ISR_CHANGES) == []
        for index, state in enumerate(self.states):
            assert state.leader != -1
            assert state.leader_broker_epoch == self.cluster.brokers[state.leader].epoch
            for broker in self.cluster.brokers.values():
                info = broker.snapshot.topics["t"].partitions[index]
                assert (info.leader, info.leader_epoch, info.isr, info.elr) == (state.leader, state.leader_epoch, state.isr, state.elr)
                assert info.replicas == self.replicas(index)
                if broker.broker_id in info.replicas:
                    assert broker.led[TopicPartition("t", index)] == (state.leader, state.leader_epoch)


@pytest.mark.parametrize("seed", range(sized(25, 1000)))
def test_whatever_happens(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.end_well()
