"""The coordinator of consumer groups: which groups there are, and whether this broker may speak for them.

A group belongs to a partition of ``__consumer_offsets`` by the hash of its id. The broker that leads the partition coordinates the group;
it reads the partition first, and until that is done answers COORDINATOR_LOAD_IN_PROGRESS.

What is in memory is what the log says: a change is appended, then made, and answered once it is as safe as `StateLog.append` promises.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.coordinators.state_log import EncodedRecords
from moldau.broker.groups.group import Group, GroupMemory, group_size
from moldau.broker.groups.group_records import group_value
from moldau.broker.groups.membership_roster import ROSTER_COST
from moldau.broker.groups.offsets import NOT_SET, Commit, CommittedOffset
from moldau.broker.groups.records import group_key, offset_key_start, offset_value, pack_partition
from moldau.broker.groups.removal import Removal
from moldau.broker.groups.shard import DoesNotFitError, Shard
from moldau.broker.slices import SliceScheduler
from moldau.model.budget import Budget
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause, Steps, drain, no_steps

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import Done, KeyValue, StateLog, TransactionalProducer
    from moldau.broker.groups.runner import GroupRunner
    from moldau.broker.groups.state import GroupState
    from moldau.model.config import BrokerConfig
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)


NO_ORDER = -1
INT64_MAX = 2**63 - 1


class EncodedCommits(NamedTuple):
    """Offsets to be committed as they are stored, and as they are kept in memory but for their order."""

    records: EncodedRecords
    unordered: list[tuple[str, int, tuple[int | str | bytes, ...]]]
    """Topic, partition and all but the last field."""


class GroupCoordinator:
    """All groups that this broker coordinates. Everything runs on the broker's thread."""

    def __init__(self, state_log: "StateLog", clock: "Clock", config: "BrokerConfig", random_bytes: Callable[[int], bytes]) -> None:
        self.clock = clock
        self.config = config
        self.random_bytes = random_bytes
        self._state_log = state_log
        self.memory = GroupMemory(*(_budget(setting, clock, config) for setting in ("groups.memory.max.bytes", "offsets.memory.max.bytes")))
        self._shards: dict[int, Shard] = {}
        self._too_large: dict[int, str] = {}
        """Partitions that are led here and not served, since they do not fit into memory; with what was said of it."""
        self.removal = Removal(self)
        self._slices = SliceScheduler(clock)
        """Finishes the loading of partitions."""

    # For handlers

    def group_for(self, group_id: str, *, create: bool = False, empty_id: bool = False) -> Group | None:
        """The group; one that is not there is made if `create`, and None otherwise.

        PeerError: INVALID_GROUP_ID for the empty id unless the API takes it (`empty_id`), NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS,
        for a group that is being deleted too; COORDINATOR_NOT_AVAILABLE for a partition that does not fit into memory, POLICY_VIOLATION at
        the bounds on groups.
        """
        if not group_id and not empty_id:
            raise PeerError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        partition = self._state_log.partition_for(group_id)
        shard = self._shards.get(partition)
        if partition in self._too_large:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._too_large[partition])
        if shard is None:
            raise PeerError(
                ErrorCode.NOT_COORDINATOR, f"group '{group_id}' belongs to partition {partition} of the offsets topic, not led here"
            )
        if shard.loading:
            raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group '{group_id}': its state is being loaded")
        group = shard.groups.get(group_id)
        if group is None:
            if create:
                self._check_bound(group_id)
                group = shard.make_group(group_id)
        elif group_id in shard.going:
            raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group '{group_id}' is being deleted")
        return group

    def runner_of(self, group: Group, what: str) -> "GroupRunner":
        """What runs the group's members, made for the first. PeerError POLICY_VIOLATION at the bound on memory."""
        if group.runner_if_any is None and not self.memory.groups.has_room(ROSTER_COST, what, new=True):
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"no room for members of group '{group.group_id}': groups.memory.max.bytes")
        return group.runner

    def commit(
        self,
        group: Group,
        commits: "Sequence[Commit]",
        done: "Done",
        *,
        encoded: "EncodedCommits | None" = None,
        producer: "TransactionalProducer | None" = None,
    ) -> None:
        """Commit offsets, with a `producer` when its transaction does. `done` as for `StateLog.append`; POLICY_VIOLATION at the bound on
        memory, which an offset that takes the place of another of the group does not reach.

        `encoded`: what `encode` made of them, if it did.
        """
        shard = self._shards[group.partition]
        growth = group.offsets.growth(commits, None if producer is None else shard.transaction_of(producer.producer_id))
        if growth > 0 and not self.memory.offsets.has_room(growth, group.group_id, new=group.offsets.is_empty):
            message = f"group '{group.group_id}': {growth} bytes for {len(commits)} offsets do not fit into offsets.memory.max.bytes"
            done(PeerError(ErrorCode.POLICY_VIOLATION, message))
            return
        if encoded is None:
            encoded = drain(self.encode(group.group_id, commits))
        order = shard.next_order()
        if not self.append(group, encoded.records, done, producer):
            return
        last, make = (order,), CommittedOffset._make
        offsets = [(topic, partition, make(each + last)) for topic, partition, each in encoded.unordered]
        if producer is None:
            group.offsets.put_all(offsets)
        else:
            shard.put_pending(group, producer.producer_id, offsets)

    def encode(
        self, group_id: str, commits: "Sequence[Commit]", retention_ms: int | None = None
    ) -> "Generator[Pause, None, EncodedCommits]":
        """Prepare a commit of many offsets, in steps. `retention_ms`: how long the client wants them kept, if it says so."""
        now_ms = self.clock.time_ms()
        expires_ms = NOT_SET if retention_ms is None else min(now_ms + retention_ms, INT64_MAX)
        encoded = EncodedCommits(EncodedRecords(), [])
        last_topic: str | None = None
        key_start = b""
        for topic, partition, offset, leader_epoch, metadata, topic_id in commits:
            if topic != last_topic:
                last_topic, key_start = topic, offset_key_start(group_id, topic)
            each = CommittedOffset(offset, leader_epoch, metadata, now_ms, expires_ms, topic_id, NO_ORDER)
            encoded.records.add(key_start + pack_partition(partition), offset_value(each))
            encoded.unordered.append((topic, partition, each[:-1]))
            yield None
        return encoded

    def delete(self, group: Group, done: "Done") -> Steps:
        """Delete an empty group with all of its offsets, in steps. `done` as for `StateLog.append`."""
        return self.removal.group(self._shards[group.partition], group, done)

    def shards(self) -> list[Shard]:
        """The partitions that are led here, those that are still read too."""
        return list(self._shards.values())

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        groups = [group for shard in self._shards.values() for group in shard.groups.values()]
        return {
            "groups": len(groups),
            "offsets_committed": sum(len(group.offsets) for group in groups),
            "group_partitions_loading": sum(shard.loading for shard in self._shards.values()),
            "group_partitions_too_large": len(self._too_large),
            "groups_memory_bytes": self.memory.groups.held,
            "groups_memory_refused": self.memory.groups.refusals,
            "offsets_memory_bytes": self.memory.offsets.held,
            "offsets_memory_refused": self.memory.offsets.refusals,
        }

    # For the broker

    def coordinates(self, shard: Shard) -> bool:
        """Whether it is one of those still."""
        return self._shards.get(shard.partition) is shard

    def become_coordinator(self, partition: int) -> None:
        """This broker leads a partition of the offsets topic now: read it, then coordinate its groups."""
        if partition in self._shards:
            return
        self._too_large.pop(partition, None)
        shard = self._shards[partition] = Shard(partition, self._make_runner, self.memory)
        self._note_reading()
        self.removal.start()
        self._state_log.load(partition, shard.replay, lambda error: self._loaded(shard, error))

    def resign(self, partition: int) -> None:
        """It leads it no longer: whoever waits for an answer of its groups is told NOT_COORDINATOR."""
        self._too_large.pop(partition, None)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close(PeerError(ErrorCode.NOT_COORDINATOR, f"partition {partition} of the offsets topic is not led here any more"))
            self._note_reading()

    def load_refused(self) -> None:
        """Try again to serve what did not fit into memory: the settings have changed, or other groups were deleted."""
        for partition in list(self._too_large):
            self.become_coordinator(partition)

    def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> Steps:
        """A marker was written to a partition of the offsets topic: in the steps the offsets that waited for it count, or go."""
        shard = self._shards.get(partition)
        return no_steps() if shard is None else shard.transaction_ended(producer_id, committed=committed)

    def forget_topics(self, names: Iterable[str]) -> Steps:
        """Topics are deleted: what is committed there goes, as in Kafka."""
        gone = dict.fromkeys(names)  # not a set: the tombstones' order does not depend on hashes
        for shard in self.shards():
            yield from shard.when_loaded(partial(self.removal.topics, shard, gone))

    def close(self) -> None:
        """The broker stops."""
        self.removal.stop()
        self._slices.close()
        for partition in list(self._shards):
            self.resign(partition)

    # For the parts of a group

    def append(self, group: Group, records: "list[KeyValue]", done: "Done", producer: "TransactionalProducer | None" = None) -> bool:
        """Append records of a group; whether they are in the log, so that the change can be made. `done` as for `StateLog.append`."""
        refused: list[PeerError] = []

        def answered(error: PeerError | None) -> None:
            if error is not None:
                refused.append(error)
            done(error)

        self._state_log.append(group.partition, records, answered, producer)
        return not refused

    def store_group(self, group: Group, state: "GroupState", done: "Done") -> None:
        """Keep what the group's members have agreed on. `done` as for `StateLog.append`."""
        if self.append(group, [(group_key(group.group_id), group_value(state))], done):
            group.is_stored = True

    def _note_reading(self) -> bool:
        """Whether a partition is being read; the budgets know of it."""
        under_way = any(each.loading for each in self._shards.values())
        for budget in self.memory.all():
            budget.reading(under_way)
        return under_way

    def _check_bound(self, group_id: str) -> None:
        most = self.config.int("groups.max")
        if sum(len(shard.groups) for shard in self._shards.values()) >= most:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"group '{group_id}' would be one too many; groups.max is {most}")
        if not self.memory.groups.has_room(group_size(group_id), f"new group '{group_id}'", new=True):
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"no room for group '{group_id}': groups.memory.max.bytes")

    def _make_runner(self, group: Group, state: "GroupState | None") -> "GroupRunner":
        from moldau.broker.groups.runner import GroupRunner

        return GroupRunner(self, group, state)

    def _loaded(self, shard: Shard, error: PeerError | None) -> None:
        if not self.coordinates(shard):
            return
        if error is not None:
            self._not_loaded(shard, error)
            return
        self._slices.run(self._finish_loading(shard), partial(self._loading_ended, shard), droppable=False)

    def _loading_ended(self, shard: Shard, bug: Exception | None) -> None:
        if bug is not None and self.coordinates(shard):
            _LOG.error("partition not loaded by a bug: partition=__consumer_offsets-%d", shard.partition, exc_info=bug)
            self._not_loaded(shard, PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug, see the log"))

    def _not_loaded(self, shard: Shard, error: PeerError) -> None:
        _LOG.error("group state not loaded: partition=__consumer_offsets-%d reason=%s", shard.partition, error.message)
        self.resign(shard.partition)
        if isinstance(error, DoesNotFitError):
            self._too_large[shard.partition] = error.message

    def _finish_loading(self, shard: Shard) -> Steps:
        """Serve what was read, after what came meanwhile; unless the partition is led elsewhere before that."""
        for pause in shard.loaded():
            yield pause
            if not self.coordinates(shard):
                return
        try:
            shard.check_memory()
        except DoesNotFitError as too_large:
            self._not_loaded(shard, too_large)
            return
        if self._note_reading():
            return
        numbers = self.statistics()
        if numbers["groups"]:
            _LOG.info("group state loaded: groups=%d offsets=%d", numbers["groups"], numbers["offsets_committed"])


def _budget(setting: str, clock: "Clock", config: "BrokerConfig") -> Budget:
    return Budget(setting, lambda: config.int(setting), clock.monotonic)
