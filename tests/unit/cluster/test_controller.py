"""The controller, row by row of its tables: how one is made and unmade, what it does for requests, and what it does when brokers change."""

import pytest

from moldau.cluster import znodes
from moldau.cluster.changes import MarkDeletion, NewState, NewTopic, PutTopicConfig, writes_of
from moldau.cluster.controller.events import Effect, Event, LogEpochs
from moldau.cluster.controller.machine import ControllerRole
from moldau.cluster.controller.requests import (
    AlterConfig,
    AlteredConfig,
    ConfigEdit,
    ConfigOperation,
    ConfigTarget,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    PlannedTopic,
    TopicChoice,
    TopicSpec,
)
from moldau.cluster.znodes import PartitionState, decode_config, decode_controller, decode_topic, encode_topic
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Delete, Done, Multi, Request, SetData, Write
from support.controllers import Broker, Cluster, error_of


@pytest.fixture(params=[0.0, 0.5], ids=["at once", "0.5 s"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    cluster = Cluster(2, request.param)
    cluster.settle(30)
    return cluster


def write(cluster: Cluster, *writes: Write) -> None:
    """As a tool does that knows nothing of controllers."""
    cluster.other.submit(Multi(writes), lambda _outcome: None)


def active(cluster: Cluster) -> Broker:
    (broker,) = cluster.controllers()
    return broker


# Roles


def test_one_of_all_is_controller_and_its_epoch_is_on_the_tree(cluster: Cluster) -> None:
    assert [broker.controller.role for broker in cluster.brokers.values()] == [ControllerRole.ACTIVE, ControllerRole.FOLLOWING]
    assert cluster.data(znodes.CONTROLLER_EPOCH) == b"1"
    assert decode_controller("", cluster.data(znodes.CONTROLLER) or b"") == 0
    for broker in cluster.brokers.values():
        assert (broker.snapshot.controller_id, sorted(broker.snapshot.brokers)) == (0, [0, 1])


def test_another_takes_over_when_its_session_expires_and_it_follows_when_it_is_back(cluster: Cluster) -> None:
    first, second = cluster.brokers.values()
    made = first.create("t", 2)
    cluster.settle(30)
    assert made
    asked = first.create("late")
    first.session.expire()
    cluster.settle(30)
    assert active(cluster) is second
    assert cluster.data(znodes.CONTROLLER_EPOCH) == b"2"
    first.session.resume()
    cluster.settle(30)
    assert first.controller.role is ControllerRole.FOLLOWING
    assert asked == [] or error_of(asked[0]) in ("NOT_CONTROLLER", "NONE")
    assert error_of(first.create("other")[0]) == "NOT_CONTROLLER"
    assert sorted(first.snapshot.topics) == sorted(second.snapshot.topics)


@pytest.mark.parametrize("nth", range(1, 7))
def test_one_that_a_failure_has_kept_from_becoming_controller_tries_again(
    cluster: Cluster, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the read of the controller failed, the claim, or a read after that: otherwise none is until its session ends."""
    first, second = cluster.brokers.values()
    submit, requests = second.session.submit, list[Request]()

    def fail_once(request: Request, done: Done) -> None:
        requests.append(request)
        if len(requests) == nth:
            done(CoordinationError("no room", retriable=True))
        else:
            submit(request, done)

    monkeypatch.setattr(second.session, "submit", fail_once)
    first.session.expire()
    cluster.settle(60)
    assert len(requests) > nth
    assert active(cluster) is second


def test_one_whose_epoch_was_passed_resigns_with_its_next_write_and_changes_nothing(cluster: Cluster) -> None:
    broker = active(cluster)
    write(cluster, SetData(znodes.CONTROLLER_EPOCH, b"9"))
    asked = broker.create("t")
    cluster.settle(30)
    assert error_of(asked[0]) == "NOT_CONTROLLER"
    assert cluster.children(znodes.TOPICS) == []
    assert broker.controller.role is ControllerRole.ACTIVE, "its node is still there: it continues with the next epoch"
    assert cluster.data(znodes.CONTROLLER_EPOCH) == b"10"
    assert not isinstance(broker.create("t"), CoordinationError)
    cluster.settle(30)
    assert cluster.children(znodes.TOPICS) == ["t"]


def test_removing_the_controllers_node_has_another_elected(cluster: Cluster) -> None:
    write(cluster, Delete(znodes.CONTROLLER))
    cluster.settle(30)
    assert len(cluster.controllers()) == 1
    assert cluster.data(znodes.CONTROLLER_EPOCH) == b"2"


def test_a_suspended_session_delays_and_loses_nothing(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.session.suspend()
    asked = broker.create("t", 150)
    cluster.settle(30)
    assert asked == []
    write(cluster, Create(znodes.delete_topic("ghost")))
    broker.session.resume()
    cluster.settle(30)
    assert error_of(asked[0], "t") == "NONE"
    assert len(broker.snapshot.topics["t"].partitions) == 150
    assert cluster.children(znodes.DELETE_TOPICS) == [], "what watches have missed is read again"


def test_a_store_that_cannot_be_read_is_reported(cluster: Cluster) -> None:
    write(cluster, Create(znodes.topic("bad"), b"?"))
    write(cluster, Delete(znodes.CONTROLLER))
    cluster.settle(30)
    assert cluster.controllers() == []
    assert any(znodes.topic("bad") in str(error) for broker in cluster.brokers.values() for error in broker.failures)


# Topics


def test_a_created_topic_is_on_the_tree_led_and_announced(cluster: Cluster) -> None:
    broker = active(cluster)
    for each in cluster.brokers.values():
        each.take()
    made = broker.create("t", 2, configs=[("retention.ms", "5")])
    cluster.settle(30)
    (outcome,) = made
    plan = outcome["t"]
    assert isinstance(plan, PlannedTopic)
    assert (plan.replicas, plan.configs) == ([(0,), (1,)], {"retention.ms": "5"})
    assert [state and (state.leader, state.leader_epoch, state.isr) for state in cluster.states("t")] == [(0, 0, (0,)), (1, 0, (1,))]
    assert decode_topic("", cluster.data(znodes.topic("t")) or b"").topic_id == plan.topic_id
    assert decode_config("", cluster.data(znodes.topic_config("t")) or b"") == {"retention.ms": "5"}
    assert cluster.brokers[0].take() == ["lead t-0 0 in 0 new", "update ['t'] without []"]
    assert cluster.brokers[1].take() == ["lead t-1 1 in 0 new", "update ['t'] without []"]


@pytest.mark.parametrize("partitions", [100, 101, 250, 1000])
def test_a_large_topic_is_written_in_pieces_and_announced_once(partitions: int) -> None:
    cluster = Cluster(1, 0.5)
    cluster.settle(30)
    broker = active(cluster)
    made = broker.create("t", partitions)
    seen = set()
    for _ in range(120):
        cluster.settle(0.25)
        seen.add(len(topic.partitions) if (topic := broker.snapshot.topics.get("t")) is not None else 0)
    assert error_of(made[0], "t") == "NONE"
    assert seen == {0, partitions}


def test_creations_that_come_while_one_is_written_are_written_together() -> None:
    cluster = Cluster(1, 0.5)
    cluster.settle(30)
    broker = active(cluster)
    made = [broker.create(f"t{number}", 2) for number in range(60)]
    cluster.settle(2.0)
    assert [error_of(outcome[0], f"t{number}") for number, outcome in enumerate(made)] == ["NONE"] * 60


def test_of_two_creations_of_one_topic_one_is_refused_at_once_or_waits_if_it_wants() -> None:
    cluster = Cluster(1, 0.5)
    cluster.settle(30)
    broker = active(cluster)
    first, second = broker.create("t"), broker.create("t")
    third = broker.ask(CreateTopics([TopicSpec("t", 1, 1)], waits=True))
    cluster.settle()
    assert (first, third) == ([], [])
    assert error_of(second[0], "t") == "TOPIC_ALREADY_EXISTS"
    cluster.settle(5)
    assert error_of(first[0], "t") == "NONE"
    assert error_of(third[0], "t") == "TOPIC_ALREADY_EXISTS"


def test_a_request_for_several_topics_waits_for_those_that_another_one_makes() -> None:
    cluster = Cluster(1, 0.5)
    cluster.settle(30)
    broker = active(cluster)
    broker.create("b"), broker.create("c")
    asked = broker.ask(CreateTopics([TopicSpec(name, 1, 1) for name in "abc"], waits=True))
    cluster.settle()
    assert asked == []
    cluster.settle(5)
    assert [error_of(asked[0], name) for name in "abc"] == ["NONE", "TOPIC_ALREADY_EXISTS", "TOPIC_ALREADY_EXISTS"]


def test_who_waits_for_a_creation_that_fails_makes_the_topic() -> None:
    cluster = Cluster(1, 0.5)
    cluster.settle(30)
    broker = active(cluster)
    broker.session.fail_next(CoordinationError("lost", retriable=False))
    first = broker.create("t")
    second = broker.ask(CreateTopics([TopicSpec("t", 1, 1)], waits=True))
    cluster.settle(10)
    assert error_of(first[0], "t") == "KAFKA_STORAGE_ERROR"
    assert error_of(second[0], "t") == "NONE"
    assert "t" in broker.snapshot.topics


def test_however_many_wait_for_one_topic_all_are_answered_and_its_name_is_free_again() -> None:
    cluster = Cluster(1, latency_s=0.5)
    cluster.settle(30)
    broker = active(cluster)
    request = CreateTopics([TopicSpec("t", 1, 1)], waits=True)
    asked = [broker.ask(request) for _ in range(500)]
    cluster.settle(30)
    assert isinstance(asked[0][0]["t"], PlannedTopic)
    assert {error_of(each[0], "t") for each in asked[1:]} == {"TOPIC_ALREADY_EXISTS"}
    gone = [broker.delete("t") for _ in range(500)]
    cluster.settle(60)
    assert error_of(gone[0][0], "t") == "NONE"
    assert {error_of(each[0], "t") for each in gone[1:]} == {"UNKNOWN_TOPIC_OR_PARTITION"}
    assert broker.controller.image.is_free("t")


def test_a_topic_that_a_tool_has_written_first_is_refused_and_others_are_made() -> None:
    cluster = Cluster(1, 0.5)
    cluster.settle(30)
    broker = active(cluster)
    made = broker.ask(CreateTopics([TopicSpec("a", 1, 1), TopicSpec("b", 1, 1), TopicSpec("c", 1, 1)]))
    write(cluster, Create(znodes.topic("b"), encode_topic(b"b" * 16, [[0]])))
    cluster.settle(30)
    assert [error_of(made[0], name) for name in "abc"] == ["NONE", "TOPIC_ALREADY_EXISTS", "NONE"]
    assert sorted(broker.snapshot.topics) == ["a", "b", "c"], "and that of the tool is completed"


def test_a_lost_answer_to_a_creation_is_no_second_one(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.session.lose_answer()
    made = broker.create("t", 3)
    cluster.settle(5)
    broker.session.resume()
    cluster.settle(30)
    assert error_of(made[0], "t") == "NONE"
    assert len(cluster.states("t")) == 3


@pytest.mark.parametrize("writes", range(2, 8))
def test_a_creation_that_was_interrupted_is_completed_by_the_next_controller(writes: int) -> None:
    """Wherever: it is there whole or not at all."""
    cluster = Cluster(2, 0.0)
    broker = active(cluster)
    broker.session.hold()
    broker.create("t", 450)
    for _ in range(writes):
        broker.session.release(1)
        cluster.settle()
    broker.session.expire()
    cluster.settle(1)
    successor = active(cluster)
    assert successor is not broker
    states = cluster.states("t")
    assert len(states) == 450
    assert None not in states
    assert len(successor.snapshot.topics["t"].partitions) == 450


def test_a_topic_grows(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.create("t", 2)
    cluster.settle(30)
    topic_id = broker.snapshot.topics["t"].topic_id
    grown = broker.grow("t", 205)
    cluster.settle(30)
    assert error_of(grown[0], "t") == "NONE"
    assert [info.partition for info in broker.snapshot.topics["t"].partitions] == list(range(205))
    assert broker.snapshot.topics["t"].topic_id == topic_id
    assert None not in cluster.states("t")
    assert error_of(broker.grow("t", 205)[0], "t") == "INVALID_PARTITIONS"
    assert error_of(broker.grow("missing", 2)[0], "missing") == "UNKNOWN_TOPIC_OR_PARTITION"


def test_nodes_that_an_older_growth_left_are_no_hindrance(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.create("t", 1)
    cluster.settle(30)
    state = PartitionState(0, 7, (0,), 1)
    for index in range(1, 131):
        write(cluster, *writes_of(NewState("t", index, state)))
    grown = broker.grow("t", 3)
    cluster.settle(30)
    assert error_of(grown[0], "t") == "NONE"
    assert sorted(cluster.children(znodes.partitions("t"))) == ["0", "1", "2"]
    assert [each and each.leader_epoch for each in cluster.states("t")] == [0, 0, 0]


def test_growths_of_one_topic_come_one_after_the_other() -> None:
    cluster = Cluster(1, 0.5)
    cluster.settle(30)
    broker = active(cluster)
    broker.create("t", 1)
    cluster.settle(30)
    asked = [broker.grow("t", 3), broker.grow("t", 2), broker.grow("t", 4)]
    cluster.settle(30)
    assert [error_of(each[0], "t") for each in asked] == ["NONE", "INVALID_PARTITIONS", "NONE"]
    assert len(broker.snapshot.topics["t"].partitions) == 4


def test_a_deleted_topic_leaves_nothing(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.create("t", 205, configs=[("retention.ms", "5")])
    broker.create("kept")
    cluster.settle(30)
    for each in cluster.brokers.values():
        each.take()
    deleted = broker.delete("t")
    cluster.settle(30)
    assert error_of(deleted[0], "t") == "NONE"
    for each in cluster.brokers.values():
        assert each.take() == ["update [] without ['t']", "delete t"]
    assert cluster.children(znodes.TOPICS) == cluster.children(znodes.CONFIG_TOPICS) == ["kept"]
    assert cluster.children(znodes.DELETE_TOPICS) == []
    made = broker.create("t")
    cluster.settle(30)
    assert error_of(made[0], "t") == "NONE"


def test_many_topics_are_deleted_together(cluster: Cluster) -> None:
    broker = active(cluster)
    names = [f"t{number}" for number in range(250)]
    broker.ask(CreateTopics([TopicSpec(name, 1, 1) for name in names]))
    cluster.settle(120)
    deleted = broker.delete(*names)
    cluster.settle(120)
    assert set(map(error_of, deleted[0].values())) == {"NONE"}
    assert cluster.children(znodes.TOPICS) == []


@pytest.mark.parametrize("writes", range(1, 8))
def test_a_deletion_that_was_interrupted_is_completed_by_the_next_controller(writes: int) -> None:
    cluster = Cluster(2, 0.0)
    broker = active(cluster)
    broker.create("t", 250, replicas=2)
    cluster.settle(1)
    broker.session.hold()
    broker.delete("t")
    for _ in range(writes):
        broker.session.release(1)
        cluster.settle()
    broker.session.expire()
    cluster.settle(1)
    broker.session.release()
    broker.session.resume()
    cluster.settle(5)
    assert cluster.children(znodes.TOPICS) == []
    assert cluster.children(znodes.DELETE_TOPICS) == []
    assert all("t" not in each.snapshot.topics and not each.led for each in cluster.brokers.values())


def test_a_topic_with_a_replica_on_a_dead_broker_goes_when_that_is_back(cluster: Cluster) -> None:
    first, second = cluster.brokers.values()
    first.create("t", 1, replicas=2)
    cluster.settle(30)
    second.session.expire()
    cluster.settle(30)
    deleted = first.delete("t")
    cluster.settle(30)
    assert error_of(deleted[0], "t") == "NONE"
    assert cluster.children(znodes.DELETE_TOPICS) == ["t"]
    made = first.create("t")
    cluster.settle()
    assert error_of(made[0], "t") == "TOPIC_ALREADY_EXISTS"
    second.session.resume()
    cluster.settle(30)
    assert cluster.children(znodes.DELETE_TOPICS) == []
    assert second.led == {}


def test_a_name_that_a_deletion_holds_is_taken_for_requests_that_come_while_the_next_controller_loads() -> None:
    cluster = Cluster(3, 0.5)
    cluster.settle(30)
    first, second, third = cluster.brokers.values()
    first.create("t", 1, replicas=3)
    cluster.settle(30)
    third.session.expire()
    cluster.settle(30)
    first.delete("t")
    cluster.settle(30)
    first.session.expire()
    while second.controller.role is not ControllerRole.LOADING:
        cluster.settle(0.1)
    checked = second.ask(CreateTopics([TopicSpec("t", 1, 1)], validate_only=True))
    cluster.settle(30)
    assert cluster.children(znodes.DELETE_TOPICS) == ["t"]
    assert error_of(checked[0], "t") == "TOPIC_ALREADY_EXISTS"


def test_a_deletion_knows_the_topic_by_its_id(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.create("t")
    cluster.settle(30)
    by_both, by_id = TopicChoice("t", b"x" * 16), TopicChoice(None, b"y" * 16)
    refused = broker.ask(DeleteTopics([by_both, by_id]))
    cluster.settle(30)
    assert [refused[0][choice].code.name for choice in (by_both, by_id)] == ["UNKNOWN_TOPIC_ID"] * 2
    topic_id = broker.controller.image.topics["t"].topic_id
    deleted = broker.ask(DeleteTopics([TopicChoice(None, topic_id)]))
    cluster.settle(30)
    assert deleted == [{TopicChoice(None, topic_id): DeletedTopic("t", topic_id, 1)}]


def test_what_a_tool_writes_is_completed(cluster: Cluster) -> None:
    """A topic, more partitions of one, and a mark of deletion."""
    broker = active(cluster)
    broker.create("old")
    broker.create("grows")
    cluster.settle(30)
    write(cluster, *writes_of(NewTopic("new", b"n" * 16, [(1,), (0,)], {})))
    topic_id = broker.snapshot.topics["grows"].topic_id
    write(cluster, SetData(znodes.topic("grows"), encode_topic(topic_id, [[0], [1]])))
    write(cluster, *writes_of(MarkDeletion("old")))
    cluster.settle(30)
    assert sorted(broker.snapshot.topics) == ["grows", "new"]
    assert [info.leader for info in broker.snapshot.topics["new"].partitions] == [1, 0]
    assert [info.leader for info in broker.snapshot.topics["grows"].partitions] == [0, 1]
    assert cluster.children(znodes.TOPICS) == ["grows", "new"]


def test_a_topic_whose_node_names_no_partitions_is_removed(cluster: Cluster) -> None:
    """An older version began a large topic so."""
    write(cluster, *writes_of(NewTopic("t", b"t" * 16, [], {})), *writes_of(NewState("t", 0, PartitionState(0, 0, (0,), 1))))
    active(cluster).session.expire()
    cluster.settle(30)
    assert cluster.children(znodes.TOPICS) == cluster.children(znodes.CONFIG_TOPICS) == []


def test_a_topic_written_before_topic_ids_gets_one_and_keeps_it(cluster: Cluster) -> None:
    write(cluster, Create(znodes.topic("t"), b'{"version":1,"partitions":{"0":[0]}}'), Create(znodes.partitions("t")))
    write(cluster, *writes_of(NewState("t", 0, PartitionState(0, 0, (0,), 1))))
    active(cluster).session.expire()
    cluster.settle(30)
    topic_id = active(cluster).snapshot.topics["t"].topic_id
    assert decode_topic("", cluster.data(znodes.topic("t")) or b"").topic_id == topic_id


def test_a_topic_is_adopted_with_its_id_its_replicas_and_its_epochs(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.take()
    made = broker.ask(CreateTopics([TopicSpec("t", assignments=[(0, [0]), (1, [0])], topic_id=b"t" * 16, first_epochs={1: 8})]))
    cluster.settle(30)
    assert error_of(made[0], "t") == "NONE"
    assert broker.take()[:2] == ["lead t-0 0 in 0", "lead t-1 0 in 8"]
    assert broker.snapshot.topics["t"].topic_id == b"t" * 16


def test_a_store_that_fails_leaves_no_topic_and_says_so(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.session.fail_next(CoordinationError("no room", retriable=True))
    made = broker.create("t")
    cluster.settle(30)
    assert error_of(made[0], "t") == "KAFKA_STORAGE_ERROR"
    assert broker.snapshot.topics == {}
    again = broker.create("t")
    cluster.settle(30)
    assert error_of(again[0], "t") == "NONE"


def fail_once(broker: Broker, after: int, monkeypatch: pytest.MonkeyPatch, *, is_carried_out: bool = False) -> None:
    """The store fails one request of the controller, when it has carried out some; this one too, if the outcome is not known."""
    submit, left = broker.session.submit, [after]

    def counted(request: Request, done: Done) -> None:
        left[0] -= 1
        if left[0] == -1:
            broker.session.fail_next(CoordinationError("no room", retriable=not is_carried_out), is_carried_out=is_carried_out)
        submit(request, done)

    monkeypatch.setattr(broker.session, "submit", counted)


@pytest.mark.parametrize("is_carried_out", [False, True], ids=["refused", "outcome unknown"])
@pytest.mark.parametrize("after", range(12))
def test_what_a_failure_of_the_store_leaves_half_done_is_finished(
    cluster: Cluster, after: int, is_carried_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = active(cluster)
    broker.create("there", 150, replicas=2)
    broker.create("grows", 1, replicas=2)
    cluster.settle(30)
    with monkeypatch.context() as patch:
        fail_once(broker, after, patch, is_carried_out=is_carried_out)
        broker.create("t", 501, replicas=2)
        broker.grow("grows", 301)
        broker.delete("there")
        cluster.settle(60)
    image = broker.controller.image
    assert all(map(image.is_free, ("t", "grows", "there")))
    for each in cluster.brokers.values():
        assert {name: len(topic.partitions) for name, topic in each.snapshot.topics.items()} == {
            name: len(topic.partitions) for name, topic in image.topics.items()
        }
        assert len(each.led) == sum(len(topic.partitions) for topic in image.topics.values())
    assert [topic.missing for topic in image.topics.values()] == [0] * len(image.topics)
    assert image.deleting == {}
    assert cluster.children(znodes.DELETE_TOPICS) == []
    assert sorted(cluster.children(znodes.TOPICS)) == sorted(image.topics)


@pytest.mark.parametrize("hundredths", range(90, 110, 2))
def test_a_topic_that_a_write_of_unknown_outcome_has_made_is_found_also_when_its_name_is_asked_for_again_meanwhile(hundredths: int) -> None:
    """A retry takes the name while the controller looks what there is, and ends as the topic exists."""
    cluster = Cluster(1, 0.05)
    cluster.settle(10)
    broker = active(cluster)
    broker.session.fail_next(CoordinationError("unknown", retriable=False), is_carried_out=True)
    broker.create("t")
    cluster.settle(0.2 + hundredths / 100)
    again = broker.create("t")
    cluster.settle(30)
    assert error_of(again[0], "t") == "TOPIC_ALREADY_EXISTS"
    assert "t" in broker.snapshot.topics


READS_OF_GROWTH = 3


@pytest.mark.parametrize("after", range(6))
def test_what_a_write_of_unknown_outcome_has_changed_is_found_also_when_a_read_fails(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what others change after that: the read sets the watch."""
    cluster = Cluster(1, 0.05)
    cluster.settle(10)
    broker = active(cluster)
    broker.create("grows")
    cluster.settle(10)
    with monkeypatch.context() as patch:
        fail_once(broker, 0, patch, is_carried_out=True)
        made = broker.create("t")
        cluster.settle(0.2)
    with monkeypatch.context() as patch:
        fail_once(broker, READS_OF_GROWTH, patch, is_carried_out=True)
        grown = broker.grow("grows", 2)
        cluster.settle(0.4)
    assert [error_of(made[0], "t"), error_of(grown[0], "grows")] == ["KAFKA_STORAGE_ERROR"] * 2
    fail_once(broker, after, monkeypatch)
    cluster.settle(30)
    assert {name: len(topic.partitions) for name, topic in broker.snapshot.topics.items()} == {"t": 1, "grows": 2}
    write(cluster, Create(znodes.topic("other"), encode_topic(b"o" * 16, [[0]])))
    cluster.settle(30)
    assert "other" in broker.snapshot.topics


def test_an_effect_that_fails_by_a_bug_loses_no_other_one(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    broker = active(cluster)

    def answered(_outcome: object) -> None:
        raise RuntimeError("a bug of who asks")

    for _ in range(2):
        broker.runner.ask(CreateTopics([TopicSpec("t", 1, 1)]), answered)
    made = broker.create("u")
    cluster.settle(30)
    assert error_of(made[0], "u") == "NONE"
    assert sorted(broker.snapshot.topics) == ["t", "u"]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "effect of the controller not carried out because of a bug: Answer"
    ] * 2


def test_long_work_gives_others_their_turn_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1)
    cluster.settle(30)
    broker = active(cluster)
    made = broker.ask(CreateTopics([TopicSpec(f"t{number}", 1, 1) for number in range(1000)]))
    clock = cluster.clock
    steps, turns = [0], [0]
    step = broker.controller.step

    def slow_step(event: Event, now_ms: int) -> list[Effect]:
        clock.advance_within(0.002)
        steps[0] += 1
        return step(event, now_ms)

    def other() -> None:
        assert steps[0] <= 4, "others wait for more than 5 ms and the step at hand"
        steps[0] = 0
        turns[0] += 1
        if not made:
            clock.call_later(0.0, other)

    monkeypatch.setattr(broker.controller, "step", slow_step)
    clock.call_later(0.0, other)
    cluster.settle(30)
    assert error_of(made[0], "t999") == "NONE"
    assert turns[0] > 100


# Elections


def test_a_broker_that_bounces_unnoticed_leads_in_a_new_epoch(cluster: Cluster) -> None:
    broker, other = cluster.brokers.values()
    broker.create("t", 4, replicas=2)
    cluster.settle(30)
    other.session.expire()
    other.session.resume()
    cluster.settle(30)
    for index, state in enumerate(cluster.states("t")):
        assert state is not None
        assert state.leader in (0, 1)
        assert state.leader_epoch >= index % 2, "those that it led were elected again"


def test_partitions_of_a_dead_broker_are_led_by_others_or_by_none(cluster: Cluster) -> None:
    broker, other = cluster.brokers.values()
    broker.create("two", 2, replicas=2)
    broker.create("one", 2, replicas=1)
    cluster.settle(30)
    other.session.expire()
    cluster.settle(30)
    assert [info.leader for info in broker.snapshot.topics["two"].partitions] == [0, 0]
    assert [info.leader for info in broker.snapshot.topics["one"].partitions] == [0, -1]
    assert sorted(broker.snapshot.brokers) == [0]
    other.session.resume()
    cluster.settle(30)
    assert [info.leader for info in broker.snapshot.topics["one"].partitions] == [0, 1]
    assert other.led == {TopicPartition("two", 0): (0, 1), TopicPartition("two", 1): (0, 1), TopicPartition("one", 1): (1, 2)}
    assert [info.isr for info in broker.snapshot.topics["two"].partitions] == [(0,), (0,)], "it rejoins by fetching"


def test_a_log_that_knows_a_later_epoch_has_the_partition_elected_above_it(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.floors[TopicPartition("t", 0)] = 6
    broker.create("t", 1)
    cluster.settle(30)
    assert broker.led[TopicPartition("t", 0)] == (0, 7)
    assert [info.leader_epoch for info in broker.snapshot.topics["t"].partitions] == [7]


def test_epochs_that_logs_know_before_a_start_count_and_are_reported(cluster: Cluster) -> None:
    first, second = cluster.brokers.values()
    first.create("t", 2, replicas=2)
    cluster.settle(30)
    second.runner.take(LogEpochs({TopicPartition("t", 0): 11, TopicPartition("t", 1): 0}))
    first.session.expire()
    cluster.settle(30)
    assert [state and state.leader_epoch for state in cluster.states("t")] == [12, 1]
    assert second.raised == 1


# Configurations


def alter(broker: Broker, resource: ConfigTarget, *edits: ConfigEdit, replaces: bool = False, validate_only: bool = False) -> list[object]:
    return broker.ask(AlterConfig(resource, edits, replaces, validate_only))


def test_of_two_changes_at_once_none_is_lost(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.create("t")
    cluster.settle(30)
    topic = ConfigTarget("t")
    first = alter(broker, topic, ConfigEdit("retention.ms", ConfigOperation.SET, "5"))
    second = alter(broker, topic, ConfigEdit("cleanup.policy", ConfigOperation.APPEND, "compact"))
    cluster.settle(30)
    assert first == [AlteredConfig({}, {"retention.ms": "5"}, "config_change_0000000000")]
    both = {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert second == [AlteredConfig({"retention.ms": "5"}, both, "config_change_0000000001")]
    assert decode_config("", cluster.data(znodes.topic_config("t")) or b"") == both


def test_a_change_by_a_tool_meanwhile_is_not_overwritten(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.create("t")
    cluster.settle(30)
    broker.session.hold()
    altered = alter(broker, ConfigTarget("t"), ConfigEdit("retention.ms", ConfigOperation.SET, "5"))
    cluster.settle(30)
    broker.session.release(1)
    cluster.settle(30)
    write(cluster, *writes_of(PutTopicConfig("t", {"segment.bytes": "2000000"}, 0)))
    broker.session.release()
    cluster.settle(30)
    assert altered
    assert decode_config("", cluster.data(znodes.topic_config("t")) or b"") == {"segment.bytes": "2000000", "retention.ms": "5"}


def test_brokers_are_configured_each_and_all(cluster: Cluster) -> None:
    broker = active(cluster)
    for resource in (ConfigTarget(None, None), ConfigTarget(None, 0)):
        altered = alter(broker, resource, ConfigEdit("log.retention.ms", ConfigOperation.SET, "9"))
        cluster.settle(30)
        assert isinstance(altered[0], AlteredConfig)
        path = znodes.broker_config(resource.broker_id)
        assert decode_config("", cluster.data(path) or b"") == {"log.retention.ms": "9"}
        replaced = alter(broker, resource, replaces=True)
        cluster.settle(30)
        assert isinstance(replaced[0], AlteredConfig)
        assert decode_config("", cluster.data(path) or b"") == {}


def test_what_is_not_allowed_and_what_is_only_checked_writes_nothing(cluster: Cluster) -> None:
    broker = active(cluster)
    broker.create("t")
    cluster.settle(30)
    asked = [
        alter(broker, ConfigTarget("t"), ConfigEdit("retention.ms", ConfigOperation.SET, "x")),
        alter(broker, ConfigTarget("t"), ConfigEdit("retention.ms", ConfigOperation.APPEND, "1")),
        alter(broker, ConfigTarget("gone"), ConfigEdit("retention.ms", ConfigOperation.SET, "1")),
        alter(broker, ConfigTarget(None, 0), ConfigEdit("broker.id", ConfigOperation.SET, "1")),
        alter(broker, ConfigTarget("t"), ConfigEdit("retention.ms", ConfigOperation.SET, "1"), validate_only=True),
    ]
    cluster.settle(30)
    assert [error_of(each[0]) for each in asked] == [
        "INVALID_CONFIG", "INVALID_CONFIG", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST", "NONE",
    ]  # fmt: skip
    assert cluster.children(znodes.CONFIG_CHANGES) == []


def test_old_notifications_are_removed_and_never_too_many_are_there() -> None:
    cluster = Cluster(1)
    broker = active(cluster)
    for number in range(1500):
        alter(broker, ConfigTarget(None, 0), ConfigEdit("log.retention.ms", ConfigOperation.SET, str(number)))
    cluster.settle()
    assert 1000 <= len(cluster.children(znodes.CONFIG_CHANGES)) <= 1100
    cluster.settle(15 * 60)
    alter(broker, ConfigTarget(None, 0), ConfigEdit("log.retention.ms", ConfigOperation.SET, "1"))
    cluster.settle(61)
    for _ in range(500):
        alter(broker, ConfigTarget(None, 0), ConfigEdit("log.retention.ms", ConfigOperation.SET, "2"))
    cluster.settle()
    assert len(cluster.children(znodes.CONFIG_CHANGES)) <= 501
