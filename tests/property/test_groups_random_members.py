"""Whatever members do, a group keeps its promises.

Members of all versions join, sync, beat, stall, die, leave and come back under their instance's name; storing is slow or fails; the group
is loaded anew from what was stored. At every step:

* a request is answered once (the driver fails on a second answer) and a deadline never lies before the one that a timer is set for;
* members of one generation are told the same protocol, one that they support, and the group has one leader, who is a member;
* the memory that is counted for members is what a recount gives;
* an assignment is given out only in the generation that is current, and only when it has been stored.

In the end: a group whose members all live and are left alone becomes stable, with every one of them in it and holding what was stored for
it. Once all are dead the group is empty, nobody waits for an answer, and no deadline is left.
"""

from collections.abc import Callable
from math import inf

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.broker.groups.joining import NEW_MEMBER_TIMEOUT_MS
from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.states import Event, GroupState, JoinResult, SyncResult
from moldau.model.errors import ErrorCode
from support.budgets import membership_bytes, roster_bytes
from support.memberships import GroupTable, subscription
from support.sizes import sized

EXAMPLES = sized(50, 3000)
SESSION_MS, REBALANCE_MS, BEAT_MS, STEP_MS = 10_000, 15_000, 3_000, 500
MEMBERS_MAX = 6
INSTANCES = ("one", "two")
R, S = subscription("t"), subscription("u")
PROTOCOLS = ({"range": R}, {"range": R, "sticky": S}, {"sticky": S, "range": R})
FATAL = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
FORGET = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


class WatchedTable(GroupTable):
    """Checks every answer when it is given."""

    def __post_init__(self) -> None:
        self.kept = self.state
        """What was stored last."""
        self.protocols: dict[int, str | None] = {}
        self.asked_for: dict[str, int] = {}
        super().__post_init__()

    def stored(self, error: ErrorCode = ErrorCode.NONE) -> None:
        if error is ErrorCode.NONE:
            self.kept = self.unanswered[0].state
        super().stored(error)

    def holds_what_was_stored(self, member_id: str, assignment: bytes | None) -> bool:
        """Also under an id that is not, or not yet, stored: a static member's former one has the same assignment."""
        assert self.kept is not None
        assert self.kept.generation == self.group.generation
        instance = self.group.roster.members[member_id].group_instance_id
        given = [
            each.assignment
            for each in self.kept.members
            if each.member_id == member_id or (instance is not None and each.group_instance_id == instance)
        ]
        return given == [assignment]

    def step(self, event: Event) -> None:
        before = set(self.answers)
        super().step(event)
        for token in set(self.answers) - before:
            answer = self.answers[token]
            if answer[1] is not ErrorCode.NONE:
                continue
            if isinstance(answer, JoinResult):
                assert self.protocols.setdefault(answer.generation, answer.protocol) == answer.protocol
            elif isinstance(answer, SyncResult):
                assert self.asked_for[token] == self.group.generation
                assert self.group.state is GroupState.STABLE
                assert all(self.holds_what_was_stored(each.member_id, each.assignment) for each in self.group.roster.members.values())


class Client:
    """A member as clients write them."""

    def __init__(
        self, name: str, version: int, instance: str | None, protocols: dict[str, bytes], table: Callable[[], WatchedTable]
    ) -> None:
        self.name, self.version, self.instance, self.protocols, self.table = name, version, instance, protocols, table
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None
        self.token = ""
        self.phase = self.idle
        self.requests = 0
        self.beat_ms = 0
        self.is_dead = self.is_stalled = False

    def act(self) -> None:
        if not self.is_dead and not self.is_stalled:
            self.phase()

    def idle(self) -> None:
        self.assignment = None
        self._next_token()
        self.table().join(
            self.token,
            self.member_id,
            instance=self.instance,
            protocols=self.protocols,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            version=self.version,
        )
        self.phase = self.joining

    def joining(self) -> None:
        if self.token in self.table().waiting:
            return
        answer = self.table().joined(self.token)
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.idle()
        elif self._is_good(answer.error):
            assert answer.protocol in self.protocols
            self.member_id, self.generation = answer.member_id, answer.generation
            leads = answer.leader == self.member_id and not answer.skip_assignment
            given = {each.member_id: f"{self.generation}:{each.member_id}".encode() for each in answer.members} if leads else {}
            self._next_token()
            self.table().asked_for[self.token] = self.generation
            self.table().sync(self.token, self.member_id, self.generation, given, instance=self.instance)
            self.phase = self.syncing

    def syncing(self) -> None:
        if self.token in self.table().waiting:
            return
        answer = self.table().synced(self.token)
        if self._is_good(answer.error):
            self.assignment = answer.assignment
            self.beat_ms = self.table().now_ms
            self.phase = self.member

    def member(self) -> None:
        if self.table().now_ms - self.beat_ms >= BEAT_MS:
            self.beat_ms = self.table().now_ms
            self._is_good(self.table().heartbeat(self.member_id, self.generation, instance=self.instance))

    def leave(self) -> None:
        self.table().leave((self.member_id, self.instance))
        self.is_dead = True

    def _is_good(self, error: ErrorCode) -> bool:
        if error is ErrorCode.NONE:
            return True
        self.phase = self.idle
        if error in FORGET:
            self.member_id = ""
        self.is_dead = error in FATAL
        return False

    def _next_token(self) -> None:
        self.requests += 1
        self.token = f"{self.name}.{self.requests}"


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.names = 0

    @initialize(delay_ms=st.sampled_from([0, 2_000]), size_max=st.sampled_from([100, 2]), members=st.integers(0, 3))
    def begin(self, delay_ms: int, size_max: int, members: int) -> None:
        self.table = WatchedTable(Limits(delay_ms, size_max, 1 << 20), holds_stores=True)
        for version in (3, 5, 9)[:members]:
            self._add(version, None, PROTOCOLS[1])

    @property
    def living(self) -> list[Client]:
        return [client for client in self.clients if not client.is_dead]

    @precondition(lambda self: len(self.living) < MEMBERS_MAX)
    @rule(version=st.sampled_from([0, 3, 4, 5, 9]), protocols=st.sampled_from(PROTOCOLS))
    def come(self, version: int, protocols: dict[str, bytes]) -> None:
        self._add(version, None, protocols)

    @precondition(lambda self: len(self.living) < MEMBERS_MAX)
    @rule(version=st.sampled_from([5, 8, 9]), instance=st.sampled_from(INSTANCES), protocols=st.sampled_from(PROTOCOLS))
    def come_or_come_back(self, version: int, instance: str, protocols: dict[str, bytes]) -> None:
        for client in self.living:
            client.is_dead |= client.instance == instance and self.names % 3 > 0  # else it goes on, and is fenced
        self._add(version, instance, protocols)

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.living)).is_dead = True

    @precondition(lambda self: any(client.phase == client.member for client in self.living))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([client for client in self.living if client.phase == client.member])).leave()

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def stall_or_wake(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.living))
        client.is_stalled = not client.is_stalled

    @precondition(lambda self: self.living)
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def give_up_waiting_and_join_anew(self, data: st.DataObject, protocols: dict[str, bytes]) -> None:
        """A request timed out on the client's side, or its subscription changed."""
        client = data.draw(st.sampled_from(self.living))
        client.protocols = protocols
        client.phase = client.idle

    @rule(times=st.integers(1, 60))
    def live(self, times: int) -> None:
        for _ in range(times):
            for client in self.clients:
                client.act()
            self._store(ErrorCode.NONE)
            self.table.advance(STEP_MS)

    @rule()
    def act_without_storing(self) -> None:
        for client in self.clients:
            client.act()

    @rule(error=st.sampled_from([ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def fail_to_store(self, error: ErrorCode) -> None:
        self._store(error)

    @rule()
    def load_anew(self) -> None:
        """The coordinator is another one: whoever waits is sent to it, and it knows what was stored."""
        self.table.unload()
        assert not self.table.waiting
        old = self.table
        self.table = WatchedTable(old.limits, old.kept, holds_stores=True, now_ms=old.now_ms, given=old.given, answers=old.answers)

    @invariant()
    def the_parts_agree(self) -> None:
        if not hasattr(self, "table"):
            return
        group = self.table.group
        roster = group.roster
        assert (roster.leader in roster.members) if roster.members else roster.leader is None
        assert set(roster.static.values()) == {each.member_id for each in roster.members.values() if each.group_instance_id}
        assert not roster.pending.keys() & roster.members.keys()
        assert group.unsynced <= roster.members.keys()
        assert roster.held_bytes == roster_bytes(roster)
        assert roster.account.held == membership_bytes(group)
        joins, settles = group.state is GroupState.PREPARING_REBALANCE, group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        assert (group.join_deadline_ms < inf) == joins
        assert (group.sync_deadline_ms < inf) == bool(group.unsynced)
        assert settles or not group.unsynced
        assert joins or group.gathering is None
        assert group.storing is None or group.state is GroupState.COMPLETING_REBALANCE
        assert bool(roster.members) == (group.state is not GroupState.EMPTY) or joins
        assert settles or all(each.syncing is None for each in roster.members.values())
        tokens = [token for each in roster.members.values() for token in (each.joining, each.syncing) if token is not None]
        assert sorted(map(str, tokens)) == sorted(self.table.waiting)
        assert all(each.deadline_ms < inf or each.waits for each in roster.members.values())

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for client in self.clients:
            client.is_stalled = False
        self.live(4 * (REBALANCE_MS + SESSION_MS) // STEP_MS)
        self._check_stable()
        for client in self.clients:
            client.is_dead = True
        self.table.advance(NEW_MEMBER_TIMEOUT_MS + 2 * REBALANCE_MS)
        self._store(ErrorCode.NONE)
        self.table.advance(NEW_MEMBER_TIMEOUT_MS + 2 * REBALANCE_MS)
        assert self.table.group.is_empty
        assert not self.table.waiting
        assert self.table.group.deadlines == 0

    def _check_stable(self) -> None:
        group = self.table.group
        if not self.living:
            return
        assert group.state is GroupState.STABLE
        for client in self.living:
            assert client.phase == client.member
            assert client.generation == group.generation
            assert self.table.holds_what_was_stored(client.member_id, client.assignment)
        assert len(group.roster) == len(self.living)

    def _add(self, version: int, instance: str | None, protocols: dict[str, bytes]) -> None:
        self.names += 1
        self.clients.append(Client(f"c{self.names}", version, instance, protocols, lambda: self.table))

    def _store(self, error: ErrorCode) -> None:
        while self.table.unanswered:
            self.table.stored(error)


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
