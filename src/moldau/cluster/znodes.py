"""The nodes of the coordination tree: where they stand, in ZooKeeper's layout of Kafka before KRaft, so that tools of that time can read
it; and what they hold: JSON, in the formats of that time, older ones readable.

Each kind has a function that encodes and one that decodes. Decoding takes the node's path, which a :class:`MalformedNodeError` names.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from moldau.cluster.snapshot import Endpoint
from moldau.model.config.listeners import PLAINTEXT, Listener, parse_listener
from moldau.model.errors import CoordinationError
from moldau.model.identity import LogCut, format_id, parse_id
from moldau.model.value import Value

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
INCARNATIONS = "/brokers/incarnations"
"""Ours: the incarnations of brokers that the controller has taken account of. Made when there is a second broker."""
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CONFIG_CHANGES = "/config/changes"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
DEFAULT_ENTITY = "<default>"

ROOTS = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    "/cluster",
    "/config",
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    "/config/clients",
    "/config/users",
    CONFIG_BROKERS,
    "/config/ips",
    "/consumers",
    "/admin",
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
)
"""Made at the first start, parents before children; they stay."""


def broker(broker_id: int) -> str:
    """Registration of a live broker; ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's id and the replicas of its partitions."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """One partition; holds nothing itself."""
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    """A partition's leader, epochs and in-sync replicas."""
    return f"{TOPICS}/{name}/partitions/{index}/state"


def topic_config(name: str) -> str:
    """What a topic sets itself."""
    return f"{CONFIG_TOPICS}/{name}"


def broker_config(broker_id: int | None) -> str:
    """Dynamic configuration of a broker, or of all (None)."""
    return f"{CONFIG_BROKERS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def broker_configs(broker_id: int) -> tuple[str, str]:
    """Both that a broker obeys: its own, and that of all."""
    return broker_config(broker_id), broker_config(None)


def delete_topic(name: str) -> str:
    """Mark on a topic that is being deleted."""
    return f"{DELETE_TOPICS}/{name}"


def config_change(name: str) -> str:
    """A notification of a changed configuration, by the name of its node."""
    return f"{CONFIG_CHANGES}/{name}"


T = TypeVar("T")


class MalformedNodeError(CoordinationError):
    """A node that does not hold what its path says."""

    def __init__(self, path: str, data: bytes) -> None:
        super().__init__(f"{path}: cannot read {data[:200]!r}", retriable=False)
        self.path = path


class BrokerNode(Value):
    """A live broker and where it is reached. Invariant: as of `moldau.cluster.snapshot.BrokerInfo`."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None
    timestamp_ms: int
    previous_epochs: tuple[int, ...] = ()
    """The registrations before this one since which the broker has lost nothing: it stopped cleanly, or continued in other sessions. The
    controller may have taken account of none but the first of them.
    """


class TopicNode(Value):
    """A topic's id (None in formats before 3) and, per partition, its replicas, the preferred leader first."""

    topic_id: bytes | None
    replicas: tuple[tuple[int, ...], ...]
    adding: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    """Of partitions that are being reassigned: those of their replicas that they gain."""
    removing: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    """And those that they lose."""


class PartitionState(NamedTuple):
    """Who leads a partition; `leader` is -1 where no broker does."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_broker_epoch: int = 0
    """The registration of the leader that was elected: `created_id` of its node; 0 where it is not known."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): they left the in-sync set while it was below its minimum, so they have all committed records.

    Invariant: none is in `isr`.
    """
    last_known_elr: tuple[int, ...] = ()
    """Replicas that were eligible, or in sync, before an unclean restart: the first to try where a leader may be elected uncleanly."""
    joined: tuple[tuple[int, int], ...] = ()
    """Replicas that the leader has added since the controller wrote the state, each with its registration then."""
    is_mirror: bool = False
    """Whether the partition is a mirror's: its log has the batches of another cluster, with their offsets and leader epochs."""
    cut: LogCut | None = None
    """What its log must not have."""


class ProducerIdBlock(Value):
    """Producer ids from `start` to `end`, both included, for one broker."""

    broker_id: int
    start: int
    end: int


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(path: str, data: bytes, build: Callable[[Any], T]) -> T:
    try:
        return build(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNodeError(path, data) from error


def _ids(value: Any) -> tuple[int, ...]:
    """A list of numbers; a text is iterable too, and is none."""
    if not isinstance(value, list):
        raise TypeError(value)
    return tuple(map(int, value))


def encode_broker(broker: BrokerNode) -> bytes:
    """Format 5. `host` and `port` are those of the first endpoint; `previous_broker_epochs` is a key of ours."""
    first = broker.endpoints[0]
    value: dict[str, Any] = {
        "version": 5,
        "host": first.host,
        "port": first.port,
        "jmx_port": -1,
        "timestamp": str(broker.timestamp_ms),
        "endpoints": [str(Listener(*each)) for each in broker.endpoints],
        "listener_security_protocol_map": {each.listener: PLAINTEXT for each in broker.endpoints},
        "features": {},
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if broker.previous_epochs:
        value["previous_broker_epochs"] = list(broker.previous_epochs)
    return _dump(value)


def decode_broker(path: str, data: bytes) -> BrokerNode:
    """Formats 1 to 5. The first, without `endpoints`, has the listener PLAINTEXT only."""

    def build(node: Any) -> BrokerNode:
        endpoints = [Endpoint(*parse_listener(text)) for text in node.get("endpoints", ())]
        if not endpoints:
            endpoints = [Endpoint(PLAINTEXT, str(node["host"]), int(node["port"]))]
        endpoints.sort(key=lambda each: (each.host, each.port) != (node["host"], node["port"]))
        previous = _ids(node.get("previous_broker_epochs", []))
        return BrokerNode(tuple(endpoints), node.get("rack"), int(node.get("timestamp", -1)), previous)

    return _load(path, data, build)


def encode_topic(
    topic_id: bytes,
    replicas: Sequence[Sequence[int]],
    adding: Mapping[int, Sequence[int]] = MappingProxyType({}),
    removing: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> bytes:
    """Format 3."""
    return _dump(
        {
            "version": 3,
            "topic_id": format_id(topic_id),
            "partitions": {str(index): list(brokers) for index, brokers in enumerate(replicas)},
            "adding_replicas": {str(index): list(brokers) for index, brokers in adding.items()},
            "removing_replicas": {str(index): list(brokers) for index, brokers in removing.items()},
        }
    )


def decode_topic(path: str, data: bytes) -> TopicNode:
    """Formats 1 to 3. Partitions are numbered from 0 without a gap, or the node is malformed."""

    def build(node: Any) -> TopicNode:
        text = node.get("topic_id")
        by_index, adding, removing = (
            {int(index): _ids(brokers) for index, brokers in each.items()}
            for each in (node["partitions"], node.get("adding_replicas", {}), node.get("removing_replicas", {}))
        )
        replicas = tuple(by_index[index] for index in range(len(by_index)))
        for index, brokers in (*adding.items(), *removing.items()):
            if any(broker not in by_index[index] for broker in brokers):
                raise ValueError(brokers)
        return TopicNode(None if text is None else parse_id(text), replicas, adding, removing)

    return _load(path, data, build)


def encode_state(state: PartitionState) -> bytes:
    """Format 1. Keys of ours, left out where they say nothing: the registration of the leader, `broker_epoch`; `elr`; `last_known_elr`;
    `joined_broker_epochs`, registrations by replica; `mirror`; `cut`, epoch and offset.
    """
    value: dict[str, Any] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.leader_broker_epoch:
        value["broker_epoch"] = state.leader_broker_epoch
    if state.elr:
        value["elr"] = list(state.elr)
    if state.last_known_elr:
        value["last_known_elr"] = list(state.last_known_elr)
    if state.joined:
        value["joined_broker_epochs"] = {str(replica): epoch for replica, epoch in state.joined}
    if state.is_mirror:
        value["mirror"] = True
    if state.cut is not None:
        value["cut"] = {"epoch": state.cut.epoch, "offset": state.cut.offset}
    return _dump(value)


def decode_state(path: str, data: bytes) -> PartitionState:
    """Format 1."""

    def build(node: Any) -> PartitionState:
        return PartitionState(
            int(node["leader"]),
            int(node["leader_epoch"]),
            _ids(node["isr"]),
            int(node["controller_epoch"]),
            int(node.get("broker_epoch", 0)),
            _ids(node.get("elr", [])),
            _ids(node.get("last_known_elr", [])),
            tuple((int(replica), int(epoch)) for replica, epoch in node.get("joined_broker_epochs", {}).items()),
            bool(node.get("mirror", False)),
            None if (cut := node.get("cut")) is None else LogCut(int(cut["epoch"]), int(cut["offset"])),
        )

    return _load(path, data, build)


def encode_config(values: Mapping[str, str]) -> bytes:
    """Format 1."""
    return _dump({"version": 1, "config": dict(values)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Format 1."""
    return _load(path, data, lambda node: {str(name): str(text) for name, text in node["config"].items()})


def encode_config_change(entity_path: str) -> bytes:
    """Format 2: which entity changed, as ``topics/t`` or ``brokers/<default>``."""
    return _dump({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """Format 2."""
    return _load(path, data, lambda node: str(node["entity_path"]))


def encode_isr_change(partitions: Sequence[tuple[str, int]]) -> bytes:
    """Format 1: the partitions whose leaders have written other in-sync sets."""
    return _dump({"version": 1, "partitions": [{"topic": name, "partition": index} for name, index in partitions]})


def decode_isr_change(path: str, data: bytes) -> list[tuple[str, int]]:
    """Format 1."""
    return _load(path, data, lambda node: [(str(each["topic"]), int(each["partition"])) for each in node["partitions"]])


def encode_log_dir_event(broker_id: int) -> bytes:
    """Format 1: a log directory of a broker has failed."""
    return _dump({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Format 1: the broker."""
    return _load(path, data, lambda node: int(node["broker"]))


def decode_preferred_election(path: str, data: bytes) -> list[tuple[str, int]]:
    """Format 1: partitions whose preferred replicas shall lead."""
    return decode_isr_change(path, data)


def decode_reassignment(path: str, data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """Format 1: the replicas that partitions shall have."""
    return _load(
        path, data, lambda node: {(str(each["topic"]), int(each["partition"])): _ids(each["replicas"]) for each in node["partitions"]}
    )


def encode_block(block: ProducerIdBlock) -> bytes:
    """Format 1; the numbers are texts."""
    return _dump({"version": 1, "broker": block.broker_id, "block_start": str(block.start), "block_end": str(block.end)})


def decode_block(path: str, data: bytes) -> ProducerIdBlock | None:
    """Format 1; None for a node that is not written yet."""
    if not data:
        return None
    return _load(path, data, lambda node: ProducerIdBlock(int(node["broker"]), int(node["block_start"]), int(node["block_end"])))


def encode_cluster_id(cluster_id: str) -> bytes:
    """Format 1; here the version is a text."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Format 1."""
    return _load(path, data, lambda node: str(node["id"]))


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Format 1."""
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(path: str, data: bytes) -> int:
    """Format 1, or the bare id of the first versions."""
    return _load(path, data, lambda node: int(node["brokerid"]) if isinstance(node, dict) else int(node))


def encode_incarnations(epochs: Mapping[int, int]) -> bytes:
    """Format 1, of ours: the last incarnation of each broker."""
    return _dump({"version": 1, "brokers": {str(broker_id): epoch for broker_id, epoch in epochs.items()}})


def decode_incarnations(path: str, data: bytes) -> dict[int, int]:
    """Format 1."""
    return _load(path, data, lambda node: {int(broker_id): int(epoch) for broker_id, epoch in node["brokers"].items()})


def decode_epoch(path: str, data: bytes) -> int:
    """A plain number."""
    return _load(path, data, int)
