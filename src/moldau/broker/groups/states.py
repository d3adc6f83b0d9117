"""The states of a group, the moves between them, what happens to it and what it wants done about it, and what is stored of it.

                   a member joins                         every member has joined, or time is over
         Empty ───────────────────────► PreparingRebalance ───────────────────────► CompletingRebalance
           ▲  ▲                           │      ▲      ▲                                 │     │
           │  └───────────────────────────┘      │      │   a member joins, leaves,       │     │ the leader's
           │    no member is left                │      └── dies or does not sync ────────┘     │ assignment
           │                                     │                                              │ is stored
        restored without members                 └─────────── the same, or the ────── Stable ◄──┘
                                                              leader joins again        ▲
                                                                                   restored with members

Any of them moves to Dead: the group was deleted, or its partition of the offsets topic is led elsewhere from now on.

Stored is the content of Kafka's `GroupMetadataValue`, versions 0 to 4, once for each generation, when its leader has sent the assignment;
joins, heartbeats and the states between are not stored. So a coordinator that loads a group knows the last finished generation, and its
members continue with a heartbeat as if nothing had happened.

A request that is answered later is an event with a `token`; the effect that answers it carries the same token. What a token is, is the
business of what runs the machine.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from moldau.model.errors import ErrorCode

NO_TIMESTAMP = -1
NO_REBALANCE_TIMEOUT = -1


class GroupState(Enum):
    """Where a group is; the values are the names that tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members join; who does is answered when all have."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation is formed; its leader works out who gets what."""
    STABLE = "Stable"
    DEAD = "Dead"


MOVES = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.PREPARING_REBALANCE: {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD},
    GroupState.COMPLETING_REBALANCE: {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.STABLE: {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.DEAD: set[GroupState](),
}


class MemberState(NamedTuple):
    """A member of a stored generation."""

    member_id: str
    group_instance_id: str | None
    """Name of a static member (KIP-345); values before version 3 have none."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    """`NO_REBALANCE_TIMEOUT` where a value of version 0 does not say it: the session timeout counts."""
    session_timeout_ms: int
    subscription: bytes
    """What the member sent for the group's protocol when it joined."""
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """A group at the end of a rebalance. Without members it is empty: then protocol and leader are None."""

    protocol_type: str
    """The empty string for a group that only ever had offsets committed to it."""
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group came into its state (empty or stable), `NO_TIMESTAMP` before version 2; offsets of empty groups expire by it."""
    members: tuple[MemberState, ...]


Token: TypeAlias = object
Protocols: TypeAlias = Mapping[str, bytes]
"""Ways to share out partitions that a member supports, its favourite first, each with bytes for the leader."""

NO_GENERATION = -1
NO_MEMBER = ""
"""The member id of a client without one, and the leader in an answer that names none."""


class Join(NamedTuple):
    """A JoinGroup request."""

    token: Token
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_member_id: str
    """The id that the member gets if it needs one: the machine makes nothing up."""
    needs_known_id: bool
    """Versions 4 and later: a client without an id receives one and has to join again with it (KIP-394)."""
    can_skip_assignment: bool
    """Versions 9 and later: a static leader may learn that it leads without computing an assignment (KIP-814)."""
    reason: str


class Sync(NamedTuple):
    """A SyncGroup request. `protocol_type` and `protocol` are None before version 5 (KIP-559)."""

    token: Token
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    """From the leader: what each member gets."""


class LeavingMember(NamedTuple):
    """A member that leaves, or that is removed by the name of its instance alone."""

    member_id: str
    group_instance_id: str | None
    reason: str


class Leave(NamedTuple):
    """A LeaveGroup request."""

    token: Token
    members: Sequence[LeavingMember]


class DeadlineReached(NamedTuple):
    """Some deadline may have passed."""


class GroupStored(NamedTuple):
    """What came of a `StoreGroup`; NONE when all is well."""

    ticket: object
    error: ErrorCode


class GroupLoaded(NamedTuple):
    """The group was read from the offsets topic, and its members may be heard from now on."""


class GroupUnloaded(NamedTuple):
    """The group was deleted, or another broker coordinates it; requests that wait get `error`."""

    error: ErrorCode


Event: TypeAlias = Join | Sync | Leave | DeadlineReached | GroupStored | GroupLoaded | GroupUnloaded


class JoinedMember(NamedTuple):
    """A member as the leader receives it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a `Join`."""

    token: Token
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncResult(NamedTuple):
    """The answer to a `Sync`."""

    token: Token
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeaveResult(NamedTuple):
    """The answer to a `Leave`: one error for all, or one for each of its members."""

    token: Token
    error: ErrorCode
    members: Sequence[tuple[LeavingMember, ErrorCode]] = ()


class StoreGroup(NamedTuple):
    """Append `state` to the offsets topic, then return `GroupStored`. `ticket` None: no request waits for it."""

    state: GroupSnapshot
    ticket: object


Effect: TypeAlias = JoinResult | SyncResult | LeaveResult | StoreGroup
