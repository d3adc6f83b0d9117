"""Topics that hold state. Those that coordinators keep theirs in, as they are made: by the configurations that Kafka has for each,
compacted, with as many replicas as they are configured to have. The default number is capped by the number of live brokers, or a single
broker could not have the topics. A number that is given is not: a client that comes while a cluster starts, or while one broker is away,
would leave it with fewer replicas for ever. The topic is made when so many brokers are there.

And those of brokers, registry and audit that clients may not destroy (`protected.topics`). Refused, with POLICY_VIOLATION: to delete the
topic, to delete records from it, to add partitions (keys would move to others), and to change a configuration by which records are deleted
or refused. Allowed: to create the topic, with whatever configurations, to describe it, to change other configurations, to set
`cleanup.policy=compact`, to read and to write. So a registry that keeps its schemas here works as with Kafka.

Until there is authentication this is a guard against accidents: the setting can be changed while the broker runs, by anyone.
"""

from typing import NamedTuple

from moldau.cluster.controller.requests import TopicSpec
from moldau.model.config import MIRROR_SOURCE, BrokerConfig, ConfigSource, InvalidConfigError, TopicConfig
from moldau.model.errors import ErrorCode, PeerError


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
    """The topic as it is made: compacted, its replicas capped by the number of live brokers unless their number is configured."""
    factor = config.int(topic.replication_factor)
    if config.settings(topic.replication_factor)[0].source is ConfigSource.DEFAULT:
        factor = min(factor, max(live_brokers, 1))
    configs: list[tuple[str, str | None]] = [
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed" if topic.compression is None else "producer"),
        ("segment.bytes", str(config.int(topic.segment_bytes))),
    ]
    if topic.min_insync_replicas is not None:
        configs.append(("min.insync.replicas", str(min(config.int(topic.min_insync_replicas), factor))))
    return TopicSpec(topic.name, config.int(topic.partitions), factor, configs=configs)


def check_may_mirror(topic: str) -> None:
    """InvalidConfigError for a topic that cannot be a mirror: coordinators write to internal ones."""
    if topic in INTERNAL:
        raise InvalidConfigError(f"topic '{topic}' is internal and cannot be a mirror: {MIRROR_SOURCE} must not be set", MIRROR_SOURCE)


SETTING = "protected.topics"
CAREFUL = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)
"""Configurations by which records are deleted or refused."""
_COMPACT = ("compact",)


def is_protected(config: BrokerConfig, topic: str) -> bool:
    """Whether the topic is one of them."""
    return topic in config.list(SETTING)


def check_unprotected(config: BrokerConfig, topic: str, what: str) -> None:
    """PeerError POLICY_VIOLATION for `what` ("delete", ...) of a protected topic; it names the way out."""
    protected = config.list(SETTING)
    if topic in protected:
        others = ",".join(each for each in protected if each != topic)
        raise PeerError(
            ErrorCode.POLICY_VIOLATION,
            f"topic '{topic}' is protected: refusing to {what}; to do it all the same, take it out of {SETTING} first:"
            f" moldau config alter --broker default --set {SETTING}={others}",
        )


def check_change(config: BrokerConfig, topic: str, before: TopicConfig, after: TopicConfig) -> None:
    """PeerError POLICY_VIOLATION if a configuration by which records are deleted or refused would have another value."""
    if not is_protected(config, topic):
        return
    for name in CAREFUL:
        value = after.value(name)
        if value != before.value(name) and not (name == "cleanup.policy" and value == _COMPACT):
            check_unprotected(config, topic, f"change {name}")
