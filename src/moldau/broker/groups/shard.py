"""The groups of one partition of ``__consumer_offsets``, and how they are read back from it.

Reading applies the records in the order of the log, as they were applied when they were written. A record that cannot be understood is
left out with a line in the log; those of other kinds of groups are left alone.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING

from moldau.broker.groups.group import Group, MakeRunner
from moldau.broker.groups.group_records import decode_group
from moldau.broker.groups.membership_roster import stored_size
from moldau.broker.groups.records import GroupKey, OffsetKey, UnknownKey, decode_key, decode_offset
from moldau.model.budget import Account
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps, drain, no_steps
from moldau.protocol.records.control import ControlType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from moldau.broker.coordinators.state_log import LoadedBatch
    from moldau.broker.groups.group import GroupMemory
    from moldau.broker.groups.offsets import CommittedOffset
    from moldau.broker.groups.state import GroupState
    from moldau.protocol.records.record import Record

_LOG = logging.getLogger(__name__)


NEW_TRANSACTION = -1
"""Number of a transaction without offsets."""
PEAK_FACTOR = 2
"""While partitions are read, all groups may take up to this many times their limit on memory."""


class DoesNotFitError(PeerError):
    """The groups of a partition take more memory than a setting allows."""


class Shard:
    """See the module.

    Invariants: `_open` has, by producer id, the number of the transaction that pending offsets of the producer are part of: the order of
    the first of them. `_waiting` names, by that number, the groups that have such offsets.
    """

    def __init__(self, partition: int, make_runner: MakeRunner, memory: "GroupMemory") -> None:
        self.partition = partition
        self.loading = True
        self.groups: dict[str, Group] = {}
        self.going: set[str] = set()
        """Ids of groups that are being deleted with all of their offsets; nothing may be added to them."""
        self._make_runner = make_runner
        self._memory = memory
        self._reading = Account(memory.groups)
        """Memory of `_states`."""
        self._next_order = 0
        self._open: dict[int, int] = {}
        self._waiting: dict[int, dict[Group, None]] = {}
        self._states: dict[str, GroupState] = {}
        self._deferred: deque[Callable[[], Steps]] = deque()
        """What is to be done when the partition is read, in this order."""
        self._left_alone: dict[int, int] = {}
        """Records by the version of their key, where that is not known."""
        self._texts: dict[str, str] = {}
        self._ids: dict[bytes, bytes] = {}

    # Reading

    def replay(self, batch: "LoadedBatch") -> None:
        """The next batch of the partition. DoesNotFitError when it takes far too much memory: see `check_memory`."""
        self.check_memory(PEAK_FACTOR)
        if batch.marker is not None:
            drain(self._end(batch.producer_id, committed=batch.marker.type is ControlType.COMMIT))
        for record in batch.records:
            self._next_order = record.offset + 1
            try:
                self._apply(record, batch.producer_id)
            except PeerError as error:
                _LOG.error(
                    "record of an internal topic left out: partition=__consumer_offsets-%d offset=%d reason=%s",
                    self.partition,
                    record.offset,
                    error.message,
                )

    def loaded(self) -> Steps:
        """The partition is read to its end: in steps do what came meanwhile, and at their end serve."""
        self._reading.close()
        for group_id, state in self._states.items():
            self.make_group(group_id).restore(state)
        while self._deferred:
            yield from self._deferred.popleft()()
        for group in [group for group in self.groups.values() if not group.is_stored and group.offsets.is_empty]:
            self.remove(group, ())
        self.loading = False
        if self._left_alone:
            _LOG.warning(
                "records of other kinds of groups left alone: partition=__consumer_offsets-%d records_by_version=%s",
                self.partition,
                self._left_alone,
            )
        self._states, self._texts, self._ids, self._left_alone = {}, {}, {}, {}

    def _apply(self, record: "Record", producer_id: int) -> None:
        match decode_key(record.key):
            case OffsetKey(group_id, topic, partition):
                group = self.make_group(group_id)
                if record.value is None:
                    group.offsets.remove(topic, partition)
                    return
                topic = self._texts.setdefault(topic, topic)
                committed = decode_offset(record.value, record.offset)
                committed = committed._replace(topic_id=self._ids.setdefault(committed.topic_id, committed.topic_id))
                if producer_id < 0:
                    group.offsets.put(topic, partition, committed)
                else:
                    self.put_pending(group, producer_id, [(topic, partition, committed)])
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

    # Serving

    def make_group(self, group_id: str) -> Group:
        """The group of that id, a new one if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.partition, self._make_runner, self._memory)
        return group

    def remove(self, group: Group, transactions: "Iterable[int]") -> None:
        """Forget a group; `transactions` are those of which it had pending offsets."""
        self.going.discard(group.group_id)
        if self.groups.pop(group.group_id, None) is not None:
            group.close()
        for transaction in transactions:
            waiting = self._waiting.get(transaction, {})
            waiting.pop(group, None)
            if not waiting:
                self._waiting.pop(transaction, None)

    def check_memory(self, factor: int = 1) -> None:
        """DoesNotFitError (COORDINATOR_NOT_AVAILABLE) if all groups together take more than `factor` times what a setting allows.

        While the log is read there may be more in memory than at its end: groups and offsets that are deleted further on.
        """
        for budget in self._memory.all():
            if budget.is_exceeded(factor):
                raise DoesNotFitError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"__consumer_offsets-{self.partition} does not fit into memory: {budget.setting} is {budget.limit} bytes,"
                    f" {budget.held} are needed so far; nothing is lost, raise the setting to have the groups served",
                )

    def next_order(self) -> int:
        """The place of the next commit among all of the partition."""
        self._next_order += 1
        return self._next_order - 1

    def put_pending(self, group: Group, producer_id: int, offsets: "Sequence[tuple[str, int, CommittedOffset]]") -> None:
        """Offsets, at least one, that were appended as part of a transaction; each with topic and partition."""
        transaction = self._open.setdefault(producer_id, offsets[0][2].order)
        group.offsets.put_pending(transaction, offsets)
        self._waiting.setdefault(transaction, {})[group] = None

    def transaction_of(self, producer_id: int) -> int:
        """The transaction of which the next offsets of a producer are part; `NEW_TRANSACTION` if none are pending."""
        return self._open.get(producer_id, NEW_TRANSACTION)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> Steps:
        """A marker was appended: whatever the producer commits from now on is part of another transaction. The steps have the offsets
        that are pending count, or go. A marker that comes while the partition is read lies behind what is read.
        """
        return self.when_loaded(partial(self._end, producer_id, committed=committed))

    def when_loaded(self, work: Callable[[], Steps]) -> Steps:
        """Steps that do it now, or have it done when the partition is read, before its groups are served."""
        if self.loading:
            self._deferred.append(work)
            return no_steps()
        return work()

    def close(self, error: PeerError) -> None:
        """Speak for these groups no longer."""
        for group in self.groups.values():
            if group.runner_if_any is not None:
                group.runner_if_any.close(error)
            group.close()
        self._reading.close()

    def _end(self, producer_id: int, *, committed: bool) -> Steps:
        transaction = self._open.pop(producer_id, NEW_TRANSACTION)
        return _settle(transaction, self._waiting.pop(transaction, {}), committed=committed)


def _settle(transaction: int, groups: "Iterable[Group]", *, committed: bool) -> Steps:
    for group in groups:
        yield from group.offsets.end_transaction(transaction, committed=committed)
        yield UNFINISHED
