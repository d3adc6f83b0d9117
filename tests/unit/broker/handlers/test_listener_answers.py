"""Every answer that names a broker gives the address of the listener that the client came in by."""

import pytest

from moldau.broker.replicas.manager import LeaderState
from moldau.cluster.controller.requests import TopicSpec
from moldau.cluster.snapshot import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition
from support.administered import Administered, code
from support.broker_world import BrokerWorld

HERE = {"INTERNAL": ("10.0.0.1", 9092), "EXTERNAL": ("one.example", 19092)}
BOTH = BrokerInfo(1, (Endpoint("INTERNAL", "10.0.0.2", 9092), Endpoint("EXTERNAL", "two.example", 19092)), "r2")
INTERNAL_ONLY = BrokerInfo(2, (Endpoint("INTERNAL", "10.0.0.3", 9092),))
TOPIC_ID = bytes(range(16))


@pytest.fixture
def broker() -> Administered:
    """Broker 0 of three; topic t has a partition led by each, and broker 2 has a replica of each."""
    broker = Administered("broker.rack=r1")
    broker.create(TopicSpec("u", 1))
    others = [*broker.metadata.brokers.values(), BOTH, INTERNAL_ONLY]
    partitions = tuple(
        PartitionInfo(index, replicas[0], 5, replicas, replicas, 0) for index, replicas in enumerate([(0, 2), (1, 2), (2, 0)])
    )
    settings = broker.broker.topic_settings.of({})
    led = LeaderState(5, 0, (0, 2), (0, 2))
    broker.broker.replicas.become_leader(TopicPartition("t", 0), led, TOPIC_ID, settings, is_new=True)
    broker.broker.cache.snapshot = broker.metadata.updated(others, 0, [TopicInfo("t", TOPIC_ID, partitions)], (), {})
    return broker


def came_in_by(broker: Administered, listener: str) -> None:
    broker.advertised = Endpoint(listener, *HERE[listener])


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("INTERNAL", [(0, "10.0.0.1", 9092, "r1"), (1, "10.0.0.2", 9092, "r2"), (2, "10.0.0.3", 9092, None)]),
        ("EXTERNAL", [(0, "one.example", 19092, "r1"), (1, "two.example", 19092, "r2")]),
    ],
)
def test_brokers_are_named_by_the_clients_listener_and_left_out_without_it(
    broker: Administered, listener: str, expected: list[tuple[int, str, int, str | None]]
) -> None:
    came_in_by(broker, listener)
    brokers = broker.ask(MetadataRequest([]), 13, MetadataResponse).brokers
    assert [(each.node_id, each.host, each.port, each.rack) for each in brokers] == expected
    described = broker.ask(DescribeClusterRequest(), 1, DescribeClusterResponse).brokers
    assert [(each.broker_id, each.host, each.port, each.rack) for each in described] == expected


def test_a_broker_that_has_departed_is_listed_in_metadata_for_three_seconds_more(broker: Administered) -> None:
    """A client that looks for leaders learns first of new ones, and then that there is no such broker; others want those that live."""

    def listed(*, topics: list[MetadataRequestTopic] | None) -> list[int]:
        return [each.node_id for each in broker.ask(MetadataRequest(topics, False), 13, MetadataResponse).brokers]

    named = [MetadataRequestTopic(name="t")]

    came_in_by(broker, "INTERNAL")
    cache, clock = broker.broker.cache, broker.clock
    live = [each for each in broker.metadata.brokers.values() if each.broker_id != BOTH.broker_id]
    cache.note_departed(live, clock.monotonic())
    cache.snapshot = broker.metadata.updated(live, 0, (), (), {})
    assert listed(topics=named) == [0, 2, 1]
    assert [each.broker_id for each in broker.ask(DescribeClusterRequest(), 1, DescribeClusterResponse).brokers] == [0, 2]
    assert listed(topics=[]) == listed(topics=None) == [0, 2]
    broker.clock.advance(2.9)
    assert listed(topics=named) == [0, 2, 1]
    broker.clock.advance(0.1)
    assert listed(topics=named) == [0, 2]
    cache.note_departed([*live, BOTH], clock.monotonic())
    assert cache.departed(clock.monotonic()) == [], "it is back"


Partition = MetadataResponsePartition | DescribeTopicPartitionsResponsePartition


def shown(partitions: list[Partition]) -> list[tuple[str, int, list[int]]]:
    return [(code(each.error_code), each.leader_id, list(each.offline_replicas)) for each in partitions]


def metadata(broker: Administered, version: int) -> list[Partition]:
    (topic,) = broker.ask(MetadataRequest([MetadataRequestTopic(name="t")], False), version, MetadataResponse).topics
    assert topic.error_code == 0
    return list(topic.partitions)


def pages(broker: Administered) -> list[Partition]:
    (topic,) = broker.ask(DescribeTopicPartitionsRequest([TopicRequest("t")]), 0, DescribeTopicPartitionsResponse).topics
    return list(topic.partitions)


def test_a_partition_whose_leader_lacks_the_listener_has_none_for_this_client(broker: Administered) -> None:
    """Brokers that lack the listener count as offline replicas, as in Kafka."""
    came_in_by(broker, "EXTERNAL")
    expected = [("NONE", 0, [2]), ("NONE", 1, [2]), ("LISTENER_NOT_FOUND", -1, [2])]
    assert shown(metadata(broker, 13)) == expected
    assert shown(pages(broker)) == expected
    came_in_by(broker, "INTERNAL")
    expected = [("NONE", 0, []), ("NONE", 1, []), ("NONE", 2, [])]
    assert shown(metadata(broker, 13)) == expected, "what another client was told is not kept"
    assert shown(pages(broker)) == expected


@pytest.mark.parametrize(("version", "expected"), [(5, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND")])
def test_older_clients_do_not_know_that_code(broker: Administered, version: int, expected: str) -> None:
    came_in_by(broker, "EXTERNAL")
    assert shown(metadata(broker, version))[2][0] == expected


def test_a_coordinator_is_named_by_the_listener_of_the_connection() -> None:
    world = BrokerWorld()
    world.broker.advertised = {"EXTERNAL": Endpoint("EXTERNAL", "one.example", 19092)}
    found = {}
    for listener in ("PLAINTEXT", "EXTERNAL"):
        answer = world.connect(listener=listener).ask(FindCoordinatorRequest("g"), 2)
        found[listener] = (answer.error_code, answer.host, answer.port)
    assert found == {"PLAINTEXT": (0, "192.0.2.2", 9092), "EXTERNAL": (0, "one.example", 19092)}


def test_a_coordinator_that_lacks_the_listener_is_not_available() -> None:
    world = BrokerWorld()
    world.connect().ask(FindCoordinatorRequest("g"), 2)
    registry = world.broker.cache
    others = [*registry.snapshot.brokers.values(), INTERNAL_ONLY]
    topic = registry.snapshot.topics["__consumer_offsets"]
    moved = tuple(each._replace(leader=2) for each in topic.partitions)
    registry.snapshot = registry.snapshot.updated(others, 0, [TopicInfo(topic.name, topic.topic_id, moved)], (), {})
    answer = world.connect(listener="EXTERNAL").ask(FindCoordinatorRequest("g"), 2)
    assert (code(answer.error_code), answer.node_id) == ("COORDINATOR_NOT_AVAILABLE", -1)
    answer = world.connect(listener="INTERNAL").ask(FindCoordinatorRequest("g"), 2)
    assert (answer.error_code, answer.node_id, answer.host) == (0, 2, "10.0.0.3")
