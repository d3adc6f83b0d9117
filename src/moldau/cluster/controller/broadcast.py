"""What the controller sends to brokers, and how its long work takes turns."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.cluster.control import (
    AssignedTopic,
    Control,
    ControlReply,
    LeaderAndIsr,
    LedPartition,
    StoppedTopic,
    StopReplica,
    UpdateMetadata,
)
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.snapshot import PartitionInfo, TopicInfo
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.cluster.queries import LiveBroker

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
        self.on_offline: Callable[[Iterable[str]], object] = lambda _names: None
        """Called with the names of topics of which brokers have replicas that are offline, or not any more, where that was not known."""

    def lead(self, partitions: Sequence[LedPartition], then: Callable[[Floors], object], to: Iterable[int] | None = None) -> None:
        """Send states of partitions to their live replicas, or to some of these. `then` with the floors of those to elect again."""
        by_broker: dict[int, list[LedPartition]] = {}
        drained = self._image.drained
        for each in partitions:
            for broker_id in each.info.replicas:
                if broker_id not in drained or broker_id == each.info.leader:
                    by_broker.setdefault(broker_id, []).append(each)
        wanted = list(self._image.brokers if to is None else to)
        messages = [
            (self._image.brokers[broker_id], LeaderAndIsr(self.epoch, tuple(by_broker[broker_id])))
            for broker_id in wanted
            if broker_id in by_broker and broker_id in self._image.brokers
        ]
        floors: dict[TopicPartition, int] = {}
        ended = Countdown(len(messages), lambda: then(floors))

        def replied(broker: "LiveBroker", message: LeaderAndIsr, reply: ControlReply) -> None:
            floors.update(reply.floors)
            if reply.offline or broker.info.broker_id in self._image.offline:
                self._note_offline(broker, message, reply)
            ended()

        for broker, message in messages:
            self._outbox.send(broker, message, partial(replied, broker, message))

    def _note_offline(self, broker: "LiveBroker", message: LeaderAndIsr, reply: ControlReply) -> None:
        """A broker has no access to some of its replicas: others lead where there are any, and in-sync sets are without them. To those that
        it has not named it has, perhaps again, if it has done all that it was sent.
        """
        broker_id, offline = broker.info.broker_id, dict.fromkeys(reply.offline)
        if self._image.live.get(broker_id) != broker.epoch:
            return
        changed = []
        for each in message.partitions:
            is_offline = (each.topic_id, each.info.partition) in offline
            if len(each.info.replicas) > 1 and (is_offline or not reply.is_stale):
                partition = TopicPartition(each.topic, each.info.partition)
                if self._image.note_offline(broker_id, partition, is_offline=is_offline):
                    changed.append(each.topic)
        if changed:
            self.on_offline(dict.fromkeys(changed))

    def everything(self, to: Iterable[int], again: Callable[[Floors], object], then: Callable[[], object] = lambda: None) -> None:
        """Send the whole state to some brokers: `then` is called twice, when they have each half of it, after `again` with the floors."""

        def opened(floors: Floors) -> None:
            again(floors)
            then()

        topics = self._image.topics.values()
        self.update_all(list(to), then)
        led = [LedPartition(topic.name, topic.topic_id, info, False) for topic in topics for info in self._sent_of(topic)]
        self.lead(led, opened, to=to)

    def _sent_of(self, topic: TopicImage) -> Iterator[PartitionInfo]:
        """States of a topic's partitions, but for those that name an earlier incarnation of a live broker: it may have lost what it would
        lead, and is elected, or another one, in an epoch that is sent later.
        """
        live = self._image.live
        for index, info in enumerate(topic.partitions):
            if info is not None and (info.leader not in live or topic.is_led(index, live)):
                yield info

    def update(
        self,
        topics: Sequence[TopicInfo] = (),
        deleted: Sequence[str] = (),
        then: Callable[[], object] = lambda: None,
        to: Iterable[int] | None = None,
    ) -> None:
        """Send what clients are answered to live brokers, to all or to some."""
        self._send(self._image.brokers if to is None else to, self._update(topics, deleted), then)

    def update_all(self, to: Sequence[int], then: Callable[[], object]) -> None:
        """Send all topics to some live brokers; where there are or were several, also which replicas each has, and that this is all."""
        topics = [served for topic in self._image.topics.values() if (served := topic.served()) is not None]
        if len(self._image.incarnations) < 2:
            self._send(to, self._update(topics), then)
            return
        assigned: dict[int, list[AssignedTopic]] = {broker_id: [] for broker_id in to}
        for topic in self._image.topics.values():
            by_broker: dict[int, list[int]] = {}
            for index, replicas in enumerate(topic.replicas):
                for broker_id in replicas:
                    by_broker.setdefault(broker_id, []).append(index)
            none = AssignedTopic(topic.topic_id, ())
            for broker_id, some in assigned.items():
                some.append(AssignedTopic(topic.topic_id, tuple(by_broker[broker_id])) if broker_id in by_broker else none)
        ended = Countdown(len(assigned), then)
        for broker_id, everything in assigned.items():
            self._send([broker_id], self._update(topics, everything=tuple(everything)), ended)

    def _update(
        self, topics: Sequence[TopicInfo], deleted: Sequence[str] = (), everything: tuple[AssignedTopic, ...] | None = None
    ) -> UpdateMetadata:
        infos = tuple(broker.info for broker in self._image.brokers.values())
        return UpdateMetadata(self.epoch, self._broker_id, infos, tuple(topics), tuple(deleted), everything)

    def stop(
        self, topics: Sequence[StoppedTopic], then: Callable[[], object], *, deletes: bool = True, to: Iterable[int] | None = None
    ) -> None:
        """Have live brokers, all or some, stop serving topics, and delete what they have of them, or keep it."""
        self._send(self._image.brokers if to is None else to, StopReplica(self.epoch, tuple(topics), deletes), then)

    def _send(self, to: Iterable[int], message: Control, then: Callable[[], object]) -> None:
        brokers: list[LiveBroker] = [self._image.brokers[broker_id] for broker_id in to if broker_id in self._image.brokers]
        ended = Countdown(len(brokers), then)
        for broker in brokers:
            self._outbox.send(broker, message, ended)
