"""Categories of messages, and their topics: created if they do not exist, left unchanged if they do.

Queuing: each message is work for one worker. Metrics: numbers about how things run, of little use next week. Logs: lines of programs, many
and well compressible. Tracking: what members and services do, the input of analysis, kept long enough to load it again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from moldau.client.settings import Codec
from moldau.model.topic_names import is_internal
from moldau.topology.values import CategoryName

CREATE_TIMEOUT_S: Final = 30.0
NAME_MAX: Final = 249
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """With what a topic is made. `partitions` None: as many as the broker's default; so for the replicas."""

    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    replicas: int | None = None


def check_topic(topic: str) -> None:
    """ValueError for a name that no topic of events can have: those that begin with "_" are the cluster's and the audit's own."""
    if not isinstance(topic, str):
        raise ValueError(f"topic is a name, not {topic!r} ({type(topic).__name__})")
    if is_internal(topic):
        raise ValueError(
            f"topic {topic}: names that begin with '_' are those of the cluster and the audit; events need a topic of their own"
        )
    if len(topic) > NAME_MAX or topic in (".", "..") or not _NAME.fullmatch(topic):
        raise ValueError(
            f"topic {topic[:20]!r}: a name has 1 to {NAME_MAX} ASCII letters, digits, '.', '_' and '-', and is not '.' or '..'"
        )


def ensure_topic(bootstrap_servers: str, topic: str, defaults: TopicDefaults) -> bool:
    """Create `topic` if it does not exist; whether it was created now. An existing one keeps its configuration.

    Several may ask at once. For an existing one the right to create topics is not needed. RequestFailedError if it cannot be created;
    ConnectionLostError if there is no broker.
    """
    from moldau.client.admin import BROKER_DEFAULT, Admin
    from moldau.client.cluster import Cluster
    from moldau.client.errors import RequestFailedError
    from moldau.model.errors import ErrorCode

    partitions = BROKER_DEFAULT if defaults.partitions is None else defaults.partitions
    replicas = BROKER_DEFAULT if defaults.replicas is None else defaults.replicas
    with Cluster(bootstrap_servers, timeout_s=CREATE_TIMEOUT_S) as cluster:
        known = cluster.metadata([topic]).topics.get(topic)
        if known is not None and known.error is ErrorCode.NONE:
            return False
        try:
            Admin(cluster).create_topic(topic, partitions, replicas, defaults.configs)
        except RequestFailedError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            raise
    return True


_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Category:
    """One kind: how its topics are made, and how its producers compress."""

    name: CategoryName
    topics: TopicDefaults
    compression: Codec

    def ensure(self, bootstrap_servers: str, topic: str) -> bool:
        """Create a topic of this kind if it does not exist; whether it was created now. See `ensure_topic`."""
        return ensure_topic(bootstrap_servers, topic, self.topics)


def _defaults(partitions: int, days: int) -> TopicDefaults:
    return TopicDefaults(partitions, {"cleanup.policy": "delete", "retention.ms": str(days * _DAY_MS)})


QUEUING: Final = Category("queuing", _defaults(partitions=12, days=14), "none")
"""Twelve workers at most at a time, and a fortnight to notice that there are none."""
METRICS: Final = Category("metrics", _defaults(partitions=2, days=3), "lz4")
LOGS: Final = Category("logs", _defaults(partitions=4, days=3), "zstd")
TRACKING: Final = Category("tracking", _defaults(partitions=8, days=7), "lz4")

_CATEGORIES: Final = {each.name: each for each in (QUEUING, METRICS, LOGS, TRACKING)}


def category(name: CategoryName) -> Category:
    """The kind of that name. ValueError."""
    if name not in _CATEGORIES:
        raise ValueError(f"a category is one of {', '.join(_CATEGORIES)}, not {name!r}")
    return _CATEGORIES[name]
