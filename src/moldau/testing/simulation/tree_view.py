"""What the coordination tree says of the cluster, looked at from outside: often, so that no node is decoded twice."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from moldau.cluster import znodes
from moldau.cluster.znodes import PartitionState, decode_incarnations, decode_state, decode_topic
from moldau.testing.simulation.tree import SimulatedTree

NODES_KEPT = 1_000
"""A run has some dozen at a time."""

_topic = lru_cache(NODES_KEPT)(decode_topic)
_state = lru_cache(NODES_KEPT)(decode_state)


class PartitionInTree(NamedTuple):
    """A partition as its nodes say."""

    topic: str
    topic_id: bytes
    number: int
    replicas: tuple[int, ...]
    state: PartitionState | None
    """None until the controller has written one."""
    is_moving: bool
    """Whether it gains or loses replicas."""


def partitions_in(tree: SimulatedTree) -> Iterator[PartitionInTree]:
    """All partitions of topics that are not about to be deleted."""
    leaving = tree.children(znodes.DELETE_TOPICS)
    for name in tree.children(znodes.TOPICS):
        found = tree.get(path := znodes.topic(name))
        if found is None or name in leaving:
            continue
        node = _topic(path, found.data)
        for index, replicas in enumerate(node.replicas):
            state = tree.get(path := znodes.partition_state(name, index))
            is_moving = index in node.adding or index in node.removing
            decoded = None if state is None else _state(path, state.data)
            yield PartitionInTree(name, node.topic_id or b"", index, replicas, decoded, is_moving)


def registration(tree: SimulatedTree, broker_id: int) -> tuple[int, int] | None:
    """The incarnation of a broker that is registered, and the session whose registration that is."""
    found = tree.get(znodes.broker(broker_id))
    return None if found is None else (found.stat.created_id, found.stat.owner)


def incarnations(tree: SimulatedTree) -> dict[int, int]:
    """The incarnations that the controller has taken account of, by broker."""
    found = tree.get(znodes.INCARNATIONS)
    return {} if found is None else decode_incarnations(znodes.INCARNATIONS, found.data)
