"""A topic of a broker that has no others, whose partitions have a second replica, on a broker that does not live."""

from pathlib import Path

from moldau.assembly.tree_store import STORE
from moldau.cluster.znodes import decode_topic, encode_topic
from moldau.cluster.znodes import topic as path_of
from support.trees import AskedTree

MISSING = 999
"""The broker that does not live."""


def lack_replicas(data: Path, name: str) -> None:
    """Add it to the topic's assignment, in the metadata of a broker that is stopped: with `min.insync.replicas=2` too few are in sync.

    Kafka, too, takes only the minimum that the replicas can reach, so that a topic with one replica never has too few.
    """
    tree = AskedTree(str(data / STORE), lambda: 0)
    try:
        path = path_of(name)
        node = decode_topic(path, tree.get(path).data)
        tree.set(path, encode_topic(node.topic_id or bytes(16), [(*replicas, MISSING) for replicas in node.replicas]))
    finally:
        tree.close()
