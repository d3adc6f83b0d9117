"""Reads and writes the cluster's metadata on the coordination tree, and keeps the snapshot of it.

Rules that hold here:

* A change is one `multi`: after a crash the tree has all of it or nothing. The snapshot is replaced after the tree, never before; when
  the tree refuses (CoordinationError), nothing has changed.
* Steps end when the change is on disk. New topics and partitions enter the snapshot only then: a log of a topic that the next start does
  not know would be kept and not served. A deletion or a changed configuration enters it as soon as it is written, so that no other request
  decides by what was before. When the sync fails (CoordinationError), the next start finds the change or not.
* Steps write only when the tree takes it without waiting for the disk (`writable`).
* A change of many nodes is several, in steps, and the one that counts is the last: it names the new partitions in the topic's node. What
  others left of a change that was interrupted is made use of, or removed: nodes of partitions that the topic's node does not name, and at
  the next start a topic whose node names none.
* Every write of a partition's state is conditional on the version read.
* Each start raises every partition's leader epoch, so that a tail lost in a crash and offsets used again can be told apart (KIP-101).
* A topic is deleted in three steps, each of which a crash may follow: it is marked (`mark_deleted`) and from then on unknown to requests;
  its logs go; its nodes go (`finish_deletion`). `deleting` holds the topics between the first step and the last.

Not here: the election of leaders among several brokers. The one broker of an embedded store leads what it has a replica of.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from moldau.cluster import paths, reading
from moldau.cluster.snapshot import BrokerInfo, MetadataSnapshot, PartitionInfo, TopicInfo
from moldau.cluster.znodes import (
    BrokerNode,
    PartitionState,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_config_change,
    encode_controller,
    encode_state,
    encode_topic,
)
from moldau.model.errors import CoordinationError
from moldau.model.identity import ID_BYTES, TopicPartition, format_id
from moldau.model.steps import UNFINISHED, Elsewhere, Pause, Steps
from moldau.ports.coordination import (
    Create,
    Delete,
    EmbeddedCoordination,
    Exists,
    GetChildren,
    Multi,
    NodeExistsError,
    NoNodeError,
    SetData,
    Write,
    answered,
)

PARTITIONS_PER_STEP = 100
"""Partitions whose nodes one transaction makes or removes: about 5 ms."""
CHANGES_KEPT_MS = 15 * 60 * 1000
"""Notifications of changed configurations are purged after this time."""
CHANGES_MAX = 1000
"""More of them are purged before."""
CHANGES_PURGED_MAX = 100
"""After this many changes old ones are searched for, and twice as many purged."""
_NO_ID = bytes(ID_BYTES)
_METADATA_TOPIC_ID = bytes(ID_BYTES - 1) + b"\x01"
_RESERVED_IDS = (_NO_ID, _METADATA_TOPIC_ID)


class NewTopic(NamedTuple):
    """A topic to be created: the replicas of each of its partitions, what it sets itself, and leader epochs to begin with other than 0."""

    name: str
    topic_id: bytes
    replicas: Sequence[Sequence[int]]
    configs: Mapping[str, str]
    first_epochs: Mapping[int, int] = MappingProxyType({})


class OtherClusterError(CoordinationError):
    """The store is another cluster's than the one that was asked for."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"{paths.CLUSTER_ID}: the store belongs to cluster {found}, not to {wanted}", retriable=False)
        self.found = found
        self.wanted = wanted


class Registry:
    """The metadata of a cluster, by way of one broker's session. Used by one thread."""

    def __init__(
        self, coordination: EmbeddedCoordination, *, broker_id: int, time_ms: Callable[[], int], random_bytes: Callable[[int], bytes]
    ) -> None:
        self.coordination = coordination
        self.snapshot = MetadataSnapshot()
        self.deleting: set[str] = set()
        self._broker_id = broker_id
        self._time_ms = time_ms
        self._random_bytes = random_bytes
        self._controller_epoch = 0
        self._changes = 0
        self._purge_due_ms = 0

    # Start

    def start(self, *, cluster_id: str | None = None, broker: BrokerInfo | None = None) -> None:
        """Read everything; in one transaction make what is missing, become controller, raise the leader epochs and register `broker`.

        A new store gets `cluster_id`, or a random one. OtherClusterError when a store has another one, CoordinationError when the broker's
        id is taken.
        """
        tree = self.coordination
        operations: list[Write] = [Create(root) for root in reading.missing_roots(tree)]
        cluster_id = self._settle_cluster_id(cluster_id, operations)
        self._become_controller(operations)
        self.deleting = reading.topics_being_deleted(tree)
        topics = [self._raise_epochs(topic, operations) for topic in reading.topics(tree, but=self.deleting)]
        if broker is not None:
            operations.append(self._registration(broker))
        self._run(operations)
        self.deleting.update(topic.name for topic in topics if not topic.partitions)
        self.snapshot = MetadataSnapshot(
            cluster_id,
            self._broker_id,
            {each.broker_id: each for each in reading.brokers(tree)},
            {topic.name: topic for topic in topics if topic.name not in self.deleting},
            reading.topic_configs(tree),
            reading.broker_configs(tree),
        )

    def register(self, broker: BrokerInfo) -> None:
        """Announce this broker, if `start` did not: its address may be known only once it listens. CoordinationError if its id is taken."""
        self._run([self._registration(broker)])
        self.snapshot = self.snapshot.with_brokers([*self.snapshot.brokers.values(), broker], self._broker_id)

    def _settle_cluster_id(self, wanted: str | None, operations: list[Write]) -> str:
        found = reading.cluster_id(self.coordination)
        if found is None:
            found = format_id(self._random_bytes(ID_BYTES)) if wanted is None else wanted
            operations.append(Create(paths.CLUSTER_ID, encode_cluster_id(found)))
        elif wanted not in (None, found):
            raise OtherClusterError(found, str(wanted))
        return found

    def _become_controller(self, operations: list[Write]) -> None:
        epoch = reading.controller_epoch(self.coordination)
        self._controller_epoch = 1 if epoch is None else epoch + 1
        data = str(self._controller_epoch).encode()
        operations.append(Create(paths.CONTROLLER_EPOCH, data) if epoch is None else SetData(paths.CONTROLLER_EPOCH, data))
        operations.append(Create(paths.CONTROLLER, encode_controller(self._broker_id, self._time_ms()), ephemeral=True))

    def _registration(self, broker: BrokerInfo) -> Create:
        node = BrokerNode(broker.endpoints, broker.rack, self._time_ms())
        return Create(paths.broker(broker.broker_id), encode_broker(node), ephemeral=True)

    def _write(self, operations: Sequence[Write]) -> None:
        """All of them or none. CoordinationError."""
        answered(self.coordination, Multi(tuple(operations)))

    def _run(self, operations: Sequence[Write]) -> None:
        try:
            self._write(operations)
        except NodeExistsError as error:
            if error.path.startswith(f"{paths.BROKER_IDS}/") or error.path == paths.CONTROLLER:
                raise CoordinationError(f"{error.path}: a live broker has registered there", retriable=False) from error
            raise

    def _raise_epochs(self, topic: reading.FoundTopic, operations: list[Write]) -> TopicInfo:
        topic_id = topic.node.topic_id
        if topic_id is None:
            topic_id = self.new_topic_id()
            operations.append(SetData(paths.topic(topic.name), encode_topic(topic_id, topic.node.replicas)))
        partitions = []
        for index, (replicas, found) in enumerate(zip(topic.node.replicas, topic.states, strict=True)):
            state = found.state._replace(leader_epoch=found.state.leader_epoch + 1, controller_epoch=self._controller_epoch)
            operations.append(SetData(paths.partition_state(topic.name, index), encode_state(state), found.version))
            partitions.append(_info(index, replicas, state, found.version + 1))
        return TopicInfo(topic.name, topic_id, tuple(partitions))

    # Steps

    def writable(self) -> Steps:
        """Wait until a write does not wait for the disk."""
        while not self.coordination.is_writable:
            yield Elsewhere(self.coordination.when_writable)

    def _durable(self) -> Steps:
        """Wait until all that was written is on disk. CoordinationError."""
        outcome: list[CoordinationError | None] = []
        resumes: list[Callable[[], object]] = []

        def done(error: CoordinationError | None) -> None:
            outcome.append(error)
            for resume in resumes:
                resume()

        self.coordination.when_durable(done)
        if not outcome:
            yield Elsewhere(resumes.append)
        if outcome[0] is not None:
            raise outcome[0]

    # Topics

    def new_topic_id(self) -> bytes:
        """An id that no topic has had."""
        while (topic_id := self._random_bytes(ID_BYTES)) in _RESERVED_IDS:
            pass
        return topic_id

    def create_topics(self, topics: Sequence[NewTopic]) -> Steps:
        """Create topics, all of them or none. NodeExistsError if one is there."""
        yield from self.writable()
        operations: list[Write] = []
        made = []
        for topic in topics:
            operations.append(Create(paths.topic_config(topic.name), encode_config(topic.configs)))
            operations.append(Create(paths.topic(topic.name), encode_topic(topic.topic_id, topic.replicas)))
            operations.append(Create(paths.partitions(topic.name)))
            partitions = self._add_partitions(topic.name, 0, topic.replicas, operations, topic.first_epochs)
            made.append(TopicInfo(topic.name, topic.topic_id, tuple(partitions)))
        self._write(operations)
        yield from self._durable()
        self.snapshot = self.snapshot.with_topics(made, {topic.name: dict(topic.configs) for topic in topics if topic.configs})

    def create_large_topic(self, topic: NewTopic) -> Steps:
        """As `create_topics`, for one topic of many partitions, in steps; it becomes visible with the last."""
        name = topic.name
        first: list[Write] = [
            Create(paths.topic_config(name), encode_config(topic.configs)),
            Create(paths.topic(name), encode_topic(topic.topic_id, [])),
            Create(paths.partitions(name)),
        ]
        yield from self.writable()
        self._write(first)
        try:
            yield UNFINISHED
            made = yield from self._add_in_steps(name, 0, topic.replicas, topic.first_epochs)
            self._write([SetData(paths.topic(name), encode_topic(topic.topic_id, topic.replicas))])
            yield from self._durable()
        except CoordinationError:
            self.deleting.add(name)  # until the next start
            raise
        info = TopicInfo(name, topic.topic_id, tuple(made))
        self.snapshot = self.snapshot.with_topics([info], {name: dict(topic.configs)} if topic.configs else {})

    def create_partitions(self, name: str, replicas: Sequence[Sequence[int]]) -> Steps:
        """Add partitions, one per element of `replicas`, to a topic, in steps. NoNodeError if it is deleted meanwhile.

        No other partitions of it may be added before the end.
        """
        topic = self.snapshot.topics[name]
        yield from self.writable()
        self._check_same(topic)
        there = len(topic.partitions)
        left = answered(self.coordination, GetChildren(paths.partitions(name))).names
        if len(left) > there:
            yield from self._delete_partitions(name, [index for index in map(int, left) if index >= there])
        added = yield from self._add_in_steps(name, there, replicas, {}, topic)
        everything = [*(partition.replicas for partition in topic.partitions), *replicas]
        self._write([SetData(paths.topic(name), encode_topic(topic.topic_id, everything))])
        yield from self._durable()
        self._check_same(topic)
        self.snapshot = self.snapshot.with_topics([TopicInfo(name, topic.topic_id, (*topic.partitions, *added))])

    def _add_in_steps(
        self, name: str, first: int, replicas: Sequence[Sequence[int]], epochs: Mapping[int, int], topic: TopicInfo | None = None
    ) -> Generator[Pause, None, list[PartitionInfo]]:
        """Make the nodes of partitions that the topic's node does not name yet; `topic`, if given, must not be replaced meanwhile."""
        added: list[PartitionInfo] = []
        for start in range(0, len(replicas), PARTITIONS_PER_STEP):
            operations: list[Write] = []
            added += self._add_partitions(name, first + start, replicas[start : start + PARTITIONS_PER_STEP], operations, epochs)
            self._write(operations)
            yield UNFINISHED
            yield from self.writable()
            if topic is not None:
                self._check_same(topic)
        return added

    def _check_same(self, topic: TopicInfo) -> None:
        """NoNodeError if the topic was deleted meanwhile."""
        if self.snapshot.topics.get(topic.name) is not topic:
            raise NoNodeError(paths.topic(topic.name))

    def _add_partitions(
        self,
        name: str,
        first: int,
        replicas: Sequence[Sequence[int]],
        operations: list[Write],
        epochs: Mapping[int, int] = MappingProxyType({}),
    ) -> list[PartitionInfo]:
        added = []
        for index, brokers in enumerate(replicas, first):
            state = PartitionState(brokers[0], epochs.get(index, 0), tuple(brokers), self._controller_epoch)
            operations.append(Create(paths.partition(name, index)))
            operations.append(Create(paths.partition_state(name, index), encode_state(state)))
            added.append(_info(index, brokers, state, 0))
        return added

    def raise_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """At a start: have partitions led in higher epochs, all in one transaction, as their logs know later ones than this store, a
        restored one.
        """
        operations: list[Write] = []
        changed: dict[str, list[PartitionInfo]] = {}
        for topic_partition, epoch in epochs.items():
            name, index = topic_partition
            infos = changed.setdefault(name, list(self.snapshot.topics[name].partitions))
            info = infos[index]
            state = PartitionState(info.leader, epoch, info.isr, self._controller_epoch)
            operations.append(SetData(paths.partition_state(name, index), encode_state(state), info.state_version))
            infos[index] = _info(index, info.replicas, state, info.state_version + 1)
        self._write(operations)
        topics = self.snapshot.topics
        self.snapshot = self.snapshot.with_topics([TopicInfo(name, topics[name].topic_id, tuple(infos)) for name, infos in changed.items()])

    def mark_deleted(self, names: Sequence[str]) -> Steps:
        """First step of a deletion: requests do not know the topics from now on, and when it has ended the next start continues it.

        The caller has waited until the tree is `writable`.
        """
        self._write([Create(paths.delete_topic(name)) for name in names])
        self.deleting.update(names)
        self.snapshot = self.snapshot.without_topics(names)
        yield from self._durable()

    def finish_deletion(self, names: Iterable[str]) -> Steps:
        """Last step: the topics' logs are gone, and so are their nodes after this.

        On disk they may be there longer, with the mark: the next start finishes that.
        """
        yield from self.writable()
        operations: list[Write] = []
        gone: list[str] = []
        for name in names:
            indexes = self._partitions_of(name)
            yield from self._delete_partitions(name, indexes[PARTITIONS_PER_STEP:])
            operations += (each for index in indexes[:PARTITIONS_PER_STEP] for each in _deleted(name, index))
            last = (paths.partitions(name), paths.topic(name), paths.topic_config(name), paths.delete_topic(name))
            operations += (Delete(path) for path in last if answered(self.coordination, Exists(path)) is not None)
            gone.append(name)
            if len(operations) >= PARTITIONS_PER_STEP:
                self._forget_deleted(gone, operations)
                yield UNFINISHED
                yield from self.writable()
        self._forget_deleted(gone, operations)

    def _forget_deleted(self, names: list[str], operations: list[Write]) -> None:
        self._write(operations)
        self.deleting.difference_update(names)
        names.clear()
        operations.clear()

    def _partitions_of(self, name: str) -> list[int]:
        """The partitions that have nodes; none for a topic of which only the mark is left."""
        try:
            return sorted(map(int, answered(self.coordination, GetChildren(paths.partitions(name))).names))
        except NoNodeError:
            return []

    def _delete_partitions(self, name: str, indexes: Sequence[int]) -> Steps:
        for start in range(0, len(indexes), PARTITIONS_PER_STEP):
            self._write([each for index in indexes[start : start + PARTITIONS_PER_STEP] for each in _deleted(name, index)])
            yield UNFINISHED
            yield from self.writable()

    # Configurations

    def set_topic_config(self, name: str, values: Mapping[str, str]) -> Steps:
        """Replace what a topic sets itself. The caller has waited until the tree is `writable`."""
        self._set_config(paths.topic_config(name), f"topics/{name}", values)
        self.snapshot = self.snapshot.with_topic_config(name, dict(values))
        yield from self._durable()

    def set_broker_config(self, broker_id: int | None, values: Mapping[str, str]) -> Steps:
        """Replace the dynamic configuration of a broker, or of all (None). The caller has waited until the tree is `writable`."""
        entity = paths.DEFAULT_ENTITY if broker_id is None else str(broker_id)
        self._set_config(paths.broker_config(broker_id), f"brokers/{entity}", values)
        self.snapshot = self.snapshot.with_broker_config(broker_id, dict(values))
        yield from self._durable()

    def _set_config(self, path: str, entity: str, values: Mapping[str, str]) -> None:
        """Write the values together with the notification for other brokers, and drop notifications that they have had the time to see."""
        exists = answered(self.coordination, Exists(path)) is not None
        data = encode_config(values)
        self._write(
            [
                SetData(path, data) if exists else Create(path, data),
                Create(f"{paths.CONFIG_CHANGES}/config_change_", encode_config_change(entity), sequential=True),
                *(Delete(old) for old in self._old_changes()),
            ]
        )

    def _old_changes(self) -> list[str]:
        """Notifications past their time, or beyond `CHANGES_MAX`; their names are in the order in which they were made.

        Looked for when the oldest is due, or after many changes: it takes as long as there are many.
        """
        now = self._time_ms()
        self._changes += 1
        if now < self._purge_due_ms and self._changes % CHANGES_PURGED_MAX:
            return []
        self._purge_due_ms = 0
        names = answered(self.coordination, GetChildren(paths.CONFIG_CHANGES)).names
        old: list[str] = []
        for name in names[: 2 * CHANGES_PURGED_MAX]:
            path = f"{paths.CONFIG_CHANGES}/{name}"
            if len(names) - len(old) <= CHANGES_MAX:
                stat = answered(self.coordination, Exists(path))
                if stat is None or stat.created_ms >= now - CHANGES_KEPT_MS:
                    self._purge_due_ms = now if stat is None else stat.created_ms + CHANGES_KEPT_MS + 1
                    break
            old.append(path)
        return old


def _deleted(name: str, index: int) -> tuple[Write, Write]:
    return Delete(paths.partition_state(name, index)), Delete(paths.partition(name, index))


def _info(index: int, replicas: Sequence[int], state: PartitionState, version: int) -> PartitionInfo:
    return PartitionInfo(index, state.leader, state.leader_epoch, state.isr, tuple(replicas), version)
