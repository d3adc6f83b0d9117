"""A consumer group: its members, if it ever had any, and its offsets."""

from math import inf
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from moldau.broker.admission.state import Account, Budget
from moldau.broker.groups.offsets import GroupOffsets
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.groups.membership import Membership

GROUP_COST = 360
"""Bytes that a group takes beside its id, without members and offsets."""


class GroupMemory:
    """The two budgets of a coordinator."""

    __slots__ = ("groups", "offsets")

    def __init__(self, groups: Budget, offsets: Budget) -> None:
        self.groups = groups
        """Of groups and their members."""
        self.offsets = offsets
        """Of committed offsets, and those that wait for their transaction."""

    def all(self) -> tuple[Budget, Budget]:
        """Both."""
        return self.groups, self.offsets


def group_size(group_id: str) -> int:
    """Bytes that a group takes, without members and offsets."""
    return GROUP_COST + getsizeof(group_id)


class Group:
    """One group of a partition that this broker coordinates.

    A group to which only offsets are committed never has members: `membership` is None until a client joins.
    """

    __slots__ = ("account", "coordinator", "due_ms", "group_id", "is_stored", "membership", "offsets", "queued")

    def __init__(self, group_id: str, coordinator: "PartitionCoordinator[Any]", memory: GroupMemory) -> None:
        self.group_id = group_id
        self.coordinator = coordinator
        """Of its partition of the offsets topic."""
        self.account = Account(memory.groups)
        """Memory of the group and its members."""
        self.account.add(group_size(group_id))
        self.offsets = GroupOffsets(Account(memory.offsets))
        self.is_stored = False
        """Whether the topic holds a record of the group itself, which needs a tombstone when the group is deleted."""
        self.queued = 0
        """Its writes that are not committed yet: what is in memory does not show them."""
        self.membership: Membership | None = None
        self.due_ms = inf
        """When the next deadline of its members is set for."""

    def close(self) -> None:
        """The group was removed from memory: release what it takes there."""
        self.account.close()
        self.offsets.account.close()

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False) -> ErrorCode:
        """Whether offsets may be committed in this name: as `Membership.check_commit`. Without a membership there are no members."""
        if self.membership is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID
        return self.membership.check_commit(member_id, group_instance_id, generation, transactional=transactional)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members and no pending ones."""
        return self.membership is None or self.membership.is_empty
