"""A partition that this broker leads: its log, the rules for what is appended, and who waits for it."""

from typing import TYPE_CHECKING, NamedTuple

from moldau.cluster.snapshot import INTERNAL_TOPICS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import LeaderEpoch, TopicPartition
from moldau.protocol.records.bounds import BATCH_HEADERS_MAX, RECORD_HEADERS_MAX

if TYPE_CHECKING:
    from moldau.broker.delayed import DelayedRequest
    from moldau.broker.metrics.counters import TopicTraffic
    from moldau.log.partition_log import PartitionLog

UNLIMITED = 2**63 - 1
DECOMPRESSED_RATIO_MAX = 16
"""A batch decompresses to at most this many times `max.message.bytes` where its records are read. Clients bound their batches before they
compress them, so that honest ones become hardly more than once that."""
DECOMPRESSED_BYTES_LEAST = 1024 * 1024
"""But at least this, for topics of small messages."""


class ProduceRules(NamedTuple):
    """Configurations of a topic that the broker obeys on the way of a batch to the log; the log's own are in its `LogConfig`."""

    compression_type: str = "producer"
    compression_level: int | None = None
    """For `compression_type`; None takes the codec's default."""
    walk_records: bool = False
    """``produce.validation=records``: every record is read, not only the header of its batch."""
    min_insync_replicas: int = 1
    decompressed_bytes_max: int = 100 * 1024 * 1024
    """Most bytes of a batch after decompression, whatever `max.message.bytes` is."""
    record_headers_max: int = RECORD_HEADERS_MAX
    """Headers of one record, where records are checked."""
    batch_headers_max: int = BATCH_HEADERS_MAX
    """Headers of all records of a batch, there too."""


class Partition:
    """Leader state of one partition.

    Invariant: `staged_bytes` is above 0 exactly while the log holds batches that are not written.
    """

    __slots__ = (
        "_counted_offset",
        "after_max_ms",
        "decompressed_bytes_max",
        "index",
        "is_internal",
        "is_open",
        "is_plain",
        "jumped",
        "lags",
        "leader_epoch",
        "log",
        "max_message_bytes",
        "max_plain_bytes",
        "rules",
        "shows_flushed",
        "stable_offset",
        "staged_bytes",
        "topic",
        "topic_id",
        "topic_partition",
        "traffic",
        "walks_records",
        "watchers",
    )

    def __init__(
        self, log: "PartitionLog", topic_id: bytes, leader_epoch: LeaderEpoch, rules: ProduceRules, traffic: "TopicTraffic"
    ) -> None:
        self.log = log
        self.traffic = traffic
        """Of its topic."""
        self._counted_offset = log.log_end_offset
        """Records before it are counted in `traffic`, or are none of this process."""
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic = log.topic_partition.topic.encode()
        self.index = log.topic_partition.partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.staged_bytes = 0
        self.watchers: dict[DelayedRequest, None] = {}
        self.is_internal = log.topic_partition.topic in INTERNAL_TOPICS
        """Whether it keeps the state of a coordinator, so that no client may write to it."""
        self.is_open = True
        """Until the partition is deleted or goes offline."""
        self.walks_records = False
        """Whether the header of a batch is not all there is to look at."""
        self.is_plain = False
        """Whether it is, and an acknowledgement waits for nothing: what the shortest way needs (`repeated_produce`)."""
        self.max_message_bytes = 0
        self.max_plain_bytes = 0
        """Longest batch that no rule about lengths refuses."""
        self.decompressed_bytes_max = 0
        """Most bytes of a batch after decompression, where its records are checked."""
        self.after_max_ms = UNLIMITED
        """How far a timestamp may lie ahead."""
        self.shows_flushed = False
        self.stable_offset = 0
        """Last stable offset as of the last `advance`, if it `lags`."""
        self.lags = False
        """Whether the last stable offset is not the high watermark."""
        self.jumped = False
        """Whether it has grown by something else than the last append since somebody asked for `stable_growth`."""
        self.rules = rules
        self.configure(rules)

    def configure(self, rules: ProduceRules) -> None:
        """Obey `rules`, and take note of the log's configuration."""
        self.rules = rules
        config = self.log.config
        self.shows_flushed = config.visibility == "flushed"
        self.max_message_bytes = config.max_message_bytes
        self.max_plain_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.decompressed_bytes_max = min(
            rules.decompressed_bytes_max, max(DECOMPRESSED_BYTES_LEAST, DECOMPRESSED_RATIO_MAX * config.max_message_bytes)
        )
        self.after_max_ms = UNLIMITED if config.append_time else config.message_timestamp_after_max_ms
        self.walks_records = (
            config.compacts
            or rules.walk_records
            or rules.compression_type != "producer"
            or (not config.append_time and config.message_timestamp_before_max_ms != UNLIMITED)
        )
        self.is_plain = self.is_open and not self.walks_records and config.flush_messages == UNLIMITED and rules.min_insync_replicas <= 1

    def advance(self) -> bool:
        """Move the high watermark up to what every in-sync replica (this one) has; with ``visibility=flushed`` to what is on disk.

        Whether it has moved.
        """
        log = self.log
        before = log.high_watermark
        if not log.advance_high_watermark(log.flushed_offset if self.shows_flushed else log.log_end_offset):
            return False
        if log.unsettled or self.lags:
            self._advance_stable(before)
        return True

    def has_written(self, base_offset: int) -> bool:
        """Whether the batch that got this offset is in the log, after a write that has failed."""
        return self.is_open and 0 <= base_offset < self.log.log_end_offset

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

    def close(self) -> None:
        """Take nothing more: the partition is deleted or offline."""
        self.count_messages()
        self.is_open = self.is_plain = False

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare the epoch that a client believes in, -1 for none. PeerError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise PeerError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.topic_partition}: epoch {epoch} is over, {self.leader_epoch} is the leader's"
            )
        raise PeerError(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.topic_partition}: epoch {epoch} is not known, {self.leader_epoch} is the leader's"
        )
