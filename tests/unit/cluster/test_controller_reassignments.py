"""Replicas move in phases, and nothing is lost when a controller or a broker ends in any of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from moldau.cluster import znodes
from moldau.cluster.changes import PutState, writes_of
from moldau.cluster.control import Control, ControlReply, StopReplica
from moldau.cluster.controller.requests import AlterReassignments, ListReassignments, OngoingReassignment
from moldau.cluster.queries import LiveBroker
from moldau.cluster.znodes import PartitionState, decode_topic, encode_isr_change
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Multi
from support.controllers import Broker, Cluster, error_of

T0 = TopicPartition("t", 0)


def cluster_with(*replicas: tuple[int, ...], brokers: int = 6) -> Cluster:
    cluster = Cluster(brokers)
    cluster.settle(5)
    active(cluster).create("t", -1, -1, assignments=list(enumerate(replicas)))
    cluster.settle(5)
    for broker in cluster.brokers.values():
        broker.take()
    return cluster


def active(cluster: Cluster) -> Broker:
    (broker,) = cluster.controllers()
    return broker


def ask(cluster: Cluster, request: Any) -> Any:
    outcomes = active(cluster).ask(request)
    cluster.settle(3)
    return outcomes[0]


def move(cluster: Cluster, *target: int, partition: int = 0) -> str:
    at = TopicPartition("t", partition)
    return error_of(ask(cluster, AlterReassignments({at: target}))[at])


def state_of(cluster: Cluster, partition: int = 0) -> PartitionState:
    state = cluster.states("t")[partition]
    assert state is not None
    return state


def put_isr(cluster: Cluster, *isr: int) -> None:
    """As the leader does when a replica has caught up."""
    version = active(cluster).controller.image.topics["t"].info(0).state_version
    writes = writes_of(PutState("t", 0, state_of(cluster)._replace(isr=isr), version))
    notification = Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True)
    cluster.other.submit(Multi((*writes, notification)), lambda _outcome: None)
    cluster.settle(3)


def node(cluster: Cluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    topic = decode_topic("", cluster.data(znodes.topic("t")) or b"")
    return topic.replicas[0], topic.adding.get(0, ()), topic.removing.get(0, ())


def test_a_partition_moves_when_all_replicas_that_remain_are_in_sync() -> None:
    cluster = cluster_with((1, 2, 3))
    assert move(cluster, 4, 5, 3) == "NONE"
    assert node(cluster) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    assert state_of(cluster)[:3] == (1, 1, (1, 2, 3))
    assert ask(cluster, ListReassignments()) == {T0: OngoingReassignment((4, 5, 3, 1, 2), (4, 5), (1, 2))}
    assert "lead t-0 1 in 1" in cluster.brokers[4].take()
    put_isr(cluster, 1, 2, 3, 4)
    assert node(cluster) == ((4, 5, 3, 1, 2), (4, 5), (1, 2)), "one of two that are added is not enough"
    put_isr(cluster, 1, 2, 3, 4, 5)
    assert node(cluster) == ((4, 5, 3), (), ())
    assert state_of(cluster)[:3] == (4, 2, (3, 4, 5))
    assert cluster.brokers[1].take()[-2:] == ["delete t [0]", "update ['t'] without []"]
    assert "lead t-0 4 in 2" in cluster.brokers[5].take()
    assert T0 not in cluster.brokers[1].led
    assert ask(cluster, ListReassignments([T0])) == {}
    for broker in cluster.brokers.values():
        info = broker.snapshot.topics["t"].partitions[0]
        assert (info.leader, info.replicas) == (4, (4, 5, 3))


def test_replicas_are_removed_at_once_and_the_order_changed_at_once() -> None:
    cluster = cluster_with((1, 2, 3))
    assert move(cluster, 3, 2) == "NONE"
    assert (node(cluster), state_of(cluster).leader) == (((3, 2), (), ()), 3)
    assert move(cluster, 2, 3) == "NONE"
    assert (node(cluster), state_of(cluster).leader) == (((2, 3), (), ()), 3)


def test_a_cancelled_move_ends_with_the_origin_and_the_added_replicas_go() -> None:
    cluster = cluster_with((1, 2))
    move(cluster, 4, 5)
    put_isr(cluster, 1, 2, 4)
    assert error_of(ask(cluster, AlterReassignments({T0: None}))[T0]) == "NONE"
    assert node(cluster) == ((1, 2), (), ())
    assert state_of(cluster).isr == (1, 2)
    assert "delete t [0]" in cluster.brokers[4].take()
    assert error_of(ask(cluster, AlterReassignments({T0: None}))[T0]) == "NO_REASSIGNMENT_IN_PROGRESS"


def test_a_move_is_not_cancelled_when_only_added_replicas_are_in_sync() -> None:
    cluster = cluster_with((1, 2))
    move(cluster, 4, 5)
    put_isr(cluster, 1, 4)
    cluster.brokers[1].session.expire()
    cluster.settle(5)
    assert state_of(cluster).leader == 4
    assert error_of(ask(cluster, AlterReassignments({T0: None}))[T0]) == "INVALID_REPLICA_ASSIGNMENT"
    assert (node(cluster)[0], state_of(cluster).leader) == ((4, 5, 1, 2), 4)


def test_a_move_replaces_the_one_under_way_and_keeps_its_origin() -> None:
    cluster = cluster_with((1, 2))
    move(cluster, 4, 5)
    move(cluster, 5, 3)
    assert node(cluster) == ((5, 3, 1, 2), (5, 3), (1, 2))
    assert "delete t [0]" in cluster.brokers[4].take()


def test_what_cannot_be_moved_is_refused() -> None:
    cluster = cluster_with((1, 2))
    targets = {TopicPartition("no", 0): (1,), TopicPartition("t", 5): (1,), T0: (1, 1)}
    refused = ask(cluster, AlterReassignments(targets))
    assert [error_of(each) for each in refused.values()] == [*["UNKNOWN_TOPIC_OR_PARTITION"] * 2, "INVALID_REPLICA_ASSIGNMENT"]
    for target in ((), (1, 9), (-1,)):
        assert move(cluster, *target) == "INVALID_REPLICA_ASSIGNMENT"
    assert error_of(ask(cluster, AlterReassignments({T0: (1,)}, may_change_factor=False))[T0]) == "INVALID_REPLICATION_FACTOR"
    assert node(cluster) == ((1, 2), (), ())


@pytest.mark.parametrize("requests", range(1, 10))
def test_wherever_the_controller_ends_the_next_one_continues(requests: int) -> None:
    cluster = cluster_with((1, 2))
    first = active(cluster)
    move(cluster, 4, 5)
    first.session.hold()
    state = state_of(cluster)
    writes = writes_of(PutState("t", 0, state._replace(isr=(1, 2, 4, 5)), 1))
    notification = Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True)
    cluster.other.submit(Multi((*writes, notification)), lambda _outcome: None)
    cluster.settle()
    for _ in range(requests):
        first.session.release(1)
        cluster.settle()
    first.session.expire()
    cluster.settle(10)
    assert active(cluster) is not first
    assert node(cluster) == ((4, 5), (), ())
    assert (state_of(cluster).leader, state_of(cluster).isr) == (4, (4, 5))
    assert all(T0 not in cluster.brokers[each].led for each in (1, 2))


def test_a_replica_that_ends_meanwhile_is_waited_for_and_one_that_goes_away_is_not() -> None:
    cluster = cluster_with((1, 2))
    move(cluster, 4, 5)
    for each in (2, 5):
        cluster.brokers[each].session.expire()
    cluster.settle(5)
    put_isr(cluster, 1, 4)
    assert node(cluster) == ((4, 5, 1, 2), (4, 5), (1, 2))
    cluster.brokers[5].session.resume()
    cluster.settle(5)
    put_isr(cluster, 1, 4, 5)
    assert (node(cluster), state_of(cluster).isr) == (((4, 5), (), ()), (4, 5))


@pytest.mark.parametrize("ends", [2, 1], ids=["the leader", "the one that is removed"])
def test_a_replica_that_is_being_removed_is_not_led_again(ends: int) -> None:
    """Its broker has deleted it, or does so: it would begin it again, empty, and nothing would have it removed any more."""
    cluster = cluster_with((1, 2, 3))
    controller, held = active(cluster), list[Callable[[], object]]()
    send = controller.runner._send

    def hold(broker: LiveBroker, control: Control, done: Callable[[ControlReply], object]) -> None:
        if isinstance(control, StopReplica):
            held.append(partial(send, broker, control, done))
        else:
            send(broker, control, done)

    controller.runner._send = hold
    move(cluster, 2, 3, 4)
    put_isr(cluster, 1, 2, 3, 4)
    assert (len(held), state_of(cluster)[:3], node(cluster)[2]) == (1, (2, 2, (2, 3, 4)), (1,))
    cluster.brokers[1].take()
    controller.session.hold()  # so that the controller sees both the end and the next registration
    cluster.brokers[ends].session.expire()
    cluster.brokers[ends].session.resume()
    cluster.settle(5)
    controller.session.release()
    cluster.settle(5)
    assert state_of(cluster)[:3] == (2, 3 if ends == 2 else 2, (2, 3, 4))
    held.pop()()
    cluster.settle(5)
    assert node(cluster) == ((2, 3, 4), (), ())
    assert [each for each in cluster.brokers[1].take() if each.startswith("lead")] == []


def test_a_topic_grows_and_goes_while_it_moves() -> None:
    cluster = cluster_with((1, 2))
    move(cluster, 4, 5)
    grown = active(cluster).grow("t", 2)
    cluster.settle(5)
    assert error_of(grown[0], "t") == "NONE"
    assert node(cluster) == ((4, 5, 1, 2), (4, 5), (1, 2))
    assert len(active(cluster).snapshot.topics["t"].partitions[1].replicas) == 2
    active(cluster).delete("t")
    cluster.settle(5)
    assert cluster.children(znodes.TOPICS) == []
    assert ask(cluster, ListReassignments()) == {}


@pytest.mark.parametrize("fails", range(5))
def test_what_the_store_fails_is_refused_or_repeated(fails: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with((1, 2))
    move(cluster, 4, 5)
    session = active(cluster).session
    submit, left = session.submit, [fails + 1]

    def failing(request: Any, done: Any) -> None:
        left[0] -= 1
        if not left[0]:
            session.fail_next(CoordinationError("no room", retriable=True))
        submit(request, done)

    monkeypatch.setattr(session, "submit", failing)
    put_isr(cluster, 1, 2, 4, 5)
    cluster.settle(5)
    assert node(cluster) == ((4, 5), (), ())


def tool(cluster: Cluster, path: str, text: str) -> None:
    cluster.other.submit(Multi((Create(path, text.encode()),)), lambda _outcome: None)
    cluster.settle(3)


MOVES = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[4,5]},{"topic":"no","partition":0,"replicas":[1]}]}'


def test_moves_that_a_tool_writes_are_made_and_its_node_removed_when_they_are_done() -> None:
    cluster = cluster_with((1, 2))
    tool(cluster, znodes.REASSIGNMENT, MOVES)
    assert node(cluster) == ((4, 5, 1, 2), (4, 5), (1, 2))
    active(cluster).session.expire()
    cluster.settle(10)
    assert cluster.data(znodes.REASSIGNMENT) is not None
    put_isr(cluster, 1, 2, 4, 5)
    assert (node(cluster), cluster.data(znodes.REASSIGNMENT)) == (((4, 5), (), ()), None)
    tool(cluster, znodes.REASSIGNMENT, MOVES.replace("[4,5]", "[5,4]"))
    assert (node(cluster), cluster.data(znodes.REASSIGNMENT)) == (((5, 4), (), ()), None), "the watch is set again"


def test_preferred_leaders_that_a_tool_wants_are_elected_and_its_node_removed() -> None:
    cluster = cluster_with((1, 2))
    move(cluster, 2, 1)
    assert state_of(cluster).leader == 1
    for _ in range(2):
        tool(cluster, znodes.PREFERRED_ELECTION, '{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":9}]}')
        assert (state_of(cluster).leader, cluster.data(znodes.PREFERRED_ELECTION)) == (2, None)


def test_a_node_of_a_tool_that_cannot_be_read_is_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_with((1, 2))
    for path in (znodes.REASSIGNMENT, znodes.PREFERRED_ELECTION):
        tool(cluster, path, "{")
        assert cluster.data(path) == b"{"
        assert any(path in record.getMessage() for record in caplog.records)


def test_a_state_that_the_leader_writes_meanwhile_is_kept() -> None:
    cluster = cluster_with((1, 2, 3))
    writes = writes_of(PutState("t", 0, state_of(cluster)._replace(isr=(1, 2)), 0))
    cluster.other.submit(Multi(writes), lambda _outcome: None)
    assert move(cluster, 1, 2, 4) == "NONE"
    assert state_of(cluster).isr == (1, 2)
    assert node(cluster) == ((1, 2, 4, 3), (4,), (3,))
