"""A consumer that has unsubscribed reads what it is assigned or subscribes to next; no rebalance of before comes after it.

Those that read by assignment then commit nothing: a group refuses commits of who has left it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from moldau.client import ConsumeError, Consumer, Producer, TopicPartition
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.groups import Groups
from moldau.testing.broker import Broker
from support.paper import wait_until

pytestmark = pytest.mark.system

LIMIT_S = 30.0
COUNT = 10
ACTIVE = ["PreparingRebalance", "CompletingRebalance", "Stable"]
"""The states of a group that has members."""
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {"auto_commit": False, "settings": {"heartbeat.interval.ms": 100, "fetch.wait.max.ms": 20}}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With ten messages in each of the two partitions of t, and in the only one of u. New groups wait a moment for other members."""
    settings = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "500"}
    with Broker(settings=settings) as made, Cluster(made.bootstrap_servers) as cluster:
        Admin(cluster).create_topic("t", 2)
        Admin(cluster).create_topic("u", 1)
        with Producer(made.bootstrap_servers) as producer:
            for topic, partition in [("t", 0), ("t", 1), ("u", 0)]:
                producer.send(topic, [b"%d" % number for number in range(COUNT)], partition=partition)
        yield made


@pytest.fixture
def groups(broker: Broker) -> Iterator[Groups]:
    with Cluster(broker.bootstrap_servers) as cluster:
        yield Groups(cluster)


class Member:
    """A consumer of topic t, and what its listeners hear."""

    def __init__(self, broker: Broker, groups: Groups, group: str, **options: object) -> None:
        self.groups, self.group = groups, group
        self.heard: list[tuple[str, set[TopicPartition]]] = []
        self.on_assign: Callable[[], object] = lambda: None
        self.on_revoke: Callable[[], object] = lambda: None
        self.consumer = Consumer(broker.bootstrap_servers, group_id=group, **{**OPTIONS, **options})  # type: ignore[arg-type]
        self.subscribe("t")

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("assigned", set(partitions)))
        self.on_assign()

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("revoked", set(partitions)))
        self.on_revoke()

    def take(self, count: int) -> list[tuple[str, int]]:
        """Topic and offset of the next `count` messages."""
        found: list[tuple[str, int]] = []
        for _ in range(count):
            message = self.consumer.poll(LIMIT_S)
            assert message is not None, f"{found}, {self.heard}"
            found.append((message.topic, message.offset))
        return found

    def reads_what_it_assigns(self) -> bool:
        """Whether it reads all of partition 0 of t and nothing else, and is still assigned it when its group is empty."""
        self.consumer.assign({T0: 0})
        found = self.take(COUNT)
        while self.group in [each.group for each in self.groups.list_groups(ACTIVE)]:
            assert self.consumer.poll(0.05) is None
        return found == [("t", offset) for offset in range(COUNT)] and self.consumer.assignment() == {T0}


@pytest.fixture
def member(broker: Broker, groups: Groups, request: pytest.FixtureRequest) -> Iterator[Member]:
    """Alone in its group. A test may ask for options by a parameter."""
    made = Member(broker, groups, request.node.name, **getattr(request, "param", {}))
    with made.consumer:
        yield made


committing = pytest.mark.parametrize("member", [{"auto_commit": True}], indirect=True, ids=["committing"])


def joining(member: Member, state: str) -> None:
    """Until its group has come to `state`, of which it hears nothing: it joins without being polled."""
    wait_until(lambda: member.group in [each.group for each in member.groups.list_groups([state])], f"{member.group} is {state}")


EACH_ONCE = [("assigned", {T0, T1}), ("revoked", {T0, T1})]


def test_what_is_assigned_after_unsubscribing_is_read(member: Member) -> None:
    member.take(3)
    member.consumer.unsubscribe()
    assert member.heard == EACH_ONCE, "the listeners hear of it before `unsubscribe` returns"
    assert member.consumer.assignment() == set()
    assert member.reads_what_it_assigns()
    assert member.heard == EACH_ONCE


@pytest.mark.parametrize("member", [{"assignor": "cooperative-sticky"}], indirect=True)
def test_a_member_that_takes_part_in_cooperative_rebalances_can_leave_too(member: Member) -> None:
    member.take(3)
    member.consumer.unsubscribe()
    assert (member.heard, member.consumer.assignment()) == (EACH_ONCE, set())
    member.subscribe("u")
    assert member.take(COUNT) == [("u", offset) for offset in range(COUNT)]


def test_before_its_assignment_was_heard_of(member: Member) -> None:
    """Librdkafka leaves only when the rebalance is over, and ends it by an assignment and a revocation of it."""
    joining(member, "Stable")
    member.consumer.unsubscribe()
    assert member.reads_what_it_assigns()
    assert member.heard == EACH_ONCE


def test_in_the_middle_of_joining(broker: Broker, groups: Groups) -> None:
    """It waits for the end of the rebalance, which another member, who does not poll, holds up until this one has begun to leave."""
    idle = Member(broker, groups, "joining")
    idle.take(3)
    member = Member(broker, groups, "joining")
    with member.consumer, ThreadPoolExecutor(1) as other_thread:
        joining(member, "PreparingRebalance")
        unsubscribed = other_thread.submit(member.consumer.unsubscribe)
        wait_until(lambda: member.consumer._session._leaving, "it has begun to leave")
        assert not unsubscribed.done()
        idle.consumer.close()
        unsubscribed.result(LIMIT_S)
        assert member.reads_what_it_assigns()
    assert member.heard in ([], EACH_ONCE)


def test_before_it_has_joined_and_without_any_subscription(broker: Broker, member: Member) -> None:
    member.consumer.unsubscribe()
    assert member.reads_what_it_assigns()
    with Consumer(broker.bootstrap_servers, group_id="never") as consumer:
        consumer.unsubscribe()
        consumer.assign({T0: 3})
        message = consumer.poll(LIMIT_S)
        assert message is not None
        assert message.offset == 3
        consumer.unsubscribe()
        assert (consumer.assignment(), consumer.poll(0.1)) == (set(), None)
    assert member.heard == []


@pytest.mark.parametrize("member", [{"session_timeout_ms": 1_000, "max_poll_interval_ms": 1_000}], indirect=True)
def test_with_an_assignment_that_is_lost(member: Member) -> None:
    member.take(3)
    heard = member.heard[:]  # more than one assignment, if this process was halted for a second meanwhile
    assert heard[-1] == EACH_ONCE[0]
    wait_until(lambda: not member.groups.describe(member.group).members, "it has not polled for too long")
    member.consumer.unsubscribe()
    assert member.heard == [*heard, EACH_ONCE[1]]
    assert member.reads_what_it_assigns()
    assert member.heard == [*heard, EACH_ONCE[1]]


def test_twice(member: Member) -> None:
    member.take(3)
    member.consumer.unsubscribe()
    member.consumer.unsubscribe()
    assert member.reads_what_it_assigns()
    member.consumer.unsubscribe()
    assert member.consumer.assignment() == set()
    assert member.reads_what_it_assigns()
    assert member.heard == EACH_ONCE


@committing
def test_the_group_has_been_left_and_what_was_finished_is_committed(member: Member) -> None:
    found = [member.consumer.poll(LIMIT_S) for _ in range(4)]
    member.consumer.unsubscribe()
    finished = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in found[:3] if each is not None}
    assert {where: each.offset for where, each in member.groups.committed(member.group).items()} == finished
    assert not member.groups.describe(member.group).members


@committing
def test_to_subscribe_at_once_is_to_join_again(member: Member) -> None:
    member.take(3)
    member.consumer.unsubscribe()
    member.subscribe("u")
    assert member.take(COUNT) == [("u", offset) for offset in range(COUNT)]
    member.consumer.unsubscribe()
    member.subscribe("t")
    assert len(member.take(2 * COUNT - 2)) == 2 * COUNT - 2, "two of the three were finished"
    u = {TopicPartition("u", 0)}
    assert member.heard == [*EACH_ONCE, ("assigned", u), ("revoked", u), ("assigned", {T0, T1})]


# From within a listener


def test_within_the_listener_of_an_assignment(member: Member) -> None:
    member.on_assign = member.consumer.unsubscribe
    while not member.heard:
        assert member.consumer.poll(0.1) is None
    assert member.reads_what_it_assigns()
    assert member.heard == EACH_ONCE


def test_within_the_listener_of_a_revocation(member: Member) -> None:
    member.take(3)
    member.on_revoke = member.consumer.unsubscribe
    member.consumer.unsubscribe()
    assert member.reads_what_it_assigns()
    assert member.heard == EACH_ONCE


def test_within_the_listener_of_a_revocation_that_a_new_member_causes(broker: Broker, member: Member) -> None:
    member.take(3)
    member.on_revoke = member.consumer.unsubscribe
    other = Member(broker, member.groups, member.group)
    with other.consumer:
        while len(member.heard) < 2:
            other.consumer.poll(0.05)
            member.consumer.poll(0.05)
        while ("assigned", {T0, T1}) not in other.heard:
            other.consumer.poll(0.05)
            assert member.consumer.poll(0.05) is None
    assert member.reads_what_it_assigns()
    assert member.heard == EACH_ONCE


@pytest.mark.parametrize("listener", ["on_assign", "on_revoke"])
def test_what_is_assigned_within_the_same_listener_is_read(member: Member, listener: str) -> None:
    def move() -> None:
        member.consumer.unsubscribe()
        member.consumer.assign({T0: 4})

    setattr(member, listener, move)
    if listener == "on_revoke":
        member.take(3)
        member.consumer.unsubscribe()
    assert member.take(COUNT - 4) == [("t", offset) for offset in range(4, COUNT)]
    assert (member.heard, member.consumer.assignment()) == (EACH_ONCE, {T0})


# A group that cannot be left


def test_a_rebalance_that_others_hold_up_is_waited_for_no_longer_than_a_close(
    broker: Broker, groups: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    """What would be assigned meanwhile would be taken away in the end; to try it is an error."""
    idle = Member(broker, groups, "held-up")
    idle.take(3)
    member = Member(broker, groups, "held-up", close_timeout_ms=100)
    with member.consumer:
        joining(member, "PreparingRebalance")
        member.consumer.unsubscribe()
        assert "consumer: group held-up: this member has not left within 0.1 s" in caplog.text
        with pytest.raises(ConsumeError, match=r"^consumer: TIMED_OUT: group held-up: this member has not left within 0.1 s"):
            member.consumer.assign({T0: 0})
        assert member.consumer.poll(0.1) is None
        idle.consumer.close()
        wait_until(lambda: assigns(member), "the rebalance is over")
        assert member.take(COUNT) == [("t", offset) for offset in range(COUNT)]


def assigns(member: Member) -> bool:
    try:
        member.consumer.assign({T0: 0})
    except ConsumeError:
        return False
    return True
