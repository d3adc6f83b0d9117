"""The coordinator of consumer groups, for handlers and for the broker.

A group belongs to a partition of ``__consumer_offsets`` by the hash of its id. The broker that leads the partition coordinates the group;
it reads the partition first, and until that is done answers COORDINATOR_LOAD_IN_PROGRESS.

What is in memory is what the committed records say: a change is written, made when its record is committed, and answered then.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.coordinators.partition_coordinator import Phase
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.coordinators.state_log import EncodedRecords
from moldau.broker.groups.deletion import GroupExpiry, TopicId, delete_group, delete_offsets, delete_topics
from moldau.broker.groups.group import Group, GroupMemory, group_size
from moldau.broker.groups.members import ROSTER_COST
from moldau.broker.groups.offsets import NOT_SET, Commit, CommittedOffset
from moldau.broker.groups.partition import GroupPartition, GroupParts
from moldau.broker.groups.records import offset_key_start, offset_value, pack_partition
from moldau.cluster.internal_topics import OFFSETS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import ID_BYTES, format_uuid
from moldau.model.steps import Pause, Steps, drain, no_steps

if TYPE_CHECKING:
    from moldau.broker.admission.state import StateBudgets
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.state_log import Done, StateLog, TransactionalProducer
    from moldau.broker.groups.states import Event
    from moldau.model.config import BrokerConfig
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

NO_ORDER = -1
INT64_MAX = 2**63 - 1
_committed_offset = tuple.__new__


class EncodedCommits(NamedTuple):
    """Offsets to be committed as they are stored, and as they are kept in memory but for their order."""

    records: EncodedRecords
    unordered: list[tuple[str, int, tuple[int | str | bytes, ...]]]
    """Topic, partition and all but the last field."""


class GroupCoordinator:
    """All groups that this broker coordinates. Everything runs on the broker's thread."""

    def __init__(
        self,
        state_log: "StateLog",
        clock: "Clock",
        config: "BrokerConfig",
        budgets: "StateBudgets",
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._clock = clock
        self._config = config
        self._random_bytes = random_bytes
        self.memory = GroupMemory(budgets.of("groups.memory.max.bytes"), budgets.of("offsets.memory.max.bytes"))
        self._parts = GroupParts(clock, config, self.memory, self._loaded)
        self.runtime: CoordinatorRuntime[GroupPartition] = CoordinatorRuntime(OFFSETS.name, state_log, clock, self._make)
        self.load_refused = self.runtime.reload
        self._expiry = GroupExpiry(self.runtime, config)
        self._loaded_groups = self._loaded_offsets = 0

    # For handlers

    def group_for(self, group_id: str, *, create: bool = False, empty_id: bool = False) -> Group | None:
        """The group; one that is not there is made if `create`, and None otherwise.

        PeerError: INVALID_GROUP_ID for the empty id unless the API takes it (`empty_id`), NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS,
        for a group that is being deleted too; COORDINATOR_NOT_AVAILABLE for a partition that does not fit into memory, POLICY_VIOLATION at
        the bounds on groups.
        """
        if not group_id and not empty_id:
            raise PeerError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        partition = self.runtime.coordinator_of(group_id).state
        group = partition.groups.get(group_id)
        if group is None:
            if create:
                self._check_bound(group_id)
                group = partition.make_group(group_id)
                self._expiry.known()
        elif group_id in partition.deleting:
            raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group '{group_id}' is being deleted")
        return group

    def start_membership(self, group: Group, what: str) -> None:
        """The group may have members from now on. PeerError POLICY_VIOLATION at the bound on memory."""
        if group.membership is not None:
            return
        if not self.memory.groups.has_room(ROSTER_COST, what, new=True):
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"no room for members of group '{group.group_id}': groups.memory.max.bytes")
        _partition_of(group).runner.start(group)

    def take(self, group: Group, event: "Event") -> None:
        """Hand an event to the members of a group that has a membership."""
        _partition_of(group).runner.take(group, event)

    def heartbeat(self, group: Group, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """As `Membership.heartbeat`; UNKNOWN_MEMBER_ID in a group that never had members."""
        runner = group.coordinator.state.runner_if_any
        if runner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code: ErrorCode = runner.heartbeat(group, member_id, group_instance_id, generation)
        return code

    def heard_from(self, group: Group, member_id: str) -> None:
        """A member committed: as good as a heartbeat."""
        runner = group.coordinator.state.runner_if_any
        if runner is not None:
            runner.heard_from(group, member_id)

    def new_member_id(self, name: str) -> str:
        """An id for a new member, beginning with its client's or its instance's name, as Kafka's do."""
        return f"{name}-{format_uuid(self._random_bytes(ID_BYTES))}"

    def commit(
        self,
        group: Group,
        commits: "Sequence[Commit]",
        done: "Done",
        *,
        encoded: "EncodedCommits | None" = None,
        producer: "TransactionalProducer | None" = None,
    ) -> None:
        """Commit offsets, with a `producer` when its transaction does. `done` as for `PartitionCoordinator.write`; POLICY_VIOLATION at the
        bound on memory, which an offset that takes the place of another of the group does not reach.

        After `offsets.commit.timeout.ms` ``done`` is COORDINATOR_NOT_AVAILABLE, and the offsets count later all the same, if followers
        come back: a client commits again.

        `encoded`: what `encode` made of them, if it did.
        """
        partition, offsets = _partition_of(group), group.offsets
        growth = offsets.growth(commits, None if producer is None else partition.transaction_of(producer.producer_id))
        if growth > 0 and not self.memory.offsets.has_room(growth, group.group_id, new=offsets.is_empty):
            message = f"group '{group.group_id}': {growth} bytes for {len(commits)} offsets do not fit into offsets.memory.max.bytes"
            done(PeerError(ErrorCode.POLICY_VIOLATION, message))
            return
        if encoded is None:
            encoded = drain(self.encode(group.group_id, commits))
        records, unordered = encoded

        def committed(base_offset: int) -> None:
            last = (base_offset,)
            applied = [(topic, index, _committed_offset(CommittedOffset, each + last)) for topic, index, each in unordered]
            if producer is None:
                offsets.put_all(applied)
            else:
                partition.put_pending(group, producer.producer_id, applied)

        timeout: _CommitTimeout | None = None
        is_settled = False

        def answered(error: PeerError | None) -> None:
            nonlocal is_settled
            is_settled = True
            group.queued -= 1
            if growth > 0:
                offsets.account.add(-growth)
            if timeout is None:
                done(error)
            else:
                timeout.answer(error)

        group.queued += 1
        if growth > 0:
            offsets.account.add(growth)
        group.coordinator.write(records, committed, answered, producer)
        if not is_settled:
            timeout = _CommitTimeout(group.coordinator, done, self._config.int("offsets.commit.timeout.ms"))

    def encode(
        self, group_id: str, commits: "Sequence[Commit]", retention_ms: int | None = None
    ) -> "Generator[Pause, None, EncodedCommits]":
        """Prepare a commit of many offsets, in steps. `retention_ms`: how long the client wants them kept, if the request has it."""
        now_ms = self._clock.time_ms()
        expires_ms = NOT_SET if retention_ms is None else min(now_ms + retention_ms, INT64_MAX)
        records, unordered = encoded = EncodedCommits(EncodedRecords(), [])
        last_topic: str | None = None
        key_start = b""
        for topic, partition, offset, leader_epoch, metadata, topic_id in commits:
            if topic != last_topic:
                last_topic, key_start = topic, offset_key_start(group_id, topic)
            fields = offset, leader_epoch, metadata, now_ms, expires_ms, topic_id
            records.add(key_start + pack_partition(partition), offset_value(_committed_offset(CommittedOffset, (*fields, NO_ORDER))))
            unordered.append((topic, partition, fields))
            yield None
        return encoded

    def delete(self, group: Group, done: "Done") -> Steps:
        """Delete an empty group with all of its offsets, in steps. `done` as for `PartitionCoordinator.write`."""
        return delete_group(_partition_of(group), group, done)

    def delete_offsets(self, group: Group, places: "Sequence[tuple[str, int]]", done: "Done") -> None:
        """Delete these few offsets of a group, by topic and partition. `done` as for `PartitionCoordinator.write`."""
        delete_offsets(_partition_of(group), group, places, done)

    def partitions(self) -> list[GroupPartition]:
        """The partitions whose groups are served."""
        return [each.state for each in self.runtime.active()]

    @property
    def loading(self) -> int:
        """How many partitions are being read."""
        return self.runtime.loading

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        groups = [group for partition in self.partitions() for group in partition.groups.values()]
        return {
            "groups": len(groups),
            "offsets_committed": sum(len(group.offsets) for group in groups),
            "group_partitions_loading": self.loading,
            "group_partitions_too_large": sum(each.phase is Phase.REFUSED for each in self.runtime.unserved.values()),
            "groups_memory_bytes": self.memory.groups.held,
            "groups_memory_refused": self.memory.groups.refusals,
            "offsets_memory_bytes": self.memory.offsets.held,
            "offsets_memory_refused": self.memory.offsets.refusals,
        }

    # For the broker

    def become_coordinator(self, partition: int, epoch: int) -> None:
        """Read the partition, then coordinate its groups; `epoch` is that of the leadership."""
        self.runtime.elected(partition, epoch)

    def resign(self, partition: int) -> None:
        """Stop coordinating these groups: the partition is led elsewhere, or offline. Requests that wait are answered NOT_COORDINATOR."""
        self.runtime.resigned(partition)

    def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> Steps:
        """As :meth:`moldau.broker.groups.partition.GroupPartition.transaction_ended`."""
        coordinator = self.runtime.coordinator(partition)
        return no_steps() if coordinator is None else coordinator.state.transaction_ended(producer_id, committed=committed)

    def forget_topics(self, names: "Sequence[str]", topic_id: TopicId) -> list[Steps]:
        """Topics are deleted, and what is committed there with them, as in Kafka: steps for each partition, of which one may wait long."""
        partitions = [each.state for each in self.runtime.coordinators()]
        return [each.when_loaded(partial(delete_topics, each, names, topic_id)) for each in partitions]

    def close(self) -> None:
        """The broker stops."""
        self.runtime.close()

    # Parts

    def _make(self, coordinator: "PartitionCoordinator[GroupPartition]") -> GroupPartition:
        return GroupPartition(coordinator, self._parts)

    def _loaded(self, partition: GroupPartition) -> None:
        if partition.groups:
            self._expiry.known()
        self._loaded_groups += len(partition.groups)
        self._loaded_offsets += partition.offsets_loaded
        if not self.loading:
            if self._loaded_groups:
                _LOG.info("group state loaded: groups=%d offsets=%d", self._loaded_groups, self._loaded_offsets)
            self._loaded_groups = self._loaded_offsets = 0

    def _check_bound(self, group_id: str) -> None:
        most = self._config.int("groups.max")
        if sum(len(each.state.groups) for each in self.runtime.coordinators()) >= most:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"group '{group_id}' would be one too many; groups.max is {most}")
        if not self.memory.groups.has_room(group_size(group_id), f"new group '{group_id}'", new=True):
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"no room for group '{group_id}': groups.memory.max.bytes")


class _CommitTimeout:
    """Answers a commit that waits for followers, once: a client's later requests on the connection wait for it, heartbeats included."""

    __slots__ = ("_coordinator", "_done", "_timeout_ms")

    def __init__(self, coordinator: "PartitionCoordinator[GroupPartition]", done: "Done", timeout_ms: int) -> None:
        self._coordinator = coordinator
        self._done: Done | None = done
        self._timeout_ms = timeout_ms
        coordinator.deadline(self, coordinator.now_ms() + timeout_ms, self._expired)

    def answer(self, error: PeerError | None) -> None:
        """The commit is stored, or not; nothing if it was answered before."""
        self._coordinator.deadline(self, None, self._expired)
        done, self._done = self._done, None
        if done is not None:
            done(error)

    def _expired(self) -> None:
        message = f"a commit is written, but was not replicated within {self._timeout_ms} ms, offsets.commit.timeout.ms"
        self.answer(PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))


def _partition_of(group: Group) -> GroupPartition:
    partition: GroupPartition = group.coordinator.state
    return partition
