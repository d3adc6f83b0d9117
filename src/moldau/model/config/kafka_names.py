"""Kafka's settings that this version does not have, by what they belong to, so that an error names the reason and not "unknown".

Two kinds. Those that would be dangerous to ignore (encryption, authentication, authorisation, quotas) are refused in every source. The
others change nothing that a client can rely on here (KRaft, metrics, removed names): a ``server.properties`` may carry them, and
they are ignored with a line in the log.
"""

from typing import NamedTuple


class MissingSetting(NamedTuple):
    """Why a setting of Kafka is not here. `may_pass`: whether a ``server.properties`` that has it is taken all the same."""

    reason: str
    may_pass: bool


_SECURITY = MissingSetting("there is no TLS, SASL or ACL yet: every client that reaches the port may read, write and delete", False)
_QUOTAS = MissingSetting("there are no quotas yet", False)
_KRAFT = MissingSetting("there is no KRaft quorum: metadata is kept in the first log directory", True)
_ZOOKEEPER = MissingSetting("it is of Java's client of ZooKeeper", True)
_ZOOKEEPER_TLS = MissingSetting("there is no TLS to ZooKeeper: what a broker sends, a password too, can be read on the way", False)
_BROKER_IDS = MissingSetting("broker ids are not generated: broker.id is 0 unless it is set", True)
_CLUSTER = MissingSetting("there is no replication yet", True)
_TIERS = MissingSetting("there is no tiered storage yet", True)
_METRICS = MissingSetting("metrics reporters are Java classes", True)
_GROUPS = MissingSetting("there are only groups of the classic protocol yet", True)
_REMOVED = MissingSetting("Kafka 4 has removed it: batches are of format 2 only", True)
_TELEMETRY = MissingSetting("clients' metrics are not collected", True)

_PREFIXES = (
    ("ssl.", _SECURITY),
    ("sasl.", _SECURITY),
    ("listener.name.", _SECURITY),
    ("security.", _SECURITY),
    ("delegation.token.", _SECURITY),
    ("password.encoder.", _SECURITY),
    ("quota.", _QUOTAS),
    ("client.quota.", _QUOTAS),
    ("controller.quota.", _QUOTAS),
    ("controller.", _KRAFT),
    ("metadata.", _KRAFT),
    ("broker.heartbeat.", _KRAFT),
    ("broker.session.", _KRAFT),
    ("initial.broker.", _KRAFT),
    ("raft.", _KRAFT),
    ("unstable.", _KRAFT),
    ("zookeeper.ssl.", _ZOOKEEPER_TLS),
    ("zookeeper.", _ZOOKEEPER),
    ("replica.", _CLUSTER),
    ("inter.broker.", _CLUSTER),
    ("leader.imbalance.", _CLUSTER),
    ("alter.log.dirs.", _CLUSTER),
    ("remote.", _TIERS),
    ("log.local.", _TIERS),
    ("metric", _METRICS),
    ("kafka.metrics.", _METRICS),
    ("auto.include.jmx.", _METRICS),
    ("group.consumer.", _GROUPS),
    ("group.share.", _GROUPS),
    ("group.streams.", _GROUPS),
    ("group.coordinator.", _GROUPS),
    ("share.", _GROUPS),
    ("telemetry.", _TELEMETRY),
)
NAMES = {
    "authorizer.class.name": _SECURITY,
    "super.users": _SECURITY,
    "allow.everyone.if.no.acl.found": _SECURITY,
    "principal.builder.class": _SECURITY,
    "early.start.listeners": _SECURITY,
    "connection.failed.authentication.delay.ms": _SECURITY,
    "connections.max.reauth.ms": _SECURITY,
    "process.roles": _KRAFT,
    "alter.config.policy.class.name": MissingSetting("policies are Java classes", False),
    "create.topic.policy.class.name": MissingSetting("policies are Java classes", False),
    "log.message.format.version": _REMOVED,
    "log.message.downconversion.enable": _REMOVED,
    "log.message.timestamp.difference.max.ms": MissingSetting(
        "Kafka 4 has removed it: log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms take its place", False
    ),
    "message.format.version": _REMOVED,
    "message.downconversion.enable": _REMOVED,
    "broker.id.generation.enable": _BROKER_IDS,
    "reserved.broker.max.id": _BROKER_IDS,
    "offsets.topic.required.acks": _REMOVED,
    "offsets.commit.required.acks": _REMOVED,
}


def absent(name: str) -> MissingSetting | None:
    """Why Kafka's setting `name` is not here; None if Kafka has none of that name, as far as this table knows."""
    known = NAMES.get(name)
    if known is not None:
        return known
    return next((each for prefix, each in _PREFIXES if name.startswith(prefix)), None)
