"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire, in every version, with the timers of a broker behind them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.groups import membership
from moldau.broker.handlers.group_members import AT_ONCE_MAX, leave_group
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from moldau.testing.clock import FakeTimer
from support.broker_world import BrokerWorld, Client
from support.memberships import subscription
from support.requests import plain_request

JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5


@pytest.fixture
def world() -> BrokerWorld:
    return make_world()


def make_world(**settings: Any) -> BrokerWorld:
    """A broker that coordinates every group."""
    world = BrokerWorld(**{"offsets_topic_num_partitions": 4, **settings})
    world.connect().ask(FindCoordinatorRequest("any"), 2)
    return world


def join_request(group: str = "g", member_id: str = "", **fields: Any) -> JoinGroupRequest:
    protocols = fields.pop("protocols", ["range"])
    defaults = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
    wanted = [JoinGroupRequestProtocol(each, subscription("t")) for each in protocols]
    return JoinGroupRequest(group, member_id=member_id, protocols=wanted, **{**defaults, **fields})


def join(client: Client, version: int = JOIN, **fields: Any) -> JoinGroupResponse:
    """The answer to a member that comes back if it is told to."""
    answer: JoinGroupResponse = client.ask(join_request(**fields), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = client.ask(join_request(**{**fields, "member_id": answer.member_id}), version)
    return answer


def sync_request(joined: JoinGroupResponse, version: int, given: Mapping[str, bytes] | None = None) -> SyncGroupRequest:
    assignments = [SyncGroupRequestAssignment(member_id, what) for member_id, what in (given or {}).items()]
    kind, protocol = ("consumer", "range") if version >= 5 else (None, None)
    return SyncGroupRequest("g", joined.generation_id, joined.member_id, None, kind, protocol, assignments)


def sync(client: Client, joined: JoinGroupResponse, version: int = SYNC, given: Mapping[str, bytes] | None = None) -> SyncGroupResponse:
    answer: SyncGroupResponse = client.ask(sync_request(joined, version, given), version)
    return answer


def beat(client: Client, joined: JoinGroupResponse, version: int = HEARTBEAT) -> int:
    code: int = client.ask(HeartbeatRequest("g", joined.generation_id, joined.member_id), version).error_code
    return code


def test_a_member_lives_and_leaves_in_every_version(world: BrokerWorld) -> None:
    for version in range(JOIN + 1):
        client = world.connect()
        joined = join(client, version)
        assert (joined.error_code, joined.leader) == (0, joined.member_id)
        assert joined.member_id.startswith("tests-")
        assert joined.protocol_name == "range"
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, subscription("t"))]
        synced = sync(client, joined, min(version, SYNC), given={joined.member_id: b"mine"})
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        assert synced.protocol_name == ("range" if version >= 5 else None)
        assert beat(client, joined, min(version, HEARTBEAT)) == 0
        leaving = min(version, LEAVE)
        request = (
            LeaveGroupRequest("g", "", [MemberIdentity(joined.member_id)]) if leaving >= 3 else LeaveGroupRequest("g", joined.member_id)
        )
        answer: LeaveGroupResponse = client.ask(request, leaving)
        assert answer.error_code == 0
        assert [(each.member_id, each.error_code) for each in answer.members] == ([(joined.member_id, 0)] if leaving >= 3 else [])
        assert beat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(JOIN + 1))
def test_an_answer_without_a_protocol_says_so_as_its_version_can(world: BrokerWorld, version: int) -> None:
    answer = world.connect().ask(join_request(member_id="nobody"), version)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody", -1)
    assert answer.protocol_name == (None if version >= 7 else "")


def test_before_version_1_the_session_timeout_counts_for_rebalances(world: BrokerWorld) -> None:
    join(world.connect(), 0)
    group = world.broker.groups.group_for("g")
    assert group is not None
    assert group.membership is not None
    assert group.membership.roster.rebalance_timeout_ms == 10_000


def test_what_is_kept_of_a_client_is_its_name_and_address(world: BrokerWorld) -> None:
    client = world.connect()
    client.client_id = None
    joined = join(client, 3)
    group = world.broker.groups.group_for("g")
    assert group is not None
    assert group.membership is not None
    member = group.membership.roster.members[joined.member_id]
    assert (member.client_id, member.client_host) == ("", f"/{client.peer.transport.peer[0]}")
    assert joined.member_id.startswith("-")
    assert join(client, 5, group="other", group_instance_id="one").member_id.startswith("one-")


def test_of_a_protocol_that_is_named_twice_the_first_counts(world: BrokerWorld) -> None:
    request = join_request(protocols=["range", "sticky"])
    request.protocols.append(JoinGroupRequestProtocol("range", b"again"))
    answer = world.connect().ask(request, 3)
    assert (answer.protocol_name, answer.members[0].metadata) == ("range", subscription("t"))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "", "session_timeout_ms": 0}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_are_refused(world: BrokerWorld, fields: dict[str, Any], error: ErrorCode) -> None:
    answer = world.connect().ask(join_request(**fields), JOIN)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (error, fields.get("member_id", ""), -1)


def test_a_refused_join_leaves_no_group_behind_that_is_kept(world: BrokerWorld) -> None:
    client = world.connect()
    client.ask(join_request(session_timeout_ms=1), JOIN)
    client.ask(join_request(member_id="nobody"), JOIN)
    assert world.broker.groups.group_for("g") is None


def test_session_timeouts_have_the_bounds_that_are_configured() -> None:
    world = make_world(group_min_session_timeout_ms=100, group_max_session_timeout_ms=200)
    client = world.connect()
    assert [join(client, 3, group=f"g{each}", session_timeout_ms=each).error_code for each in (99, 100, 200, 201)] == [26, 0, 0, 26]


def test_groups_that_are_not_there_have_no_members(world: BrokerWorld) -> None:
    client = world.connect()
    nobody = JoinGroupResponse(member_id="nobody", generation_id=1)
    assert sync(client, nobody).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(client, nobody) == ErrorCode.UNKNOWN_MEMBER_ID
    one = client.ask(LeaveGroupRequest("g", "nobody"), 2)
    assert one.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    several = client.ask(LeaveGroupRequest("g", members=[MemberIdentity("a"), MemberIdentity("", "one")]), LEAVE)
    assert (several.error_code, [each.error_code for each in several.members]) == (0, [ErrorCode.UNKNOWN_MEMBER_ID] * 2)


def test_many_members_leave_a_few_at_a_time(world: BrokerWorld) -> None:
    """Each step of the handler is followed by others' turns; the answer comes with the last, in the order of the request."""
    for _ in range(2 * AT_ONCE_MAX + 1):
        world.connect().send(join_request(), 3)
    group = world.broker.groups.group_for("g")
    assert group is not None
    assert group.membership is not None
    members = group.membership.roster.members
    names = list(members)
    request = LeaveGroupRequest("g", members=[MemberIdentity(member_id) for member_id in names])
    replies: list[LeaveGroupResponse] = []
    context = plain_request(ApiKey.LEAVE_GROUP, LEAVE)
    left = [(len(names) - len(members), len(replies)) for _ in leave_group(world.broker, request, context, replies.append)]
    assert left == [(AT_ONCE_MAX, 0), (2 * AT_ONCE_MAX, 0), (2 * AT_ONCE_MAX + 1, 1)]
    assert [(each.member_id, each.error_code) for each in replies[0].members] == [(member_id, 0) for member_id in names]


def test_the_empty_group_id_is_no_group(world: BrokerWorld) -> None:
    client = world.connect()
    assert client.ask(SyncGroupRequest("", 1, "m", None, "consumer", "range"), SYNC).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.ask(HeartbeatRequest("", 1, "m"), HEARTBEAT).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.ask(LeaveGroupRequest("", "m"), 0).error_code == ErrorCode.INVALID_GROUP_ID


def test_without_the_offsets_topic_there_is_another_coordinator_to_look_for() -> None:
    client = BrokerWorld().connect()
    assert client.ask(join_request(), JOIN).error_code == ErrorCode.NOT_COORDINATOR
    assert client.ask(SyncGroupRequest("g", 1, "m"), 3).error_code == ErrorCode.NOT_COORDINATOR
    assert client.ask(HeartbeatRequest("g", 1, "m"), HEARTBEAT).error_code == ErrorCode.NOT_COORDINATOR
    assert client.ask(LeaveGroupRequest("g", "m"), 0).error_code == ErrorCode.NOT_COORDINATOR


def test_from_version_5_a_sync_names_kind_and_protocol(world: BrokerWorld) -> None:
    client = world.connect()
    joined = join(client)
    for kind, protocol in ((None, "range"), ("consumer", None), ("consumer", "sticky"), ("connect", "range")):
        request = SyncGroupRequest("g", joined.generation_id, joined.member_id, None, kind, protocol)
        assert client.ask(request, SYNC).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.ask(SyncGroupRequest("g", joined.generation_id, joined.member_id), 4).error_code == 0


def test_members_on_their_own_connections_wait_for_each_other(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    leader = join(first, 3)
    second.send(join_request(), 3)
    assert beat(first, leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answers() == []
    leader = join(first, 3, member_id=leader.member_id)
    (answer,) = second.answers()
    follower = answer.body
    assert leader.generation_id == follower.generation_id == 2
    second.send(sync_request(follower, 3), 3)
    assert second.answers() == []
    assert sync(first, leader, 3, given={leader.member_id: b"x", follower.member_id: b"y"}).assignment == b"x"
    (answer,) = second.answers()
    assert answer.body.assignment == b"y"


def test_a_request_behind_one_that_waits_is_handled_and_answered_after_it(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    leader = join(first, 3)
    second.send(join_request(), 3)
    second.send(HeartbeatRequest("g", 1, leader.member_id), 3)
    assert second.answers() == []
    join(first, 3, member_id=leader.member_id)
    joined, heartbeat = second.answers()
    assert joined.body.error_code == 0
    assert heartbeat.body.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_client_that_is_gone_while_it_joins_is_waited_with_until_its_time_is_over(world: BrokerWorld) -> None:
    """As in Kafka: its connection says nothing about it, the next one may bring it back."""
    first, second = world.connect(), world.connect()
    leader = join(first, 3)
    second.send(join_request(), 3)
    second.peer.disconnect()
    leader = join(first, 3, member_id=leader.member_id)
    assert (leader.error_code, len(leader.members)) == (0, 2)
    assert sync(first, leader, 3).error_code == 0
    world.clock.advance(9.9)
    assert beat(first, leader) == 0
    world.clock.advance(0.2)
    assert beat(first, leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_time_ends_the_first_delay_and_sessions_without_anybody_asking() -> None:
    world = make_world(group_initial_rebalance_delay_ms=3000)
    client = world.connect()
    client.send(join_request(), 3)
    world.clock.advance(2.99)
    assert client.answers() == []
    world.clock.advance(0.02)
    (answer,) = client.answers()
    assert answer.body.generation_id == 1
    world.clock.advance(10)
    group = world.broker.groups.group_for("g")
    assert group is not None
    assert group.is_empty
    assert len(world.broker.groups.runtime.deadlines) == 0


def test_heartbeats_leave_the_timer_alone(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes off about once in a session timeout, whatever the number of heartbeats."""
    client = world.connect()
    joined = join(client)
    sync(client, joined)
    deadlines = world.broker.groups.runtime.deadlines
    made = []
    call_later = world.clock.call_later

    def note(delay_s: float, callback: Callable[[], object]) -> FakeTimer:
        if getattr(callback, "__self__", None) is deadlines:
            made.append(delay_s)
        return call_later(delay_s, callback)

    monkeypatch.setattr(world.clock, "call_later", note)
    for _ in range(1000):
        world.clock.advance(0.1)
        assert beat(client, joined) == 0
    assert len(made) <= 11


def test_what_was_agreed_on_is_there_after_a_restart(tmp_path: Path) -> None:
    world = make_world(store=str(tmp_path / "store"))
    client = world.connect()
    joined = join(client)
    sync(client, joined, given={joined.member_id: b"mine"})
    world.restart()
    world.clock.settle()
    client = world.connect()
    assert beat(client, joined) == 0
    assert sync(client, joined).assignment == b"mine"
    world.clock.advance(9.9)
    assert beat(client, joined) == 0
    world.clock.advance(10.1)
    assert beat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert join(client).generation_id == 3


def test_whoever_waits_when_the_broker_stops_is_sent_to_look_for_the_coordinator(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    join(first, 3)
    second.send(join_request(), 3)
    world.broker.finish_connections()
    (answer,) = second.answers()
    assert answer.body.error_code == ErrorCode.NOT_COORDINATOR
    assert second.closed


def test_the_failure_to_store_reaches_the_members(world: BrokerWorld) -> None:
    client = world.connect()
    joined = join(client)
    world.disk.capacity = 0
    assert sync(client, joined).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.disk.capacity = None
    joined = join(client, member_id=joined.member_id)
    assert sync(client, joined, given={joined.member_id: b"now"}).assignment == b"now"


def test_a_bug_in_one_step_costs_its_connection_and_not_the_group(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = world.connect(), world.connect()
    joined = join(first, 3)
    with monkeypatch.context() as patched:
        patched.setattr(membership.Membership, "sync", lambda *_: 1 // 0)
        first.send(sync_request(joined, 3), 3)
        assert first.closed
    assert "ZeroDivisionError" in caplog.text
    assert sync(second, joined, 3, given={joined.member_id: b"mine"}).assignment == b"mine"
