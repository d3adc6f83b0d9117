"""Log directories are described as they are, and every client is told so in its version."""

import pytest

from moldau.log.description import DirectoryDescription, PartitionDescription
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.cluster import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from support.administered import Administered, code


@pytest.fixture
def broker() -> Administered:
    broker = Administered()
    broker.show_directories(
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
    )
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
