"""Topics as a category of messages wants them: made if they are not there, and left as they are if they are (mission F3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

CREATE_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """With what a topic is made. `partitions` None: as many as the broker's default; so for the replicas."""

    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    replicas: int | None = None


def ensure_topic(bootstrap: str, topic: str, defaults: TopicDefaults) -> bool:
    """Make `topic` if it is not there, and say whether it was made now. One that is there keeps its configuration.

    Several may ask at once. RequestFailedError says why it cannot be made; ConnectionLostError if there is no broker.
    """
    from moldau.client.admin import BROKER_DEFAULT, Admin
    from moldau.client.cluster import Cluster
    from moldau.client.errors import RequestFailedError
    from moldau.model.errors import ErrorCode

    partitions = BROKER_DEFAULT if defaults.partitions is None else defaults.partitions
    replicas = BROKER_DEFAULT if defaults.replicas is None else defaults.replicas
    with Cluster(bootstrap, timeout_s=CREATE_TIMEOUT_S) as cluster:
        try:
            Admin(cluster).create_topic(topic, partitions, replicas, defaults.configs)
        except RequestFailedError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            raise
    return True
