"""Reads of the coordination tree that take more than one request: live brokers, topics with their states, what is left of a topic.

Each is a generator that yields reads to be made together and receives their results; `answer` runs it over a store.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

from moldau.cluster import znodes
from moldau.cluster.snapshot import BrokerInfo
from moldau.cluster.store import MetadataStore
from moldau.cluster.znodes import (
    MalformedNodeError,
    PartitionState,
    ProducerIdBlock,
    TopicNode,
    decode_block,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_config_change,
    decode_controller,
    decode_epoch,
    decode_incarnations,
    decode_isr_change,
    decode_log_dir_event,
    decode_preferred_election,
    decode_reassignment,
    decode_state,
    decode_topic,
)
from moldau.model.config.store import usable_by_topic
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.model.value import Value
from moldau.ports.coordination import Children, Data, Exists, GetChildren, GetData, NodeStat, NoNodeError, Result

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
Query = Generator[Sequence[GetData | GetChildren | Exists], list[Result], T]

TOPIC_NAMES = (GetChildren(znodes.TOPICS, watch=True), GetChildren(znodes.DELETE_TOPICS, watch=True))


def answer(store: MetadataStore, query: Query[T], done: Callable[[T | CoordinationError], object]) -> None:
    """Call `done` with the outcome of a query. CoordinationError; MalformedNodeError for a node that cannot be read."""

    def proceed(results: list[Result] | CoordinationError | None) -> None:
        if isinstance(results, CoordinationError):
            query.close()
            done(results)
            return
        try:
            requests = next(query) if results is None else query.send(results)
        except StopIteration as end:
            outcome: T = end.value
        except CoordinationError as error:
            done(error)
            return
        else:
            store.read_many(requests, proceed)
            return
        done(outcome)

    proceed(None)


class LiveBroker(Value):
    """A registered broker, and its incarnation: `created_id` of the registration."""

    info: BrokerInfo
    epoch: int
    previous_epochs: tuple[int, ...] = ()
    """As of `moldau.cluster.znodes.BrokerNode`."""


class FoundState(NamedTuple):
    """A partition's state and the version of its node."""

    state: PartitionState
    version: int


class FoundTopic(Value):
    """A topic's node, its version, and the states of its partitions; None where one has none."""

    name: str
    node: TopicNode
    version: int
    states: tuple[FoundState | None, ...]


class Contents(Value):
    """All that a controller begins with."""

    brokers: dict[int, LiveBroker]
    topics: list[FoundTopic]
    marks: Sequence[str]
    """Names of topics marked for deletion; there need not be such a topic."""
    incarnations: dict[int, int]
    """Those of brokers that a controller has taken account of."""
    incarnations_version: int | None
    """Version of the node; None if there is none."""


class ControllerNodes(Value):
    """Who is controller, and the last epoch."""

    broker_id: int | None
    """None if there is no controller."""
    owner: int
    """Session of the controller."""
    version: int
    """Version of the controller's node."""
    epoch: int | None
    """None before the first controller."""
    epoch_version: int


class TopicNodes(Value):
    """What is left of a topic."""

    partitions: tuple[int, ...]
    nodes: tuple[str, ...]
    """Its other nodes but the mark, children first."""


class ConfigNodes(Value):
    """What topics set themselves; dynamic configurations by broker, those of all under None."""

    topics: dict[str, dict[str, str]]
    brokers: dict[int | None, dict[str, str]]


class IsrNotifications(Value):
    """Notifications of in-sync sets that leaders have changed."""

    names: Sequence[str]
    partitions: Sequence[TopicPartition]
    malformed: Sequence[MalformedNodeError]


class LogDirEvents(Value):
    """Notifications of log directories that have failed."""

    names: Sequence[str]
    broker_ids: Sequence[int]


FoundStates = Contents | Sequence[FoundTopic] | Sequence[FoundState | MalformedNodeError | None]


class AdminWork(Value):
    """Nodes that tools have written, each with its `created_id`; None where there is none."""

    election: tuple[list[TopicPartition] | MalformedNodeError, int] | None
    moves: tuple[dict[TopicPartition, tuple[int, ...]] | MalformedNodeError, int] | None


def controller_nodes() -> Query[ControllerNodes]:
    """Who is controller; a watch sees one go and come."""
    _, found, epoch = yield (Exists(znodes.CONTROLLER, watch=True), GetData(znodes.CONTROLLER), GetData(znodes.CONTROLLER_EPOCH))
    number, epoch_version = None, 0
    if isinstance(epoch, Data):
        number, epoch_version = decode_epoch(znodes.CONTROLLER_EPOCH, epoch.data), epoch.stat.version
    if not isinstance(found, Data):
        return ControllerNodes(None, 0, 0, number, epoch_version)
    broker_id = decode_controller(znodes.CONTROLLER, found.data)
    return ControllerNodes(broker_id, found.stat.owner, found.stat.version, number, epoch_version)


def controller_owner() -> Query[int]:
    """The session of the controller, 0 if there is none; with the watch of `controller_nodes`."""
    (found,) = yield (Exists(znodes.CONTROLLER, watch=True),)
    return found.owner if isinstance(found, NodeStat) else 0


def contents() -> Query[Contents]:
    """Everything but configurations; with watches."""
    live = yield from brokers()
    *found, known = yield (*TOPIC_NAMES, GetData(znodes.INCARNATIONS))
    names, marks = map(_names, found)
    epochs: dict[int, int] = {}
    version = None
    if isinstance(known, Data):
        epochs, version = decode_incarnations(znodes.INCARNATIONS, known.data), known.stat.version
    return Contents(live, (yield from topics(names)), marks, epochs, version)


def brokers() -> Query[dict[int, LiveBroker]]:
    """The live brokers, but for those whose registrations cannot be read; with watches."""
    (ids,) = yield (GetChildren(znodes.BROKER_IDS, watch=True),)
    names = _names(ids)
    found = yield [GetData(znodes.broker(int(name)), watch=True) for name in names]
    live = {}
    for name, each in zip(names, found, strict=True):
        if isinstance(each, Data):
            node = _decoded(decode_broker, znodes.broker(int(name)), each.data)
            if isinstance(node, MalformedNodeError):
                _LOG.error("broker counts as not live until its registration is replaced: reason=%s", node)
                continue
            info = BrokerInfo(int(name), node.endpoints, node.rack)
            live[int(name)] = LiveBroker(info, each.stat.created_id, node.previous_epochs)
    return live


def registration(broker_id: int) -> Query[tuple[int, int] | None]:
    """The incarnation of a registered broker and its session; None if it is not registered."""
    (found,) = yield (Exists(znodes.broker(broker_id)),)
    return (found.created_id, found.owner) if isinstance(found, NodeStat) else None


def state_and_brokers(name: str, partition: int, broker_ids: Sequence[int]) -> Query[tuple[FoundState | None, dict[int, int]]]:
    """A partition's state, None if there is none; the incarnations of those of these brokers that are registered."""
    state, *found = yield [GetData(znodes.partition_state(name, partition)), *(GetData(znodes.broker(each)) for each in broker_ids)]
    registered = {each: data.stat.created_id for each, data in zip(broker_ids, found, strict=True) if isinstance(data, Data)}
    return _state(name, partition, state), registered


def topic_names() -> Query[tuple[Sequence[str], Sequence[str]]]:
    """The names of all topics, and of those marked for deletion; with watches."""
    names, marks = yield TOPIC_NAMES
    return _names(names), _names(marks)


def topics(names: Sequence[str]) -> Query[list[FoundTopic]]:
    """Topics, those that exist, with watches on their own nodes."""
    nodes = []
    for name, found in zip(names, (yield [GetData(znodes.topic(name), watch=True) for name in names]), strict=True):
        if isinstance(found, Data):
            nodes.append((name, decode_topic(znodes.topic(name), found.data), found.stat.version))
    states = iter((yield [GetData(znodes.partition_state(name, index)) for name, node, _ in nodes for index in range(len(node.replicas))]))
    return [FoundTopic(*each, tuple(_state(each[0], index, next(states)) for index in range(len(each[1].replicas)))) for each in nodes]


def partition_states(partitions: Sequence[tuple[str, bytes, int]]) -> Query[list[FoundState | MalformedNodeError | None]]:
    """States of partitions, each by its topic's name and id; None where there is none, or the topic is another one; or the error."""
    names = list(dict.fromkeys(name for name, _, _ in partitions))
    requests = [GetData(znodes.topic(name)) for name in names]
    found = yield [*requests, *(GetData(znodes.partition_state(name, index)) for name, _, index in partitions)]
    ids = {}
    for name, each in zip(names, found, strict=False):
        topic = _decoded(decode_topic, znodes.topic(name), each.data) if isinstance(each, Data) else None
        ids[name] = topic.topic_id if isinstance(topic, TopicNode) else None
    states: list[FoundState | MalformedNodeError | None] = []
    for (name, topic_id, index), each in zip(partitions, found[len(names) :], strict=True):
        try:
            states.append(_state(name, index, each) if ids[name] == topic_id else None)
        except MalformedNodeError as error:
            states.append(error)
    return states


def states_in(found: FoundStates) -> Iterator[PartitionState]:
    """The states of what was read."""
    for each in found.topics if isinstance(found, Contents) else found:
        for state in each.states if isinstance(each, FoundTopic) else (each,):
            if isinstance(state, FoundState):
                yield state.state


def topic_versions(names: Sequence[str]) -> Query[dict[str, int]]:
    """The versions of topics' own nodes, those that exist; with watches."""
    found = yield [Exists(znodes.topic(name), watch=True) for name in names]
    return {name: stat.version for name, stat in zip(names, found, strict=True) if isinstance(stat, NodeStat)}


def topic_nodes(name: str) -> Query[TopicNodes]:
    """The nodes of a topic that exist, named by its node or not."""
    parent = znodes.partitions(name)
    children, topic, config = yield (GetChildren(parent), Exists(znodes.topic(name)), Exists(znodes.topic_config(name)))
    found = ((parent, children), (znodes.topic(name), topic), (znodes.topic_config(name), config))
    return TopicNodes(tuple(sorted(map(int, _names(children)))), tuple(path for path, node in found if node is not None))


def config(path: str) -> Query[tuple[dict[str, str], int | None]]:
    """A configuration and the version of its node, None if there is none."""
    (found,) = yield (GetData(path),)
    if not isinstance(found, Data):
        return {}, None
    return decode_config(path, found.data), found.stat.version


def configs() -> Query[ConfigNodes]:
    """All configurations; of topics, what is allowed."""
    topic_children, broker_children = yield (GetChildren(znodes.CONFIG_TOPICS), GetChildren(znodes.CONFIG_BROKERS))
    topic_paths = [znodes.topic_config(name) for name in _names(topic_children)]
    broker_paths = [f"{znodes.CONFIG_BROKERS}/{name}" for name in _names(broker_children)]
    found = yield [GetData(path) for path in (*topic_paths, *broker_paths)]
    of_topics: dict[str, dict[str, str]] = {}
    of_brokers: dict[int | None, dict[str, str]] = {}
    for number, (path, each) in enumerate(zip((*topic_paths, *broker_paths), found, strict=True)):
        values = decode_config(path, each.data) if isinstance(each, Data) and each.data else {}
        name = path.rpartition("/")[2]
        if number < len(topic_paths):
            of_topics[name] = usable_by_topic(values, path)
        elif values:
            of_brokers[None if name == znodes.DEFAULT_ENTITY else int(name)] = values
    return ConfigNodes(of_topics, of_brokers)


def notification_names() -> Query[Sequence[str]]:
    """Names of the notifications of changed configurations, in their order; with a watch."""
    (found,) = yield (GetChildren(znodes.CONFIG_CHANGES, watch=True),)
    return _names(found)


ISR_NOTIFICATIONS_READ_MAX = 1000


def isr_notifications() -> Query[IsrNotifications]:
    """The oldest notifications of in-sync sets, and which partitions they name, each once; with a watch."""
    (found,) = yield (GetChildren(znodes.ISR_CHANGES, watch=True),)
    names = _names(found)[:ISR_NOTIFICATIONS_READ_MAX]
    paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
    nodes = yield [GetData(path) for path in paths]
    there = [_decoded(decode_isr_change, path, each.data) for path, each in zip(paths, nodes, strict=True) if isinstance(each, Data)]
    partitions = dict.fromkeys(TopicPartition(*each) for found in there if not isinstance(found, MalformedNodeError) for each in found)
    malformed = [each for each in there if isinstance(each, MalformedNodeError)]
    return IsrNotifications([name for name, each in zip(names, nodes, strict=True) if each is not None], list(partitions), malformed)


def log_dir_events() -> Query[LogDirEvents]:
    """Notifications of failed log directories, and of which brokers they are; with a watch."""
    (found,) = yield (GetChildren(znodes.LOG_DIR_EVENTS, watch=True),)
    names = _names(found)
    paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
    nodes = yield [GetData(path) for path in paths]
    read = [_decoded(decode_log_dir_event, path, each.data) for path, each in zip(paths, nodes, strict=True) if isinstance(each, Data)]
    broker_ids = dict.fromkeys(each for each in read if not isinstance(each, MalformedNodeError))
    return LogDirEvents([name for name, each in zip(names, nodes, strict=True) if each is not None], list(broker_ids))


def admin_work() -> Query[AdminWork]:
    """What tools want done; with watches, also on nodes that do not exist."""
    paths = (znodes.PREFERRED_ELECTION, znodes.REASSIGNMENT)
    *_, election, moves = yield (*(Exists(path, watch=True) for path in paths), *map(GetData, paths))
    wanted, targets = None, None
    if isinstance(election, Data):
        elected = _decoded(decode_preferred_election, paths[0], election.data)
        wanted = elected if isinstance(elected, MalformedNodeError) else [TopicPartition(*each) for each in elected]
    if isinstance(moves, Data):
        moved = _decoded(decode_reassignment, paths[1], moves.data)
        targets = moved if isinstance(moved, MalformedNodeError) else {TopicPartition(*each): to for each, to in moved.items()}
    return AdminWork(
        None if wanted is None else (wanted, cast("Data", election).stat.created_id),
        None if targets is None else (targets, cast("Data", moves).stat.created_id),
    )


def changed_entities(names: Sequence[str]) -> Query[list[str | MalformedNodeError]]:
    """What notifications are about, those that still exist: ``topics/t``, ``brokers/<default>``; each once; or the error."""
    found = yield [GetData(znodes.config_change(name)) for name in names]
    there = [(znodes.config_change(name), each.data) for name, each in zip(names, found, strict=True) if isinstance(each, Data)]
    return list(dict.fromkeys(_decoded(decode_config_change, *each) for each in there))


def topic_configs(names: Sequence[str]) -> Query[dict[str, dict[str, str] | MalformedNodeError]]:
    """What some topics set themselves that is allowed, those that have a configuration; the error of a malformed one."""
    return _topic_configs(names, (yield [GetData(znodes.topic_config(name)) for name in names]))


def topic_configs_and_missing(names: Sequence[str]) -> Query[tuple[dict[str, dict[str, str] | MalformedNodeError], list[str]]]:
    """The same, and which of these topics are not there, or not yet: a server of the tree may lag behind the one that the controller has
    written to. A topic and its configuration are made by one write, so that of one that is there the configuration is, too.
    """
    found = yield [*(Exists(znodes.topic(name)) for name in names), *(GetData(znodes.topic_config(name)) for name in names)]
    missing = [name for name, each in zip(names, found, strict=False) if each is None]
    return _topic_configs(names, found[len(names) :]), missing


def _topic_configs(names: Sequence[str], found: Sequence[Result]) -> dict[str, dict[str, str] | MalformedNodeError]:
    there = [(name, each.data) for name, each in zip(names, found, strict=True) if isinstance(each, Data)]
    return {name: _decoded(_decode_topic_config, znodes.topic_config(name), data) for name, data in there}


def _decode_topic_config(path: str, data: bytes) -> dict[str, str]:
    return usable_by_topic(decode_config(path, data), path)


def _decoded(decode: Callable[[str, bytes], T], path: str, data: bytes) -> T | MalformedNodeError:
    try:
        return decode(path, data)
    except MalformedNodeError as error:
        return error


def old_notifications(before_ms: int, kept_max: int, count_max: int) -> Query[Sequence[str]]:
    """Of the oldest notifications, at most `count_max`, those made before a time, and those beyond the newest `kept_max`."""
    (found,) = yield (GetChildren(znodes.CONFIG_CHANGES),)
    names = _names(found)
    oldest = names[:count_max]
    stats = yield [Exists(znodes.config_change(name)) for name in oldest]
    is_old = [isinstance(stat, NodeStat) and stat.created_ms < before_ms for stat in stats]
    return [name for place, name in enumerate(oldest) if is_old[place] or place < len(names) - kept_max]


def producer_id_block() -> Query[tuple[ProducerIdBlock | None, int]]:
    """The last block of producer ids that was taken, None before the first, and the version of its node."""
    (found,) = yield (GetData(znodes.PRODUCER_ID_BLOCK),)
    if not isinstance(found, Data):
        raise NoNodeError(znodes.PRODUCER_ID_BLOCK)
    return decode_block(znodes.PRODUCER_ID_BLOCK, found.data), found.stat.version


def cluster() -> Query[tuple[list[str], str | None]]:
    """The fixed nodes that are missing, parents first, and the cluster's id, None in a new store."""
    (top,) = yield (GetChildren("/"),)
    if not _names(top):
        return list(znodes.ROOTS), None
    parents = list(dict.fromkeys(path.rpartition("/")[0] for path in znodes.ROOTS))
    *found, cluster_id = yield (*(GetChildren(parent or "/") for parent in parents), GetData(znodes.CLUSTER_ID))
    there = {f"{parent}/{name}": None for parent, children in zip(parents, found, strict=True) for name in _names(children)}
    missing = [path for path in znodes.ROOTS if path not in there]
    return missing, decode_cluster_id(znodes.CLUSTER_ID, cluster_id.data) if isinstance(cluster_id, Data) else None


def _state(name: str, index: int, found: Result) -> FoundState | None:
    if not isinstance(found, Data):
        return None
    return FoundState(decode_state(znodes.partition_state(name, index), found.data), found.stat.version)


def _names(found: Result) -> Sequence[str]:
    """Of children; none if their parent does not exist."""
    return () if found is None else cast("Children", found).names
