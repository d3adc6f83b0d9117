"""A broker that has no metadata yet denies nothing that exists: requests wait until a controller has sent everything, or are closed."""

from typing import Any

from moldau.broker.network.early_connection import WAIT_MAX_S
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from support.cluster_world import ClientCall, ClusterWorld

GROUP = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])


class World:
    """Three brokers, a topic and the topic of groups; the controller hangs, and another broker is started again meanwhile."""

    def __init__(self) -> None:
        self.cluster = cluster = ClusterWorld(1, 2, 3, suspicion_timeout_ms=600_000, auto_leader_rebalance_enable="false")
        cluster.create_topic("t")
        cluster.until(lambda: cluster.ask(cluster.controller_id, GROUP, 6).coordinators[0].error_code == 0)
        cluster.until(cluster.agrees)
        self.controller = cluster.controller_id
        self.restarted = next(each for each in (1, 2, 3) if each != self.controller)
        cluster.processes[self.controller].hang()
        cluster.kill(self.restarted)
        process = cluster.start(self.restarted)
        cluster.until(lambda: process.is_serving)

    def send(self, request: Any, version: int) -> ClientCall:
        return self.cluster.send(self.restarted, request, version)

    def end_hang(self) -> None:
        self.cluster.processes[self.controller].resume()
        self.cluster.until(self.cluster.agrees)


def test_requests_wait_until_the_controller_has_sent_everything() -> None:
    world = World()
    assert world.cluster.ask(world.restarted, ApiVersionsRequest(), 0).error_code == 0
    metadata = world.send(MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 12)
    everything = world.send(MetadataRequest(topics=None), 12)
    coordinator = world.send(GROUP, 6)
    offsets = world.send(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])]), 9)
    calls = [metadata, everything, coordinator, offsets]
    world.cluster.advance(WAIT_MAX_S - 1)
    assert [call.response for call in calls] == [None] * 4
    assert not any(call.is_lost for call in calls)

    world.end_hang()
    world.cluster.settle()
    (topic,) = metadata.response.topics
    assert (topic.error_code, len(topic.partitions)) == (0, 1)
    assert sorted(each.name for each in everything.response.topics) == ["__consumer_offsets", "t"]
    assert len(everything.response.brokers) == 3
    assert coordinator.response.coordinators[0].error_code == 0
    ((partition,),) = (each.partitions for each in offsets.response.topics)
    assert partition.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_connections_that_wait_for_too_long_are_closed_and_later_ones_are_served() -> None:
    world = World()
    call = world.send(MetadataRequest(topics=None), 12)
    world.cluster.advance(WAIT_MAX_S + 0.1)
    assert call.is_lost
    assert call.response is None
    late = world.send(MetadataRequest(topics=None), 12)
    world.end_hang()
    world.cluster.settle()
    assert len(late.response.topics) == 2
    assert world.cluster.ask(world.restarted, GROUP, 6).coordinators[0].error_code == 0
    assert not world.cluster.broker(world.restarted).cache.on_complete


def test_a_broker_that_becomes_controller_itself_serves_what_waits() -> None:
    world = World()
    call = world.send(MetadataRequest(topics=None), 12)
    world.cluster.advance(1.0)
    responses = [call.response]
    world.cluster.kill(world.controller)
    (other,) = (each for each in (1, 2, 3) if each not in (world.controller, world.restarted))
    world.cluster.kill(other)
    world.cluster.until(lambda: call.response is not None)
    responses.append(call.response)
    assert [None if each is None else len(each.topics) for each in responses] == [None, 2]
