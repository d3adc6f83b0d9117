"""The topics that coordinators keep their state in, as they are made: by the configurations that Kafka has for each.

They are compacted, and have as many replicas as they are configured to have or as there are live brokers.
"""

from typing import NamedTuple

from moldau.cluster.controller.requests import TopicSpec
from moldau.model.config import BrokerConfig


class InternalTopic(NamedTuple):
    """The configurations that an internal topic is made by; None for one that Kafka does not have."""

    name: str
    partitions: str
    replication_factor: str
    segment_bytes: str
    compression: str | None
    min_insync_replicas: str | None


OFFSETS = InternalTopic(
    "__consumer_offsets",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "offsets.topic.compression.codec",
    None,
)
TRANSACTIONS = InternalTopic(
    "__transaction_state",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    None,
    "transaction.state.log.min.isr",
)

INTERNAL = {OFFSETS.name: OFFSETS, TRANSACTIONS.name: TRANSACTIONS}


def internal_topic_spec(topic: InternalTopic, config: BrokerConfig, live_brokers: int) -> TopicSpec:
    """The topic as it is made: compacted, its replicas capped by the number of live brokers."""
    factor = min(config.int(topic.replication_factor), max(live_brokers, 1))
    configs: list[tuple[str, str | None]] = [
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed" if topic.compression is None else "producer"),
        ("segment.bytes", str(config.int(topic.segment_bytes))),
    ]
    if topic.min_insync_replicas is not None:
        configs.append(("min.insync.replicas", str(min(config.int(topic.min_insync_replicas), factor))))
    return TopicSpec(topic.name, config.int(topic.partitions), factor, configs=configs)
