"""Offsets and groups are deleted, on request and when they are too old to be kept: tombstones are written, and what they delete is
forgotten when they are committed.

What cannot be written stays. A group may have a hundred thousand offsets, so they are deleted in steps, between which requests are served.
A request for a group that is being deleted gets COORDINATOR_LOAD_IN_PROGRESS, with which clients retry.

Too old is by Kafka's rules (KIP-211):

====================================  ===========================================================
group                                 an offset is kept `offsets.retention.minutes` after
====================================  ===========================================================
without members, had some once        the group became empty; where that is not known, the commit
consumers, all of them settled        the commit, for topics without a subscriber
in a rebalance, or no consumers       (all are kept)
never had members                     the commit
====================================  ===========================================================

An offset whose client asked for a time of expiry (OffsetCommit 2 to 4) expires at that time, under the same conditions. One that a
transaction is about to change is kept.

Every `offsets.retention.check.interval.ms` a sweep deletes what has expired, and then groups that have neither members nor offsets.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from moldau.broker.groups.offsets import NOT_SET, CommittedOffset
from moldau.broker.groups.records import group_key, offset_key
from moldau.broker.groups.states import NO_TIMESTAMP, GroupState
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.runtime import CoordinatorRuntime
    from moldau.broker.coordinators.state_log import Done
    from moldau.broker.groups.group import Group
    from moldau.broker.groups.membership import Membership
    from moldau.broker.groups.offsets import GroupOffsets
    from moldau.broker.groups.partition import GroupPartition
    from moldau.model.config import BrokerConfig

OFFSETS_AT_ONCE = 100
"""Offsets that one step examines or deletes, with tombstones in one batch: each takes about 6 us."""
PENDING_AT_ONCE = 1000
"""Pending offsets that one step removes with them, unless one place has more: each takes about 0.4 us."""

Place = tuple[str, int]
"""Topic and partition of an offset."""
TopicId = Callable[[str], bytes | None]
"""The id of the topic that has a name now; None if there is none."""


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
    answer = CompletionCounter(1, done)
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
    partition: "GroupPartition", group: "Group", places: Collection[Place], transactions: Collection[int], answer: "CompletionCounter"
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


def delete_topics(partition: "GroupPartition", names: Collection[str], topic_id: TopicId) -> Steps:
    """These topics were deleted: what is committed there is removed, one group after the other, in steps of `OFFSETS_AT_ONCE` offsets,
    those that wait for a transaction in other topics among them. A group that is deleted meanwhile, or coordinated elsewhere, is left
    alone, and so is a later one of its id. There is one removal at a time, which removes what was committed in the topics of later calls
    too.

    It waits until the writes before it are committed, which may take as long as a follower is away. A topic may be created again
    meanwhile: what is committed in that one stays.
    """
    partition.deleted_topics.update(dict.fromkeys(names))  # not a set: the tombstones' order does not depend on hashes
    if partition.is_forgetting:
        return
    partition.is_forgetting = True
    try:
        while deleted := partition.deleted_topics:
            partition.deleted_topics = {}
            yield from _delete_topics(partition, deleted, topic_id)
    finally:
        partition.is_forgetting = False


def _delete_topics(partition: "GroupPartition", names: Collection[str], topic_id: TopicId) -> Steps:
    """One pass finds every offset that is there at its beginning, because those that wait come first: between two steps an offset moves
    from those to the committed ones when its transaction ends, never back. Nothing is added to a deleted topic after the beginning: a
    commit is checked again when it is written (`Verdict.check_topics`). Passes until one finds nothing would need a bound: they would not
    end where tombstones cannot be written.
    """
    yield from partition.coordinator.applied()
    for group in list(partition.groups.values()):
        places = chain(group.offsets.each_pending_place(), group.offsets.each_committed_place(names))
        while partition.has(group):
            some, at_end = next_places(places, group.offsets)
            delete_offsets(partition, group, [place for place in some if place[0] in names and _is_left(group, place, topic_id)], ignore)
            yield UNFINISHED
            if at_end:
                break


def _is_left(group: "Group", place: Place, topic_id: TopicId) -> bool:
    """Whether what is committed there is left from a deleted topic. Where there is one of its name again it has to be certain that
    nothing is committed in that: the tombstone would come after a commit that is being written. What is not removed therefore is not
    shown either, since it has the id of the deleted topic, and expires.
    """
    present = topic_id(place[0])
    return present is None or not (group.queued or group.offsets.is_of(*place, present))


class CompletionCounter:
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
    if membership.state is GroupState.EMPTY:
        return BY_COMMIT if membership.state_timestamp_ms == NO_TIMESTAMP else membership.state_timestamp_ms
    if membership.is_consumer_group and membership.topics is not None and membership.state is GroupState.STABLE:
        return BY_COMMIT
    return None
