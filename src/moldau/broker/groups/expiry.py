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

Every `offsets.retention.check.interval.ms` a sweep deletes what has expired, and then groups that have neither members nor offsets.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.groups.deletion import delete_group, delete_offsets, ignore, next_places
from moldau.broker.groups.offsets import NOT_SET, CommittedOffset
from moldau.broker.groups.states import NO_TIMESTAMP, State
from moldau.model.steps import UNFINISHED, Steps

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.runtime import CoordinatorRuntime
    from moldau.broker.groups.group import Group
    from moldau.broker.groups.membership import Membership
    from moldau.broker.groups.partition import GroupPartition
    from moldau.model.config import BrokerConfig

BY_COMMIT = -1
MINUTE_MS = 60_000


class GroupExpiry:
    """The sweep. What cannot be deleted stays until the next one, and so does what is being committed to."""

    def __init__(self, runtime: "CoordinatorRuntime[GroupPartition]", config: "BrokerConfig") -> None:
        self._clock = runtime.clock
        self._config = config
        sweep = runtime.add_sweep(
            "expired offsets",
            lambda: config.int("offsets.retention.check.interval.ms"),
            lambda: any(each.state.groups for each in runtime.active()),
            self._expire,
            reloads=True,
        )
        self.known = sweep.wake
        """There is a group."""

    def _expire(self, coordinator: "PartitionCoordinator[GroupPartition]") -> Steps:
        """The groups that are there when the turn comes to their partition."""
        for group in list(coordinator.state.groups.values()):
            yield from self._expire_group(coordinator, group)

    def _expire_group(self, coordinator: "PartitionCoordinator[GroupPartition]", group: "Group") -> Steps:
        partition = coordinator.state
        retention_ms = self._config.int("offsets.retention.minutes") * MINUTE_MS
        places = group.offsets.each_place()
        while partition.has(group) and not group.queued and group.group_id not in partition.deleting:
            some, at_end = next_places(places, group.offsets)
            is_expired = expiry_rule(group, self._clock.time_ms(), retention_ms)
            delete_offsets(partition, group, [place for place in some if group.offsets.is_expired(*place, is_expired)], ignore)
            yield from coordinator.applied()
            if at_end:
                if group.is_empty and group.offsets.is_empty and not group.queued:
                    yield from delete_group(partition, group, ignore)
                break
            yield UNFINISHED
        yield UNFINISHED


def expiry_rule(group: "Group", now_ms: int, retention_ms: int) -> Callable[[str, CommittedOffset], bool]:
    """Whether an offset, with its topic, has expired; as the group is now."""
    membership = group.membership
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
