"""Metadata tells every client, in its version, who is there and who leads what; asking about a topic may create it."""

from pathlib import Path

import pytest

from moldau.broker.replicas.manager import LeaderState
from moldau.cluster.controller.requests import TopicSpec
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from support.administered import ADVERTISED, Administered, code

NOT_ASKED = -2147483648
NO_ID = bytes(16)
LATEST = 13


@pytest.fixture
def broker(tmp_path: Path) -> Administered:
    broker = Administered("broker.rack=r1", store=str(tmp_path / "store"))
    broker.create(TopicSpec("t", 2), TopicSpec("u", 1))
    return broker


def metadata(
    broker: Administered,
    names: list[str] | None,
    version: int = LATEST,
    *,
    create: bool = True,
    topic_operations: bool = False,
    cluster_operations: bool = False,
) -> MetadataResponse:
    return broker.ask(
        MetadataRequest(
            None if names is None else [MetadataRequestTopic(name=name) for name in names],
            create if version >= 4 else True,
            include_topic_authorized_operations=topic_operations,
            include_cluster_authorized_operations=cluster_operations,
        ),
        version,
        MetadataResponse,
    )


def errors(response: MetadataResponse) -> dict[str | None, str]:
    return {topic.name: code(topic.error_code) for topic in response.topics}


@pytest.mark.parametrize("version", range(LATEST + 1))
def test_every_version_tells_of_brokers_topics_and_leaders(broker: Administered, version: int) -> None:
    told = metadata(broker, ["t"], version)
    (me,) = told.brokers
    assert (me.node_id, me.host, me.port) == (0, *ADVERTISED)
    (topic,) = told.topics
    assert (topic.name, topic.error_code) == ("t", 0)
    assert [(each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes, each.error_code) for each in topic.partitions] == [
        (0, 0, [0], [0], 0),
        (1, 0, [0], [0], 0),
    ]
    if version >= 1:
        assert me.rack == "r1"
        assert told.controller_id == 0
    if version >= 2:
        assert told.cluster_id == broker.metadata.cluster_id
    if version >= 7:
        assert {each.leader_epoch for each in topic.partitions} == {0}
    if version >= 10:
        assert topic.topic_id == broker.metadata.topics["t"].topic_id


def test_leader_epochs_rise_with_a_restart(broker: Administered) -> None:
    broker.restart()
    assert {each.leader_epoch for each in metadata(broker, ["t"]).topics[0].partitions} == {1}


def test_all_topics_are_asked_for_by_null_and_in_version_0_by_an_empty_list(broker: Administered) -> None:
    assert errors(metadata(broker, [], 0)) == {"t": "NONE", "u": "NONE"}
    for version in range(1, LATEST + 1):
        assert errors(metadata(broker, None, version)) == {"t": "NONE", "u": "NONE"}
        assert errors(metadata(broker, [], version)) == {}


def test_a_client_is_told_the_address_that_suits_it_others_as_they_registered(broker: Administered) -> None:
    (me,) = metadata(broker, []).brokers
    assert (me.host, me.port) == ADVERTISED
    assert broker.metadata.brokers[0].endpoints == (("PLAINTEXT", "192.0.2.2", 9092),)


@pytest.mark.parametrize("version", [0, 3, 4, 9, 13])
def test_asking_about_a_topic_creates_it_ready_to_use(version: int) -> None:
    broker = Administered("num.partitions=3")
    (topic,) = metadata(broker, ["new"], version).topics
    assert (topic.error_code, [each.leader_id for each in topic.partitions]) == (0, [0, 0, 0])
    assert broker.host.take() == ["open new-0", "open new-1", "open new-2"]


def test_a_client_or_the_broker_may_not_want_that(broker: Administered) -> None:
    assert errors(metadata(broker, ["new", "t"], create=False)) == {"new": "UNKNOWN_TOPIC_OR_PARTITION", "t": "NONE"}
    unwilling = Administered("auto.create.topics.enable=false")
    assert errors(metadata(unwilling, ["new"])) == {"new": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert unwilling.metadata.topics == {}


@pytest.mark.parametrize(("name", "codec"), [("__consumer_offsets", "producer"), ("__transaction_state", "uncompressed")])
def test_an_internal_topic_is_made_by_asking_and_by_its_own_configurations(name: str, codec: str) -> None:
    broker = Administered("offsets.topic.num.partitions=7", "transaction.state.log.num.partitions=7")
    (topic,) = metadata(broker, [name]).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 7)
    assert [each.replica_nodes for each in topic.partitions] == [[0]] * 7  # as many as there are brokers, not 3
    configs = broker.metadata.topic_config(name)
    assert (configs["cleanup.policy"], configs["compression.type"], configs["segment.bytes"]) == ("compact", codec, "104857600")
    assert configs.get("min.insync.replicas", "1") == "1"


def test_a_name_that_cannot_be_is_an_invalid_topic_whether_or_not_it_may_be_created(broker: Administered) -> None:
    for create in (True, False):
        assert errors(metadata(broker, ["a b", "", "."], create=create)) == dict.fromkeys(["a b", "", "."], "INVALID_TOPIC_EXCEPTION")
    broker.create(TopicSpec("a.b"))
    assert errors(metadata(broker, ["a_b"])) == {"a_b": "INVALID_TOPIC_EXCEPTION"}


def test_a_store_that_fails_is_told_of_the_new_topic_only(broker: Administered) -> None:
    broker.tree.full = True
    assert errors(metadata(broker, ["new", "t"])) == {"new": "KAFKA_STORAGE_ERROR", "t": "NONE"}


def test_a_topic_named_twice_is_told_once(broker: Administered) -> None:
    assert [topic.name for topic in metadata(broker, ["t", "u", "t"]).topics] == ["t", "u"]


def by_id(broker: Administered, version: int, *topics: MetadataRequestTopic) -> list[MetadataResponseTopic]:
    return broker.ask(MetadataRequest(list(topics)), version, MetadataResponse).topics


def test_a_topic_is_found_by_its_id_whatever_name_comes_with_it(broker: Administered) -> None:
    topic_id = broker.metadata.topics["t"].topic_id
    for version in (12, 13):
        found, missing = by_id(
            broker,
            version,
            MetadataRequestTopic(topic_id, None),
            MetadataRequestTopic(topic_id, "u"),
            MetadataRequestTopic(b"x" * 16, None),
        )
        assert found.name == "t"
        assert (missing.name, missing.topic_id, code(missing.error_code)) == (None, b"x" * 16, "UNKNOWN_TOPIC_ID")


def test_a_topic_asked_for_by_nothing_or_by_an_id_too_early_is_an_invalid_request(broker: Administered) -> None:
    topic_id = broker.metadata.topics["t"].topic_id
    nothing, other = by_id(broker, 12, MetadataRequestTopic(NO_ID, None), MetadataRequestTopic(NO_ID, "u"))
    assert (code(nothing.error_code), other.error_code) == ("INVALID_REQUEST", 0)
    for version in (10, 11):
        early, nameless = by_id(broker, version, MetadataRequestTopic(topic_id, "t"), MetadataRequestTopic(NO_ID, None))
        assert (early.name, code(early.error_code)) == ("t", "INVALID_REQUEST")
        assert (nameless.name, code(nameless.error_code)) == ("", "INVALID_REQUEST")


def test_operations_are_told_to_who_asks(broker: Administered) -> None:
    quiet = metadata(broker, ["t"], 10)
    assert (quiet.topics[0].topic_authorized_operations, quiet.cluster_authorized_operations) == (NOT_ASKED, NOT_ASKED)
    asked = metadata(broker, ["t", "no"], 10, create=False, topic_operations=True, cluster_operations=True)
    assert {topic.topic_authorized_operations for topic in asked.topics} == {3576}
    assert asked.cluster_authorized_operations == 8096
    assert metadata(broker, ["t"], 10).topics[0].topic_authorized_operations == NOT_ASKED, (
        "what is kept of an answer is not changed by another"
    )


def test_a_partition_whose_log_is_offline_has_no_leader_for_as_long_as_it_is(broker: Administered) -> None:
    metadata(broker, None)
    broker.broker.replicas.stop([TopicPartition("t", 1)], delete=False)
    for _ in range(2):
        first, second = metadata(broker, ["t"]).topics[0].partitions
        assert (first.error_code, first.leader_id) == (0, 0)
        assert (code(second.error_code), second.leader_id, second.offline_replicas) == ("LEADER_NOT_AVAILABLE", -1, [0])
    assert errors(metadata(broker, ["u"])) == {"u": "NONE"}
    topic = broker.metadata.topics["t"]
    settings = broker.broker.topic_settings.of({})
    broker.broker.replicas.become_leader(TopicPartition("t", 1), LeaderState(1, 1, (0,), (0,)), topic.topic_id, settings)
    assert [each.leader_id for each in metadata(broker, ["t"]).topics[0].partitions] == [0, 0]


def test_added_partitions_and_a_topic_made_again_show_in_the_next_answer(broker: Administered) -> None:
    first = metadata(broker, ["u"]).topics[0]
    broker.grow("u", 2)
    assert len(metadata(broker, ["u"]).topics[0].partitions) == 2
    broker.world.delete_topics("u")
    again = metadata(broker, ["u"]).topics[0]
    assert len(again.partitions) == 1
    assert again.topic_id != first.topic_id


# DescribeTopicPartitions


def pages(broker: Administered, names: list[str], limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
    return broker.ask(request, 0, DescribeTopicPartitionsResponse)


def told(page: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in page.topics]


def test_topics_are_described_in_order_with_leaders_and_operations(broker: Administered) -> None:
    page = pages(broker, ["u", "t", "u"])
    assert told(page) == [("t", [0, 1]), ("u", [0])]
    assert page.next_cursor is None
    (topic, _) = page.topics
    assert (topic.topic_id, topic.topic_authorized_operations) == (broker.metadata.topics["t"].topic_id, 3576)
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (0, 0, [0], [0])
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ([], [], [])


@pytest.mark.parametrize("limit", range(1, 6))
def test_pages_of_any_size_tell_everything_once(broker: Administered, limit: int) -> None:
    broker.create(TopicSpec("v", 3))
    seen: list[tuple[str | None, int]] = []
    cursor = None
    while True:
        page = pages(broker, [], limit, cursor)
        found = [(topic.name, each.partition_index) for topic in page.topics for each in topic.partitions]
        assert len(found) <= limit
        seen += found
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [("t", 0), ("t", 1), ("u", 0), ("v", 0), ("v", 1), ("v", 2)]


def test_replicas_that_are_eligible_to_lead_are_named_on_every_page(broker: Administered) -> None:
    topic = broker.metadata.topics["t"]
    first, second = topic.partitions
    topic.partitions = (first._replace(elr=(4,)), second._replace(elr=(5, 6), last_known_elr=(7,)))
    described = [page.topics[0].partitions[0] for page in (pages(broker, ["t"], 1), pages(broker, ["t"], 1, Cursor("t", 1)))]
    assert [(each.eligible_leader_replicas, each.last_known_elr) for each in described] == [([4], []), ([5, 6], [7])]


def test_the_brokers_limit_and_at_least_one_partition_hold(broker: Administered) -> None:
    limited = Administered("max.request.partition.size.limit=1")
    limited.create(TopicSpec("t", 2))
    assert pages(limited, ["t"]).next_cursor == Cursor("t", 1)
    for limit in (0, -5):
        assert told(pages(broker, ["t"], limit)) == [("t", [0])]


def test_topics_that_are_not_there_are_told_and_take_no_room(broker: Administered) -> None:
    page = pages(broker, ["a b", "no", "t"], 2)
    assert [code(topic.error_code) for topic in page.topics] == ["INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PARTITION", "NONE"]
    assert page.next_cursor is None


def test_a_cursor_whose_topic_is_gone_goes_on_with_the_next(broker: Administered) -> None:
    assert told(pages(broker, [], 10, Cursor("tt", 1))) == [("u", [0])]
    assert told(pages(broker, [], 10, Cursor("t", 9))) == [("t", []), ("u", [0])]
    assert told(pages(broker, [], 10, Cursor("z", 0))) == []


def test_a_cursor_before_the_first_partition_is_an_invalid_request(broker: Administered) -> None:
    page = pages(broker, ["t"], 10, Cursor("t", -1))
    assert [(topic.name, code(topic.error_code)) for topic in page.topics] == [("t", "INVALID_REQUEST")]


# DescribeCluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(broker: Administered, version: int) -> None:
    response = broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version, DescribeClusterResponse)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, broker.metadata.cluster_id, 0)
    assert [(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in response.brokers] == [
        (0, *ADVERTISED, "r1", False)
    ]
    assert response.cluster_authorized_operations == 8096
    assert broker.ask(DescribeClusterRequest(), version, DescribeClusterResponse).cluster_authorized_operations == NOT_ASKED


def test_there_is_no_quorum_of_controllers_to_describe(broker: Administered) -> None:
    codes = [broker.ask(DescribeClusterRequest(endpoint_type=kind), 1, DescribeClusterResponse).error_code for kind in (2, 9)]
    assert list(map(code, codes)) == ["MISMATCHED_ENDPOINT_TYPE", "UNSUPPORTED_ENDPOINT_TYPE"]
