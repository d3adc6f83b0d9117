"""Whoever changes topics, configurations or groups leaves a line with address and client id; a flood of changes does not flood the log."""

import logging

import pytest

from moldau.broker.admin_log import LINES_MAX, WINDOW_S, AdminLog
from moldau.protocol.messages.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from moldau.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld, Client
from support.group_requests import commit, group_world, join
from support.requests import plain_request

TOPIC = 2


@pytest.fixture(autouse=True)
def _shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.broker.admin_log")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lines of changes since the last call, without who it was, which is checked."""
    found = [each.getMessage() for each in caplog.records if each.name == "moldau.broker.admin_log"]
    caplog.clear()
    for line in found:
        assert " peer=" in line
        assert " client=" in line
    return [line.partition(" peer=")[0] for line in found]


def test_the_life_of_a_topic_is_told(caplog: pytest.LogCaptureFixture) -> None:
    client = BrokerWorld().connect()
    configs = [CreatableTopicConfig("retention.ms", "5")]
    client.ask(CreateTopicsRequest([CreatableTopic("orders", 2, 1, [], configs)]), 7)
    assert lines(caplog) == ["topic created: topic=orders partitions=2 configs={'retention.ms': '5'}"]
    client.ask(CreateTopicsRequest([CreatableTopic("orders", 2, 1, [], configs)]), 7)
    client.ask(CreateTopicsRequest([CreatableTopic("checked", 2, 1, [], configs)], validate_only=True), 7)
    assert lines(caplog) == [], "nothing has changed"
    client.ask(CreatePartitionsRequest([CreatePartitionsTopic("orders", 3)]), 3)
    change = AlterConfigsResource(TOPIC, "orders", [AlterableConfig("retention.bytes", "7")])
    client.ask(AlterConfigsRequest([change]), 2)
    client.ask(AlterConfigsRequest([change]), 2)
    client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic("orders", [DeleteRecordsPartition(1, -1)])]), 2)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
    assert lines(caplog) == [
        "partitions added: topic=orders partitions=3",
        "configuration changed: topic=orders changes=retention.bytes=(default)->7 retention.ms=5->(default)",
        "records deleted: partition=orders-1 before_offset=0",
        "topic deleted: topic=orders partitions=3",
    ]


def test_a_topic_that_is_created_because_somebody_asks_for_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    client = BrokerWorld().connect()
    client.ask(MetadataRequest([MetadataRequestTopic(name="new")]), 12)
    client.ask(MetadataRequest([MetadataRequestTopic(name="new")]), 12)
    assert lines(caplog) == ["topic auto-created: topic=new partitions=1"]


@pytest.fixture
def client() -> Client:
    """With a group that never had members ("simple"), and one whose consumer has left ("left")."""
    world = group_world()
    client = world.connect()
    commit(client, "simple", {("t", 0): 1})
    left = join(client, "left", session_timeout_ms=6000)
    commit(client, "left", {("t", 0): 2}, member=left.member_id, generation=left.generation)
    world.clock.advance(6.1)
    return client


def test_resets_and_deletions_of_groups_are_told(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    lines(caplog)
    commit(client, "simple", {("t", 0): 3})
    assert lines(caplog) == [], "what assigns itself partitions commits like that all the time"
    commit(client, "left", {("t", 0): 0, ("t", 1): 5})
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(1)]
    client.ask(OffsetDeleteRequest("left", [OffsetDeleteRequestTopic("t", partitions)]), 0)
    client.ask(DeleteGroupsRequest(["left", "unknown"]), 2)
    assert lines(caplog) == [
        "group offsets set: group=left offsets=2 first=t-0=0 t-1=5",
        "group offsets deleted: group=left offsets=2 first=t-0 t-1",
        "group deleted: group=left",
    ]


def test_a_flood_of_changes_is_summarised(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    log = AdminLog(clock)
    context = plain_request(19, 7, client_id="client", peer=("192.0.2.1", 5000))
    for index in range(5000):
        log.note(context, "topic created", topic=str(index))
    assert len(caplog.messages) == LINES_MAX
    clock.advance(WINDOW_S)
    assert caplog.messages[-1] == f"changes by clients not shown: count={5000 - LINES_MAX} in_seconds=10"
    log.note(context, "topic created", topic="later")
    assert caplog.messages[-1].startswith("topic created: topic=later peer=192.0.2.1:5000 client=client")
