"""A consumer group: its members, if it ever had any, and its offsets."""

from collections.abc import Callable
from sys import getsizeof
from typing import TYPE_CHECKING

from moldau.broker.groups.offsets import GroupOffsets
from moldau.model.budget import Account, Budget
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.membership import Membership
    from moldau.broker.groups.runner import GroupRunner
    from moldau.broker.groups.state import GroupState

MakeRunner = Callable[["Group", "GroupState | None"], "GroupRunner"]
"""Makes what runs the members of a group, from what was stored of them, if anything was."""


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

    A group to which only offsets are committed never has members: it has no runner until somebody joins.
    """

    __slots__ = ("_make_runner", "_runner", "account", "group_id", "is_stored", "offsets", "partition")

    def __init__(self, group_id: str, partition: int, make_runner: MakeRunner, memory: "GroupMemory") -> None:
        self.group_id = group_id
        self.partition = partition
        """Of the offsets topic."""
        self.account = Account(memory.groups)
        """Memory of the group and its members."""
        self.account.add(group_size(group_id))
        self.offsets = GroupOffsets(Account(memory.offsets))
        self.is_stored = False
        """Whether the topic holds a record of the group itself, which needs a tombstone when the group goes."""
        self._make_runner = make_runner
        self._runner: GroupRunner | None = None

    def close(self) -> None:
        """The group was removed from memory: release what it takes there."""
        self.account.close()
        self.offsets.account.close()

    def restore(self, state: "GroupState") -> None:
        """The group was stored with these members."""
        self.is_stored = True
        self._runner = self._make_runner(self, state)

    @property
    def runner(self) -> "GroupRunner":
        """What runs the machine of its members; made when it is first asked for."""
        if self._runner is None:
            self._runner = self._make_runner(self, None)
        return self._runner

    @property
    def runner_if_any(self) -> "GroupRunner | None":
        """The same, None if nobody has ever joined."""
        return self._runner

    @property
    def membership_if_any(self) -> "Membership | None":
        """The machine itself, None if nobody has ever joined."""
        return None if self._runner is None else self._runner.membership

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False) -> ErrorCode:
        """Whether offsets may be committed in this name: as `Membership.check_commit`. Where nobody ever joined, nobody is a member."""
        if self._runner is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID
        return self._runner.membership.check_commit(member_id, group_instance_id, generation, transactional=transactional)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, nor anybody about to become one."""
        return self._runner is None or self._runner.membership.is_empty
