"""What is written to the coordination tree, as values: for each change its writes, and how it shows that they have happened.

A *witness* is a node whose state after the change has no other cause. It settles a write whose answer was lost. All changes of one
write happen together, so that the witness of one is that of all.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

from moldau.cluster import znodes
from moldau.cluster.znodes import (
    BrokerNode,
    MalformedNodeError,
    PartitionState,
    ProducerIdBlock,
    decode_topic,
    encode_block,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_config_change,
    encode_controller,
    encode_incarnations,
    encode_isr_change,
    encode_log_dir_event,
    encode_state,
    encode_topic,
)
from moldau.model.value import Value
from moldau.ports.coordination import Check, Create, Data, Delete, SetData, Write

ISR_NOTIFICATION = f"{znodes.ISR_CHANGES}/isr_change_"
LOG_DIR_EVENT = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
NOTIFICATION = znodes.config_change("config_change_")


class NewTopic(Value):
    """A topic with the replicas of all its partitions, and what it sets itself; without states."""

    name: str
    topic_id: bytes
    replicas: Sequence[Sequence[int]]
    configs: Mapping[str, str]


class NewPartitions(Value):
    """The parent of a topic's partitions, which tools leave to the controller."""

    name: str


class PutTopic(Value):
    """Other replicas of a topic, at this version of its node."""

    name: str
    topic_id: bytes
    replicas: Sequence[Sequence[int]]
    version: int
    adding: Mapping[int, Sequence[int]] = MappingProxyType({})
    """Of partitions that are being reassigned: the replicas that they gain."""
    removing: Mapping[int, Sequence[int]] = MappingProxyType({})
    """And those that they lose."""


class NewState(Value):
    """The first state of a partition."""

    name: str
    partition: int
    state: PartitionState


class PutState(Value):
    """Another state of a partition, at this version of its node."""

    name: str
    partition: int
    state: PartitionState
    version: int


class PutIsr(Value):
    """Another in-sync set, by the partition's leader: the state at this version of its node; and the notification for the controller."""

    name: str
    partition: int
    state: PartitionState
    version: int


class MarkDeletion(Value):
    """A topic is being deleted."""

    name: str


class DropPartitions(Value):
    """Remove the nodes of partitions; at least one."""

    name: str
    partitions: Sequence[int]


class DropTopic(Value):
    """Remove what is left of a topic without partitions: these of its nodes, children first, and the mark on it."""

    name: str
    nodes: Sequence[str]


class PutTopicConfig(Value):
    """What a topic sets itself, at this version of the node or None if it is new; and the notification for all brokers."""

    name: str
    values: Mapping[str, str]
    version: int | None


class PutBrokerConfig(Value):
    """Dynamic configuration of a broker, or of all (None), at this version of the node or None if it is new; and the notification."""

    broker_id: int | None
    values: Mapping[str, str]
    version: int | None


class PutProducerIds(Value):
    """Take a block of producer ids, at this version of the node that has the last one."""

    block: ProducerIdBlock
    version: int


class DropNotifications(Value):
    """Remove notifications of changed configurations, by the names of their nodes; at least one."""

    names: Sequence[str]


class DropIsrNotifications(Value):
    """Remove notifications of in-sync sets, by the names of their nodes; at least one."""

    names: Sequence[str]


class PutLogDirEvent(Value):
    """A log directory of a broker has failed. Written again where the answer was lost: no node shows which of them it was."""

    broker_id: int


class DropLogDirEvents(Value):
    """Remove notifications of failed log directories, by the names of their nodes; at least one."""

    names: Sequence[str]


class DropAdminNode(Value):
    """Remove the node that a tool has written, as what it wanted is done."""

    path: str


class DropController(Value):
    """Be controller no more."""


class Unregister(Value):
    """End the registration of a broker that was made in this session."""

    broker_id: int


class ClaimController(Value):
    """Become controller with an epoch; `version` is that of the last epoch's node, None if there is none."""

    broker_id: int
    epoch: int
    version: int | None
    time_ms: int
    replaces: bool = False
    """Whether another one is controller, and loses that: it is the one that was seen if the last epoch's node has still this version."""


class RaiseControllerEpoch(Value):
    """As the controller that has resigned and kept its node, which has this version: continue with an epoch."""

    epoch: int
    version: int
    node_version: int


class Register(Value):
    """Register a live broker."""

    broker_id: int
    node: BrokerNode


class PutIncarnations(Value):
    """The incarnations of brokers that are taken account of, at this version of the node or None if it is new."""

    epochs: Mapping[int, int]
    version: int | None


class NewCluster(Value):
    """Fixed nodes that are missing, parents first, at least one; the id of a cluster that has none; and the broker that makes them."""

    roots: Sequence[str]
    cluster_id: str | None
    broker: Register | None = None
    """None if it is registered otherwise."""


Change = (
    NewTopic
    | NewPartitions
    | PutTopic
    | NewState
    | PutState
    | PutIsr
    | MarkDeletion
    | DropPartitions
    | DropTopic
    | PutTopicConfig
    | PutBrokerConfig
    | PutProducerIds
    | DropNotifications
    | DropIsrNotifications
    | PutLogDirEvent
    | DropLogDirEvents
    | DropAdminNode
    | DropController
    | Unregister
    | ClaimController
    | RaiseControllerEpoch
    | PutIncarnations
    | NewCluster
    | Register
)


class Holds(Value):
    """The node holds this data at this version."""

    path: str
    data: bytes
    version: int


class IsTopic(Value):
    """The node is that of the topic with this id."""

    path: str
    topic_id: bytes


class IsOurs(Value):
    """The node ends with our session."""

    path: str


class IsThere(Value):
    """The node exists, whichever client created it."""

    path: str


class IsGone(Value):
    """The node does not exist."""

    path: str


Witness = Holds | IsTopic | IsOurs | IsThere | IsGone


def writes_of(change: Change) -> tuple[Write, ...]:
    """The writes of a change, in their order."""
    match change:
        case NewTopic(name, topic_id, replicas, configs):
            return (
                Create(znodes.topic_config(name), encode_config(configs)),
                Create(znodes.topic(name), encode_topic(topic_id, replicas)),
                Create(znodes.partitions(name)),
            )
        case NewPartitions(name):
            return (Create(znodes.partitions(name)),)
        case PutTopic(name, topic_id, replicas, version, adding, removing):
            return (SetData(znodes.topic(name), encode_topic(topic_id, replicas, adding, removing), version),)
        case NewState(name, partition, state):
            return Create(znodes.partition(name, partition)), Create(znodes.partition_state(name, partition), encode_state(state))
        case PutState(name, partition, state, version):
            return (SetData(znodes.partition_state(name, partition), encode_state(state), version),)
        case PutIsr(name, partition, state, version):
            notification = Create(ISR_NOTIFICATION, encode_isr_change([(name, partition)]), sequential=True)
            return SetData(znodes.partition_state(name, partition), encode_state(state), version), notification
        case MarkDeletion(name):
            return (Create(znodes.delete_topic(name)),)
        case DropPartitions(name, partitions):
            nodes = ((znodes.partition_state(name, each), znodes.partition(name, each)) for each in partitions)
            return tuple(Delete(path) for pair in nodes for path in pair)
        case DropTopic(name, nodes):
            return tuple(Delete(path) for path in (*nodes, znodes.delete_topic(name)))
        case PutTopicConfig(name, values, version):
            return _put(znodes.topic_config(name), encode_config(values), version), _notification(f"topics/{name}")
        case PutBrokerConfig(broker_id, values, version):
            entity = znodes.DEFAULT_ENTITY if broker_id is None else str(broker_id)
            return _put(znodes.broker_config(broker_id), encode_config(values), version), _notification(f"brokers/{entity}")
        case PutProducerIds(block, version):
            return (SetData(znodes.PRODUCER_ID_BLOCK, encode_block(block), version),)
        case DropNotifications(names):
            return tuple(Delete(znodes.config_change(name)) for name in names)
        case PutIncarnations(epochs, version):
            return (_put(znodes.INCARNATIONS, encode_incarnations(epochs), version),)
        case DropIsrNotifications(names):
            return tuple(Delete(f"{znodes.ISR_CHANGES}/{name}") for name in names)
        case PutLogDirEvent(broker_id):
            return (Create(LOG_DIR_EVENT, encode_log_dir_event(broker_id), sequential=True),)
        case DropLogDirEvents(names):
            return tuple(Delete(f"{znodes.LOG_DIR_EVENTS}/{name}") for name in names)
        case DropAdminNode(path):
            return (Delete(path),)
        case DropController():
            return (Delete(znodes.CONTROLLER),)
        case Unregister(broker_id):
            return (Delete(znodes.broker(broker_id)),)
        case RaiseControllerEpoch(epoch, version, node_version):
            return Check(znodes.CONTROLLER, node_version), SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version)
        case NewCluster(roots, cluster_id, broker):
            identity = () if cluster_id is None else (Create(znodes.CLUSTER_ID, encode_cluster_id(cluster_id)),)
            return *(Create(path) for path in roots), *identity, *(() if broker is None else writes_of(broker))
        case ClaimController(broker_id, epoch, version, time_ms, replaces):
            path, data = znodes.CONTROLLER_EPOCH, str(epoch).encode()
            return (
                *((Delete(znodes.CONTROLLER),) if replaces else ()),
                Create(znodes.CONTROLLER, encode_controller(broker_id, time_ms), ephemeral=True),
                Create(path, data) if version is None else SetData(path, data, version),
            )
        case Register(broker_id, node):
            return (Create(znodes.broker(broker_id), encode_broker(node), ephemeral=True),)
        case _:
            assert_never(change)


def witness_of(change: Change) -> Witness:
    """What shows that the writes of a change have happened."""
    match change:
        case NewTopic(name, topic_id):
            return IsTopic(znodes.topic(name), topic_id)
        case NewPartitions(name):
            return IsThere(znodes.partitions(name))
        case MarkDeletion(name):
            return IsThere(znodes.delete_topic(name))
        case DropPartitions(name, partitions):
            return IsGone(znodes.partition(name, partitions[0]))
        case DropTopic(name):
            return IsGone(znodes.delete_topic(name))
        case DropNotifications(names):
            return IsGone(znodes.config_change(names[0]))
        case DropIsrNotifications(names):
            return IsGone(f"{znodes.ISR_CHANGES}/{names[0]}")
        case PutLogDirEvent():
            return IsThere(LOG_DIR_EVENT)
        case DropLogDirEvents(names):
            return IsGone(f"{znodes.LOG_DIR_EVENTS}/{names[0]}")
        case DropAdminNode(path):
            return IsGone(path)
        case DropController():
            return IsGone(znodes.CONTROLLER)
        case Unregister(broker_id):
            return IsGone(znodes.broker(broker_id))
        case RaiseControllerEpoch(epoch, version):
            return Holds(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version + 1)
        case NewCluster(roots, _, broker):
            return IsThere(roots[0]) if broker is None else witness_of(broker)
        case ClaimController():
            return IsOurs(znodes.CONTROLLER)
        case Register(broker_id):
            return IsOurs(znodes.broker(broker_id))
        case PutTopic() | NewState() | PutState() | PutIsr() | PutTopicConfig() | PutBrokerConfig() | PutProducerIds() | PutIncarnations():
            write = next(write for write in writes_of(change) if isinstance(write, Create | SetData) and write.data)
            return Holds(write.path, write.data, write.version + 1 if isinstance(write, SetData) else 0)
        case _:
            assert_never(change)


def shows(witness: Witness, found: Data | None, session_id: int) -> bool:
    """Whether the witness, as it was found, shows that the change has happened."""
    match witness:
        case IsGone():
            return found is None
        case IsThere():
            return found is not None
        case Holds(_, data, version):
            return found is not None and (found.data, found.stat.version) == (data, version)
        case IsOurs():
            return found is not None and found.stat.owner == session_id
        case IsTopic(path, topic_id):
            try:
                return found is not None and decode_topic(path, found.data).topic_id == topic_id
            except MalformedNodeError:
                return False
        case _:
            assert_never(witness)


def _put(path: str, data: bytes, version: int | None) -> Create | SetData:
    return Create(path, data) if version is None else SetData(path, data, version)


def _notification(entity: str) -> Create:
    return Create(NOTIFICATION, encode_config_change(entity), sequential=True)
