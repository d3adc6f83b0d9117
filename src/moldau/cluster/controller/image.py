"""What the controller knows of the cluster. Changed after the tree, never before: what is here has been written or read there. But replicas
that are being removed are left out as soon as the state without them is written, before the topic's node.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import cast

from moldau.cluster.changes import PutState
from moldau.cluster.controller.election_rules import Candidates
from moldau.cluster.queries import FoundState, FoundTopic, LiveBroker
from moldau.cluster.snapshot import PartitionInfo, TopicInfo
from moldau.cluster.znodes import PartitionState
from moldau.model.identity import TopicPartition

Replicas = tuple[int, ...]


class TopicImage:
    """A topic. Its partitions are those that its node names; one whose state is not written yet is None.

    What brokers receive of it (`served`) is shared, not copied.
    """

    __slots__ = (
        "_incarnations",
        "_joined",
        "_served",
        "_was_served",
        "adding",
        "is_watched",
        "missing",
        "name",
        "partitions",
        "removing",
        "replicas",
        "topic_id",
        "unsent",
        "version",
    )

    def __init__(self, name: str, topic_id: bytes, replicas: Sequence[Replicas], version: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.version = version
        """Of the topic's node."""
        self.replicas: list[Replicas] = []
        self.adding: dict[int, Replicas] = {}
        self.removing: dict[int, Replicas] = {}
        """Replicas that partitions gain and lose: those of partitions that are being reassigned."""
        self.partitions: list[PartitionInfo | None] = []
        self.is_watched = False
        """Whether a change of the node by others is seen."""
        self.missing = 0
        """Partitions without a state."""
        self.unsent: Sequence[int] = ()
        """Those that brokers have to be sent yet, as the states of some could not be written."""
        self._incarnations: list[int] = []
        self._joined: dict[int, tuple[tuple[int, int], ...]] = {}
        """As in the state, of partitions that have any."""
        self._served: TopicInfo | None = None
        self._was_served = False
        self.grow(replicas, version)

    def grow(self, replicas: Sequence[Replicas], version: int) -> None:
        """The topic's node names more partitions."""
        self.replicas += replicas
        self.partitions += [None] * len(replicas)
        self._incarnations += [0] * len(replicas)
        self.missing += len(replicas)
        self.version = version

    def put(self, index: int, state: PartitionState, version: int) -> None:
        """A partition has a state, written at this version of its node."""
        if self.partitions[index] is None:
            self.missing -= 1
        of_state = state.elr, state.last_known_elr, state.is_mirror, state.cut
        self.partitions[index] = PartitionInfo(index, state.leader, state.leader_epoch, state.isr, self.replicas[index], version, *of_state)
        self._incarnations[index] = state.leader_broker_epoch
        if state.joined:
            self._joined[index] = state.joined
        elif self._joined:
            self._joined.pop(index, None)
        self._served = None

    def reassign(self, index: int, replicas: Replicas) -> None:
        """A partition has other replicas."""
        self.replicas[index] = replicas
        info = self.partitions[index]
        if info is not None:
            self.partitions[index] = info._replace(replicas=replicas)
            self._served = None

    def take(self, index: int, found: FoundState) -> bool:
        """Take a state as it was read, if it is later than the one that is known; whether it is."""
        known = self.partitions[index]
        is_later = known is None or known.state_version < found.version
        if is_later:
            self.put(index, found.state, found.version)
        return is_later

    def next(self, index: int, state: PartitionState) -> FoundState:
        """A state as it will be found when it has been written in the place of the one that is known now. Until the write is answered, that
        one may change.
        """
        return FoundState(state, self.info(index).state_version + 1)

    def change(self, index: int, after: FoundState) -> PutState:
        """The change that leads to what `next` has returned."""
        return PutState(self.name, index, after.state, after.version - 1)

    def state(self, index: int, controller_epoch: int) -> PartitionState:
        """The state of a partition that has one."""
        info = self.info(index)
        incarnation, joined = self._incarnations[index], self._joined.get(index, ())
        lists = info.elr, info.last_known_elr
        mirrored = info.is_mirror, info.cut
        return PartitionState(info.leader, info.leader_epoch, info.isr, controller_epoch, incarnation, *lists, joined, *mirrored)

    def info(self, index: int) -> PartitionInfo:
        """What brokers receive of a partition that has a state."""
        info = self.partitions[index]
        assert info is not None, f"{self.name}-{index} has no state"
        return info

    def is_led(self, index: int, live: Mapping[int, int]) -> bool:
        """Whether the partition's leader is live in the incarnation that was elected."""
        info = self.partitions[index]
        return info is not None and live.get(info.leader) == self._incarnations[index]

    def served(self) -> TopicInfo | None:
        """What clients are answered: None before all partitions are there for the first time, later those before the first missing one."""
        if self._served is None:
            partitions = tuple(takewhile(lambda info: info is not None, self.partitions))
            if self._was_served or not self.missing:
                self._served = TopicInfo(self.name, self.topic_id, cast("tuple[PartitionInfo, ...]", partitions))
                self._was_served = True
        return self._served


class ClusterImage:
    """Brokers and topics."""

    def __init__(self) -> None:
        self.brokers: dict[int, LiveBroker] = {}
        self.live: dict[int, int] = {}
        """The incarnation of each live broker."""
        self._previous: dict[int, tuple[int, ...]] = {}
        """As of `LiveBroker`."""
        self.incarnations: dict[int, int] = {}
        """The last incarnation of each broker, live or not, that elections have taken account of."""
        self.incarnations_version: int | None = None
        """Of their node; None if there is none."""
        self.lossy: dict[int, int] = {}
        """Incarnations of live brokers that have restarted uncleanly, and that elections have yet to take account of."""
        self.shutting_down: dict[int, int] = {}
        """Incarnations of live brokers that are about to end."""
        self.drained: dict[int, int] = {}
        """Those of them that were sent to stop what they do not lead: they are not to follow again."""
        self.suspected: dict[int, int] = {}
        """Incarnations of live brokers that do not answer."""
        self.offline: dict[int, dict[TopicPartition, None]] = {}
        """Replicas of live brokers whose log directories have failed, by broker."""
        self.topics: dict[str, TopicImage] = {}
        self.deleting: dict[str, bytes | None] = {}
        """Topics marked for deletion, with their ids if they are known."""
        self.partitions = 0
        """Of all topics."""
        self._busy: dict[str, deque[Callable[[], object]]] = {}
        self._reserved: dict[str, int] = {}
        self._next: deque[Callable[[], object]] = deque()
        self._is_running_next = False

    def set_brokers(self, brokers: dict[int, LiveBroker]) -> None:
        """These are live."""
        before = self.live
        self.brokers = brokers
        self.live = {broker_id: broker.epoch for broker_id, broker in brokers.items()}
        self._previous = {broker_id: broker.previous_epochs for broker_id, broker in brokers.items()}
        self.shutting_down = {each: epoch for each, epoch in self.shutting_down.items() if self.live.get(each) == epoch}
        self.offline = {each: partitions for each, partitions in self.offline.items() if before.get(each) == self.live.get(each)}
        self.suspected = {each: epoch for each, epoch in self.suspected.items() if self.live.get(each) == epoch}
        self.drained = {each: epoch for each, epoch in self.drained.items() if each in self.shutting_down}
        self.lossy = {}
        for broker_id, broker in brokers.items():
            if self.incarnations.setdefault(broker_id, broker.epoch) not in (broker.epoch, *broker.previous_epochs):
                self.lossy[broker_id] = broker.epoch
            else:
                self.incarnations[broker_id] = broker.epoch

    def candidates(self) -> Candidates:
        """What elections have to know of brokers."""
        return Candidates(self.live, self.shutting_down, self.lossy, self._previous, self.suspected)

    def suspect(self, broker_id: int, epoch: int, *, is_suspected: bool) -> None:
        """A live broker does not answer, or answers again."""
        self.suspected.pop(broker_id, None)
        if is_suspected:
            self.suspected[broker_id] = epoch

    def candidates_of(self, candidates: Candidates, name: str, index: int) -> Candidates:
        """Those whose replica of a partition is not offline: it counts as one of a broker that has ended."""
        if not self.offline:
            return candidates
        partition = TopicPartition(name, index)
        live = {broker_id: epoch for broker_id, epoch in candidates.live.items() if partition not in self.offline.get(broker_id, ())}
        return candidates._replace(live=live)

    def note_offline(self, broker_id: int, partition: TopicPartition, *, is_offline: bool) -> bool:
        """A replica of a live broker is offline, or is not; whether that was not known."""
        known = self.offline.get(broker_id, {})
        if is_offline == (partition in known):
            return False
        if is_offline:
            self.offline.setdefault(broker_id, {})[partition] = None
        else:
            del known[partition]
            if not known:
                del self.offline[broker_id]
        return True

    def take_read(self, topic: TopicImage, index: int, found: FoundState) -> None:
        """Take a state that a leader may have written, if it is later: who has joined the in-sync set is not offline any more."""
        before = topic.info(index).isr
        if topic.take(index, found) and self.offline:
            for broker_id in found.state.isr:
                if broker_id not in before:
                    self.offline.get(broker_id, {}).pop(TopicPartition(topic.name, index), None)

    def racks(self) -> dict[int, str | None]:
        """Where live brokers are."""
        return {broker_id: broker.info.rack for broker_id, broker in self.brokers.items()}

    def settle_lossy(self, settled: Mapping[int, int]) -> None:
        """Elections have taken account of these incarnations."""
        for broker_id, epoch in settled.items():
            if self.lossy.get(broker_id) == epoch:
                del self.lossy[broker_id]
                self.incarnations[broker_id] = epoch

    def add(self, found: FoundTopic, topic_id: bytes) -> TopicImage:
        """A topic as it was read."""
        topic = self.insert(TopicImage(found.name, topic_id, found.node.replicas, found.version))
        topic.is_watched = True
        topic.adding.update(found.node.adding)
        topic.removing.update(found.node.removing)
        for index, each in enumerate(found.states):
            if each is not None:
                topic.put(index, each.state, each.version)
        return topic

    def insert(self, topic: TopicImage) -> TopicImage:
        """There is a topic."""
        self.topics[topic.name] = topic
        self.partitions += len(topic.replicas)
        return topic

    def grow(self, topic: TopicImage, replicas: Sequence[Replicas], version: int) -> None:
        """A topic's node names more partitions."""
        topic.grow(replicas, version)
        self.partitions += len(replicas)

    def remove(self, name: str) -> TopicImage | None:
        """A topic is no more; it, if there was one."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.partitions -= len(topic.replicas)
        return topic

    @property
    def partition_count(self) -> int:
        """Partitions that there are and that are being made."""
        return self.partitions + sum(self._reserved.values())

    # One after the other

    def is_free(self, name: str) -> bool:
        """Whether nothing creates, grows or deletes the topic, or changes the configuration of this name."""
        return name not in self._busy

    def when_free(self, name: str, run: Callable[[], object]) -> None:
        """Call `run` when all that came before for this name has ended, at once if there is nothing; it has to end with `free`."""
        waiting = self._busy.get(name)
        if waiting is None:
            self._busy[name] = deque()
            run()
        else:
            waiting.append(run)

    def free(self, name: str) -> None:
        """What was done for this name has ended: the next may begin."""
        self._reserved.pop(name, None)
        waiting = self._busy[name]
        if not waiting:
            del self._busy[name]
            return
        self._next.append(waiting.popleft())
        if self._is_running_next:  # by a call of `free` that is not over: a queue is no recursion
            return
        self._is_running_next = True
        try:
            while self._next:
                self._next.popleft()()
        finally:
            self._is_running_next = False

    def reserve(self, name: str, partitions: int) -> None:
        """Count partitions that are going to be made, until `free`."""
        self._reserved[name] = partitions

    def names(self) -> list[str]:
        """Names that are taken, also by topics that are being made."""
        return [*self.topics, *(name for name in self._reserved if name not in self.topics)]
