"""Elections, and what the controller sends to brokers: their results among it.

A leader was elected in one *incarnation*: one registration of its broker, known by its `created_id`. A broker that comes back, however
soon, is another one: it may have lost the tail of its log, so that its partitions get a new epoch. One rule holds for a first start, a
restart, an unnoticed bounce, and a store that was restored from a backup.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.cluster import queries
from moldau.cluster.changes import PutState
from moldau.cluster.control import Control, ControlReply, LeaderAndIsr, LedPartition, StoppedTopic, StopReplica, UpdateMetadata
from moldau.cluster.controller.events import EpochsRaised, Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.queries import FoundTopic, LiveBroker
from moldau.cluster.snapshot import TopicInfo
from moldau.cluster.store import WriteResult
from moldau.cluster.znodes import PartitionState
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import NodeError

NO_LEADER = -1


def elect(
    state: PartitionState, replicas: Sequence[int], live: Mapping[int, int], controller_epoch: int, floor: int = 0
) -> PartitionState | None:
    """The state after an election, or None if none is needed or no replica can lead where none does.

    `live` has the incarnation of each live broker. `floor` is the latest epoch that a log of the partition knows. The first live replica
    in the in-sync set leads, with an epoch after the last one and after the floor. Without one the partition has no leader, and the
    in-sync set stays, since only its members have all records.
    """
    is_led = state.leader != NO_LEADER and live.get(state.leader) == state.leader_broker_epoch
    if is_led and state.leader_epoch >= floor:
        return None
    epoch = max(state.leader_epoch, floor) + 1
    leader = next((replica for replica in replicas if replica in state.isr and replica in live), NO_LEADER)
    if leader != NO_LEADER:
        return PartitionState(leader, epoch, tuple(replica for replica in state.isr if replica in live), controller_epoch, live[leader])
    if state.leader == NO_LEADER:
        return None
    return PartitionState(NO_LEADER, epoch, state.isr, controller_epoch)


_LOG = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 100
"""Partitions that one step works on, and whose nodes one write makes, changes or removes."""
Floors = Mapping[TopicPartition, int]


class Countdown:
    """Calls `then` when so many things have happened; at once for none."""

    def __init__(self, count: int, then: Callable[[], object]) -> None:
        self._left = count
        self._then = then
        if not count:
            then()

    def __call__(self, _outcome: object = None) -> None:
        """One more has happened."""
        self._left -= 1
        if not self._left:
            self._then()


class StepRotation:
    """Long work in steps: iterators of which one takes a step at a time, round robin."""

    def __init__(self) -> None:
        self._waiting: deque[Iterator[None]] = deque()

    def add(self, work: Iterator[None]) -> None:
        """Begin some work, with its first step."""
        if next(work, self) is not self:
            self._waiting.append(work)

    def step(self) -> None:
        """Do the next step."""
        if self._waiting:
            self.add(self._waiting.popleft())

    def clear(self) -> None:
        """Give up all work."""
        self._waiting.clear()

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do."""
        return bool(self._waiting)


class Broadcast:
    """Sends to live brokers. In the order of its calls for each of them."""

    def __init__(self, broker_id: int, epoch: int, image: ClusterImage, outbox: Outbox) -> None:
        self.epoch = epoch
        self._broker_id = broker_id
        self._image = image
        self._outbox = outbox

    def lead(self, partitions: Sequence[LedPartition], then: Callable[[Floors], object], to: Iterable[int] | None = None) -> None:
        """Send states of partitions to their live replicas, or to some of these. `then` with the floors of those to elect again."""
        by_broker: dict[int, list[LedPartition]] = {}
        for each in partitions:
            for broker_id in each.info.replicas:
                by_broker.setdefault(broker_id, []).append(each)
        wanted = list(self._image.brokers if to is None else to)
        messages = [
            (self._image.brokers[broker_id], LeaderAndIsr(self.epoch, tuple(by_broker[broker_id])))
            for broker_id in wanted
            if broker_id in by_broker and broker_id in self._image.brokers
        ]
        floors: dict[TopicPartition, int] = {}
        ended = Countdown(len(messages), lambda: then(floors))

        def replied(reply: ControlReply) -> None:
            floors.update(reply.floors)
            ended()

        for broker, message in messages:
            self._outbox.send(broker, message, replied)

    def update(
        self,
        topics: Sequence[TopicInfo] = (),
        deleted: Sequence[str] = (),
        then: Callable[[], object] = lambda: None,
        to: Iterable[int] | None = None,
    ) -> None:
        """Send what clients are answered to live brokers, to all or to some."""
        infos = tuple(broker.info for broker in self._image.brokers.values())
        message = UpdateMetadata(self.epoch, self._broker_id, infos, tuple(topics), tuple(deleted))
        self._send(self._image.brokers if to is None else to, message, then)

    def stop(self, topics: Sequence[StoppedTopic], then: Callable[[], object], *, deletes: bool = True) -> None:
        """Have all live brokers stop serving topics, and delete what they have of them, or keep it."""
        self._send(self._image.brokers, StopReplica(self.epoch, tuple(topics), deletes), then)

    def _send(self, to: Iterable[int], message: Control, then: Callable[[], object]) -> None:
        brokers: list[LiveBroker] = [self._image.brokers[broker_id] for broker_id in to if broker_id in self._image.brokers]
        ended = Countdown(len(brokers), then)
        for broker in brokers:
            self._outbox.send(broker, message, ended)


class _ElectedLeader(NamedTuple):
    topic: TopicImage
    partition: int
    state: PartitionState


class Elections:
    """Elects leaders where one is needed, writes the states, and sends them."""

    def __init__(self, image: ClusterImage, outbox: Outbox, broadcast: Broadcast, works: StepRotation) -> None:
        self._image = image
        self._outbox = outbox
        self._broadcast = broadcast
        self._works = works

    def run(self, names: Iterable[str], floors: Floors | None = None) -> None:
        """Elect for partitions of topics, and send what has changed. An election that fails is logged; the next one makes up for it."""

        def elected(moved: Sequence[_ElectedLeader]) -> None:
            led = [LedPartition(topic.name, topic.topic_id, topic.info(index), False) for topic, index, _ in moved]
            topics = dict.fromkeys(topic for topic, _, _ in moved)
            self._broadcast.lead(led, self.again)
            self._broadcast.update([served for topic in topics if (served := topic.served()) is not None])

        self._works.add(self._steps(list(names), floors or {}, PARTITIONS_PER_STEP, elected, _log_failure, lambda: None))

    def again(self, floors: Floors) -> None:
        """Elect again where logs know later epochs than were sent."""
        if floors:
            self.run(dict.fromkeys(each.topic for each in floors), floors)

    def run_first(self, floors: Floors, per_write: int, failed: Callable[[CoordinationError], object], then: Callable[[], object]) -> None:
        """Elect for all partitions, before any is sent."""
        self._works.add(self._steps(list(self._image.topics), floors, per_write, lambda _moved: None, failed, then))

    def _steps(
        self,
        names: Sequence[str],
        floors: Floors,
        per_write: int,
        elected: Callable[[Sequence[_ElectedLeader]], object],
        failed: Callable[[CoordinationError], object],
        then: Callable[[], object],
    ) -> Iterator[None]:
        outstanding = 1
        raised = 0

        def end() -> None:
            nonlocal outstanding
            outstanding -= 1
            if not outstanding:
                then()

        def write(moved: list[_ElectedLeader]) -> None:
            nonlocal outstanding
            outstanding += 1
            changes = [PutState(topic.name, index, state, topic.info(index).state_version) for topic, index, state in moved]
            self._outbox.write(changes, partial(written, moved))

        def written(moved: list[_ElectedLeader], outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, WriteResult):
                moved = [each for each in moved if self._image.topics.get(each.topic.name) is each.topic]
                for topic, index, state in moved:
                    topic.put(index, state, topic.info(index).state_version + 1)
                elected(moved)
            elif isinstance(outcome, NodeError):
                self._read_again(list(dict.fromkeys(topic.name for topic, _, _ in moved)), outcome)
            else:
                failed(outcome)
                return
            end()

        moved: list[_ElectedLeader] = []
        seen = 0
        for name in names:
            topic = self._image.topics.get(name)
            if topic is None:
                continue
            for index in range(len(topic.partitions)):
                floor = floors.get(TopicPartition(name, index), 0)
                if topic.partitions[index] is None or (topic.is_led(index, self._image.live) and not floor):
                    continue
                before = topic.state(index, self._broadcast.epoch)
                state = elect(before, topic.replicas[index], self._image.live, self._broadcast.epoch, floor)
                if state is not None:
                    raised += floor > before.leader_epoch
                    moved.append(_ElectedLeader(topic, index, state))
                    if len(moved) >= per_write:
                        write(moved)
                        moved = []
                seen += 1
                if not seen % PARTITIONS_PER_STEP:
                    yield None
                    if self._image.topics.get(name) is not topic:
                        break
        if moved:
            write(moved)
        if raised:
            self._outbox.effects.append(EpochsRaised(raised))
        end()

    def _read_again(self, names: list[str], error: CoordinationError) -> None:
        """Another writer has written states, or removed a topic: take what is there, and elect by that."""
        _LOG.warning("election repeated: a state has changed meanwhile: topics=%s reason=%s", ",".join(names[:10]), error)

        def read(outcome: list[FoundTopic] | CoordinationError) -> None:
            if isinstance(outcome, CoordinationError):
                _log_failure(outcome)
                return
            for found in outcome:
                topic = self._image.topics.get(found.name)
                if topic is not None and found.node.topic_id == topic.topic_id:
                    for index, each in enumerate(found.states[: len(topic.replicas)]):
                        if each is not None:
                            topic.put(index, each.state, each.version)
            self.run([found.name for found in outcome])

        self._outbox.read(queries.topics(names), read)


def _log_failure(error: CoordinationError) -> None:
    _LOG.error("leaders not elected: the store of metadata failed: reason=%s", error)
