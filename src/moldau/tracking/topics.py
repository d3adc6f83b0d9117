"""Topics as a category of messages wants them: made if they are not there, and left as they are if they are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from moldau.model.topic_names import is_internal

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
        raise ValueError(f"topic is the name of one, not {topic!r} ({type(topic).__name__})")
    if is_internal(topic):
        raise ValueError(
            f"topic {topic}: names that begin with '_' are those of the cluster and the audit; events need a topic of their own"
        )
    if len(topic) > NAME_MAX or topic in (".", "..") or not _NAME.fullmatch(topic):
        raise ValueError(
            f"topic {topic[:20]!r}: a name has 1 to {NAME_MAX} ASCII letters, digits, '.', '_' and '-', and is not '.' or '..'"
        )


def ensure_topic(bootstrap: str, topic: str, defaults: TopicDefaults) -> bool:
    """Make `topic` if it is not there, and say whether it was made now. One that is there keeps its configuration.

    Several may ask at once. For one that is there nobody needs the right to make topics. RequestFailedError says why it cannot be made;
    ConnectionLostError if there is no broker.
    """
    from moldau.client.admin import BROKER_DEFAULT, Admin
    from moldau.client.cluster import Cluster
    from moldau.client.errors import RequestFailedError
    from moldau.model.errors import ErrorCode

    partitions = BROKER_DEFAULT if defaults.partitions is None else defaults.partitions
    replicas = BROKER_DEFAULT if defaults.replicas is None else defaults.replicas
    with Cluster(bootstrap, timeout_s=CREATE_TIMEOUT_S) as cluster:
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
