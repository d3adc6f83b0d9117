"""A partition of ``__consumer_offsets`` that this broker coordinates: its groups, and the transactions that have pending offsets in it.

Replay applies the records in the order of the log, and so does serving, when they are committed. A record that cannot be understood is
left out with a line in the log; those of other kinds of groups are left alone.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.admission.state import Account, Budget
from moldau.broker.coordinators.partition_coordinator import Phase
from moldau.broker.groups.group import Group, GroupMemory
from moldau.broker.groups.members import stored_size
from moldau.broker.groups.records import (
    PARTITION_SIZE,
    GroupKey,
    OffsetKey,
    UnknownKey,
    decode_group,
    decode_key,
    decode_offset,
    unpack_partition,
)
from moldau.model.errors import PeerError
from moldau.model.steps import UNFINISHED, Steps, Suspension, drain, no_steps
from moldau.protocol.records.control import ControlType

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.state_log import Done, KeyValue, LoadedBatch, TransactionalProducer
    from moldau.broker.groups.offsets import CommittedOffset
    from moldau.broker.groups.runner import GroupRunner
    from moldau.broker.groups.states import GroupSnapshot
    from moldau.model.config import BrokerConfig
    from moldau.ports.clock import Clock
    from moldau.protocol.records.record import Record

_LOG = logging.getLogger(__name__)


NO_START = None, "", ""
NEW_TRANSACTION = -1
"""Number of a transaction without offsets."""


class GroupParts(NamedTuple):
    """What the partitions of a coordinator have in common."""

    clock: "Clock"
    config: "BrokerConfig"
    memory: GroupMemory
    on_loaded: "Callable[[GroupPartition], object]"


class GroupPartition:
    """A :class:`moldau.broker.coordinators.partition_coordinator.CoordinatorState`.

    Invariants: `_open` has, by producer id, the number of the transaction that pending offsets of the producer are part of: the order of
    the first of them. `_waiting` names, by that number, the groups that have such offsets.
    """

    __slots__ = (
        "_ids",
        "_last_start",
        "_left_alone",
        "_open",
        "_parts",
        "_reading",
        "_states",
        "_texts",
        "_until_loaded",
        "_waiting",
        "coordinator",
        "deleted_topics",
        "deleting",
        "groups",
        "is_forgetting",
        "offsets_loaded",
        "partition",
        "runner_if_any",
    )

    def __init__(self, coordinator: "PartitionCoordinator[GroupPartition]", parts: GroupParts) -> None:
        self.coordinator = coordinator
        self.partition = coordinator.partition
        self.groups: dict[str, Group] = {}
        self.deleting: set[str] = set()
        """Ids of groups that are being deleted with all of their offsets; nothing may be added to them."""
        self.deleted_topics: dict[str, None] = {}
        """Topics that were deleted since the removal began which is under way, if `is_forgetting`."""
        self.is_forgetting = False
        self.offsets_loaded = 0
        """How many there were in the log."""
        self._parts = parts
        self.runner_if_any: GroupRunner | None = None
        """None until a group has members."""
        self._open: dict[int, int] = {}
        self._waiting: dict[int, dict[Group, None]] = {}
        self._reading = Account(parts.memory.groups)
        """Memory of `_states`."""
        self._states: dict[str, GroupSnapshot] = {}
        self._until_loaded: deque[Callable[[], Steps]] = deque()
        """What is to be done when the partition has been read, in this order."""
        self._left_alone: dict[int, int] = {}
        """Records by the version of their key, where that is not known."""
        self._last_start: tuple[bytes | None, str, str] = NO_START
        """The last key of an offset that was read, without its partition, and what it says: those of one commit differ in that only."""
        self._texts: dict[str, str] = {}
        self._ids: dict[bytes, bytes] = {}

    @property
    def runner(self) -> "GroupRunner":
        """What runs the members of the groups; loaded when there are any."""
        if self.runner_if_any is None:
            from moldau.broker.groups.runner import GroupRunner

            self.runner_if_any = GroupRunner(self.coordinator, self._parts.clock, self._parts.config)
        return self.runner_if_any

    # For the runtime

    def replay(self, batch: "LoadedBatch") -> None:
        """The next batch of the partition."""
        if batch.marker is not None:
            drain(self._end(batch.producer_id, committed=batch.marker.type is ControlType.COMMIT))
        for record in batch.records:
            try:
                self._apply(record, batch.producer_id)
            except PeerError as error:
                _LOG.error(
                    "record of an internal topic left out: partition=__consumer_offsets-%d offset=%d reason=%s",
                    self.partition,
                    record.offset,
                    error.message,
                )

    def finish_replay(self) -> Steps:
        """Restore the members of groups, and do what came while the partition was read."""
        states, self._states = self._states, {}
        for group_id, state in states.items():
            self._reading.add(-stored_size(state) - getsizeof(group_id))
            self.runner.restore(self.make_group(group_id), state)
            yield None
        if self._left_alone:
            _LOG.warning(
                "records of other kinds of groups left alone: partition=__consumer_offsets-%d records_by_version=%s",
                self.partition,
                self._left_alone,
            )
        self._texts, self._ids, self._left_alone, self._last_start = {}, {}, {}, NO_START
        while True:
            while self._until_loaded:
                yield from self._until_loaded.popleft()()
            self.offsets_loaded = 0
            for group in list(self.groups.values()):
                if not group.is_stored and group.offsets.is_empty:
                    self.remove(group, ())
                self.offsets_loaded += len(group.offsets)
                yield None
            if not self._until_loaded:
                return

    def loaded(self) -> None:
        """Serve."""
        self._parts.on_loaded(self)

    def resigned(self, error: PeerError) -> Steps:
        """Another coordinator continues from what is stored: members that wait receive the error."""
        groups, self.groups = self.groups, {}
        self._reading.close()
        self._states = {}
        return self._release(groups, error)

    def memory(self) -> Sequence[Budget]:
        """Those of all groups."""
        return self._parts.memory.all()

    def _release(self, groups: dict[str, Group], error: PeerError) -> Steps:
        while groups:
            _, group = groups.popitem()
            if group.membership is not None:
                self.runner.close(group, error)
            group.close()
            yield None

    def _apply(self, record: "Record", producer_id: int) -> None:
        start, group_id, topic = self._last_start
        key = record.key
        if key is not None and key[:-PARTITION_SIZE] == start:
            self._apply_offset(group_id, topic, unpack_partition(key), record, producer_id)
            return
        match decode_key(key):
            case OffsetKey(group_id, topic, partition):
                assert key is not None
                topic = self._texts.setdefault(topic, topic)
                self._last_start = key[:-PARTITION_SIZE], group_id, topic
                self._apply_offset(group_id, topic, partition, record, producer_id)
            case GroupKey(group_id):
                state = None if record.value is None else decode_group(record.value)
                before = self._states.pop(group_id, None)
                if before is not None:
                    self._reading.add(-stored_size(before) - getsizeof(group_id))
                if state is not None:
                    self._reading.add(stored_size(state) + getsizeof(group_id))
                    self._states[group_id] = state
            case UnknownKey(version):
                self._left_alone[version] = self._left_alone.get(version, 0) + 1

    def _apply_offset(self, group_id: str, topic: str, partition: int, record: "Record", producer_id: int) -> None:
        group = self.make_group(group_id)
        if record.value is None:
            group.offsets.remove(topic, partition)
            return
        committed = decode_offset(record.value, record.offset, self._ids)
        if producer_id < 0:
            group.offsets.put(topic, partition, committed)
        else:
            self.put_pending(group, producer_id, [(topic, partition, committed)])

    # Serving

    def make_group(self, group_id: str) -> Group:
        """The group of that id, a new one if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.coordinator, self._parts.memory)
        return group

    def has(self, group: Group) -> bool:
        """Whether it is coordinated here still, and no other group of its id."""
        return self.groups.get(group.group_id) is group and not self.coordinator.is_over

    def remove(self, group: Group, transactions: Iterable[int]) -> None:
        """Forget a group; `transactions` are those of which it had pending offsets."""
        self.deleting.discard(group.group_id)
        if self.groups.pop(group.group_id, None) is not None:
            group.close()
        for transaction in transactions:
            waiting = self._waiting.get(transaction, {})
            waiting.pop(group, None)
            if not waiting:
                self._waiting.pop(transaction, None)

    def write(
        self,
        group: Group,
        records: "Sequence[KeyValue]",
        committed: Callable[[int], object],
        done: "Done",
        producer: "TransactionalProducer | None" = None,
    ) -> None:
        """Write records of a group, as :meth:`moldau.broker.coordinators.partition_coordinator.PartitionCoordinator.write`."""

        def applied(base_offset: int) -> None:
            group.queued -= 1
            committed(base_offset)

        def answered(error: PeerError | None) -> None:
            if error is not None:
                group.queued -= 1
            done(error)

        group.queued += 1
        self.coordinator.write(records, applied, answered, producer)

    def put_pending(self, group: Group, producer_id: int, offsets: "Sequence[tuple[str, int, CommittedOffset]]") -> None:
        """Offsets, at least one, that are part of a transaction; each with topic and partition."""
        transaction = self._open.setdefault(producer_id, offsets[0][2].order)
        group.offsets.put_pending(transaction, offsets)
        self._waiting.setdefault(transaction, {})[group] = None

    def transaction_of(self, producer_id: int) -> int:
        """The transaction of which the next offsets of a producer are part; `NEW_TRANSACTION` if none are pending."""
        return self._open.get(producer_id, NEW_TRANSACTION)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> Steps:
        """A marker was written, and nothing after it yet: what the producer commits later is part of another transaction. In the steps the
        offsets that are pending count, or are dropped, once the marker is committed and after the writes before it. While the partition is
        read there are no steps.
        """
        return self.when_loaded(partial(self._end_when_committed, producer_id, committed=committed))

    def _end_when_committed(self, producer_id: int, *, committed: bool) -> Steps:
        ended: list[Steps] = []
        waiting: list[Callable[[], object]] = []

        def reached(error: PeerError | None) -> None:
            ended.append(no_steps() if error is not None else self._end(producer_id, committed=committed))
            for resume in waiting:
                resume()

        self.coordinator.after_all(reached)
        return ended[0] if ended else _when_reached(ended, waiting)

    def when_loaded(self, work: Callable[[], Steps]) -> Steps:
        """Steps that do it now, or have it done when the partition has been read, before its groups are served."""
        if self.coordinator.phase is Phase.LOADING:
            self._until_loaded.append(work)
            return no_steps()
        return work()

    def _end(self, producer_id: int, *, committed: bool) -> Steps:
        transaction = self._open.pop(producer_id, NEW_TRANSACTION)
        return _settle(transaction, self._waiting.pop(transaction, {}), committed=committed)


def _settle(transaction: int, groups: "Iterable[Group]", *, committed: bool) -> Steps:
    for group in groups:
        yield from group.offsets.end_transaction(transaction, committed=committed)
        yield UNFINISHED


def _when_reached(ended: list[Steps], waiting: list[Callable[[], object]]) -> Steps:
    if not ended:
        yield Suspension(waiting.append)
    yield from ended[0]
