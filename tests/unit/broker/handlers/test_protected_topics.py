"""What brokers, registry and audit keep in topics cannot be destroyed by a client; another registry works as it does with Kafka.

The error names the way out, and it works while the broker runs."""

import pytest

from moldau.cluster.controller.requests import TopicSpec
from moldau.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from support.administered import Administered, code
from support.broker_world import BrokerWorld

PROTECTED = ["__consumer_offsets", "__transaction_state", "_schemas", "_audit", "_spark_commits"]
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


@pytest.fixture
def broker() -> Administered:
    broker = Administered()
    compacted = [TopicSpec(name, 1, configs=[("cleanup.policy", "compact")]) for name in ("_schemas", "_spark_commits")]
    broker.create(TopicSpec("__consumer_offsets"), TopicSpec("__transaction_state"), TopicSpec("_audit"), *compacted)
    broker.create(TopicSpec("orders"))
    return broker


def delete(broker: Administered, name: str) -> tuple[str, str | None]:
    (result,) = broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6, DeleteTopicsResponse).responses
    return code(result.error_code), result.error_message


def edit(broker: Administered, name: str, setting: str, value: str | None, *, kind: int = TOPIC) -> str:
    change = IncrementalAlterableConfig(setting, SET if value is not None else DELETE, value)
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, [change])])
    return code(broker.ask(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code)


@pytest.mark.parametrize("name", PROTECTED)
def test_a_protected_topic_is_not_deleted_and_does_not_grow(broker: Administered, name: str) -> None:
    assert delete(broker, name)[0] == "POLICY_VIOLATION"
    (grown,) = broker.ask(CreatePartitionsRequest([CreatePartitionsTopic(name, 99)]), 3, CreatePartitionsResponse).results
    assert code(grown.error_code) == "POLICY_VIOLATION"
    assert name in broker.metadata.topics


def test_by_its_id_neither_and_others_of_the_request_are_deleted(broker: Administered) -> None:
    topics = broker.metadata.topics
    wanted = [DeleteTopicState(name=None, topic_id=topics[name].topic_id) for name in ("_schemas", "orders")]
    results = broker.ask(DeleteTopicsRequest(topics=wanted), 6, DeleteTopicsResponse).responses
    assert sorted(code(each.error_code) for each in results) == ["NONE", "POLICY_VIOLATION"]
    assert "orders" not in broker.metadata.topics


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", None),
        ("retention.ms", "1"),
        ("retention.bytes", "1"),
        ("delete.retention.ms", "0"),
        ("max.message.bytes", "1"),
        ("min.insync.replicas", "2"),
        ("message.timestamp.before.max.ms", "1"),
    ],
)
def test_what_would_lose_or_refuse_records_is_not_set(broker: Administered, setting: str, value: str | None) -> None:
    for name in ("__consumer_offsets", "_schemas"):
        assert edit(broker, name, setting, value) == "POLICY_VIOLATION"
    assert edit(broker, "orders", setting, value) == "NONE"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("segment.ms", "60000"), ("compression.type", "zstd"), ("message.timestamp.type", "LogAppendTime"), ("cleanup.policy", "compact")],
)
def test_other_configurations_are_free(broker: Administered, setting: str, value: str) -> None:
    assert edit(broker, "_schemas", setting, value) == "NONE"
    assert edit(broker, "_audit", setting, value) == "NONE"


def test_a_registry_of_somebody_else_makes_its_topic_as_it_likes() -> None:
    broker = Administered()
    configs = [CreatableTopicConfig("cleanup.policy", "compact"), CreatableTopicConfig("retention.ms", "-1")]
    request = CreateTopicsRequest([CreatableTopic("_schemas", 1, 1, [], configs)])
    (made,) = broker.ask(request, 7, CreateTopicsResponse).topics
    assert code(made.error_code) == "NONE"
    assert edit(broker, "_schemas", "cleanup.policy", "compact") == "NONE"
    assert edit(broker, "_schemas", "retention.ms", "-1") == "NONE", "the value that it has"


def test_the_way_out_is_in_the_error_and_works_at_run_time(broker: Administered) -> None:
    _, message = delete(broker, "_audit")
    assert message is not None
    command = "moldau config alter --broker default --set protected.topics="
    value = message.partition(command)[2]
    assert value == "__consumer_offsets,__transaction_state,_schemas,_spark_commits"
    assert edit(broker, "", "protected.topics", value, kind=BROKER) == "NONE"
    assert delete(broker, "_audit")[0] == "NONE"
    assert delete(broker, "_schemas")[0] == "POLICY_VIOLATION"


def test_records_of_a_protected_topic_are_not_deleted() -> None:
    world = BrokerWorld()
    world.create_topic("_audit")
    client = world.connect()
    wanted = [DeleteRecordsTopic("_audit", [DeleteRecordsPartition(0, -1)])]
    (topic,) = client.ask(DeleteRecordsRequest(topics=wanted), 2).topics
    assert code(topic.partitions[0].error_code) == "POLICY_VIOLATION"
