"""Offsets and groups that go: tombstones are appended, then what they delete is forgotten.

Every `offsets.retention.check.interval.ms` expired offsets go, and then groups that have neither members nor offsets; some groups after
others, with requests served between. What cannot be appended stays, and is tried again the next time.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from moldau.broker.groups.expiry import expired_offsets
from moldau.broker.groups.records import group_key, offset_key
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps

if TYPE_CHECKING:
    from moldau.broker.groups.coordinator import GroupCoordinator
    from moldau.broker.groups.group import Group
    from moldau.broker.groups.shard import Shard
    from moldau.broker.state_log import Done
    from moldau.ports.clock import Timer

TOMBSTONES_MAX = 1000
"""Records in one batch."""
GROUPS_AT_A_TIME = 50
"""Groups that are looked at before requests have their turn: each takes about 0.1 ms if it goes."""
MINUTE_MS = 60_000

_Change = tuple[bytes, Callable[[], object]]
"""The key of a tombstone, and what it does to the group."""


class Removal:
    """See the module."""

    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._timer: Timer | None = None
        self._left: Iterator[tuple[Shard, Group]] = iter(())

    def offsets(self, group: "Group", keys: Collection[tuple[str, int]], done: "Done") -> None:
        """Delete these offsets of a group, and those that wait for a transaction to take their place. `done` as for `StateLog.append`."""
        self._delete(group, _offset_changes(group, keys), done)

    def group(self, shard: "Shard", group: "Group", done: "Done") -> None:
        """Delete an empty group with all of its offsets. `done` as for `StateLog.append`."""
        producer_ids = list(group.offsets.pending)
        changes = _offset_changes(group, group.offsets.places())
        if group.is_stored:
            changes.append((group_key(group.group_id), lambda: None))
        if self._delete(group, changes, done):
            if group.runner_if_any is not None:
                group.runner_if_any.close(PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group.group_id}' was deleted"))
            shard.remove(group, producer_ids)

    def topics(self, shard: "Shard", names: Collection[str]) -> Steps:
        """These topics were deleted: what is committed there goes, one group after the other."""
        for group in list(shard.groups.values()):
            if not self._coordinator.coordinates(shard):
                return
            keys = [key for key in group.offsets.places() if key[0] in names]
            if keys:
                self.offsets(group, keys, _nobody_waits)
            yield UNFINISHED

    def start(self) -> None:
        """Begin to look for what has expired; harmless if that has begun."""
        if self._timer is None:
            self._wait()

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        interval_ms = self._coordinator.config.int("offsets.retention.check.interval.ms")
        self._timer = self._coordinator.clock.call_later(interval_ms / 1000, self._look)

    def _look(self) -> None:
        self._coordinator.load_refused()
        self._left = self._groups()
        self._step()

    def _step(self) -> None:
        some = list(islice(self._left, GROUPS_AT_A_TIME))
        if not some:
            self._wait()
            return
        self._timer = self._coordinator.clock.call_later(0.0, self._step)  # comes also if this one ends by a bug
        now_ms = self._coordinator.clock.time_ms()
        retention_ms = self._coordinator.config.int("offsets.retention.minutes") * MINUTE_MS
        for shard, group in some:
            if self._coordinator.coordinates(shard) and shard.groups.get(group.group_id) is group:
                self._expire(shard, group, now_ms, retention_ms)

    def _groups(self) -> "Iterator[tuple[Shard, Group]]":
        """Those that are there when the turn comes to their partition."""
        for shard in self._coordinator.shards():
            if not shard.loading:
                yield from ((shard, group) for group in list(shard.groups.values()))

    def _expire(self, shard: "Shard", group: "Group", now_ms: int, retention_ms: int) -> None:
        expired = expired_offsets(group, now_ms, retention_ms)
        if expired:
            self.offsets(group, expired, _nobody_waits)
        if group.is_empty and group.offsets.is_empty:
            self.group(shard, group, _nobody_waits)

    def _delete(self, group: "Group", changes: list[_Change], done: "Done") -> bool:
        """Append tombstones and make the changes; whether all of them are in the log."""
        answer = LastOf(-(-len(changes) // TOMBSTONES_MAX), done)
        complete = True
        for start in range(0, len(changes), TOMBSTONES_MAX):
            some = changes[start : start + TOMBSTONES_MAX]
            if self._coordinator.append(group, [(key, None) for key, _ in some], answer):
                for _, change in some:
                    change()
            else:
                complete = False
        return complete


class LastOf:
    """Calls `done` once, after so many outcomes, with the first error among them; at once if there are none to come."""

    def __init__(self, count: int, done: "Done") -> None:
        self._left = count
        self._done = done
        self._error: PeerError | None = None
        if count == 0:
            done(None)

    def __call__(self, error: PeerError | None) -> None:
        """One more outcome."""
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._done(self._error)


def _offset_changes(group: "Group", keys: Collection[tuple[str, int]]) -> list[_Change]:
    return [(offset_key(group.group_id, *key), partial(group.offsets.remove, *key)) for key in keys]


def _nobody_waits(error: PeerError | None) -> None:
    """What could not be deleted is still there the next time."""
