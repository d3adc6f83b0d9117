"""The states of a group, the moves between them, and what is stored of it.

                   a member joins                         every member has joined, or time is over
         Empty ───────────────────────► PreparingRebalance ───────────────────────► CompletingRebalance
           ▲  ▲                           │      ▲      ▲                                 │     │
           │  └───────────────────────────┘      │      │   somebody joins, leaves,       │     │ the leader's
           │    nobody is left                   │      └── dies or does not sync ────────┘     │ assignment
           │                                     │                                              │ is stored
        restored without members                 └─────────── the same, or the ────── Stable ◄──┘
                                                              leader joins again        ▲
                                                                                   restored with members

Any of them moves to Dead: the group was deleted, or its partition of the offsets topic is led elsewhere from now on.

Stored is the content of Kafka's `GroupMetadataValue`, versions 0 to 4, once for each generation, when its leader has sent the assignment;
joins, heartbeats and the states between are not stored. So a coordinator that loads a group knows the last finished generation, and its
members continue with a heartbeat as if nothing had happened.
"""

from enum import Enum
from typing import NamedTuple

NO_TIMESTAMP = -1
NO_REBALANCE_TIMEOUT = -1


class State(Enum):
    """Where a group is; the values are the names that tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members join; who does is answered when all have."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation is formed; its leader works out who gets what."""
    STABLE = "Stable"
    DEAD = "Dead"


MOVES = {
    State.EMPTY: {State.PREPARING_REBALANCE, State.DEAD},
    State.PREPARING_REBALANCE: {State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD},
    State.COMPLETING_REBALANCE: {State.STABLE, State.PREPARING_REBALANCE, State.DEAD},
    State.STABLE: {State.PREPARING_REBALANCE, State.DEAD},
    State.DEAD: set[State](),
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


class GroupState(NamedTuple):
    """A group at the end of a rebalance. Without members it is empty: then protocol and leader are None."""

    protocol_type: str
    """The empty string for a group that only ever had offsets committed to it."""
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group came into its state (empty or stable), `NO_TIMESTAMP` before version 2; offsets of empty groups expire by it."""
    members: tuple[MemberState, ...]
