"""Reads the coordination tree at a start: everything that is on it, node by node. Missing branches read as empty."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from moldau.cluster import paths
from moldau.cluster.snapshot import BrokerInfo
from moldau.cluster.znodes import (
    PartitionState,
    TopicNode,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_epoch,
    decode_state,
    decode_topic,
)
from moldau.ports.coordination import EmbeddedCoordination, GetChildren, GetData, NoNodeError, answered


class FoundState(NamedTuple):
    """A partition's state and the version of its node."""

    state: PartitionState
    version: int


class FoundTopic(NamedTuple):
    """A topic's node and its partitions' states."""

    name: str
    node: TopicNode
    states: tuple[FoundState, ...]


def missing_roots(tree: EmbeddedCoordination) -> list[str]:
    """The fixed paths that are not there yet, parents first."""
    there: set[str] = set()
    for parent in dict.fromkeys(path.rpartition("/")[0] for path in paths.ROOTS):
        if not parent or parent in there:
            there.update(f"{parent}/{name}" for name in _children(tree, parent or "/"))
    return [path for path in paths.ROOTS if path not in there]


def cluster_id(tree: EmbeddedCoordination) -> str | None:
    """The cluster's id, None in a new store."""
    data = _get(tree, paths.CLUSTER_ID)
    return None if data is None else decode_cluster_id(paths.CLUSTER_ID, data)


def controller_epoch(tree: EmbeddedCoordination) -> int | None:
    """The last controller's epoch, None in a new store."""
    data = _get(tree, paths.CONTROLLER_EPOCH)
    return None if data is None else decode_epoch(paths.CONTROLLER_EPOCH, data)


def brokers(tree: EmbeddedCoordination) -> list[BrokerInfo]:
    """The live brokers."""
    found = []
    for name in _children(tree, paths.BROKER_IDS):
        data = _get(tree, path := paths.broker(int(name)))
        if data is not None:
            node = decode_broker(path, data)
            found.append(BrokerInfo(int(name), node.endpoints, node.rack))
    return found


def topics(tree: EmbeddedCoordination, but: Container[str] = ()) -> list[FoundTopic]:
    """All topics but some. NoNodeError if a partition has no state."""
    return [_topic(tree, name) for name in _children(tree, paths.TOPICS) if name not in but]


def _topic(tree: EmbeddedCoordination, name: str) -> FoundTopic:
    path = paths.topic(name)
    node = decode_topic(path, answered(tree, GetData(path)).data)
    return FoundTopic(name, node, tuple(_state(tree, paths.partition_state(name, index)) for index in range(len(node.replicas))))


def _state(tree: EmbeddedCoordination, path: str) -> FoundState:
    data, stat = answered(tree, GetData(path))
    return FoundState(decode_state(path, data), stat.version)


def topics_being_deleted(tree: EmbeddedCoordination) -> set[str]:
    """Topics marked for deletion."""
    return set(_children(tree, paths.DELETE_TOPICS))


def topic_configs(tree: EmbeddedCoordination) -> dict[str, dict[str, str]]:
    """What topics set themselves."""
    return {name: values for name in _children(tree, paths.CONFIG_TOPICS) if (values := _config(tree, paths.topic_config(name)))}


def broker_configs(tree: EmbeddedCoordination) -> dict[int | None, dict[str, str]]:
    """Dynamic configurations by broker, those of all under None."""
    found: dict[int | None, dict[str, str]] = {}
    for name in _children(tree, paths.CONFIG_BROKERS):
        broker_id = None if name == paths.DEFAULT_ENTITY else int(name)
        if values := _config(tree, paths.broker_config(broker_id)):
            found[broker_id] = values
    return found


def _config(tree: EmbeddedCoordination, path: str) -> dict[str, str]:
    data = _get(tree, path)
    return decode_config(path, data) if data else {}


def _get(tree: EmbeddedCoordination, path: str) -> bytes | None:
    try:
        return answered(tree, GetData(path)).data
    except NoNodeError:
        return None


def _children(tree: EmbeddedCoordination, path: str) -> Sequence[str]:
    try:
        return answered(tree, GetChildren(path)).names
    except NoNodeError:
        return []
