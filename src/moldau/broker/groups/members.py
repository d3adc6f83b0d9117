"""Who is in a group, who is about to be, who leads it, and which protocol they agree on.

A member that was given an id but has not come back with it is *pending*: it has an id and a deadline, nothing else.

What all of this takes is counted as it changes, in an account of the budget over all groups (`groups.memory.max.bytes`) and for the group
itself (`group.max.bytes`). Sizes are those of the objects, the fixed costs were measured (`tests/unit/broker/groups/test_group_budget.py`).
"""

from collections.abc import Iterable, Mapping
from math import inf
from struct import Struct, error
from sys import getsizeof

from moldau.broker.admission.state import Account, Budget
from moldau.broker.groups.states import NO_REBALANCE_TIMEOUT, GroupSnapshot, JoinedMember, MemberState, Protocols, Token

CONSUMER_PROTOCOL_TYPE = "consumer"
NAMES_MAX = 20_000
"""Names that are read of the subscriptions of one generation, which takes about 10 ms."""

_HEAD = Struct(">hi")
_LENGTH = Struct(">H")

MEMBER_COST = 1000
"""Bytes that a member takes beside what it sent, with the requests of it that wait."""
PROTOCOL_COST = 140
"""Bytes that one of its protocols takes beside name and metadata."""
PENDING_COST = 120
"""Bytes that an id which was given takes beside the id."""
ROSTER_COST = 2200
"""Bytes of what runs the members of a group, before there are any."""


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
        """Whether it never received a generation: it does not know its id yet and sends no heartbeat."""

    @property
    def waits(self) -> bool:
        """Whether it waits for us, so that its silence means nothing."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def take(self, protocols: Protocols) -> None:
        """What it supports from now on."""
        self.protocols = protocols
        self.sent_bytes = protocols_size(protocols)

    @property
    def held_bytes(self) -> int:
        """Memory that it takes without its assignment."""
        return self.sent_bytes + member_size(self.member_id, self.group_instance_id, self.client_id, self.client_host)

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
    return sum(len(name) + len(metadata) + PROTOCOL_COST for name, metadata in protocols.items())


def member_size(member_id: str, group_instance_id: str | None, client_id: str, client_host: str) -> int:
    """Bytes that a member takes beside its protocols and its assignment."""
    return MEMBER_COST + getsizeof(member_id) + getsizeof(group_instance_id or "") + getsizeof(client_id) + getsizeof(client_host)


def pending_size(member_id: str) -> int:
    """Bytes that an id takes that was given."""
    return PENDING_COST + getsizeof(member_id)


def stored_size(state: GroupSnapshot) -> int:
    """Bytes that the members of a stored group take, before it is restored and after."""
    protocol = len(state.protocol or "") + PROTOCOL_COST
    return ROSTER_COST + sum(
        member_size(each.member_id, each.group_instance_id, each.client_id, each.client_host)
        + protocol
        + len(each.subscription)
        + len(each.assignment)
        for each in state.members
    )


class Roster:
    """The members of one group.

    Invariants: `leader` is a member, or None when there are none. `held_bytes` is what members, given ids and assignments take; `account`
    has it with `ROSTER_COST` and what else the group adds.
    """

    def __init__(self, account: Account | None = None) -> None:
        self.account = Account(Budget.unlimited()) if account is None else account
        self.account.add(ROSTER_COST)
        self.held_bytes = 0
        self.assigned_bytes = 0
        """Of the largest of: the assignment that holds, the one that is being stored. Kept through a rebalance, so that a group which
        continues unchanged needs no room for its next assignment."""
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
        self._grow(member.held_bytes)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.take_back_id(member.member_id)

    def give_id(self, member_id: str, deadline_ms: float) -> None:
        """A client was given this id and has until the deadline to join with it."""
        self._grow(pending_size(member_id))
        self.pending[member_id] = deadline_ms

    def take_back_id(self, member_id: str) -> bool:
        """An id that was given is no longer expected; whether it was."""
        if self.pending.pop(member_id, None) is None:
            return False
        self._grow(-pending_size(member_id))
        return True

    def remove(self, member: Member) -> None:
        """Remove a member; if it led, the one that joined first leads."""
        self._grow(-member.held_bytes)
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self.static[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        if not self.members:
            self.expect_assignment(-self.assigned_bytes)

    def update(self, member: Member, protocols: Protocols) -> None:
        """A member supports these from now on."""
        before = member.sent_bytes
        member.take(protocols)
        self._grow(member.sent_bytes - before)

    def expect_assignment(self, growth: int) -> None:
        """An assignment of `assigned_bytes` plus `growth` is being stored."""
        self.assigned_bytes += growth
        self._grow(growth)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Every member has its part, by member id."""
        for member_id, member in self.members.items():
            member.assignment = assignments[member_id]
        self.expect_assignment(sum(map(len, assignments.values())) - self.assigned_bytes)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id; it leads if it did."""
        self._grow(getsizeof(member_id) - getsizeof(member.member_id))
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
        """Whether no member is missing, and none that was given an id."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member allows."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def choose_leader(self) -> bool:
        """Keep the leader if it has joined again, else take the first that has; False if none has."""
        if self.leader is not None and self.members[self.leader].joining is not None:
            return True
        joined = next((member_id for member_id, member in self.members.items() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    # Protocols

    def can_take(self, protocols: Iterable[str]) -> bool:
        """Whether one of these is supported by every member, the one that asks included."""
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

    def joined_members(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """The members as their leader receives them."""
        return tuple(JoinedMember(each.member_id, each.group_instance_id, each.metadata(protocol)) for each in self.members.values())

    def _grow(self, amount: int) -> None:
        self.held_bytes += amount
        self.account.add(amount)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in what members of a ``consumer`` group send with their protocol: a version and the list of topics, in every version.

    None if one of the subscriptions cannot be read, or if there are more than `NAMES_MAX` names.
    """
    found: set[str] = set()
    try:
        left = NAMES_MAX
        for subscription in subscriptions:
            left = _add_topics(subscription, found, left)
    except (error, ValueError):
        return None
    return frozenset(found)


def _add_topics(subscription: bytes, found: set[str], most: int) -> int:
    """Add the topics to those `found`; how many of `most` names are left."""
    version: int
    count: int
    version, count = _HEAD.unpack_from(subscription)
    if version < 0 or not 0 <= count <= len(subscription) // _LENGTH.size:
        raise ValueError("not a consumer's subscription")
    if count > most:
        raise ValueError("more names than are read")
    position = _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size
        if position + length > len(subscription):
            raise ValueError("a topic is cut off")
        found.add(subscription[position : position + length].decode())
        position += length
    return most - count
