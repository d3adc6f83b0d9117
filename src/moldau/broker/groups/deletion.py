"""Offsets and groups are deleted: tombstones are written, and what they delete is forgotten when they are committed.

What cannot be written stays. A group may have a hundred thousand offsets, so they are deleted in steps, between which requests are served.
A request for a group that is being deleted gets COORDINATOR_LOAD_IN_PROGRESS, with which clients retry.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from moldau.broker.groups.records import group_key, offset_key
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import Done
    from moldau.broker.groups.group import Group
    from moldau.broker.groups.offsets import GroupOffsets
    from moldau.broker.groups.partition import GroupPartition

OFFSETS_AT_ONCE = 100
"""Offsets that one step examines or deletes, with tombstones in one batch: each takes about 6 us."""
PENDING_AT_ONCE = 1000
"""Pending offsets that one step removes with them, unless one place has more: each takes about 0.4 us."""

Place = tuple[str, int]
"""Topic and partition of an offset."""


def delete_offsets(partition: "GroupPartition", group: "Group", places: Collection[Place], done: "Done") -> None:
    """Delete these few offsets of a group, and those that wait for a transaction to take their place. `done` as for `write`."""

    def committed(_base_offset: int) -> None:
        for place in places:
            group.offsets.remove(*place)

    if places:
        partition.write(group, [(offset_key(group.group_id, *place), None) for place in places], committed, done)
    else:
        done(None)


def delete_group(partition: "GroupPartition", group: "Group", done: "Done") -> Steps:
    """Delete an empty group with all of its offsets, in steps. `done` as for `write`."""
    coordinator = partition.coordinator
    answer = LastOf(1, done)
    partition.deleting.add(group.group_id)
    yield from coordinator.applied()
    transactions = list(group.offsets.pending)
    places = group.offsets.each_place()
    while not coordinator.is_over:
        some, at_end = next_places(places, group.offsets)
        if at_end:
            yield from coordinator.applied()
        if at_end and _are_all(some, group.offsets):
            _delete_last(partition, group, some, transactions, answer)
            break
        answer.expect_one_more()
        delete_offsets(partition, group, some, answer)
        if answer.has_failed:
            partition.deleting.discard(group.group_id)
            break
        if at_end:  # the offsets of a transaction have come to count meanwhile
            places = group.offsets.each_place()
        yield UNFINISHED
    else:
        answer.expect_one_more()
        answer(PeerError(ErrorCode.NOT_COORDINATOR, f"group '{group.group_id}' is coordinated elsewhere now"))
    answer(None)


def _delete_last(
    partition: "GroupPartition", group: "Group", places: Collection[Place], transactions: Collection[int], answer: "LastOf"
) -> None:
    """Delete the last offsets of a group with the group itself."""

    def committed(_base_offset: int) -> None:
        for place in places:
            group.offsets.remove(*place)
        if group.membership is not None:
            partition.runner.close(group, PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group.group_id}' was deleted"))
        partition.remove(group, transactions)

    def written(error: PeerError | None) -> None:
        if error is not None:
            partition.deleting.discard(group.group_id)
        answer(error)

    answer.expect_one_more()
    keys = [offset_key(group.group_id, *place) for place in places]
    if group.is_stored:
        keys.append(group_key(group.group_id))
    if keys:
        partition.write(group, [(key, None) for key in keys], committed, written)
    else:
        committed(0)
        answer(None)


def delete_topics(partition: "GroupPartition", names: Collection[str]) -> Steps:
    """These topics were deleted: what is committed there is removed, one group after the other, in steps of `OFFSETS_AT_ONCE` offsets,
    those that wait for a transaction in other topics among them. A group that is deleted meanwhile, or coordinated elsewhere, is left
    alone, and so is a later one of its id.

    One pass finds every offset that is there at its beginning, because those that wait come first: between two steps an offset moves
    from those to the committed ones when its transaction ends, never back. Nothing is added after the beginning: a commit is checked
    again when it is written (`Verdict.check_topics`). Passes until one finds nothing would need a bound: they would not end where
    tombstones cannot be written.
    """
    yield from partition.coordinator.applied()
    for group in list(partition.groups.values()):
        places = chain(group.offsets.each_pending_place(), group.offsets.each_committed_place(names))
        while partition.has(group):
            some, at_end = next_places(places, group.offsets)
            delete_offsets(partition, group, [place for place in some if place[0] in names], ignore)
            yield UNFINISHED
            if at_end:
                break


class LastOf:
    """Calls `done` once, after so many outcomes, with the first error among them; at once if there are none to come."""

    def __init__(self, count: int, done: "Done") -> None:
        self._left = count
        self._done: Callable[[PeerError | None], object] = done
        self._error: PeerError | None = None
        if count == 0:
            done(None)

    @property
    def has_failed(self) -> bool:
        """Whether there was an error."""
        return self._error is not None

    def expect_one_more(self) -> None:
        """There will be one outcome more."""
        self._left += 1

    def __call__(self, error: PeerError | None) -> None:
        """An outcome."""
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._done(self._error)


def next_places(places: Iterator[Place], offsets: "GroupOffsets") -> tuple[list[Place], bool]:
    """Places for one step, and whether there are no more."""
    some: list[Place] = []
    pending = 0
    for place in places:
        some.append(place)
        pending += offsets.pending_at(*place)
        if len(some) >= OFFSETS_AT_ONCE or pending >= PENDING_AT_ONCE:
            return some, False
    return some, True


def ignore(error: PeerError | None) -> None:
    """A `done` for what is tried again later."""


def _are_all(places: Collection[Place], offsets: "GroupOffsets") -> bool:
    some = set(places)
    return all(place in some for place in offsets.each_place())
