"""Whatever brokers go through: when all of them run again, they agree with each other and with the tree."""

from random import Random

import pytest

from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.cluster import znodes
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Children, Data, GetChildren, GetData
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from support.cluster_world import ClusterWorld

IDS = (1, 2, 3)
STEPS = 25


class Faults:
    """One draw of faults and changes after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = ClusterWorld(*IDS)
        self.hung: list[int] = []
        self.made = 0

    def step(self) -> None:
        self.random.choice((self.create, self.delete, self.kill, self.start, self.hang, self.resume, self.expire, self.cut))()
        self.cluster.advance(self.random.choice((0.001, 0.01, 0.2, 2.0)))

    def controller(self) -> int | None:
        """A broker that would answer, and believes itself controller."""
        found = [each for each, process in self.cluster.processes.items() if process.broker.metadata.controller_id == each]
        return next((each for each in found if each not in self.hung and self.cluster.processes[each].is_serving), None)

    def create(self) -> None:
        self.made += 1
        if (controller := self.controller()) is not None:
            topic = CreatableTopic(f"t{self.made}", self.random.randint(1, 4), self.random.randint(1, len(self.cluster.processes)))
            self.cluster.ask(controller, CreateTopicsRequest([topic], timeout_ms=50), 7)

    def delete(self) -> None:
        controller = self.controller()
        topics = [] if controller is None else sorted(self.cluster.broker(controller).metadata.topics)
        if controller is not None and topics:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(self.random.choice(topics))], timeout_ms=50)
            self.cluster.ask(controller, request, 6)

    def running(self) -> list[int]:
        return [each for each, process in self.cluster.processes.items() if process.is_serving and each not in self.hung]

    def kill(self) -> None:
        if len(self.running()) > 1:
            self.cluster.kill(self.random.choice(self.running()))

    def start(self) -> None:
        missing = [each for each in IDS if each not in self.cluster.processes]
        if missing:
            self.cluster.start(self.random.choice(missing))

    def hang(self) -> None:
        if len(self.running()) > 1:
            self.hung.append(self.random.choice(self.running()))
            self.cluster.processes[self.hung[-1]].hang()

    def resume(self) -> None:
        if self.hung:
            self.cluster.processes[self.hung.pop()].resume()

    def expire(self) -> None:
        if self.running():
            process = self.cluster.processes[self.random.choice(self.running())]
            process.session.expire()

            def resume() -> None:
                if not process.is_over:
                    process.session.resume()

            self.cluster.clock.call_later(self.random.choice((0.0, 0.1, 1.0)), resume)

    def cut(self) -> None:
        """Lose all connections of a broker, with what is on its way."""
        if self.running():
            for transport in list(self.cluster.processes[self.random.choice(self.running())].transports):
                transport.abort()

    def heal(self) -> None:
        while self.hung:
            self.resume()
        for each in IDS:
            if each not in self.cluster.processes:
                self.cluster.start(each)
        self.cluster.skip(40.0)


def read(cluster: ClusterWorld, path: str) -> bytes:
    found: list[object] = []
    cluster.tree.session().submit(GetData(path), found.append)
    assert isinstance(found[0], Data), path
    return found[0].data


@pytest.mark.parametrize("seed", range(6))
def test_brokers_agree_when_the_faults_have_ended(seed: int) -> None:
    faults = Faults(seed)
    for _ in range(STEPS):
        faults.step()
    faults.heal()
    cluster = faults.cluster
    cluster.until(cluster.agrees)
    found: list[object] = []
    cluster.tree.session().submit(GetChildren(znodes.TOPICS), found.append)
    assert isinstance(found[0], Children)
    snapshot = cluster.broker(1).metadata
    assert sorted(found[0].names) == sorted(snapshot.topics)
    for topic in snapshot.topics.values():
        for info in topic.partitions:
            state = znodes.decode_state("", read(cluster, znodes.partition_state(topic.name, info.partition)))
            assert (state.leader, state.leader_epoch, state.isr) == (info.leader, info.leader_epoch, info.isr)
            for broker_id in IDS:
                hosted = cluster.broker(broker_id).replicas.hosted.get(TopicPartition(topic.name, info.partition))
                role = None if hosted is None else hosted.machine.role
                leads = ReplicaRole.LEADER if broker_id == info.leader else ReplicaRole.FOLLOWER
                assert role is (leads if broker_id in info.replicas else None), (topic.name, info, broker_id)
    hosted_topics = {each.topic for broker_id in IDS for each in cluster.broker(broker_id).replicas.hosted}
    assert hosted_topics <= set(snapshot.topics)
