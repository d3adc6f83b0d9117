"""Moves leaders on request and by itself: to preferred or unclean replicas, away from a broker that is about to end, back into balance."""

import logging

from moldau.cluster.control import StoppedTopic
from moldau.cluster.controller.broadcast import Broadcast
from moldau.cluster.controller.election_rules import NO_LEADER
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.controller.planning import not_stored
from moldau.cluster.controller.requests import ElectLeaders, ShutDownBroker
from moldau.model.config import BrokerConfig
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.identity import TopicPartition

_LOG = logging.getLogger(__name__)


class Leadership:
    """See the module."""

    def __init__(self, image: ClusterImage, outbox: Outbox, broadcast: Broadcast, elections: Elections, config: BrokerConfig) -> None:
        self._image = image
        self._outbox = outbox
        self._broadcast = broadcast
        self._elections = elections
        self._config = config

    # Elections on request

    def elect(self, ticket: int, request: ElectLeaders) -> None:
        """Elect preferred leaders, or for partitions without one an unclean leader too; answer."""
        if request.partitions is None:
            wanted = [TopicPartition(name, index) for name, topic in self._image.topics.items() for index in range(len(topic.partitions))]
        else:
            wanted = list(dict.fromkeys(request.partitions))
        outcomes = {each: self._why_not(each, unclean=request.unclean) for each in wanted}
        if request.partitions is None:  # of all partitions, those that need none are left out
            outcomes = {each: error for each, error in outcomes.items() if error is None}
        todo = [each for each, error in outcomes.items() if error is None]

        def ended() -> None:
            for each in todo:
                outcomes[each] = self._problem(each, unclean=request.unclean)
            self._outbox.answer(ticket, outcomes)

        def failed(error: CoordinationError) -> None:
            self._outbox.answer(ticket, not_stored("elect leaders", error))

        self._elections.elect(todo, preferred=not request.unclean, unclean=request.unclean, then=ended, failed=failed)

    def _why_not(self, partition: TopicPartition, *, unclean: bool) -> PeerError | None:
        """Why no election is made; None if one is."""
        topic = self._image.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions) or topic.partitions[partition.partition] is None:
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} does not exist")
        if not topic.is_led(partition.partition, self._image.live):
            return None
        leader = topic.info(partition.partition).leader
        if unclean:
            return PeerError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads {partition}")
        if leader == topic.replicas[partition.partition][0]:
            return PeerError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader}, the preferred one, leads {partition}")
        return None

    def _problem(self, partition: TopicPartition, *, unclean: bool) -> PeerError | None:
        """What an election has not achieved."""
        topic = self._image.topics.get(partition.topic)
        if topic is None:
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} was deleted meanwhile")
        leader = topic.info(partition.partition).leader
        if unclean:
            if leader == NO_LEADER:
                return PeerError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {partition} is live")
            return None
        preferred = topic.replicas[partition.partition][0]
        if leader != preferred:
            message = f"broker {preferred}, the preferred one of {partition}, is not live, not in sync, shutting down or suspected"
            return PeerError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
        return None

    # Controlled shutdown

    def shut_down(self, ticket: int, request: ShutDownBroker) -> None:
        """Move leaders away from a broker, and take it out of in-sync sets where others stay; answer with the partitions that it still
        leads. What it does not lead it stops: a late fetch must not bring it back into an in-sync set (KAFKA-14140).

        The broker counts as shutting down until its registration ends. BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        broker_id = request.broker_id
        epoch = self._image.live.get(broker_id)
        if epoch is None:
            self._outbox.answer(ticket, PeerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered"))
            return
        if request.broker_epoch not in (-1, epoch):
            message = f"broker {broker_id} is registered with epoch {epoch}, not {request.broker_epoch}"
            self._outbox.answer(ticket, PeerError(ErrorCode.STALE_BROKER_EPOCH, message))
            return
        self._image.shutting_down[broker_id] = epoch

        def ended() -> None:
            led = self._led_by(broker_id)
            if self._image.live.get(broker_id) == epoch:
                self._drain(broker_id, epoch)
            _LOG.info("broker shuts down: broker=%d partitions_still_led=%d", broker_id, len(led))
            self._outbox.answer(ticket, led)

        def failed(error: CoordinationError) -> None:
            self._outbox.answer(ticket, not_stored(f"shut broker {broker_id} down", error))

        self._elections.run(list(self._image.topics), then=ended, failed=failed)

    def _drain(self, broker_id: int, epoch: int) -> None:
        """Have a broker stop the replicas that it does not lead, and keep their logs."""
        self._image.drained[broker_id] = epoch
        stopped = []
        for name, topic in self._image.topics.items():
            followed = [
                info.partition for info in topic.partitions if info is not None and broker_id in info.replicas and info.leader != broker_id
            ]
            if followed:
                stopped.append(StoppedTopic(name, topic.topic_id, len(topic.partitions), tuple(followed)))
        if stopped:
            self._broadcast.stop(stopped, lambda: None, deletes=False, to=[broker_id])

    def _led_by(self, broker_id: int) -> list[TopicPartition]:
        """Partitions that a broker leads and that have other replicas."""
        return [
            TopicPartition(name, info.partition)
            for name, topic in self._image.topics.items()
            for info in topic.partitions
            if info is not None and info.leader == broker_id and len(info.replicas) > 1
        ]

    # Balance

    def rebalance(self) -> None:
        """Elect preferred leaders for brokers that lead too few of the partitions that prefer them."""
        preferring: dict[int, int] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for name, topic in self._image.topics.items():
            for index, replicas in enumerate(topic.replicas):
                info = topic.partitions[index]
                if info is None:
                    continue
                preferred = replicas[0]
                preferring[preferred] = preferring.get(preferred, 0) + 1
                if info.leader != preferred:
                    elsewhere.setdefault(preferred, []).append(TopicPartition(name, index))
        allowed = self._config.int("leader.imbalance.per.broker.percentage") / 100
        for broker_id, partitions in elsewhere.items():
            ratio = len(partitions) / preferring[broker_id]
            todo = [each for each in partitions if self._can_move(self._image.topics[each.topic], each.partition, broker_id)]
            if ratio > allowed and todo:
                _LOG.info("leaders move back: broker=%d partitions=%d led_elsewhere=%.0f%%", broker_id, len(todo), 100 * ratio)
                self._elections.elect(todo, preferred=True, unclean=False)

    def _can_move(self, topic: TopicImage, partition: int, broker_id: int) -> bool:
        image = self._image
        if broker_id not in image.live or broker_id in image.shutting_down or broker_id in image.suspected:
            return False
        return broker_id in topic.info(partition).isr
