"""A short request does not make the broker do much: what is named again and again is told once, and few topics are made at a time."""

from moldau.broker.metadata.admin import CREATED_AT_ONCE_MAX
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.group_admin import DescribeGroupsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.messages.transaction_admin import DescribeProducersRequest, DescribeTransactionsRequest, TopicRequest
from support.broker_world import Client
from support.group_requests import commit, group_world


def connected() -> Client:
    return group_world().connect()


def test_metadata_creates_so_many_topics_and_the_rest_when_it_is_asked_again() -> None:
    client = connected()
    names = [f"new-{number:03d}" for number in range(CREATED_AT_ONCE_MAX + 20)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True)
    first = {topic.name: topic.error_code for topic in client.ask(request, 9).topics}
    assert [first[name] for name in names] == [0] * CREATED_AT_ONCE_MAX + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 20
    assert [topic.error_code for topic in client.ask(request, 9).topics] == [0] * len(names)


def test_a_group_is_described_once() -> None:
    answer = connected().ask(DescribeGroupsRequest(["g", "h", "g"]), 5)
    assert [group.group_id for group in answer.groups] == ["g", "h"]


def test_a_transactional_id_is_described_once() -> None:
    answer = connected().ask(DescribeTransactionsRequest(["a", "b", "a"]), 0)
    assert [state.transactional_id for state in answer.transaction_states] == ["a", "b"]


def test_the_producers_of_a_partition_are_listed_once() -> None:
    answer = connected().ask(DescribeProducersRequest([TopicRequest("t", [0, 1, 0]), TopicRequest("t", [1])]), 0)
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics] == [("t", [0, 1])]


def test_all_that_a_group_has_is_told_once() -> None:
    client = connected()
    commit(client, "g", {("t", 0): 7})
    whole = OffsetFetchRequestGroup("g", topics=None)
    part = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[1])])
    answer = client.ask(OffsetFetchRequest(groups=[whole, part, whole, OffsetFetchRequestGroup("h", topics=None)]), 8)
    told = [(group.group_id, [each.partition_index for topic in group.topics for each in topic.partitions]) for group in answer.groups]
    assert sorted(told) == [("g", [0]), ("g", [1]), ("h", [])]
