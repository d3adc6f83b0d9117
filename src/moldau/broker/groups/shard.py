"""The groups of one partition of ``__consumer_offsets``, and how they are read back from it.

Reading applies the records in the order of the log, as they were applied when they were written. A record that cannot be understood is
left out with a line in the log; those of other kinds of groups are left alone.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.groups.group import Group, MakeRunner
from moldau.broker.groups.group_records import decode_group
from moldau.broker.groups.offsets import CommittedOffset
from moldau.broker.groups.records import GroupKey, OffsetKey, UnknownKey, decode_key, decode_offset
from moldau.model.errors import PeerError
from moldau.protocol.records.control import ControlType

if TYPE_CHECKING:
    from moldau.broker.groups.state import GroupState
    from moldau.broker.state_log import LoadedBatch
    from moldau.protocol.records.record import Record

_LOG = logging.getLogger(__name__)


class Shard:
    """See the module.

    Invariant: `_waiting` names, by producer id, the groups that have pending offsets of that producer.
    """

    def __init__(self, partition: int, make_runner: MakeRunner) -> None:
        self.partition = partition
        self.loading = True
        self.groups: dict[str, Group] = {}
        self._make_runner = make_runner
        self._next_order = 0
        self._waiting: dict[int, set[Group]] = {}
        self._states: dict[str, GroupState] = {}
        self._deferred: list[Callable[[], object]] = []
        self._left_alone: dict[int, int] = {}
        """Records by the version of their key, where that is not known."""
        self._texts: dict[str, str] = {}
        self._ids: dict[bytes, bytes] = {}

    # Reading

    def replay(self, batch: "LoadedBatch") -> None:
        """The next batch of the partition."""
        if batch.marker is not None:
            self._end(batch.producer_id, committed=batch.marker.type is ControlType.COMMIT)
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

    def loaded(self) -> None:
        """The partition is read to its end: serve."""
        self.loading = False
        for group_id, state in self._states.items():
            self.make_group(group_id).restore(state)
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()
        for group in [group for group in self.groups.values() if not group.is_stored and group.offsets.is_empty]:
            del self.groups[group.group_id]
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
                    self.put_pending(group, producer_id, topic, partition, committed)
            case GroupKey(group_id):
                if record.value is None:
                    self._states.pop(group_id, None)
                else:
                    self._states[group_id] = decode_group(record.value)
            case UnknownKey(version):
                self._left_alone[version] = self._left_alone.get(version, 0) + 1

    # Serving

    def make_group(self, group_id: str) -> Group:
        """The group of that id, a new one if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.partition, self._make_runner)
        return group

    def next_order(self) -> int:
        """The place of the next commit among all of the partition."""
        self._next_order += 1
        return self._next_order - 1

    def put_pending(self, group: Group, producer_id: int, topic: str, partition: int, committed: CommittedOffset) -> None:
        """An offset that was appended as part of a transaction."""
        group.offsets.put_pending(producer_id, topic, partition, committed)
        self._waiting.setdefault(producer_id, set()).add(group)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """A marker was appended. One that comes while the partition is read lies behind what is read."""
        self.when_loaded(lambda: self._end(producer_id, committed=committed))

    def when_loaded(self, action: Callable[[], object]) -> None:
        """Do it now, or when the partition is read."""
        if self.loading:
            self._deferred.append(action)
        else:
            action()

    def close(self, error: PeerError) -> None:
        """Speak for these groups no longer."""
        for group in self.groups.values():
            if group.runner_if_any is not None:
                group.runner_if_any.close(error)

    def _end(self, producer_id: int, *, committed: bool) -> None:
        for group in self._waiting.pop(producer_id, ()):
            group.offsets.end_transaction(producer_id, committed=committed)
