"""Log directories are described as they are; nobody coordinates groups or transactions yet, and every client is told so in its version."""

import pytest

from moldau.log.description import DirectoryDescription, PartitionDescription
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.administered import Administered, code

GROUP, TRANSACTION, SHARE = range(3)


@pytest.fixture
def broker() -> Administered:
    broker = Administered()
    broker.directories = [
        DirectoryDescription(
            "/data/a",
            None,
            1000,
            400,
            [
                PartitionDescription(TopicPartition("t", 0), 10, 0),
                PartitionDescription(TopicPartition("t", 1), 20, 3),
                PartitionDescription(TopicPartition("u", 0), 30, 0),
            ],
        ),
        DirectoryDescription("/data/b", "I/O error"),
    ]
    return broker


def log_dirs(broker: Administered, topics: list[DescribableLogDirTopic] | None, version: int = 5) -> DescribeLogDirsResponse:
    return broker.ask(DescribeLogDirsRequest(topics), version, DescribeLogDirsResponse)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_tell_what_lies_in_them_and_how_full_they_are(broker: Administered, version: int) -> None:
    good, bad = log_dirs(broker, None, version).results
    assert (good.log_dir, good.error_code) == ("/data/a", 0)
    found = {
        (topic.name, each.partition_index): (each.partition_size, each.offset_lag) for topic in good.topics for each in topic.partitions
    }
    assert found == {("t", 0): (10, 0), ("t", 1): (20, 3), ("u", 0): (30, 0)}
    assert (bad.log_dir, code(bad.error_code), bad.topics) == ("/data/b", "KAFKA_STORAGE_ERROR", [])
    if version >= 4:
        assert (good.total_bytes, good.usable_bytes, bad.total_bytes) == (1000, 400, -1)


def test_only_the_partitions_asked_for_are_told(broker: Administered) -> None:
    wanted = [DescribableLogDirTopic("t", [1, 7]), DescribableLogDirTopic("t", [0]), DescribableLogDirTopic("no", [0])]
    (topic,) = log_dirs(broker, wanted).results[0].topics
    assert (topic.name, sorted(each.partition_index for each in topic.partitions)) == ("t", [0, 1])
    assert log_dirs(broker, []).results[0].topics == []


@pytest.mark.parametrize(("version", "kind"), [(0, GROUP), *((version, kind) for version in (1, 2, 3) for kind in (GROUP, TRANSACTION))])
def test_no_coordinator_is_available_for_a_key(broker: Administered, version: int, kind: int) -> None:
    answer = broker.ask(FindCoordinatorRequest("g", kind), version, FindCoordinatorResponse)
    assert (code(answer.error_code), answer.node_id, answer.host, answer.port) == ("COORDINATOR_NOT_AVAILABLE", -1, "", -1)
    assert bool(answer.error_message) == (version >= 1)


@pytest.mark.parametrize("version", range(4, 7))
def test_no_coordinator_is_available_for_any_of_many_keys(broker: Administered, version: int) -> None:
    request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["a", "b"])
    answers = broker.ask(request, version, FindCoordinatorResponse).coordinators
    assert [(each.key, code(each.error_code), each.node_id) for each in answers] == [
        ("a", "COORDINATOR_NOT_AVAILABLE", -1),
        ("b", "COORDINATOR_NOT_AVAILABLE", -1),
    ]
    assert broker.ask(FindCoordinatorRequest(), version, FindCoordinatorResponse).coordinators == []


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        (GROUP, "group", "consumer groups are not available in this version; assign partitions instead"),
        (TRANSACTION, "transaction", "transactions are not available in this version; produce without a transactional id"),
    ],
)
def test_who_wants_a_coordinator_is_told_why_there_is_none_and_so_is_the_log_once_a_minute(
    broker: Administered, caplog: pytest.LogCaptureFixture, kind: int, name: str, reason: str
) -> None:
    for key in ("g1", "g2"):
        answer = broker.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4, FindCoordinatorResponse)
        assert answer.coordinators[0].error_message == reason
    assert broker.ask(FindCoordinatorRequest("g3", kind), 1, FindCoordinatorResponse).error_message == reason
    broker.clock.advance(60)
    broker.ask(FindCoordinatorRequest("g\n4" + "x" * 1000, kind), 1, FindCoordinatorResponse)
    long = "g?4" + "x" * 97
    assert caplog.messages == [f"{name} coordinator asked for: client=test key={key} reason={reason}" for key in ("g1", long)]


def test_keys_of_another_kind_are_an_invalid_request(broker: Administered) -> None:
    assert code(broker.ask(FindCoordinatorRequest("g", SHARE), 3, FindCoordinatorResponse).error_code) == "INVALID_REQUEST"
    (answer,) = broker.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]), 6, FindCoordinatorResponse).coordinators
    assert code(answer.error_code) == "INVALID_REQUEST"
