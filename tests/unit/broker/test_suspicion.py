"""A leader that ends without the end of its session, or hangs, is replaced in seconds, and loses nothing that was acknowledged."""

import pytest

from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.records.batch import RecordBatchBuilder
from support.cluster_world import ClusterWorld

ZERO = TopicPartition("t", 0)


def _one_record(cluster: ClusterWorld, topic_id: bytes) -> ProduceRequest:
    builder = RecordBatchBuilder()
    builder.append(cluster.clock.time_ms(), None, b"x")
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(0, builder.build())])
    return ProduceRequest(None, -1, 30_000, [data])


class World:
    """Three brokers and one partition, whose leader is controller too, or is not."""

    def __init__(self, *, is_controller: bool) -> None:
        self.cluster = cluster = ClusterWorld(1, 2, 3, min_insync_replicas=2, auto_leader_rebalance_enable="false")
        controller = cluster.controller_id
        self.leader = controller if is_controller else next(each for each in (1, 2, 3) if each != controller)
        self.others = [each for each in (1, 2, 3) if each != self.leader]
        topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [self.leader, *self.others])])
        (created,) = cluster.ask(controller, CreateTopicsRequest([topic]), 7).topics
        self.topic_id = created.topic_id
        cluster.until(cluster.agrees)
        cluster.advance(1.0)
        self.acknowledged = 0
        self.produce()

    def produce(self) -> None:
        """To the leader that another broker than the first leader knows."""
        request = _one_record(self.cluster, self.topic_id)
        leader = self.cluster.partition("t", on=self.others[0]).leader
        assert self.cluster.ask(leader, request, 13).responses[0].partition_responses[0].error_code == 0
        self.acknowledged += 1

    def seconds_until_another_leads(self) -> float:
        """And is known to all others."""
        before = self.cluster.clock.monotonic()
        self.cluster.until(lambda: all(self.cluster.partition("t", on=each).leader in self.others for each in self.others))
        return self.cluster.clock.monotonic() - before

    def hosted(self, broker_id: int) -> HostedPartition:
        return self.cluster.broker(broker_id).replicas.hosted[ZERO]

    def all_in_sync(self) -> bool:
        hosted = [self.hosted(each) for each in self.cluster.processes if ZERO in self.cluster.broker(each).replicas.hosted]
        leaders = [each for each in hosted if each.is_led]
        ends = [each.log.log_end_offset for each in hosted]
        return ends == [self.acknowledged] * 3 and len(leaders) == 1 and len(leaders[0].machine.isr) == 3


@pytest.mark.parametrize(("is_controller", "seconds"), [(False, 0.1), (True, 0.3)])
def test_when_its_process_ends_others_lead_and_acknowledge_at_once(is_controller: bool, seconds: float) -> None:
    world = World(is_controller=is_controller)
    process = world.cluster.kill(world.leader, expires=False)
    assert world.seconds_until_another_leads() < seconds
    before = world.cluster.clock.monotonic()
    world.produce()
    assert world.cluster.clock.monotonic() - before < 0.1, "no record waits for it"
    world.cluster.advance(30.0)
    world.produce()
    process.session.expire()
    world.cluster.start(world.leader)
    world.cluster.until(world.all_in_sync)


@pytest.mark.parametrize("is_controller", [False, True])
def test_when_it_hangs_others_lead_after_a_while_and_when_it_is_back_it_follows(is_controller: bool) -> None:
    world = World(is_controller=is_controller)
    world.cluster.processes[world.leader].hang()
    assert world.seconds_until_another_leads() < 2.3
    world.produce()
    assert world.hosted(world.leader).is_led, "it knows nothing of that yet"
    world.cluster.processes[world.leader].resume()
    world.cluster.until(world.all_in_sync)
    assert not world.hosted(world.leader).is_led
    world.produce()
    world.cluster.until(world.all_in_sync)


def test_a_leader_that_only_its_followers_do_not_reach_is_replaced_and_follows_when_it_is_reached() -> None:
    """The controller reaches it, so only they can say; before, records waited until they had left the in-sync set."""
    cluster = ClusterWorld(1, 2, 3, 4, min_insync_replicas=2, auto_leader_rebalance_enable="false")
    controller = cluster.controller_id
    leader, *followers = (each for each in (1, 2, 3, 4) if each != controller)
    topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [leader, *followers])])
    (created,) = cluster.ask(controller, CreateTopicsRequest([topic]), 7).topics
    cluster.until(cluster.agrees)
    cluster.advance(1.0)
    for follower in followers:
        cluster.cut(follower, leader)
    call = cluster.send(leader, _one_record(cluster, created.topic_id), 13)
    before = cluster.clock.monotonic()
    cluster.until(lambda: cluster.partition("t", on=followers[0]).leader in followers)
    assert cluster.clock.monotonic() - before < 4.5
    assert cluster.partition("t", on=controller).isr == tuple(followers)
    cluster.until(lambda: call.response is not None)
    assert call.response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    new = cluster.partition("t", on=controller).leader
    response = cluster.ask(new, _one_record(cluster, created.topic_id), 13)
    assert response.responses[0].partition_responses[0].error_code == 0

    for follower in followers:
        cluster.heal(follower)
    cluster.until(lambda: len(cluster.partition("t", on=controller).isr) == 3)
    assert cluster.partition("t", on=controller).leader == new
    ends = [cluster.broker(each).replicas.hosted[ZERO].log.log_end_offset for each in (leader, *followers)]
    assert ends == [1, 1, 1], "what the first leader did not commit is gone"


def test_a_leader_that_one_of_two_followers_does_not_reach_stays() -> None:
    world = World(is_controller=False)
    controller = world.cluster.controller_id
    (follower,) = (each for each in world.others if each != controller)
    world.cluster.cut(follower, world.leader)
    world.cluster.advance(8.0)
    assert world.cluster.partition("t", on=controller).leader == world.leader


def test_a_broker_that_reaches_the_tree_and_no_other_broker_does_not_become_controller() -> None:
    """Its decisions would reach no broker: what it leads, or has others lead, would have no leader until it is replaced in turn."""
    world = World(is_controller=False)
    controller = world.cluster.controller_id
    alone = next(each for each in world.others if each != controller)
    rest = [each for each in (1, 2, 3) if each != alone]
    world.cluster.cut(alone, *rest)
    for each in rest:
        world.cluster.cut(each, alone)
    for _ in range(10):
        world.cluster.advance(10.0)
        assert world.cluster.controller_id == controller
    leader = world.cluster.partition("t", on=controller).leader
    assert world.cluster.ask(leader, _one_record(world.cluster, world.topic_id), 13).responses[0].partition_responses[0].error_code == 0
    world.acknowledged += 1
    for each in (1, 2, 3):
        world.cluster.heal(each)
    world.cluster.until(world.all_in_sync)


def test_when_a_follower_ends_records_do_not_wait_for_it() -> None:
    world = World(is_controller=True)
    world.cluster.kill(world.others[1], expires=False)
    world.cluster.advance(0.1)
    before = world.cluster.clock.monotonic()
    world.produce()
    assert world.cluster.clock.monotonic() - before < 0.1
