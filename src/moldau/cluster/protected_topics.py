"""Topics that hold state of the brokers, the registry or the audit (`protected.topics`): clients may not destroy what is in them.

Refused, with POLICY_VIOLATION: to delete the topic, to delete records from it, to add partitions (keys would move to others), and to change
a configuration by which records are deleted or refused. Allowed: to create the topic, with whatever configurations, to describe it, to
change other configurations, to set `cleanup.policy=compact`, to read and to write. So a registry that keeps its schemas here works as with
Kafka.

Until there is authentication this is a guard against accidents: the setting can be changed while the broker runs, by anyone.
"""

from moldau.model.config import BrokerConfig, TopicConfig
from moldau.model.errors import ErrorCode, PeerError

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
