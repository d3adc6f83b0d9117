"""Who is in a group, who is about to be, who leads it, and which protocol they agree on.

A member that was given an id but has not come back with it is *pending*: it has an id and a deadline, nothing else.
"""

from collections.abc import Iterable
from math import inf

from moldau.broker.groups.membership_events import JoinedMember, Protocols, Token
from moldau.broker.groups.state import NO_REBALANCE_TIMEOUT, MemberState

MEMBER_COST = 1000
"""Bytes that a member takes beside what it sent, roughly."""


class Member:
    """A member of a group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "sent_bytes",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.take(protocols)
        self.assignment = b""
        self.joining: Token | None = None
        """The JoinGroup that waits for its answer."""
        self.syncing: Token | None = None
        """The SyncGroup that waits for its answer."""
        self.deadline_ms: float = inf
        """When its session is over unless it is heard from."""
        self.is_new = True
        """Whether it was never told a generation: it does not know its id yet and cannot be heard from."""

    @property
    def waits(self) -> bool:
        """Whether it waits for us, so that its silence means nothing."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def take(self, protocols: Protocols) -> None:
        """What it supports from now on."""
        self.protocols = protocols
        self.sent_bytes = protocols_size(protocols)

    def supports(self, protocols: Protocols) -> bool:
        """Whether these are its protocols, in the same order and with the same bytes."""
        return list(protocols.items()) == list(self.protocols.items())

    def metadata(self, protocol: str | None) -> bytes:
        """What it sent for a protocol."""
        return self.protocols.get(protocol, b"") if protocol is not None else b""

    def stored(self, protocol: str | None, assignment: bytes) -> MemberState:
        """The member as it is kept."""
        return MemberState(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    @classmethod
    def restored(cls, state: MemberState, protocol: str | None) -> "Member":
        """The member that was kept as `state`."""
        rebalance_timeout_ms = state.rebalance_timeout_ms
        if rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
            rebalance_timeout_ms = state.session_timeout_ms
        member = cls(
            state.member_id,
            state.group_instance_id,
            state.client_id,
            state.client_host,
            state.session_timeout_ms,
            rebalance_timeout_ms,
            {protocol or "": state.subscription},
        )
        member.assignment = state.assignment
        member.is_new = False
        return member


def protocols_size(protocols: Protocols) -> int:
    """Bytes that a member's protocols take."""
    return sum(len(name) + len(metadata) for name, metadata in protocols.items())


class Roster:
    """The members of one group.

    Invariant: `leader` is a member, or None when there are none.
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        """By member id, the longest there first."""
        self.static: dict[str, str] = {}
        """Member ids by the names of their instances."""
        self.pending: dict[str, float] = {}
        """Deadlines (ms) of those who were given an id."""
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self.members)

    # Who is there

    def add(self, member: Member) -> None:
        """Take a member in; the first leads."""
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        """Let a member go; if it led, the longest there leads."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self.static[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id; it leads if it did."""
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.members[member_id] = member
        assert member.group_instance_id is not None
        self.static[member.group_instance_id] = member_id

    # Rebalances

    @property
    def joining(self) -> int:
        """How many wait for the answer to their JoinGroup."""
        return sum(member.joining is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        """Whether nobody is missing: no member, and none that was given an id."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member allows."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def choose_leader(self) -> bool:
        """Keep the leader if it has joined again, else take the first who has; False if nobody has."""
        if self.leader is not None and self.members[self.leader].joining is not None:
            return True
        joined = next((member_id for member_id, member in self.members.items() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    # Protocols

    def can_take(self, protocols: Iterable[str]) -> bool:
        """Whether one of these is supported by every member, whoever asks included."""
        return any(all(name in member.protocols for member in self.members.values()) for name in protocols)

    def choose_protocol(self) -> str:
        """Of those that all support, the favourite of most; of several, the one voted for first.

        There are members, and they have one in common: who has none with them is not let in.
        """
        members = list(self.members.values())
        common = set(members[0].protocols).intersection(*(member.protocols for member in members))
        votes: dict[str, int] = {}
        for member in members:
            favourite = next(name for name in member.protocols if name in common)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=votes.__getitem__)

    # Views

    def held_bytes(self) -> int:
        """Memory that the members take, roughly."""
        sent = sum(member.sent_bytes + len(member.assignment) for member in self.members.values())
        return sent + MEMBER_COST * (len(self.members) + len(self.pending))

    def told(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """The members as their leader is told of them."""
        return tuple(JoinedMember(each.member_id, each.group_instance_id, each.metadata(protocol)) for each in self.members.values())
