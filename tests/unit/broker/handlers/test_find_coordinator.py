"""FindCoordinator names the leader of the partition that a group or a transactional id belongs to, and makes the internal topic first."""

from pathlib import Path

import pytest

from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest
from support.administered import code
from support.broker_world import BrokerWorld
from support.group_requests import commit, group_world

GROUP, TRANSACTION, SHARE = range(3)
TOPICS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}


@pytest.mark.parametrize(("version", "kind"), [(0, GROUP), *((version, kind) for version in (1, 2, 3) for kind in (GROUP, TRANSACTION))])
def test_a_key_is_found_in_the_versions_for_one(version: int, kind: int) -> None:
    world = BrokerWorld()
    answer = world.connect().ask(FindCoordinatorRequest("g", kind), version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 0, "192.0.2.2", 9092)
    assert set(world.broker.metadata.topics) == {TOPICS[kind]}


@pytest.mark.parametrize("version", range(4, 7))
@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
def test_many_keys_are_found_at_once_in_their_order(version: int, kind: int) -> None:
    client = BrokerWorld().connect()
    answer = client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["b", "", "a", "b"]), version)
    assert [each.key for each in answer.coordinators] == ["b", "", "a", "b"]
    assert {(each.error_code, each.node_id, each.host, each.port) for each in answer.coordinators} == {(0, 0, "192.0.2.2", 9092)}
    assert client.ask(FindCoordinatorRequest(key_type=kind), version).coordinators == []


def test_the_topic_is_made_once_internal_and_ready() -> None:
    world = BrokerWorld(offsets_topic_num_partitions=4)
    client = world.connect()
    assert not client.ask(MetadataRequest(None), 9).topics
    for _ in range(2):
        client.ask(FindCoordinatorRequest("g"), 2)
    (topic,) = client.ask(MetadataRequest(None), 9).topics
    assert (topic.name, topic.is_internal, len(topic.partitions)) == ("__consumer_offsets", True, 4)
    assert len(world.broker.groups.partitions()) == 4


def test_keys_of_another_kind_are_an_invalid_request() -> None:
    client = BrokerWorld().connect()
    assert code(client.ask(FindCoordinatorRequest("g", SHARE), 3).error_code) == "INVALID_REQUEST"
    (answer,) = client.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]), 6).coordinators
    assert (code(answer.error_code), answer.node_id, answer.port) == ("INVALID_REQUEST", -1, -1)


def test_where_the_topic_cannot_be_made_trying_again_may_help_and_the_answer_says_why(caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld(max_partitions=10, offsets_topic_num_partitions=50)
    client = world.connect()
    for _ in range(3):
        (answer,) = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
        assert code(answer.error_code) == "COORDINATOR_NOT_AVAILABLE"
        assert "max.partitions is 10" in answer.error_message
    (line,) = caplog.messages
    assert line.startswith("internal topic not made: topic=__consumer_offsets ")
    world.clock.advance(61)
    client.ask(FindCoordinatorRequest("g"), 2)
    assert len(caplog.messages) == 2


def test_where_the_partition_is_offline_there_is_no_coordinator() -> None:
    world = BrokerWorld()
    client = world.connect()
    client.ask(FindCoordinatorRequest("g"), 2)
    index = world.broker.coordinators.offsets_topic.partition_for("g")
    world.broker.replicas.directory_offline("/data", [world.partition("__consumer_offsets", index).topic_partition])
    (lost, fine) = client.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4).coordinators
    assert (code(lost.error_code), lost.node_id) == ("COORDINATOR_NOT_AVAILABLE", -1)
    assert fine == Coordinator("h", 0, "192.0.2.2", 9092, 0, fine.error_message)


def test_a_broker_says_how_much_it_coordinates() -> None:
    world = group_world()
    assert "groups" not in BrokerWorld().broker.statistics()
    commit(world.connect(), "g", {("t", 0): 1, ("t", 1): 1})
    numbers = world.broker.statistics()
    assert (numbers["groups"], numbers["offsets_committed"], numbers["group_partitions_loading"]) == (1, 2, 0)


def test_a_broker_that_stops_begins_no_coordination() -> None:
    world = group_world()
    world.broker.finish_connections()
    world.broker.coordinators.elected(world.partition("__consumer_offsets").topic_partition)
    assert world.broker.groups.partitions() == []


def test_nothing_of_coordinators_is_made_where_nobody_asks_for_one(tmp_path: Path) -> None:
    world = BrokerWorld(store=str(tmp_path / "store"))
    world.create_topic("t")
    world.restart()
    assert world.broker.coordinators_if_any is None
