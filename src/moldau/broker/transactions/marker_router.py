"""Brings the markers that end a transaction to the leaders of its partitions, on this broker and on others.

For each other broker at most `IN_FLIGHT_MAX` requests are out; what is to go there meanwhile goes together in the next one. Nothing is
repeated here: a partition whose leader is not known, not reached, or not the leader any more gets a retriable code, with which the
coordinator routes its marker again. A repeated marker is harmless.

Codes that mean something else when they come from another broker:

* UNKNOWN_TOPIC_OR_PARTITION of a partition that is known here: the other broker has not heard of it yet. NOT_LEADER_OR_FOLLOWER.
* TRANSACTION_COORDINATOR_FENCED: a later coordinator than this one was seen there, so this one is about to resign. It must not take the
  partition for done: as leader in the next epoch it would never write the marker. NOT_COORDINATOR.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.broker.peers.by_broker import ConnectionsByBroker
from moldau.broker.peers.connection import PeerCallError
from moldau.broker.transactions.markers import Marker, MarkerResults, MarkersDone, write_markers
from moldau.model.errors import ErrorCode, known_error
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.transaction_admin import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from moldau.broker.peers.by_broker import Services as PeerServices
    from moldau.broker.transactions.markers import Services as MarkerServices
    from moldau.cluster.snapshot import MetadataSnapshot

    class Incarnation(Protocol):
        """This broker's registration."""

        broker_epoch: int

    class Services(MarkerServices, PeerServices, Protocol):
        """What the router uses of the broker."""

        @property
        def applier(self) -> Incarnation:
            """What of its metadata knows its incarnation."""

        @property
        def broker_id(self) -> int:
            """Its own number."""


_LOG = logging.getLogger(__name__)

IN_FLIGHT_MAX = 5
PARTITIONS_PER_REQUEST = 1000
PARTITIONS_PER_STEP = 500
TIMEOUT_S = 30.0
"""A request that was not answered by then is given up with its connection."""
_FROM_OTHERS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorCode.NOT_COORDINATOR,
}


class _Part(NamedTuple):
    """A marker for partitions that one broker leads, at most `PARTITIONS_PER_REQUEST`."""

    marker: Marker
    done: Callable[[MarkerResults], object]


class MarkerRouter:
    """See the module."""

    def __init__(self, broker: "Services") -> None:
        self._broker = broker
        self._connections = ConnectionsByBroker(broker, "markers", IN_FLIGHT_MAX)
        self._queues: dict[int, _Queue] = {}
        self._sequence = 0

    def write(self, markers: Sequence[Marker], done: MarkersDone) -> None:
        """As :func:`moldau.broker.transactions.markers.write_markers`, wherever the partitions are led. Further codes, all retriable:
        LEADER_NOT_AVAILABLE, NETWORK_EXCEPTION, NOT_COORDINATOR.
        """
        routing = _Routing(self, self._broker, markers, done)

        def ended(bug: Exception | None) -> None:
            if bug is not None:
                _LOG.error("markers not routed because of a bug", exc_info=bug)
                routing.failed()

        self._broker.slices.run(routing.steps(), ended)

    def send(self, broker_id: int, part: "_Part") -> None:
        """Have another broker write a marker."""
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _Queue(broker_id)
        queue.waiting.append(part)
        self._send_some(queue)

    def close(self) -> None:
        """The broker stops."""
        self._connections.close()

    def _send_some(self, queue: "_Queue") -> None:
        while queue.waiting and queue.out < IN_FLIGHT_MAX:
            parts = queue.take()
            connection = self._connections.to(queue.broker_id)
            if connection is None:
                for part in parts:
                    part.done(dict.fromkeys(part.marker.partitions, ErrorCode.LEADER_NOT_AVAILABLE))
                continue
            queue.out += 1
            self._sequence += 1
            request = WriteTxnMarkersRequest(
                [_message_of(part.marker) for part in parts], self._broker.broker_id, self._broker.applier.broker_epoch, self._sequence
            )
            connection.request(ApiKey.WRITE_TXN_MARKERS, request, partial(self._answered, queue, parts), timeout_s=TIMEOUT_S)

    def _answered(self, queue: "_Queue", parts: "list[_Part]", outcome: WriteTxnMarkersResponse | PeerCallError) -> None:
        queue.out -= 1
        answers = [None] * len(parts) if isinstance(outcome, PeerCallError) else [*outcome.markers, *[None] * len(parts)]
        for part, answer in zip(parts, answers, strict=False):
            results = dict.fromkeys(part.marker.partitions, ErrorCode.NETWORK_EXCEPTION)
            for topic in () if answer is None else answer.topics:
                for each in topic.partitions:
                    where = TopicPartition(topic.name, each.partition_index)
                    if where in results:
                        code = known_error(each.error_code)
                        results[where] = _FROM_OTHERS.get(code, code)
            part.done(results)
        self._send_some(queue)


class _Queue:
    """What is on its way to one broker."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.waiting: deque[_Part] = deque()
        self.out = 0
        """Requests without an outcome."""

    def take(self) -> list[_Part]:
        """As many of the oldest as go together."""
        parts = [self.waiting.popleft()]
        partitions = len(parts[0].marker.partitions)
        while self.waiting and partitions + len(self.waiting[0].marker.partitions) <= PARTITIONS_PER_REQUEST:
            partitions += len(self.waiting[0].marker.partitions)
            parts.append(self.waiting.popleft())
        return parts


class _Routing:
    """One call of `MarkerRouter.write`."""

    def __init__(self, router: MarkerRouter, broker: "Services", markers: Sequence[Marker], done: MarkersDone) -> None:
        self._router = router
        self._broker = broker
        self._markers = markers
        self._done = done
        self._results: list[MarkerResults] = [{} for _ in markers]
        self._left = 1
        """Parts that are not answered yet, and one until all are sent."""

    def steps(self) -> Steps:
        """Send every marker on its way."""
        for place, marker in enumerate(self._markers):
            partitions = iter(marker.partitions)
            while some := list(islice(partitions, PARTITIONS_PER_STEP)):
                self._route(place, marker, some)
                yield UNFINISHED
        self._answered()

    def failed(self) -> None:
        """A bug has ended the steps: what is not answered by now has to be tried again. Nothing once all is done."""
        if self._left > 0:
            self._left = 0  # later answers count no more
            for marker, results in zip(self._markers, self._results, strict=True):
                for each in marker.partitions:
                    results.setdefault(each, ErrorCode.REQUEST_TIMED_OUT)
            self._done(self._results)

    def _route(self, place: int, marker: Marker, partitions: Sequence[TopicPartition]) -> None:
        own = self._broker.broker_id
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            leader = self._leader_of(each)
            if leader is None:
                self._results[place][each] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(each)
        for leader, some in by_leader.items():
            self._left += 1
            part = marker._replace(partitions=some)
            if leader == own:
                write_markers(self._broker, [part], lambda results: self._answered(place, results[0]))
            else:
                self._router.send(leader, _Part(part, partial(self._answered, place)))

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """The live leader of a partition; this broker for those of topics that do not exist, too."""
        broker = self._broker
        if broker.replicas.partitions.get(partition) is not None:
            return broker.broker_id
        snapshot: MetadataSnapshot = broker.metadata
        topic = snapshot.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return broker.broker_id
        leader = topic.partitions[partition.partition].leader
        return leader if leader in snapshot.brokers else None

    def _answered(self, place: int = 0, results: MarkerResults | None = None) -> None:
        if results is not None:
            self._results[place].update(results)
        self._left -= 1
        if self._left == 0:
            self._done(self._results)


def _message_of(marker: Marker) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, index in marker.partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = WritableTxnMarkerTopic(name, [])
        topic.partition_indexes.append(index)
    return WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.committed,
        list(topics.values()),
        marker.coordinator_epoch,
        marker.transaction_version,
        marker.state_partition,
    )
