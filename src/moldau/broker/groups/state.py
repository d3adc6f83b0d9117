"""What is kept of a group's members: the content of Kafka's `GroupMetadataValue`, versions 0 to 4.

A generation is stored once, when its leader has handed out the assignment; joins, heartbeats and the states between are not. So a
coordinator that takes a group over knows the last finished generation, and its members go on with a heartbeat as if nothing had been.
"""

from typing import NamedTuple

NO_TIMESTAMP = -1
NO_REBALANCE_TIMEOUT = -1


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
