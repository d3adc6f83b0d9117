"""What is asked of the brokers before anything is written to a topic."""

from moldau.client.cluster import Cluster
from moldau.client.errors import failure
from moldau.lake.writing.options import WriteOptions
from moldau.model.errors import ErrorCode

_READERS_TIME_MS = 30_000
"""So long a read tries to reach a broker before its tasks start."""


def check_brokers(options: WriteOptions) -> None:
    """One of the brokers answers, within the time that a read gives them or the time for deliveries, if that is less. WorldError."""
    timeout_s = min(_READERS_TIME_MS, options.delivery_timeout_ms) / 1000
    with Cluster(options.bootstrap, client_id=options.client_id, timeout_s=timeout_s) as cluster:
        cluster.metadata([])


def partition_count(cluster: Cluster, topic: str) -> int:
    """Partitions of a topic, which the brokers make if they are set to. RequestFailedError if there is none; WorldError."""
    retry = cluster.retry()
    while True:
        found = cluster.metadata([topic], create_missing=True).topics.get(topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        if found is not None and not code:
            return len(found.partitions)
        retry.pause(failure(code, f"topic {topic}"))
