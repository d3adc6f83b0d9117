"""From a topic's configuration, as people name it, to what its logs and partitions obey."""

from collections.abc import Mapping

from moldau.broker.partition import ProduceRules
from moldau.log.config import LogConfig
from moldau.model.config.store import BrokerConfig, TopicConfig

_LEVELS = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}

KEPT_MAX = 1000


class TopicSettings:
    """Settings by what a topic sets itself. Topics that set the same share them, so that many partitions cost no more than one."""

    __slots__ = ("_config", "_kept", "_version")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._version = config.version
        self._kept: dict[tuple[tuple[str, str], ...], tuple[LogConfig, ProduceRules]] = {}

    def of(self, overrides: Mapping[str, str]) -> tuple[LogConfig, ProduceRules]:
        """What a topic with these configurations of its own obeys, the broker's being as they are now."""
        if self._version != self._config.version or len(self._kept) >= KEPT_MAX:
            self._kept.clear()
            self._version = self._config.version
        key = tuple(sorted(overrides.items()))
        settings = self._kept.get(key)
        if settings is None:
            topic = self._config.topic(overrides)
            settings = self._kept[key] = log_config(self._config, topic), produce_rules(self._config, topic)
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
