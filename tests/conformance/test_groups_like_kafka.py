"""Each cell of the table in docs/groups.md, over the wire, is what Apache Kafka 4.3 does, and what Moldau does.

A group for each cell, all at once: first every group is brought into the state of its column, then every request is made; whatever is
unanswered `PATIENCE_S` later waits. Left out: the state Dead, which is that of a group nobody can ask for, and the full group, whose limit
is one of the broker's.
"""

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from moldau.broker.groups.states import GroupState
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_admin import DescribeGroupsRequest
from moldau.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.groups_document import NO_SUCH_REQUEST, cell, title_and_rows
from support.kafka import KafkaProcess
from support.memberships import subscription
from support.server import ServerProcess
from support.wire import Wire

pytestmark = pytest.mark.system

LEFT_OUT = {"JoinGroup: new, group.max.size reached"}
LONG_MS = 300_000
"""Of what does not end by itself while the test runs: sessions, rebalances, also the first of a group, and transactions."""
PENDING_MS = 100
"""Of the session of an id that nobody joins with."""
PATIENCE_S = 0.4
LIMIT_S = 60.0
TOPIC = "t"
BUSY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Ids(NamedTuple):
    """Who is who in a group."""

    leader: str = ""
    follower: str = ""
    former: str = ""
    generation: int = -1


class Case:
    """One cell: a group in a state, and the connections of its members."""

    def __init__(self, address: tuple[str, int], request: str, state: GroupState, number: int) -> None:
        self.address, self.request, self.state = address, request, state
        self.group = f"group-{number}"
        self.ids = Ids()
        self.wires: dict[str, Wire] = {}
        self.asked: Wire | None = None
        self.leaves = False

    def wire(self, name: str) -> Wire:
        """A connection of its own for each member."""
        if name not in self.wires:
            self.wires[name] = Wire(self.address)
        return self.wires[name]

    def send(self, name: str, request: Any, version: int) -> Wire:
        """Ask, and look for the answer later."""
        wire = self.wire(name)
        wire.socket.sendall(wire.frame(request, version))
        return wire

    def join(self, name: str, member_id: str = "", version: int = 7, **fields: Any) -> Wire:
        """JoinGroup."""
        topic, protocol = fields.pop("topic", TOPIC), fields.pop("protocol", "range")
        defaults = {"session_timeout_ms": LONG_MS, "rebalance_timeout_ms": LONG_MS, "protocol_type": "consumer"}
        protocols = [JoinGroupRequestProtocol(protocol, subscription(topic))]
        return self.send(name, JoinGroupRequest(self.group, member_id=member_id, protocols=protocols, **{**defaults, **fields}), version)

    def sync(self, name: str, member_id: str, generation: int | None = None, instance: str | None = None, protocol: str = "range") -> Wire:
        """SyncGroup."""
        number = self.ids.generation if generation is None else generation
        given = [SyncGroupRequestAssignment(each, b"given") for each in (self.ids.leader, self.ids.follower)]
        return self.send(name, SyncGroupRequest(self.group, number, member_id, instance, "consumer", protocol, given), 5)

    def beat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> Wire:
        """Heartbeat."""
        number = self.ids.generation if generation is None else generation
        return self.send("x", HeartbeatRequest(self.group, number, member_id, instance), 4)

    def leave(self, *members: tuple[str, str | None]) -> Wire:
        """LeaveGroup."""
        return self.send("x", LeaveGroupRequest(self.group, members=[MemberIdentity(*each) for each in members]), 4)

    def commit(self, member_id: str, generation: int) -> Wire:
        """OffsetCommit."""
        topic = OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 5, -1, "")])
        return self.send("x", OffsetCommitRequest(self.group, generation, member_id, topics=[topic]), 8)

    def commit_in_transaction(self, member_id: str, generation: int) -> Wire:
        """TxnOffsetCommit, in a transaction of its own."""
        begun = self.until_ready(InitProducerIdRequest(self.group, LONG_MS), 4)
        added = AddOffsetsToTxnRequest(self.group, begun.producer_id, begun.producer_epoch, self.group)
        assert self.until_ready(added, 3).error_code == 0
        topic = TxnOffsetCommitRequestTopic(TOPIC, [TxnOffsetCommitRequestPartition(0, 5, -1, "")])
        request = TxnOffsetCommitRequest(
            self.group, self.group, begun.producer_id, begun.producer_epoch, generation, member_id, topics=[topic]
        )
        return self.send("x", request, 3)

    def until_ready(self, request: Any, version: int) -> Any:
        """The answer, once the coordinator is there."""
        while (answer := self.wire("x").ask(request, version)).error_code in BUSY:
            pass
        return answer

    def close(self) -> None:
        """Every connection."""
        for wire in self.wires.values():
            wire.close()


REQUESTS: dict[str, Callable[[Case], Wire]] = {
    "JoinGroup: new, before version 4": lambda case: case.join("x", version=3),
    "JoinGroup: new, from version 4": lambda case: case.join("x"),
    "JoinGroup: with the id it was given": lambda case: case.join("x", case.join("x").answer().member_id),
    "JoinGroup: new, static": lambda case: case.join("x", group_instance_id="three"),
    "JoinGroup: of another protocol type": lambda case: case.join("x", version=3, protocol_type="connect"),
    "JoinGroup: without a common protocol": lambda case: case.join("x", version=3, protocol="sticky"),
    "JoinGroup: unknown id": lambda case: case.join("x", "nobody"),
    "JoinGroup: leader again": lambda case: case.join("x", case.ids.leader, group_instance_id="one"),
    "JoinGroup: follower again, nothing new": lambda case: case.join("x", case.ids.follower, group_instance_id="two"),
    "JoinGroup: follower again, other subscription": lambda case: case.join("x", case.ids.follower, group_instance_id="two", topic="u"),
    "JoinGroup: static follower that lost its id": lambda case: case.join("x", group_instance_id="two"),
    "JoinGroup: static, under a former id": lambda case: case.join("x", case.ids.former, group_instance_id="two"),
    "SyncGroup: leader": lambda case: case.sync("x", case.ids.leader),
    "SyncGroup: follower": lambda case: case.sync("x", case.ids.follower),
    "SyncGroup: of another generation": lambda case: case.sync("x", case.ids.follower, 0),
    "SyncGroup: of another type or protocol": lambda case: case.sync("x", case.ids.follower, protocol="sticky"),
    "SyncGroup: unknown id": lambda case: case.sync("x", "nobody"),
    "SyncGroup: static, under a former id": lambda case: case.sync("x", case.ids.former, instance="two"),
    "Heartbeat: member": lambda case: case.beat(case.ids.follower),
    "Heartbeat: of another generation": lambda case: case.beat(case.ids.follower, 0),
    "Heartbeat: unknown id": lambda case: case.beat("nobody"),
    "Heartbeat: static, under a former id": lambda case: case.beat(case.ids.former, instance="two"),
    "LeaveGroup: member": lambda case: case.leave((case.ids.follower, None)),
    "LeaveGroup: by the name of its instance": lambda case: case.leave(("", "two")),
    "LeaveGroup: all members at once": lambda case: case.leave((case.ids.leader, None), (case.ids.follower, None)),
    "LeaveGroup: unknown id": lambda case: case.leave(("nobody", None)),
    "LeaveGroup: static, under a former id": lambda case: case.leave((case.ids.former, "two")),
    "OffsetCommit: member": lambda case: case.commit(case.ids.follower, case.ids.generation),
    "OffsetCommit: of another generation": lambda case: case.commit(case.ids.follower, 0),
    "OffsetCommit: without a member": lambda case: case.commit("", -1),
    "TxnOffsetCommit: member": lambda case: case.commit_in_transaction(case.ids.follower, case.ids.generation),
    "TxnOffsetCommit: without a member": lambda case: case.commit_in_transaction("", -1),
}


def bring_into_state(cases: list[Case]) -> None:
    """An empty group has offsets. In others a leader and a follower, both static, share a stable group; then what each state needs."""
    members = [case for case in cases if case.state is not GroupState.EMPTY]
    for case in cases:
        if case.state is GroupState.EMPTY:
            assert said(case.commit("", -1).answer()) == "NONE"
    for case in members:
        case.join("a", group_instance_id="one")
    for case in members:
        rebalances(case)
        end_first_rebalance(case)
    for case in members:
        leader = case.wire("a").answer()
        case.ids = Ids(leader.member_id)
        case.join("b", group_instance_id="two")
    for case in members:
        rebalances(case)
        case.join("a", case.ids.leader, group_instance_id="one")
    for case in members:
        leader, follower = case.wire("a").answer(), case.wire("b").answer()
        assert leader.leader == leader.member_id == case.ids.leader
        assert leader.generation_id == follower.generation_id == 2
        case.ids = Ids(leader.member_id, follower.member_id, follower.member_id, 2)
        case.sync("a", case.ids.leader)
        case.sync("b", case.ids.follower)
    for case in members:
        assert case.wire("a").answer().error_code == case.wire("b").answer().error_code == 0
        case.join("b", group_instance_id="two")
    for case in members:
        answer = case.wire("b").answer()
        assert answer.error_code == 0
        case.ids = case.ids._replace(follower=answer.member_id)
        if case.state is GroupState.PREPARING_REBALANCE:
            case.join("third", version=3)
        elif case.state is GroupState.COMPLETING_REBALANCE:
            case.join("a", case.ids.leader, group_instance_id="one")
            rebalances(case)
            case.join("b", case.ids.follower, group_instance_id="two")
    for case in members:
        if case.state is GroupState.COMPLETING_REBALANCE:
            case.ids = case.ids._replace(generation=case.wire("a").answer().generation_id)
            assert case.wire("b").answer().generation_id == case.ids.generation == 3
        if case.state is GroupState.PREPARING_REBALANCE:
            rebalances(case)
        assert state_of(case) is case.state


def end_first_rebalance(case: Case) -> None:
    """Long before its time: somebody is given an id and does not join with it; when the id expires, nobody is missing any more."""
    assert said(case.join("pending", session_timeout_ms=PENDING_MS).answer()) == "MEMBER_ID_REQUIRED"


def rebalances(case: Case) -> None:
    """Wait until the request that starts it has been handled."""
    while state_of(case) is not GroupState.PREPARING_REBALANCE:
        pass


def state_of(case: Case) -> GroupState:
    """What DescribeGroups says."""
    (described,) = case.wire("look").ask(DescribeGroupsRequest([case.group]), 5).groups
    return GroupState(described.group_state)


def said(answer: Any) -> str:
    """The code of an answer, or of the part that the request is about."""
    if getattr(answer, "members", None) and answer.error_code == 0 and hasattr(answer.members[0], "error_code"):
        (code,) = {member.error_code for member in answer.members}
    elif hasattr(answer, "topics"):
        code = answer.topics[0].partitions[0].error_code
    else:
        code = answer.error_code
    return ErrorCode(code).name


def outcomes(bootstrap: str, expected: dict[str, dict[GroupState, str]]) -> dict[tuple[str, GroupState], str]:
    """What comes of each request in each state."""
    host, _, port = bootstrap.rpartition(":")
    address = (host, int(port))
    first = Wire(address)
    first.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1), CreatableTopic("u", 1, 1)]), 5)
    for kind in (0, 1):
        while first.ask(FindCoordinatorRequest("any", kind), 2).error_code:
            pass
    while any(group.error_code for group in first.ask(DescribeGroupsRequest([f"group-{number}" for number in range(200)]), 5).groups):
        pass
    first.close()
    wanted = [(request, state) for request, row in expected.items() for state, says in row.items() if says != NO_SUCH_REQUEST]
    wanted = [(request, state) for request, state in wanted if state is not GroupState.DEAD and request not in LEFT_OUT]
    cases = [Case(address, request, state, number) for number, (request, state) in enumerate(wanted)]
    with contextlib.ExitStack() as stack:
        for case in cases:
            stack.callback(case.close)
        bring_into_state(cases)
        found = {}
        asked = [(case, REQUESTS[case.request](case)) for case in cases]
        waiting = [case for case, _ in asked if expected[case.request][case.state].startswith("waits")]
        for case in waiting:
            if "→" in expected[case.request][case.state]:
                until_it_moves(case)
        until = time.monotonic() + PATIENCE_S
        for case, wire in asked:
            answered, _, _ = select.select([wire.socket], [], [], max(until - time.monotonic(), 0) if case in waiting else LIMIT_S)
            found[case.request, case.state] = cell(said(wire.answer()) if answered else "waits", case.state, state_of(case))
    return found


def until_it_moves(case: Case) -> None:
    """Wait until the request has been handled that leads to another state, or should."""
    until = time.monotonic() + LIMIT_S
    while state_of(case) is case.state and time.monotonic() < until:
        pass


SETTINGS = {"group.initial.rebalance.delay.ms": str(LONG_MS), "group.min.session.timeout.ms": str(PENDING_MS)}


@pytest.fixture(scope="module", params=[pytest.param("kafka-4.3.0", marks=pytest.mark.long), "moldau"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("like-kafka")
    broker = KafkaProcess("4.3.0", data, SETTINGS) if request.param != "moldau" else ServerProcess(data, settings=SETTINGS)
    with broker:
        yield broker.bootstrap


def test_every_cell_is_so(bootstrap: str) -> None:
    _, expected = title_and_rows()
    found = outcomes(bootstrap, expected)
    assert {key: (says, expected[key[0]][key[1]]) for key, says in found.items() if says != expected[key[0]][key[1]]} == {}
