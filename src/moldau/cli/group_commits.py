"""Committing to a group without being a member, for ``moldau consume --group``."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

COMMIT_EVERY_S = 1.0


class GroupCommitter:
    """Commits how far a group is, now and then and at the end. click.ClickException for a group that has members."""

    def __init__(self, cluster: "Cluster", group: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        from moldau.cli.group_reset import members_of
        from moldau.client.groups import Groups

        members = members_of(cluster, group)
        if members:
            raise click.ClickException(f"{members}, which commit themselves; nothing was read")
        self._groups = Groups(cluster)
        self._group = group
        self._monotonic = monotonic
        self._committed: dict[TopicPartition, Offset] = {}
        self._done: dict[TopicPartition, Offset] = {}
        self._next_s = monotonic() + COMMIT_EVERY_S

    def offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed of these."""
        self._committed = {where: found.offset for where, found in self._groups.committed(self._group, partitions).items()}
        return dict(self._committed)

    def done(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Everything before these is printed."""
        self._done.update(positions)
        if self._monotonic() >= self._next_s:
            self.finish()

    def finish(self) -> None:
        """Commit what has changed, now."""
        from moldau.client.groups import GroupOffset

        changed = {where: offset for where, offset in self._done.items() if self._committed.get(where) != offset}
        self._groups.commit(self._group, {where: GroupOffset(offset) for where, offset in changed.items()})
        self._committed.update(changed)
        self._next_s = self._monotonic() + COMMIT_EVERY_S
