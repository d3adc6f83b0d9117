"""What the log and the appends of a partition obey, made from the broker's and the topic's configuration."""

from collections.abc import Mapping

from moldau.log.config import LogConfig
from moldau.model.config.store import BrokerConfig, TopicConfig
from moldau.model.value import Value
from moldau.protocol.records.walk import BATCH_HEADERS_MAX, RECORD_HEADERS_MAX

UNLIMITED = 2**63 - 1
DECOMPRESSED_RATIO_MAX = 16
"""A batch decompresses to at most this many times `max.message.bytes` where its records are read. Clients bound their batches before they
compress them, so that honest ones become hardly more than once that."""
DECOMPRESSED_BYTES_LEAST = 1024 * 1024
"""But at least this, for topics of small messages."""

KEPT_MAX = 1000
_LEVELS = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}


class ProduceRules(Value):
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


class AppendLimits(Value):
    """What follows from a topic's rules and its log's configuration for one batch."""

    max_message_bytes: int
    max_plain_bytes: int
    """Longest batch that no rule about lengths refuses."""
    decompressed_bytes_max: int
    """Most bytes of a batch after decompression, where its records are checked."""
    after_max_ms: int
    """How far a timestamp may lie ahead."""
    walks_records: bool
    """Whether the header of a batch is not all there is to look at."""

    @staticmethod
    def of(rules: ProduceRules, config: LogConfig) -> "AppendLimits":
        """The limits of batches for a log with this configuration."""
        ratio_max = max(DECOMPRESSED_BYTES_LEAST, DECOMPRESSED_RATIO_MAX * config.max_message_bytes)
        bounds_past = not config.append_time and config.message_timestamp_before_max_ms != UNLIMITED
        return AppendLimits(
            max_message_bytes=config.max_message_bytes,
            max_plain_bytes=min(config.max_message_bytes, config.segment_bytes),
            decompressed_bytes_max=min(rules.decompressed_bytes_max, ratio_max),
            after_max_ms=UNLIMITED if config.append_time else config.message_timestamp_after_max_ms,
            walks_records=config.compacts or rules.walk_records or rules.compression_type != "producer" or bounds_past,
        )


class TopicSettings(Value):
    """What the partitions of a topic obey."""

    log: LogConfig
    rules: ProduceRules
    limits: AppendLimits

    @staticmethod
    def of(log: LogConfig, rules: ProduceRules) -> "TopicSettings":
        """Settings with the limits that follow from them."""
        return TopicSettings(log, rules, AppendLimits.of(rules, log))

    @property
    def shows_flushed(self) -> bool:
        """Whether `visibility` is ``flushed``."""
        return self.log.visibility == "flushed"


class SettingsCache:
    """Settings by what a topic sets itself. Topics that set the same share them, so that many partitions cost no more than one."""

    __slots__ = ("_config", "_kept", "_version")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._version = config.version
        self._kept: dict[tuple[tuple[str, str], ...], TopicSettings] = {}

    def of(self, overrides: Mapping[str, str]) -> TopicSettings:
        """What a topic with these configurations of its own obeys, the broker's being as they are now."""
        if self._version != self._config.version or len(self._kept) >= KEPT_MAX:
            self._kept.clear()
            self._version = self._config.version
        key = tuple(sorted(overrides.items()))
        settings = self._kept.get(key)
        if settings is None:
            topic = self._config.topic(overrides)
            settings = self._kept[key] = TopicSettings.of(log_config(self._config, topic), produce_rules(self._config, topic))
        return settings


def log_config(broker: BrokerConfig, topic: TopicConfig) -> LogConfig:
    """What the log itself obeys."""
    return LogConfig(
        segment_bytes=topic.int("segment.bytes"),
        segment_ms=topic.int("segment.ms"),
        segment_jitter_ms=topic.int("segment.jitter.ms"),
        segment_index_bytes=topic.int("segment.index.bytes"),
        index_interval_bytes=topic.int("index.interval.bytes"),
        retention_ms=topic.int("retention.ms"),
        retention_bytes=topic.int("retention.bytes"),
        flush_messages=topic.int("flush.messages"),
        flush_ms=topic.int("flush.ms"),
        file_delete_delay_ms=topic.int("file.delete.delay.ms"),
        max_message_bytes=topic.int("max.message.bytes"),
        message_timestamp_type=topic.string("message.timestamp.type"),
        message_timestamp_before_max_ms=topic.int("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=topic.int("message.timestamp.after.max.ms"),
        cleanup_policy=frozenset(topic.list("cleanup.policy")),
        min_cleanable_dirty_ratio=topic.double("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=topic.int("min.compaction.lag.ms"),
        max_compaction_lag_ms=topic.int("max.compaction.lag.ms"),
        delete_retention_ms=topic.int("delete.retention.ms"),
        visibility=topic.string("visibility").replace("-", "_"),
        producer_id_expiration_ms=broker.int("producer.id.expiration.ms"),
    )


def produce_rules(broker: BrokerConfig, topic: TopicConfig) -> ProduceRules:
    """What the broker obeys before a batch reaches the log."""
    codec = topic.string("compression.type")
    return ProduceRules(
        compression_type=codec,
        compression_level=topic.int(_LEVELS[codec]) if codec in _LEVELS else None,
        walk_records=topic.string("produce.validation") == "records",
        min_insync_replicas=topic.int("min.insync.replicas"),
        decompressed_bytes_max=broker.int("max.decompressed.bytes"),
        record_headers_max=broker.int("record.headers.max"),
        batch_headers_max=broker.int("batch.headers.max"),
    )
