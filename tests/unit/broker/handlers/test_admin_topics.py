"""Topics are created, grown and deleted as Kafka 4.3 does it; an error concerns its topic alone, and nothing is ever half done."""

from collections.abc import Sequence

import pytest

from moldau.broker.metadata import applier
from moldau.cluster import znodes
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from support.administered import Administered, code

NO_ID = bytes(16)


@pytest.fixture
def broker() -> Administered:
    return Administered()


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    by_hand: list[tuple[int, list[int]]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replication_factor,
        [CreatableReplicaAssignment(index, brokers) for index, brokers in by_hand or []],
        [CreatableTopicConfig(key, value) for key, value in configs or []],
    )


def create(broker: Administered, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return broker.ask(request, version, CreateTopicsResponse).topics


def refusal(broker: Administered, *topics: CreatableTopic) -> str:
    """The code with which the last of the topics is refused, after a look that nothing came of it."""
    before = list(broker.metadata.topics)
    broker.host.take()
    result = create(broker, *topics)[-1]
    assert result.error_message
    assert result.num_partitions == -1
    assert result.configs == []
    if len(topics) == 1:
        assert list(broker.metadata.topics) == before
        assert broker.host.take() == []
    return code(result.error_code)


def test_a_created_topic_is_served_at_once_and_tells_what_it_is(broker: Administered) -> None:
    (result,) = create(broker, topic("t", 2, configs=[("retention.ms", "5")]))
    assert (result.error_code, result.error_message, result.num_partitions, result.replication_factor) == (0, None, 2, 1)
    assert result.topic_id == broker.metadata.topics["t"].topic_id != NO_ID
    assert broker.host.take() == ["open t-0", "open t-1"]
    assert result.configs is not None
    told = {each.name: (each.value, each.config_source) for each in result.configs}
    assert told["retention.ms"] == ("5", 1)
    assert told["segment.bytes"] == ("1073741824", 5)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_can_create(broker: Administered, version: int) -> None:
    (result,) = create(broker, topic("t", 3), version=version)
    assert (result.name, result.error_code) == ("t", 0)
    assert len(broker.metadata.topics["t"].partitions) == 3


def test_minus_one_takes_the_brokers_defaults() -> None:
    broker = Administered("num.partitions=4")
    (result,) = create(broker, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 1)


def test_partitions_may_be_assigned_by_hand(broker: Administered) -> None:
    (result,) = create(broker, topic("t", -1, -1, by_hand=[(1, [0]), (0, [0])]))
    assert (result.error_code, result.num_partitions) == (0, 2)


def test_checking_only_makes_nothing(broker: Administered) -> None:
    (result,) = create(broker, topic("t", 2), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, NO_ID)
    assert "t" not in broker.metadata.topics
    assert broker.host.take() == []
    create(broker, topic("t"))
    assert code(create(broker, topic("t"), validate_only=True)[0].error_code) == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic(""), "INVALID_TOPIC_EXCEPTION"),
        (topic("."), "INVALID_TOPIC_EXCEPTION"),
        (topic(".."), "INVALID_TOPIC_EXCEPTION"),
        (topic("x" * 250), "INVALID_TOPIC_EXCEPTION"),
        (topic("a b"), "INVALID_TOPIC_EXCEPTION"),
        (topic("a/b"), "INVALID_TOPIC_EXCEPTION"),
        (topic("é"), "INVALID_TOPIC_EXCEPTION"),
        (topic("t", 0), "INVALID_PARTITIONS"),
        (topic("t", -2), "INVALID_PARTITIONS"),
        (topic("t", 1, 0), "INVALID_REPLICATION_FACTOR"),
        (topic("t", 1, -2), "INVALID_REPLICATION_FACTOR"),
        (topic("t", 1, 2), "INVALID_REPLICATION_FACTOR"),
        (topic("t", 1, 32767), "INVALID_REPLICATION_FACTOR"),
        (topic("t", 10_001), "POLICY_VIOLATION"),
        (topic("t", 2**31 - 1), "POLICY_VIOLATION"),
        (topic("t", configs=[("no.such", "1")]), "INVALID_CONFIG"),
        (topic("t", configs=[("retention.ms", "x")]), "INVALID_CONFIG"),
        (topic("t", configs=[("retention.ms", None)]), "INVALID_CONFIG"),
        (topic("t", configs=[("segment.bytes", "10")]), "INVALID_CONFIG"),
        (topic("t", configs=[("remote.storage.enable", "true")]), "INVALID_CONFIG"),
        (topic("t", configs=[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]), "INVALID_CONFIG"),
        (topic("t", 1, -1, by_hand=[(0, [0])]), "INVALID_REQUEST"),
        (topic("t", -1, 1, by_hand=[(0, [0])]), "INVALID_REQUEST"),
        (topic("t", -1, -1, by_hand=[(0, [0]), (2, [0])]), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", -1, -1, by_hand=[(1, [0])]), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", -1, -1, by_hand=[(0, [0]), (0, [0])]), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", -1, -1, by_hand=[(0, [0, 0])]), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", -1, -1, by_hand=[(0, [7])]), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", -1, -1, by_hand=[(0, [])]), "INVALID_REPLICA_ASSIGNMENT"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_created_is_refused_by_its_code(broker: Administered, wanted: CreatableTopic, expected: str) -> None:
    assert refusal(broker, wanted) == expected


def test_the_longest_name_and_all_characters_are_fine(broker: Administered) -> None:
    names = ["x" * 249, "aZ09.b", "a-b_c", "..."]
    assert [result.error_code for result in create(broker, *map(topic, names))] == [0, 0, 0, 0]


def test_a_name_that_is_there_is_refused(broker: Administered) -> None:
    create(broker, topic("t"))
    assert refusal(broker, topic("t")) == "TOPIC_ALREADY_EXISTS"


def test_names_that_metrics_cannot_tell_apart_are_refused_also_within_a_request(broker: Administered) -> None:
    create(broker, topic("a.b"))
    assert refusal(broker, topic("a_b")) == "INVALID_TOPIC_EXCEPTION"
    first, second = create(broker, topic("c.d"), topic("c_d"))
    assert (code(first.error_code), code(second.error_code)) == ("NONE", "INVALID_TOPIC_EXCEPTION")


def test_a_name_that_comes_twice_is_refused_both_times_and_others_are_made(broker: Administered) -> None:
    results = {result.name: code(result.error_code) for result in create(broker, topic("t"), topic("u"), topic("t"))}
    assert results == {"t": "INVALID_REQUEST", "u": "NONE"}
    assert list(broker.metadata.topics) == ["u"]


def test_bounds_on_partitions_hold_for_the_whole_request_and_the_whole_broker() -> None:
    broker = Administered("partitions.per.request.max=5", "max.partitions=7")
    assert [code(each.error_code) for each in create(broker, topic("a", 3), topic("b", 3), topic("c", 1), topic("bad name"))] == [
        "POLICY_VIOLATION",
        "POLICY_VIOLATION",
        "POLICY_VIOLATION",
        "POLICY_VIOLATION",
    ]
    assert [each.error_code for each in create(broker, topic("a", 3), topic("b", 2))] == [0, 0]
    assert refusal(broker, topic("c", 3)) == "POLICY_VIOLATION"
    assert create(broker, topic("c", 2))[0].error_code == 0
    assert grow(broker, CreatePartitionsTopic("a", 4, None)) == {"a": "POLICY_VIOLATION"}


def test_a_store_that_fails_leaves_no_topic_and_says_so(broker: Administered) -> None:
    broker.tree.full = True
    assert refusal(broker, topic("t")) == "KAFKA_STORAGE_ERROR"
    assert [code(each.error_code) for each in create(broker, topic("t"), topic("a b"))] == [
        "KAFKA_STORAGE_ERROR",
        "INVALID_TOPIC_EXCEPTION",
    ]
    broker.tree.full = False
    assert broker.tree.children(znodes.TOPICS) == []
    assert create(broker, topic("t"))[0].error_code == 0


def test_a_disk_that_fails_leaves_the_topic_with_a_partition_offline(broker: Administered) -> None:
    broker.host.broken.add(TopicPartition("t", 0))
    assert create(broker, topic("t", 2))[0].error_code == 0
    assert broker.host.served == {TopicPartition("t", 1)}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_an_internal_topic_made_by_hand_is_made_as_the_broker_makes_it(name: str) -> None:
    """Compacted above all: retention would delete the state of groups and transactions. What is said by hand counts."""
    broker = Administered("offsets.topic.num.partitions=7", "transaction.state.log.num.partitions=7", "num.partitions=2")
    create(broker, topic(name, -1, -1))
    configs = dict(broker.metadata.topic_config(name))
    assert configs["cleanup.policy"] == "compact"
    assert int(configs["segment.bytes"]) == 100 * 1024 * 1024
    assert len(broker.metadata.topics[name].partitions) == 7

    broker = Administered()
    create(broker, topic(name, 3, 1, configs=[("segment.bytes", "2097152")]))
    configs = dict(broker.metadata.topic_config(name))
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", "2097152")
    assert len(broker.metadata.topics[name].partitions) == 3
    broker = Administered()
    create(broker, topic(name, -1, -1, by_hand=[(0, [0])]))
    assert broker.metadata.topic_config(name)["cleanup.policy"] == "compact"


def test_values_are_kept_as_they_are_read(broker: Administered) -> None:
    create(broker, topic("t", configs=[("cleanup.policy", " delete , compact,delete"), ("retention.ms", "+5")]))
    assert broker.metadata.topic_config("t") == {"cleanup.policy": "delete,compact", "retention.ms": "5"}


# Deleting


def delete(broker: Administered, *topics: DeleteTopicState, version: int = 6) -> list[tuple[str | None, bytes, str]]:
    if version >= 6:
        request = DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)
    else:
        request = DeleteTopicsRequest(topic_names=[each.name or "" for each in topics], timeout_ms=1000)
    responses = broker.ask(request, version, DeleteTopicsResponse).responses
    return [(each.name, each.topic_id, code(each.error_code)) for each in responses]


def test_a_deleted_topic_is_gone_with_its_logs(broker: Administered) -> None:
    create(broker, topic("t", 2), topic("kept"))
    topic_id = broker.metadata.topics["t"].topic_id
    broker.host.take()
    assert delete(broker, DeleteTopicState("t")) == [("t", topic_id, "NONE")]
    assert broker.host.take() == ["remove t-0", "remove t-1"]
    assert list(broker.metadata.topics) == ["kept"]
    assert broker.tree.children(znodes.TOPICS) == ["kept"]
    assert broker.tree.children(znodes.DELETE_TOPICS) == []


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_can_delete(broker: Administered, version: int) -> None:
    create(broker, topic("t"))
    assert [error for _, _, error in delete(broker, DeleteTopicState("t"), DeleteTopicState("no"), version=version)] == [
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert broker.metadata.topics == {}


def test_a_topic_is_deleted_by_its_id(broker: Administered) -> None:
    create(broker, topic("t"))
    topic_id = broker.metadata.topics["t"].topic_id
    assert delete(broker, DeleteTopicState(None, topic_id)) == [("t", topic_id, "NONE")]
    assert delete(broker, DeleteTopicState(None, topic_id)) == [(None, topic_id, "UNKNOWN_TOPIC_ID")]


def test_a_topic_has_to_be_named_once_and_in_one_way(broker: Administered) -> None:
    create(broker, topic("t"), topic("u"))
    topic_id, other_id = (broker.metadata.topics[name].topic_id for name in ("t", "u"))
    assert delete(broker, DeleteTopicState("t", topic_id)) == [("t", topic_id, "INVALID_REQUEST")]
    assert delete(broker, DeleteTopicState(None)) == [(None, NO_ID, "INVALID_REQUEST")]
    assert delete(broker, DeleteTopicState("t"), DeleteTopicState(None, topic_id), DeleteTopicState("u")) == [
        ("t", topic_id, "INVALID_REQUEST"),
        ("u", other_id, "NONE"),
    ]
    assert list(broker.metadata.topics) == ["t"]


def test_the_controller_decides_whether_there_is_a_topic(broker: Administered) -> None:
    """Claim: what its broker knows may be older, as that of one which was controller before and has become it once more."""
    before = broker.broker.cache.snapshot
    create(broker, topic("t"), topic("u"))
    u_id = broker.metadata.topics["u"].topic_id
    broker.broker.cache.snapshot = before
    assert [error for *_, error in delete(broker, DeleteTopicState("t"), DeleteTopicState(None, u_id))] == ["NONE", "NONE"]


def test_a_deletion_is_answered_while_a_coordinator_has_something_to_commit(broker: Administered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: after a second without what is kept of a deleted topic being dropped. The controller sends a broker nothing more before it has
    the answer, and the coordinator may need that to commit.
    """
    begun: list[Sequence[str]] = []
    monkeypatch.setattr(applier, "FORGETTING_S", 0.0)
    broker.broker.applier._topics_deleted = lambda names, _done: begun.append(names)
    create(broker, topic("t"), topic("u"))
    assert [error for *_, error in delete(broker, DeleteTopicState("t"))] == ["NONE"]
    assert [error for *_, error in delete(broker, DeleteTopicState("u"))] == ["NONE"]
    assert begun == [["t"], ["u"]], "the second beside the first"


def test_deleting_can_be_turned_off() -> None:
    broker = Administered("delete.topic.enable=false")
    create(broker, topic("t"))
    assert delete(broker, DeleteTopicState("t")) == [("t", NO_ID, "TOPIC_DELETION_DISABLED")]
    assert [error for _, _, error in delete(broker, DeleteTopicState("t"), version=2)] == ["INVALID_REQUEST"]
    assert "t" in broker.metadata.topics


def test_a_store_that_fails_keeps_the_topic(broker: Administered) -> None:
    create(broker, topic("t"))
    broker.host.take()
    broker.tree.full = True
    assert [error for _, _, error in delete(broker, DeleteTopicState("t"))] == ["KAFKA_STORAGE_ERROR"]
    assert "t" in broker.metadata.topics
    assert broker.host.take() == []


# Growing


def grow(broker: Administered, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False) -> dict[str, str]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return {each.name: code(each.error_code) for each in broker.ask(request, version, CreatePartitionsResponse).results}


def assigned(*partitions: list[int]) -> list[CreatePartitionsAssignment]:
    return [CreatePartitionsAssignment(brokers) for brokers in partitions]


@pytest.mark.parametrize("version", range(4))
def test_added_partitions_are_served_at_once(broker: Administered, version: int) -> None:
    create(broker, topic("t", 2))
    broker.host.take()
    assert grow(broker, CreatePartitionsTopic("t", 4, None), version=version) == {"t": "NONE"}
    assert broker.host.take() == ["open t-2", "open t-3"]
    assert len(broker.metadata.topics["t"].partitions) == 4


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (CreatePartitionsTopic("t", 2, None), "INVALID_PARTITIONS"),
        (CreatePartitionsTopic("t", 1, None), "INVALID_PARTITIONS"),
        (CreatePartitionsTopic("t", 0, None), "INVALID_PARTITIONS"),
        (CreatePartitionsTopic("t", -1, None), "INVALID_PARTITIONS"),
        (CreatePartitionsTopic("t", 2**31 - 1, None), "POLICY_VIOLATION"),
        (CreatePartitionsTopic("no", 4, None), "UNKNOWN_TOPIC_OR_PARTITION"),
        (CreatePartitionsTopic("n o", 4, None), "UNKNOWN_TOPIC_OR_PARTITION"),
        (CreatePartitionsTopic("t", 4, assigned([0])), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("t", 3, assigned()), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("t", 3, assigned([])), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("t", 3, assigned([7])), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("t", 3, assigned([0, 0])), "INVALID_REPLICA_ASSIGNMENT"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_grow_so_is_refused_by_its_code(broker: Administered, wanted: CreatePartitionsTopic, expected: str) -> None:
    create(broker, topic("t", 2), topic("other"))
    broker.host.take()
    assert grow(broker, wanted, CreatePartitionsTopic("other", 2, assigned([0]))) == {wanted.name: expected, "other": "NONE"}
    assert broker.host.take() == ["open other-1"]
    assert len(broker.metadata.topics["t"].partitions) == 2


def test_growing_twice_in_a_request_is_refused_and_checking_only_changes_nothing(broker: Administered) -> None:
    create(broker, topic("t"))
    broker.host.take()
    assert grow(broker, CreatePartitionsTopic("t", 2, None), CreatePartitionsTopic("t", 3, None)) == {"t": "INVALID_REQUEST"}
    assert grow(broker, CreatePartitionsTopic("t", 2, None), validate_only=True) == {"t": "NONE"}
    assert broker.host.take() == []
    assert len(broker.metadata.topics["t"].partitions) == 1


def test_a_store_that_fails_adds_no_partition(broker: Administered) -> None:
    create(broker, topic("t"))
    broker.host.take()
    broker.tree.full = True
    assert grow(broker, CreatePartitionsTopic("t", 2, None)) == {"t": "KAFKA_STORAGE_ERROR"}
    assert len(broker.metadata.topics["t"].partitions) == 1
    assert broker.host.take() == []
