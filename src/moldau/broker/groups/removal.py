"""Offsets and groups that go: tombstones are appended, then what they delete is forgotten.

Every `offsets.retention.check.interval.ms` expired offsets go, and then groups that have neither members nor offsets. What cannot be
appended stays, and is tried again the next time. A group may have a hundred thousand offsets, so all of this is done in steps, between
which requests are served. A request for a group that is being deleted gets COORDINATOR_LOAD_IN_PROGRESS, with which clients retry.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from moldau.broker.groups.expiry import expiry_rule
from moldau.broker.groups.records import group_key, offset_key
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps, no_steps

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import Done
    from moldau.broker.groups.coordinator import GroupCoordinator
    from moldau.broker.groups.group import Group
    from moldau.broker.groups.offsets import GroupOffsets
    from moldau.broker.groups.shard import Shard
    from moldau.ports.clock import Timer

OFFSETS_AT_ONCE = 100
"""Offsets that one step examines or deletes, with tombstones in one batch: each takes about 6 us."""
PENDING_AT_ONCE = 1000
"""Pending offsets that one step removes with them, unless one place has more: each takes about 0.4 us."""
TURN_S = 0.005
"""Time for what expires before requests are served."""
MINUTE_MS = 60_000

_Place = tuple[str, int]
"""Topic and partition of an offset."""


class Removal:
    """See the module."""

    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._timer: Timer | None = None
        self._left: Steps = no_steps()

    def offsets(self, group: "Group", places: Collection[_Place], done: "Done", *, with_group: bool = False) -> bool:
        """Delete these few offsets of a group, and those that wait for a transaction to take their place, and what is stored of the group
        itself if that is asked for; whether all of it is in the log. `done` as for `StateLog.append`.
        """
        keys = [offset_key(group.group_id, *place) for place in places]
        if with_group and group.is_stored:
            keys.append(group_key(group.group_id))
        if not keys:
            done(None)
            return True
        appended = self._coordinator.append(group, [(key, None) for key in keys], done)
        if appended:
            for place in places:
                group.offsets.remove(*place)
        return appended

    def group(self, shard: "Shard", group: "Group", done: "Done") -> Steps:
        """Delete an empty group with all of its offsets, in steps. `done` as for `StateLog.append`."""
        answer = LastOf(1, done)
        transactions = list(group.offsets.pending)
        shard.going.add(group.group_id)
        places = group.offsets.each_place()
        while self._coordinator.coordinates(shard):
            some, at_end = _next_places(places, group.offsets)
            is_last = at_end and _are_all(some, group.offsets)
            answer.expect_one_more()
            if not self.offsets(group, some, answer, with_group=is_last):
                shard.going.discard(group.group_id)
                break
            if is_last:
                if group.runner_if_any is not None:
                    group.runner_if_any.close(PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group.group_id}' was deleted"))
                shard.remove(group, transactions)
                break
            if at_end:  # the offsets of a transaction have come to count meanwhile
                places = group.offsets.each_place()
            yield UNFINISHED
        else:
            answer.expect_one_more()
            answer(PeerError(ErrorCode.NOT_COORDINATOR, f"group '{group.group_id}' is coordinated elsewhere now"))
        answer(None)

    def topics(self, shard: "Shard", names: Collection[str]) -> Steps:
        """These topics were deleted: what is committed there is removed, one group after the other, in steps of `OFFSETS_AT_ONCE` offsets,
        those that wait for a transaction in other topics among them. A group that is deleted meanwhile, or coordinated elsewhere, is left
        alone, and so is a later one of its id.

        One pass finds every offset that is there at its beginning, because those that wait come first: between two steps an offset moves
        from those to the committed ones when its transaction ends, never back. Nothing is added after the beginning: a commit is checked
        again when it is appended (`Verdict.check_topics`). Passes until one finds nothing would need a bound: they would not end where
        tombstones cannot be appended.
        """
        for group in list(shard.groups.values()):
            places = chain(group.offsets.each_pending_place(), group.offsets.each_committed_place(names))
            while self._is_known(shard, group):
                some, at_end = _next_places(places, group.offsets)
                self.offsets(group, [place for place in some if place[0] in names], _unanswered)
                yield UNFINISHED
                if at_end:
                    break

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
        self._left = self._expire_all()
        self._run_turn()

    def _run_turn(self) -> None:
        clock = self._coordinator.clock
        self._timer = clock.call_later(0.0, self._run_turn)  # comes also if this one ends by a bug
        until = clock.monotonic() + TURN_S
        for _ in self._left:
            if clock.monotonic() >= until:
                return
        self._timer.cancel()
        self._wait()

    def _expire_all(self) -> Steps:
        """The groups that are there when the turn comes to their partition."""
        for shard in self._coordinator.shards():
            if not shard.loading:
                for group in list(shard.groups.values()):
                    yield from self._expire(shard, group)

    def _expire(self, shard: "Shard", group: "Group") -> Steps:
        retention_ms = self._coordinator.config.int("offsets.retention.minutes") * MINUTE_MS
        places = group.offsets.each_place()
        while self._is_there(shard, group):
            some, at_end = _next_places(places, group.offsets)
            is_expired = expiry_rule(group, self._coordinator.clock.time_ms(), retention_ms)
            self.offsets(group, [place for place in some if group.offsets.is_expired(*place, is_expired)], _unanswered)
            if at_end:
                if group.is_empty and group.offsets.is_empty:
                    yield from self.group(shard, group, _unanswered)
                break
            yield UNFINISHED
        yield UNFINISHED

    def _is_there(self, shard: "Shard", group: "Group") -> bool:
        return self._is_known(shard, group) and group.group_id not in shard.going

    def _is_known(self, shard: "Shard", group: "Group") -> bool:
        """Whether it is coordinated here, not another group of its id; it may be one that is being deleted."""
        return self._coordinator.coordinates(shard) and shard.groups.get(group.group_id) is group


class LastOf:
    """Calls `done` once, after so many outcomes, with the first error among them; at once if there are none to come."""

    def __init__(self, count: int, done: "Done") -> None:
        self._left = count
        self._done = done
        self._error: PeerError | None = None
        if count == 0:
            done(None)

    def expect_one_more(self) -> None:
        """There will be one outcome more."""
        self._left += 1

    def __call__(self, error: PeerError | None) -> None:
        """An outcome."""
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._done(self._error)


def _next_places(places: Iterator[_Place], offsets: "GroupOffsets") -> tuple[list[_Place], bool]:
    """Places for one step, and whether there are no more."""
    some: list[_Place] = []
    pending = 0
    for place in places:
        some.append(place)
        pending += offsets.pending_at(*place)
        if len(some) >= OFFSETS_AT_ONCE or pending >= PENDING_AT_ONCE:
            return some, False
    return some, True


def _are_all(places: Collection[_Place], offsets: "GroupOffsets") -> bool:
    some = set(places)
    return all(place in some for place in offsets.each_place())


def _unanswered(error: PeerError | None) -> None:
    """What could not be deleted is still there the next time."""
