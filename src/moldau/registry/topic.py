"""The topic that holds everything: one partition, compacted; made if it is not there, refused if it would lose schemas."""

import logging
from typing import TYPE_CHECKING

from moldau.client.admin import Admin, Resource, ResourceType
from moldau.client.errors import RequestFailedError
from moldau.model.errors import ErrorCode, MoldauError

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

log = logging.getLogger(__name__)

SCHEMAS_TOPIC = "_schemas"
_REPLICAS_WANTED = 3


class UnfitTopicError(MoldauError):
    """The topic exists and cannot hold a registry."""


def ensure_topic(cluster: "Cluster", name: str) -> None:
    """Make the topic if there is none. UnfitTopicError for one that has several partitions, or whose retention would delete schemas."""
    try:
        found = cluster.topic(name)
    except RequestFailedError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        _create(cluster, name)
        found = cluster.topic(name)
    if len(found.partitions) != 1:
        raise UnfitTopicError(f"topic {name} has {len(found.partitions)} partitions, a schema registry needs it to have one")
    entries = Admin(cluster).describe_configs(Resource(ResourceType.TOPIC, name))
    policy = next((entry.value for entry in entries if entry.name == "cleanup.policy"), None) or ""
    if policy != "compact":
        raise UnfitTopicError(
            f"topic {name} has cleanup.policy={policy}, so its schemas would be deleted in time; set cleanup.policy=compact "
            f"(moldau topic alter {name} -c cleanup.policy=compact) and start the registry again"
        )


def _create(cluster: "Cluster", name: str) -> None:
    replicas = min(_REPLICAS_WANTED, len(cluster.metadata([]).brokers))
    try:
        Admin(cluster).create_topic(name, 1, replicas, {"cleanup.policy": "compact"})
    except RequestFailedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another registry was faster
            raise
    else:
        log.info("registry topic made: topic=%s", name)
