"""Settings of one partition's log: Kafka's topic configurations that the log itself obeys, with Kafka 4's defaults.

Names are Kafka's with dots turned into underscores (``segment.bytes`` is `segment_bytes`).
"""

from typing import NamedTuple

UNLIMITED = 2**63 - 1
"""Kafka's ``Long.MAX_VALUE``: a limit that is never reached."""

_DAY_MS = 24 * 60 * 60 * 1000


class LogConfig(NamedTuple):
    """Values for one log. Replaced as a whole when a configuration changes (`PartitionLog.reconfigure`)."""

    segment_bytes: int = 1024 * 1024 * 1024
    """A segment is rolled before a batch would make it longer than this."""
    segment_ms: int = 7 * _DAY_MS
    """A segment is rolled when a batch is this much newer than the segment's first one."""
    segment_jitter_ms: int = 0
    """Rolling by time comes up to this much earlier, by an amount that differs from segment to segment."""
    segment_index_bytes: int = 10 * 1024 * 1024
    """A segment is rolled when one of its two indexes reaches this size."""
    index_interval_bytes: int = 4096
    """Bytes of log between two entries of the offset index."""
    retention_ms: int = 7 * _DAY_MS
    """Segments whose newest record is older are removed; -1 keeps them for ever."""
    retention_bytes: int = -1
    """Oldest segments are removed while the rest is at least this long; -1 knows no limit."""
    flush_messages: int = UNLIMITED
    """This many unflushed records make the acknowledgement wait for a flush."""
    flush_ms: int = UNLIMITED
    """Written records are flushed after this time."""
    file_delete_delay_ms: int = 60_000
    """Time between the renaming of a removed file and its unlinking."""
    max_message_bytes: int = 1024 * 1024 + 12
    """Longest batch taken from a producer."""
    message_timestamp_type: str = "CreateTime"
    """``CreateTime`` keeps the producer's timestamps, ``LogAppendTime`` sets the broker's."""
    message_timestamp_before_max_ms: int = UNLIMITED
    """How far a record's timestamp may lie before the broker's clock."""
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    """How far a record's timestamp may lie after the broker's clock."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    """``delete``, ``compact`` or both. Without ``delete`` only DeleteRecords removes segments."""
    min_cleanable_dirty_ratio: float = 0.5
    """Share of the bytes that is not compacted yet from which on compaction is worth while."""
    min_compaction_lag_ms: int = 0
    """A segment with a record that is not older is not compacted yet."""
    max_compaction_lag_ms: int = UNLIMITED
    """A segment whose first batch is older is compacted whatever the ratio."""
    delete_retention_ms: int = _DAY_MS
    """Tombstones and markers stay for so long after the pass that finds them without need."""
    visibility: str = "high_watermark"
    """``flushed`` adds the rule of the 2011 paper: consumers see only what is on disk."""
    producer_id_expiration_ms: int = _DAY_MS
    """State of an idempotent producer is dropped after this time without an append."""

    @property
    def append_time(self) -> bool:
        """Whether the broker's clock stamps the batches."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_ms(self) -> int:
        """A segment is rolled when a batch is this much newer: a record that has to be compacted by then must not lie in the active one."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def deletes(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether compaction may leave holes between offsets."""
        return "compact" in self.cleanup_policy
