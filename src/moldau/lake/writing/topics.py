"""How many partitions a topic has that is written to."""

from moldau.client.cluster import Cluster
from moldau.client.errors import failure
from moldau.model.errors import ErrorCode


def partition_count(cluster: Cluster, topic: str) -> int:
    """Partitions of a topic, which the brokers make if they are set to. RequestFailedError if there is none; WorldError."""
    retry = cluster.retry()
    while True:
        found = cluster.metadata([topic], create_missing=True).topics.get(topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        if found is not None and not code:
            return len(found.partitions)
        retry.pause(failure(code, f"topic {topic}"))
