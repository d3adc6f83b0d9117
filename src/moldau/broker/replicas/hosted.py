"""The replica of a partition on this broker: its state machine with its log, the rules of its topic, and what waits for it.

And the table of the partitions that this broker leads, by name and by the ids and bytes that requests carry.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from moldau.broker.metrics.counters import TopicTraffic
from moldau.broker.replicas.commit_gate import CommitGate
from moldau.broker.replicas.partition import ACKS_ALL, Partition
from moldau.broker.replicas.partition_events import Level
from moldau.broker.replicas.rules import UNLIMITED, AppendLimits, ProduceRules, TopicSettings
from moldau.cluster.snapshot import INTERNAL_TOPICS
from moldau.model.errors import StorageError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.broker.replicas.purgatory import DelayedFetch
    from moldau.log.partition_log import PartitionLog

_WRITTEN = Level.WRITTEN
_REPLICATED_AND_FLUSHED = Level.REPLICATED | Level.FLUSHED


class HostedPartition:
    """One opening of a replica's log: a log that is opened again, or elsewhere, is another `HostedPartition` with the same machine.

    Invariant: `staged_bytes` is above 0 exactly while the log holds batches that are not written.
    Invariant: the log's high watermark is that of `machine`, or the log start offset where that is greater.
    """

    __slots__ = (
        "_counted_offset",
        "gate",
        "has_runs",
        "index",
        "is_internal",
        "is_led",
        "is_open",
        "jumped",
        "lags",
        "limits",
        "log",
        "machine",
        "rules",
        "stable_offset",
        "staged_bytes",
        "topic",
        "topic_id",
        "topic_partition",
        "traffic",
        "watchers",
    )

    def __init__(self, machine: Partition, log: "PartitionLog", topic_id: bytes, settings: TopicSettings, traffic: "TopicTraffic") -> None:
        self.machine = machine
        self.log = log
        self.traffic = traffic
        """Of its topic."""
        self._counted_offset = log.log_end_offset
        """Records before it are counted in `traffic`, or are none of this process."""
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic = log.topic_partition.topic.encode()
        self.index = log.topic_partition.partition
        self.topic_id = topic_id
        self.staged_bytes = 0
        self.gate: CommitGate | None = None
        """Where appends wait, once one has."""
        self.watchers: dict[DelayedFetch, None] = {}
        self.is_internal = log.topic_partition.topic in INTERNAL_TOPICS
        """Whether it keeps the state of a coordinator, so that no client may write to it."""
        self.is_open = True
        """Until the log is closed."""
        self.is_led = False
        """Whether this broker leads it, with this log."""
        self.rules: ProduceRules = settings.rules
        self.limits: AppendLimits = settings.limits
        self.has_runs = False
        """Whether it has runs that are permitted to append (`append_run`)."""
        self.stable_offset = 0
        """Last stable offset as of the last `advanced`, if it `lags`."""
        self.lags = False
        """Whether the last stable offset is not the high watermark."""
        self.jumped = False
        """Whether it has grown by something else than the last append since `stable_growth` was last called."""

    def with_log(self, log: "PartitionLog") -> "HostedPartition":
        """The replica with another log that has the same, and with what waits for it. This one has ended then."""
        other = HostedPartition(self.machine, log, self.topic_id, TopicSettings(log.config, self.rules, self.limits), self.traffic)
        other.gate, other.watchers = self.gate, self.watchers
        other.stable_offset, other.lags, other.jumped = self.stable_offset, self.lags, self.jumped
        self.is_open = False
        self.count_messages()
        return other

    def lead(self) -> None:
        """This broker leads it from now on; what it fetched before is no traffic of clients."""
        self.is_led = True
        self._counted_offset = self.log.log_end_offset

    @property
    def shows_too_little(self) -> bool:
        """Whether clients of an earlier leader may have seen more than this one shows: until its followers have fetched all that was there
        when its term began, its high watermark may be an early one (KIP-207).
        """
        return self.machine.term_offset > self.log.high_watermark

    @property
    def newest_epoch(self) -> int:
        """The leader epoch at the end of the log: of a mirror's partition that of its last batch, -1 without any."""
        return self.log.latest_epoch if self.machine.is_mirror else self.machine.leader_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """As that of the log. A mirror's leader may have fewer epochs than another replica, or a consumer that read from an earlier leader:
        of an epoch after its last one its answer is where its log ends.
        """
        log = self.log
        if self.machine.is_mirror and self.is_led and epoch > log.latest_epoch:
            return (epoch if log.latest_epoch < 0 else log.latest_epoch), log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    def advanced(self) -> bool:
        """The machine's offsets may have moved: show records up to its high watermark, then open the gate. Whether more is visible."""
        log = self.log
        before = log.high_watermark
        moved = log.advance_high_watermark(self.machine.high_watermark)
        if moved and (log.unsettled or self.lags):
            self._advance_stable(before)
        if self.gate is not None:
            self.gate.open(self.machine)
        return moved

    def open_gate(self) -> CommitGate:
        """Its gate, made at the first call."""
        if self.gate is None:
            self.gate = CommitGate(self.topic_partition)
        return self.gate

    def level_for(self, acks: int, last_offset: int) -> Level:
        """What the acknowledgement of the batch that was just staged, or that is repeated, and ends at `last_offset` waits for."""
        log = self.log
        flush_messages, flushed_offset = log.config.flush_messages, log.flushed_offset
        must_flush = (
            flush_messages != UNLIMITED and last_offset >= flushed_offset and log.staged_end_offset - flushed_offset >= flush_messages
        )
        if acks == ACKS_ALL and not self.machine.is_sole:
            return _REPLICATED_AND_FLUSHED if must_flush else Level.REPLICATED
        return Level.FLUSHED if must_flush else _WRITTEN

    def shown_since(self, offset: int) -> int:
        """Bytes from `offset` up to the high watermark."""
        try:
            return self.log.readable_bytes(offset, self.log.high_watermark, UNLIMITED)
        except StorageError:  # who reads them reports it
            return UNLIMITED

    def stable_growth(self, count: int) -> int:
        """How much there is more to read for who reads committed records only, after an append of `count` bytes: a bound, as long as
        transactions are ongoing or have just ended.
        """
        if self.jumped:
            self.jumped = False
            return UNLIMITED
        return 0 if self.lags else count

    def _advance_stable(self, high_watermark_before: int) -> None:
        """The high watermark has moved, with transactions about."""
        stable_offset = self.log.last_stable_offset
        self.jumped = self.jumped or stable_offset > (self.stable_offset if self.lags else high_watermark_before)
        self.stable_offset = stable_offset
        self.lags = stable_offset < self.log.high_watermark

    def count_messages(self) -> None:
        """Add the records that were appended since the last call to the topic's traffic."""
        offset = self.log.log_end_offset
        self.traffic.messages_in += offset - self._counted_offset
        self._counted_offset = offset


_NONE: Mapping[int, HostedPartition] = MappingProxyType({})


class PartitionTable:
    """Invariant: the three dictionaries hold the same partitions, and no topic without any."""

    __slots__ = ("_all", "_by_id", "_by_name")

    def __init__(self) -> None:
        self._all: dict[TopicPartition, HostedPartition] = {}
        self._by_name: dict[bytes, dict[int, HostedPartition]] = {}
        self._by_id: dict[bytes, dict[int, HostedPartition]] = {}

    def of_topic(self, topic: bytes, *, by_id: bool) -> Mapping[int, HostedPartition]:
        """Partitions of a topic by index. `topic`: the UTF-8 bytes of its name, or its id."""
        return (self._by_id if by_id else self._by_name).get(topic, _NONE)

    def traffic_of(self, topic: bytes, *, by_id: bool) -> TopicTraffic | None:
        """The counters of a topic, None if no partition of it is led here. `topic` as for `of_topic`."""
        for partition in (self._by_id if by_id else self._by_name).get(topic, _NONE).values():
            return partition.traffic
        return None

    def get(self, topic_partition: TopicPartition) -> HostedPartition | None:
        """The partition of that name, if it is led here."""
        return self._all.get(topic_partition)

    def add(self, partition: HostedPartition) -> None:
        """Take in a partition that is not here yet."""
        assert partition.topic_partition not in self._all
        self._all[partition.topic_partition] = partition
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._by_id.setdefault(partition.topic_id, {})[partition.index] = partition

    def remove(self, topic_partition: TopicPartition) -> HostedPartition | None:
        """Forget a partition; None if it is not here."""
        partition = self._all.pop(topic_partition, None)
        if partition is not None:
            for table, key in ((self._by_name, partition.topic), (self._by_id, partition.topic_id)):
                del table[key][partition.index]
                if not table[key]:
                    del table[key]
        return partition

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)
