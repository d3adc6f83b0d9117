"""Which offsets of a group are too old to be kept: Kafka's rules (KIP-211).

====================================  ===========================================================
group                                 an offset is kept `offsets.retention.minutes` after
====================================  ===========================================================
without members, had some once        the group became empty; where that is not known, the commit
consumers, all of them settled        the commit, for topics that nobody is subscribed to
in a rebalance, or no consumers       (all are kept)
never had members                     the commit
====================================  ===========================================================

An offset whose client asked for a time of expiry (OffsetCommit 2 to 4) goes at that time, under the same conditions. One that a
transaction is about to change is kept.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_states import State
from moldau.broker.groups.offsets import NOT_SET, CommittedOffset
from moldau.broker.groups.state import NO_TIMESTAMP

if TYPE_CHECKING:
    from moldau.broker.groups.group import Group
    from moldau.broker.groups.membership import Membership

BY_COMMIT = -1


def expiry_rule(group: "Group", now_ms: int, retention_ms: int) -> Callable[[str, CommittedOffset], bool]:
    """Says of an offset, with its topic, whether it goes; as the group is now."""
    membership = group.membership_if_any
    since_ms = BY_COMMIT if membership is None else _kept_since(membership)

    def is_expired(topic: str, offset: CommittedOffset) -> bool:
        if since_ms is None or (membership is not None and membership.subscribed_to(topic)):
            return False
        if offset.expire_timestamp_ms != NOT_SET:
            return now_ms >= offset.expire_timestamp_ms
        return now_ms - (offset.commit_timestamp_ms if since_ms == BY_COMMIT else since_ms) >= retention_ms

    return is_expired


def _kept_since(membership: "Membership") -> int | None:
    """When the time of a group's offsets begins; `BY_COMMIT` for that of each, None where nothing expires."""
    if membership.protocol_type is None:
        return BY_COMMIT
    if membership.state is State.EMPTY:
        return BY_COMMIT if membership.state_timestamp_ms == NO_TIMESTAMP else membership.state_timestamp_ms
    if membership.is_consumer_group and membership.topics is not None and membership.state is State.STABLE:
        return BY_COMMIT
    return None
