"""How far behind a topic a group is, in offsets; what it has not committed yet counts from the topic's beginning."""

from moldau.client.cluster import Cluster
from moldau.client.groups import Groups
from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.model.identity import TopicPartition


def group_lag(bootstrap: str, group: str, topic: str) -> int:
    """The sum over all partitions. The client's errors: WorldError, PeerError."""
    with Cluster(bootstrap, client_id="moldau-lag") as cluster:
        partitions = [TopicPartition(topic, each.partition) for each in cluster.topic(topic).partitions]
        committed = Groups(cluster).committed(group, partitions)
        first, end = (cluster.list_offsets(dict.fromkeys(partitions, which)) for which in (EARLIEST, LATEST))
    return sum(end[where].offset - (committed[where].offset if where in committed else first[where].offset) for where in partitions)
