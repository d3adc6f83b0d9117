"""Three brokers on fakes agree on what the cluster is, whichever of them ends, hangs or comes back."""

from collections.abc import Generator

import pytest

from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.cluster import znodes
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause
from moldau.ports.coordination import Data, GetData
from moldau.protocol.messages.cluster import DescribeClusterRequest
from moldau.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from moldau.protocol.messages.controller import UpdateMetadataRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from support.cluster_world import ClusterWorld

IDS = (1, 2, 3)


def roles(cluster: ClusterWorld, topic: str, index: int) -> dict[int, ReplicaRole | None]:
    """By broker the role of its replica; None where it has none."""
    hosted = {each: cluster.broker(each).replicas.hosted.get(TopicPartition(topic, index)) for each in cluster.processes}
    return {broker_id: None if found is None else found.machine.role for broker_id, found in hosted.items()}


def check_roles(cluster: ClusterWorld, topic: str, partitions: int) -> None:
    """Every replica on a live broker is open, in the role that the metadata says."""
    for index in range(partitions):
        info = cluster.partition(topic, index)
        expected = {
            broker_id: None if broker_id not in info.replicas else ReplicaRole.LEADER if broker_id == info.leader else ReplicaRole.FOLLOWER
            for broker_id in cluster.processes
        }
        assert roles(cluster, topic, index) == expected


def stored(cluster: ClusterWorld, topic: str, index: int) -> tuple[int, int, tuple[int, ...]]:
    """Leader, leader epoch and in-sync set of a partition as the tree has them."""
    found: list[object] = []
    cluster.tree.session().submit(GetData(znodes.partition_state(topic, index)), found.append)
    (data,) = found
    assert isinstance(data, Data)
    state = znodes.decode_state("", data.data)
    return state.leader, state.leader_epoch, state.isr


def test_brokers_find_each_other_and_one_is_controller() -> None:
    cluster = ClusterWorld(*IDS)
    assert cluster.agrees()
    assert [cluster.broker(each).metadata.controller_id for each in IDS] == [1, 1, 1]
    for broker_id in IDS:
        answer = cluster.ask(broker_id, MetadataRequest(topics=None), 12)
        assert answer.controller_id == 1
        assert sorted((each.node_id, each.host, each.port) for each in answer.brokers) == [(each, f"b{each}", 9092) for each in IDS]
        described = cluster.ask(broker_id, DescribeClusterRequest(), 0)
        assert described.controller_id == 1
        assert sorted(each.broker_id for each in described.brokers) == [1, 2, 3]


def test_replicas_of_a_topic_open_on_all_brokers_in_their_roles_and_metadata_is_that_of_the_tree() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("three", partitions=6)
    cluster.create_topic("two", partitions=3, replication_factor=2)
    cluster.settle()
    assert cluster.agrees()
    check_roles(cluster, "three", 6)
    check_roles(cluster, "two", 3)
    assert sorted({cluster.partition("three", index).leader for index in range(6)}) == [1, 2, 3]
    for topic, partitions in (("three", 6), ("two", 3)):
        for index in range(partitions):
            info = cluster.partition(topic, index, on=3)
            assert stored(cluster, topic, index) == (info.leader, info.leader_epoch, info.isr)


def test_a_broker_that_ends_leads_nothing_any_more_and_is_brought_up_to_date_when_it_comes_back() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t", partitions=3)
    cluster.kill(3)
    cluster.settle()
    assert cluster.agrees()
    assert {cluster.partition("t", index).leader for index in range(3)} <= {1, 2}
    check_roles(cluster, "t", 3)
    cluster.create_topic("meanwhile", replication_factor=2)
    cluster.start(3)
    cluster.until(cluster.agrees)
    cluster.settle()
    check_roles(cluster, "t", 3)
    assert "meanwhile" in cluster.broker(3).metadata.topics


def test_another_broker_becomes_controller_when_the_first_ends() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t", partitions=3)
    cluster.kill(1)
    cluster.until(lambda: {cluster.broker(each).metadata.controller_id for each in (2, 3)} <= {2, 3})
    cluster.settle()
    assert cluster.agrees()
    check_roles(cluster, "t", 3)
    cluster.create_topic("next", replication_factor=2)
    cluster.settle()
    assert cluster.agrees()
    cluster.start(1)
    cluster.until(cluster.agrees)
    cluster.settle()
    check_roles(cluster, "t", 3)
    assert cluster.controller_id != 1


@pytest.mark.parametrize("broker_id", IDS)
def test_a_broker_that_stops_in_order_leads_nothing_any_more_and_comes_back(broker_id: int) -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t", partitions=3)
    cluster.stop(broker_id)
    cluster.until(cluster.agrees)
    cluster.settle()
    check_roles(cluster, "t", 3)
    cluster.start(broker_id)
    cluster.until(cluster.agrees)
    cluster.settle()
    check_roles(cluster, "t", 3)


@pytest.mark.parametrize("broker_id", IDS)
def test_a_broker_whose_session_has_ended_registers_again_and_is_brought_up_to_date(broker_id: int) -> None:
    """No message to the earlier registration is applied after that; the controller may have become another."""
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t", partitions=3)
    before = cluster.broker(broker_id).applier.broker_epoch
    session = cluster.processes[broker_id].session
    session.expire()
    cluster.settle()
    session.resume()
    cluster.settle()
    cluster.until(cluster.agrees)
    cluster.settle()
    assert cluster.broker(broker_id).applier.broker_epoch > before
    assert cluster.controller_id != 1 or broker_id != 1
    check_roles(cluster, "t", 3)
    cluster.create_topic("next")
    cluster.settle()
    assert cluster.agrees()


def test_a_broker_that_bounces_within_its_session_time_is_brought_up_to_date() -> None:
    """The registration is another one, although the broker was never missed (Z1)."""
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t", partitions=3)
    process = cluster.kill(3, expires=False)
    cluster.start(3)
    cluster.clock.call_later(0.01, process.session.expire)
    cluster.until(lambda: cluster.processes[3].is_serving)
    cluster.until(cluster.agrees)
    cluster.settle()
    check_roles(cluster, "t", 3)


def test_messages_of_an_earlier_controller_and_to_an_earlier_registration_are_refused() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t")
    broker = cluster.broker(2)
    epochs = broker.applier.controller_epoch, broker.applier.broker_epoch

    def update(controller_epoch: int, broker_epoch: int) -> int:
        request = UpdateMetadataRequest(3, False, controller_epoch=controller_epoch, broker_epoch=broker_epoch, deleted_topics=["t"])
        code: int = cluster.ask(2, request, 8).error_code
        return code

    assert update(epochs[0] - 1, epochs[1]) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert update(epochs[0], epochs[1] - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert "t" in broker.metadata.topics
    assert update(epochs[0], epochs[1] + 100) == 0, "the controller learns of a registration first"
    assert "t" not in broker.metadata.topics


def test_a_broker_that_hangs_does_not_keep_others_waiting_and_is_brought_up_to_date() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t", partitions=3)
    cluster.processes[3].hang()
    cluster.ask(1, CreateTopicsRequest([CreatableTopic("while", 3, 3)], timeout_ms=100), 7)
    cluster.settle()
    assert "while" in cluster.broker(2).metadata.topics
    assert "while" not in cluster.broker(3).metadata.topics
    cluster.processes[3].resume()
    cluster.until(cluster.agrees)
    cluster.settle()
    check_roles(cluster, "while", 3)


def test_requests_that_time_out_at_a_hung_broker_leave_it_up_to_date_when_it_runs_again() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.processes[3].hang()
    for number in range(3):
        cluster.ask(1, CreateTopicsRequest([CreatableTopic(f"t{number}", 2, 3)], timeout_ms=100), 7)
        cluster.skip(31.0)
    cluster.processes[3].resume()
    cluster.until(cluster.agrees)
    cluster.skip(35.0)
    assert cluster.agrees()
    for number in range(3):
        check_roles(cluster, f"t{number}", 2)


def test_a_hung_broker_whose_session_ends_is_waited_for_no_longer() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.processes[3].hang()
    asked = CreateTopicsRequest([CreatableTopic("t", 1, 3)], timeout_ms=60_000)
    cluster.clock.call_later(1.0, cluster.processes[3].session.expire)
    (created,) = cluster.ask(1, asked, 7).topics
    assert created.error_code == 0
    assert cluster.clock.monotonic() < 10


def test_a_broker_that_is_not_controller_does_not_say_that_a_topic_to_delete_is_unknown() -> None:
    """It may only not have heard of it."""
    cluster = ClusterWorld(*IDS)
    (other, *_) = [each for each in IDS if each != cluster.controller_id]
    for version, topic in ((6, DeleteTopicState("new")), (6, DeleteTopicState(topic_id=b"i" * 16))):
        (answer,) = cluster.ask(other, DeleteTopicsRequest(topics=[topic]), version).responses
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        (answer,) = cluster.ask(cluster.controller_id, DeleteTopicsRequest(topics=[topic]), version).responses
        assert answer.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_deleted_topic_ends_on_all_brokers() -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t", partitions=3)
    deleted = cluster.ask(cluster.controller_id, DeleteTopicsRequest(topics=[DeleteTopicState("t")]), 6)
    assert [each.error_code for each in deleted.responses] == [0]
    cluster.settle()
    assert cluster.agrees()
    assert roles(cluster, "t", 0) == dict.fromkeys(IDS)
    assert all("t" not in cluster.broker(each).metadata.topics for each in IDS)


def test_a_broker_that_is_not_controller_refuses_to_create_for_clients() -> None:
    cluster = ClusterWorld(*IDS)
    (created,) = cluster.ask(2, CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7).topics
    assert created.error_code == ErrorCode.NOT_CONTROLLER


def test_a_topic_that_a_client_asks_any_broker_about_is_created() -> None:
    cluster = ClusterWorld(*IDS, auto_create_topics_enable="true")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    cluster.ask(3, request, 12)
    cluster.until(lambda: all("auto" in cluster.broker(each).metadata.topics for each in IDS))
    (topic,) = cluster.ask(3, request, 12).topics
    assert topic.error_code == 0


def test_any_broker_has_internal_topics_made() -> None:
    cluster = ClusterWorld(*IDS)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
    cluster.ask(2, request, 4)
    cluster.until(lambda: all("__consumer_offsets" in cluster.broker(each).metadata.topics for each in IDS))


def test_an_internal_topic_that_others_have_had_made_and_that_is_not_known_here_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ClusterWorld(*IDS)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])

    def overtaken(_specs: object, **_options: object) -> Generator[Pause, None, dict[str, PeerError]]:
        cluster.clock.call_later(0.1, lambda: cluster.send(2, request, 4))
        return {"__consumer_offsets": PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, "exists already")}
        yield

    monkeypatch.setattr(cluster.broker(3).admin, "create", overtaken)
    assert cluster.ask(3, request, 4).coordinators[0].error_code == ErrorCode.NONE
    assert [each.message for each in caplog.records if "internal topic" in each.message] == []


@pytest.mark.parametrize("asked", [2, 3])
def test_a_request_of_a_broker_reaches_the_next_controller_also_where_that_is_itself(asked: int) -> None:
    cluster = ClusterWorld(*IDS, auto_create_topics_enable="true")
    process = cluster.kill(1, expires=False)
    cluster.clock.call_later(2.0, process.session.expire)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    cluster.ask(asked, request, 12)
    cluster.until(lambda: all("auto" in cluster.broker(each).metadata.topics for each in (2, 3)))


@pytest.mark.parametrize(("asked", "name"), [(1, "1"), (3, "3"), (3, "")])
def test_configurations_of_brokers_change_by_any_broker_of_itself_or_all(asked: int, name: str) -> None:
    cluster = ClusterWorld(*IDS)
    edits = [IncrementalAlterableConfig("log.retention.ms", 0, "1234")]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(4, name, edits)])
    (result,) = cluster.ask(asked, request, 1).responses
    assert result.error_code == 0, result
    cluster.settle()
    changed = [broker_id for broker_id in IDS if cluster.broker(broker_id).config.value("log.retention.ms") == 1234]
    assert changed == ([int(name)] if name else list(IDS))


def test_a_broker_changes_no_configuration_of_another() -> None:
    cluster = ClusterWorld(*IDS)
    request = IncrementalAlterConfigsRequest(
        [IncrementalAlterConfigsResource(4, "2", [IncrementalAlterableConfig("log.retention.ms", 0, "5")])]
    )
    (result,) = cluster.ask(3, request, 1).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("asked", IDS)
def test_configurations_of_a_topic_change_by_any_broker_and_on_all(asked: int) -> None:
    cluster = ClusterWorld(*IDS)
    cluster.create_topic("t")
    edits = [IncrementalAlterableConfig("retention.ms", 0, "1234")]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(2, "t", edits)])
    (result,) = cluster.ask(asked, request, 1).responses
    assert result.error_code == 0
    cluster.until(lambda: all(cluster.broker(each).metadata.topic_config("t").get("retention.ms") == "1234" for each in IDS))
