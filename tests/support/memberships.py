"""A group of members without a broker: a driver of :class:`moldau.broker.groups.membership.Membership`.

table = GroupTable()                       # everything is stored at once
table.join("a")                            # version 3: a member without an id is let in
table.joined("a").generation               # its answer, which may be taken once
table.sync("a", {"a-1": b"all"}); table.synced("a")
table.advance(10_000)                      # whatever comes due on the way happens

A request's token is a name that the test gives; an answer that nobody waits for fails the test, and so does a second one.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from moldau.broker.groups.membership import Membership
from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.states import (
    DeadlineReached,
    Effect,
    Event,
    GroupLoaded,
    GroupSnapshot,
    GroupState,
    GroupStored,
    GroupUnloaded,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    LeavingMember,
    StoreGroup,
    Sync,
    SyncResult,
)
from moldau.model.errors import ErrorCode

NO_LIMITS = Limits(initial_rebalance_delay_ms=0, size_max=1 << 30, bytes_max=1 << 30)
START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, version: int = 0, rest: bytes = b"") -> bytes:
    """What a consumer sends with its protocol."""
    return struct.pack(">hi", version, len(topics)) + b"".join(struct.pack(">H", len(topic)) + topic.encode() for topic in topics) + rest


RANGE = {"range": subscription("t")}


@dataclass
class GroupTable:
    """See the module."""

    limits: Limits = NO_LIMITS
    state: GroupSnapshot | None = None
    holds_stores: bool = False
    """Whether the test answers `StoreGroup` itself, by `stored`."""
    now_ms: int = 0
    given: int = 0
    """Ids given so far: the next member is ``NAME-N``."""
    waiting: set[str] = field(default_factory=set)
    answers: dict[str, Effect] = field(default_factory=dict)
    stores: list[StoreGroup] = field(default_factory=list)
    """What was stored, newest last."""
    unanswered: list[StoreGroup] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.state is None:
            self.group = Membership("g", self.limits)
        else:
            self.group = Membership.restored("g", self.limits, self.state)
            self.step(GroupLoaded())

    # Requests

    def join(
        self,
        token: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 3,
    ) -> None:
        """JoinGroup."""
        self.given += not member_id
        self._ask(
            token,
            Join(
                token,
                member_id,
                instance,
                f"client-{token}",
                "/192.0.2.1",
                session_ms,
                rebalance_ms,
                kind,
                RANGE if protocols is None else protocols,
                "" if member_id else f"{instance or token}-{self.given}",
                version >= 4,
                version >= 9,
                "test",
            ),
        )

    def sync(
        self,
        token: str,
        member_id: str,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        kind: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """SyncGroup, of the generation that there is unless another is given."""
        number = self.group.generation if generation is None else generation
        self._ask(token, Sync(token, member_id, instance, number, kind, protocol, assignments or {}))

    def leave(self, *leavers: tuple[str, str | None] | str) -> list[ErrorCode]:
        """LeaveGroup of member ids, or of pairs of member id and instance; the error of each."""
        self.leave_all("leave", *leavers)
        answer = self.left("leave")
        assert answer.error is ErrorCode.NONE
        return [code for _, code in answer.members]

    def leave_all(self, token: str, *leavers: tuple[str, str | None] | str) -> None:
        """The same; its answer is to be taken."""
        self._ask(token, Leave(token, [LeavingMember(*((each, None) if isinstance(each, str) else each), "test") for each in leavers]))

    def heartbeat(self, member_id: str, generation: int | None = None, *, instance: str | None = None) -> ErrorCode:
        """Heartbeat, of the generation that there is unless another is given."""
        return self.group.heartbeat(member_id, instance, self.group.generation if generation is None else generation, self.now_ms)

    # Answers and views

    def where(self) -> GroupState:
        """The state of the group."""
        return self.group.state

    def joined(self, token: str) -> JoinResult:
        """The answer to a JoinGroup."""
        answer = self._take(token)
        assert isinstance(answer, JoinResult)
        return answer

    def synced(self, token: str) -> SyncResult:
        """The answer to a SyncGroup."""
        answer = self._take(token)
        assert isinstance(answer, SyncResult)
        return answer

    def left(self, token: str) -> LeaveResult:
        """The answer to a LeaveGroup."""
        answer = self._take(token)
        assert isinstance(answer, LeaveResult)
        return answer

    def stored(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest `StoreGroup`."""
        self.step(GroupStored(self.unanswered.pop(0).ticket, error))

    # What happens otherwise

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with everything that comes due."""
        until = self.now_ms + milliseconds
        while self.group.earliest_ms <= until:
            self.now_ms = max(self.now_ms, int(self.group.earliest_ms))
            self.step(DeadlineReached())
        self.now_ms = until

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """The group goes."""
        self.step(GroupUnloaded(error))

    def step(self, event: Event) -> None:
        """One step, and the effects of what it stores."""
        for effect in self.group.step(event, self.now_ms, START_MS + self.now_ms):
            if isinstance(effect, StoreGroup):
                self.stores.append(effect)
                self.unanswered.append(effect)
            else:
                assert isinstance(effect.token, str)
                assert effect.token in self.waiting, f"{effect} is not waited for"
                self.waiting.remove(effect.token)
                self.answers[effect.token] = effect
        assert self.group.earliest_ms <= min(self._deadlines(), default=inf)
        while self.unanswered and not self.holds_stores:
            self.stored()

    # Groups that tests begin with

    def stable(self, *tokens: str, instances: Mapping[str, str] | None = None, version: int = 3) -> dict[str, str]:
        """Members that joined and synced, each assigned its own token; their ids by token. The first leads."""
        for token in tokens:
            self.join(token, instance=(instances or {}).get(token), version=version)
            self.join_again()
        members = {token: self.joined(token).member_id for token in tokens}
        self.hand_out(members)
        return members

    def join_again(self) -> None:
        """Whoever is missed in a rebalance joins again, under the token of its first JoinGroup."""
        for member in list(self.group.roster.members.values()):
            if self.group.state is GroupState.PREPARING_REBALANCE and member.joining is None:
                token = member.client_id.removeprefix("client-")
                self.answers.pop(token, None)
                self.join(token, member.member_id, instance=member.group_instance_id, protocols=member.protocols)

    def hand_out(self, members: Mapping[str, str]) -> None:
        """All of these sync, and get their tokens."""
        given = {member_id: token.encode() for token, member_id in members.items()}
        for token, member_id in members.items():
            self.sync(token, member_id, assignments=given if member_id == self.group.roster.leader else None)
        for token in members:
            assert self.synced(token).assignment == token.encode()

    def _ask(self, token: str, event: Event) -> None:
        assert token not in self.waiting
        assert token not in self.answers
        self.waiting.add(token)
        self.step(event)

    def _take(self, token: str) -> Effect:
        assert token in self.answers, f"{token} is not answered"
        return self.answers.pop(token)

    def _deadlines(self) -> list[float]:
        group = self.group
        members = [member.deadline_ms for member in group.roster.members.values()]
        return [group.join_deadline_ms, group.sync_deadline_ms, *group.roster.pending.values(), *members]
