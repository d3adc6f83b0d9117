"""Replicas move between brokers in phases, of which the topic's node keeps where they are, so that the next controller continues.

    begun       the node names old and new replicas, and which of them are added and removed; the partition has a new epoch
    in sync     all replicas that shall remain are in sync: one of them leads, the others leave the in-sync set, in a new epoch
    stopped     brokers that lose their replicas have deleted them, as far as they are live
    completed   the node names the replicas that remain

A reassignment replaces the one under way; its origin stays the replicas before that. To cancel is to reassign to the origin.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.cluster import queries
from moldau.cluster.changes import Change, PutTopic
from moldau.cluster.control import LedPartition, StoppedTopic
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP, Broadcast, Countdown
from moldau.cluster.controller.election_rules import NO_LEADER, can_lead
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, Replicas, TopicImage
from moldau.cluster.controller.planning import not_stored
from moldau.cluster.controller.requests import AlterReassignments, ListReassignments, OngoingReassignment
from moldau.cluster.queries import FoundState
from moldau.cluster.store import WriteResult
from moldau.cluster.znodes import MalformedNodeError, PartitionState, partition_state
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import NodeError

_LOG = logging.getLogger(__name__)


class Move(NamedTuple):
    """Replicas of a partition that are moving, all of them: those that remain come first, in their order."""

    replicas: Replicas
    adding: Replicas
    removing: Replicas

    @property
    def target(self) -> Replicas:
        """The replicas that remain."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> Replicas:
        """The replicas before."""
        return tuple(each for each in self.replicas if each not in self.adding)

    def to(self, target: Sequence[int]) -> "Move":
        """The move from the same origin to other replicas."""
        replicas = tuple(dict.fromkeys((*target, *self.origin)))
        adding = tuple(each for each in replicas if each not in self.origin)
        return Move(replicas, adding, tuple(each for each in self.origin if each not in target))


def move_of(topic: TopicImage, index: int) -> Move:
    """How a partition moves now."""
    return Move(topic.replicas[index], topic.adding.get(index, ()), topic.removing.get(index, ()))


class Reassignments:
    """See the module."""

    def __init__(
        self,
        image: ClusterImage,
        outbox: Outbox,
        broadcast: Broadcast,
        elections: Elections,
        *,
        completed: Callable[[], object],
        again: Callable[[], object],
    ) -> None:
        """`completed` is called when some partitions have their replicas; `again` has `check` called for all topics after a while."""
        self._image = image
        self._outbox = outbox
        self._broadcast = broadcast
        self._elections = elections
        self._completed = completed
        self._again = again
        self._completing: dict[str, None] = {}

    # Begin

    def alter(self, request: AlterReassignments, done: Callable[[Mapping[TopicPartition, PeerError | None]], object]) -> None:
        """Begin, replace or cancel (None) reassignments; `done` with the outcomes when they are begun."""
        outcomes: dict[TopicPartition, PeerError | None] = dict.fromkeys(request.targets)
        by_topic: dict[str, dict[int, Sequence[int] | None]] = {}
        for partition, target in request.targets.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = target
        ended = Countdown(len(by_topic), lambda: done(outcomes))
        for name, targets in by_topic.items():
            begin = partial(self._begin, name, targets, outcomes, request.may_change_factor, ended)
            self._image.when_free(name, begin)

    def _begin(
        self,
        name: str,
        targets: Mapping[int, Sequence[int] | None],
        outcomes: dict[TopicPartition, PeerError | None],
        may_change_factor: bool,
        ended: Callable[[], object],
    ) -> None:
        topic = self._image.topics.get(name)
        moves: dict[int, Move] = {}
        for index, target in targets.items():
            try:
                moves[index] = self._planned(topic, name, index, target, may_change_factor)
            except PeerError as error:
                outcomes[TopicPartition(name, index)] = error.as_value()

        def end(failed: Sequence[int], error: CoordinationError | None) -> None:
            if error is not None:
                problem = not_stored(f"reassign partitions {failed} of {name}", error)
                outcomes.update((TopicPartition(name, index), problem) for index in failed)
            self._image.free(name)
            ended()
            if topic is not None:
                self.check([topic])

        if topic is None or not moves:
            end((), None)
        else:
            chunks = [list(moves)[start : start + PARTITIONS_PER_STEP] for start in range(0, len(moves), PARTITIONS_PER_STEP)]
            self._write_begin(topic, deque({index: moves[index] for index in chunk} for chunk in chunks), end)

    def _planned(self, topic: TopicImage | None, name: str, index: int, target: Sequence[int] | None, may_change_factor: bool) -> Move:
        """The move to make.

        UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
        """
        if topic is None or not 0 <= index < len(topic.partitions) or topic.partitions[index] is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name}-{index} does not exist")
        now = move_of(topic, index)
        if target is None:
            if not now.adding and not now.removing:
                raise PeerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"no reassignment of {name}-{index} is under way")
            target = now.origin
        else:
            self._check_target(name, index, target, now, may_change_factor)
        move = now.to(target)
        if self._state_among(topic, index, move.replicas) is None:
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}-{index}: none of {list(move.replicas)} is live and in sync")
        return move

    def _check_target(self, name: str, index: int, target: Sequence[int], now: Move, may_change_factor: bool) -> None:
        if not target or len(dict.fromkeys(target)) < len(target):
            message = f"{name}-{index}: replicas must be different brokers, at least one, not {list(target)}"
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        missing = [each for each in target if each not in self._image.live]
        if missing:
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}-{index}: brokers {missing} are not live")
        if not may_change_factor and len(target) != len(now.origin):
            message = f"{name}-{index} has {len(now.origin)} replicas, not {len(target)}"
            raise PeerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)

    def _write_begin(
        self, topic: TopicImage, chunks: deque[dict[int, Move]], end: Callable[[Sequence[int], CoordinationError | None], object]
    ) -> None:
        if not chunks:
            end((), None)
            return
        moves = chunks[0]
        states: dict[int, FoundState] = {}
        for index, move in moves.items():
            state = self._state_among(topic, index, move.replicas)
            if state is None:  # since it was planned
                end([index for chunk in chunks for index in chunk], CoordinationError("in-sync replicas have changed", retriable=True))
                return
            states[index] = topic.next(index, state)

        def written(outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, WriteResult):
                chunks.popleft()
                dropped = {index: [each for each in topic.replicas[index] if each not in move.replicas] for index, move in moves.items()}
                self._put(topic, moves)
                for index, after in states.items():
                    topic.take(index, after)
                self._elections.announce([(topic, index) for index in states])
                self._stop(topic, dropped, lambda: None)
                self._write_begin(topic, chunks, end)
            elif self._is_of_state(topic, moves, outcome):
                self._read(topic, moves, lambda error: self._write_begin(topic, chunks, end) if error is None else fail(error))
            else:
                fail(outcome)

        def fail(error: CoordinationError) -> None:
            end([index for chunk in chunks for index in chunk], error)

        self._outbox.write([self._put_topic(topic, moves), *self._put_states(topic, states)], written)

    # Complete

    def check(self, topics: Iterable[TopicImage]) -> None:
        """Complete what can be completed, one partition of a topic after the other."""
        for topic in topics:
            if (topic.adding or topic.removing) and topic.name not in self._completing and self._ready(topic):
                self._completing[topic.name] = None
                self._image.when_free(topic.name, partial(self._complete, topic))

    def _ready(self, topic: TopicImage) -> dict[int, FoundState]:
        """Some of the partitions whose remaining replicas are all in sync, with the states in which these alone remain."""
        ready: dict[int, FoundState] = {}
        for index in dict.fromkeys((*topic.adding, *topic.removing)):
            state = self._state_of_target(topic, index)
            if state is not None and len(ready) < PARTITIONS_PER_STEP:
                ready[index] = topic.next(index, state)
        return ready

    def _state_of_target(self, topic: TopicImage, index: int) -> PartitionState | None:
        """The state in which only the replicas that remain are in sync; None as long as not all of them are."""
        info, target = topic.partitions[index], move_of(topic, index).target
        if info is None or not topic.is_led(index, self._image.live) or any(each not in info.isr for each in target):
            return None
        return self._state_among(topic, index, target)

    def _state_among(self, topic: TopicImage, index: int, replicas: Replicas) -> PartitionState | None:
        """The next state of a partition, in which these alone are replicas; None if no broker could lead one that is led."""
        state = self._next_state(topic, index)
        isr, elr, known = (tuple(each for each in some if each in replicas) for some in (state.isr, state.elr, state.last_known_elr))
        if not isr:
            return None
        if state.leader not in (*replicas, NO_LEADER):
            candidates = self._image.candidates()
            leader = next((each for each in replicas if each in isr and can_lead(each, state, candidates)), None)
            if leader is None:
                return None
            state = state._replace(leader=leader, leader_broker_epoch=candidates.live[leader])
        return state._replace(isr=isr, elr=elr, last_known_elr=known)

    def _complete(self, topic: TopicImage) -> None:
        states = self._ready(topic) if self._image.topics.get(topic.name) is topic else {}

        def end(error: CoordinationError | None = None) -> None:
            self._completing.pop(topic.name, None)
            self._image.free(topic.name)
            if error is not None:
                _LOG.error("reassignment not completed; repeated soon: topic=%s reason=%s", topic.name, error)
                self._again()
            elif states:
                self.check([topic])

        def written(outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, WriteResult):
                self._targets_written(topic, states, end)
            elif self._is_of_state(topic, states, outcome):
                self._read(topic, states, end)
            else:
                end(outcome)

        if states:
            self._outbox.write(self._put_states(topic, states), written)
        else:
            end()

    def _targets_written(
        self, topic: TopicImage, states: Mapping[int, FoundState], end: Callable[[CoordinationError | None], object]
    ) -> None:
        """The remaining replicas are led by one of them: stop the others, then forget them. From now on nothing is sent to those that
        would have them begin the replica again: an election, or all states at a registration.
        """
        moves = {index: Move(move_of(topic, index).target, (), ()) for index in states}
        removed = {index: move_of(topic, index).removing for index in states}
        named = {index: topic.replicas[index] for index in states}
        led = []
        for index, after in states.items():
            topic.reassign(index, moves[index].replicas)
            topic.take(index, after)
            led.append(LedPartition(topic.name, topic.topic_id, topic.info(index), False))

        def written(outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, WriteResult):
                self._put(topic, moves)
                for index in moves:
                    _LOG.info("partition reassigned: partition=%s-%d replicas=%s", topic.name, index, topic.replicas[index])
                if (served := topic.served()) is not None:
                    self._broadcast.update([served])
                self._completed()
                end(None)
            else:
                for index, replicas in named.items():
                    topic.reassign(index, replicas)
                end(outcome)

        self._broadcast.lead(led, self._elections.again)
        self._stop(topic, removed, lambda: self._outbox.write([self._put_topic(topic, moves)], written))

    # List

    def list_ongoing(self, ticket: int, request: ListReassignments) -> None:
        """Answer what is under way."""
        found: dict[TopicPartition, OngoingReassignment] = {}
        for name, topic in self._image.topics.items():
            for index in dict.fromkeys((*topic.adding, *topic.removing)):
                partition = TopicPartition(name, index)
                if request.partitions is None or partition in request.partitions:
                    found[partition] = OngoingReassignment(*move_of(topic, index))
        self._outbox.answer(ticket, found)

    # Parts

    def _next_state(self, topic: TopicImage, index: int) -> PartitionState:
        state = topic.state(index, self._broadcast.epoch)
        return state._replace(leader_epoch=state.leader_epoch + 1)

    def _put_topic(self, topic: TopicImage, moves: Mapping[int, Move]) -> PutTopic:
        replicas = [moves[index].replicas if index in moves else each for index, each in enumerate(topic.replicas)]
        adding, removing = dict(topic.adding), dict(topic.removing)
        for index, move in moves.items():
            _set_or_drop(adding, index, move.adding)
            _set_or_drop(removing, index, move.removing)
        return PutTopic(topic.name, topic.topic_id, replicas, topic.version, adding, removing)

    @staticmethod
    def _put_states(topic: TopicImage, states: Mapping[int, FoundState]) -> list[Change]:
        return [topic.change(index, after) for index, after in states.items()]

    def _put(self, topic: TopicImage, moves: Mapping[int, Move]) -> None:
        """The topic's node names these moves."""
        for index, move in moves.items():
            topic.reassign(index, move.replicas)
            _set_or_drop(topic.adding, index, move.adding)
            _set_or_drop(topic.removing, index, move.removing)
        topic.version += 1

    def _stop(self, topic: TopicImage, removed: Mapping[int, Sequence[int]], then: Callable[[], object]) -> None:
        """Have live brokers delete replicas; `removed` says whose, by partition."""
        by_broker: dict[int, list[int]] = {}
        for index, brokers in removed.items():
            for broker_id in brokers:
                by_broker.setdefault(broker_id, []).append(index)
        stopped = Countdown(len(by_broker), then)
        for broker_id, indexes in by_broker.items():
            only = StoppedTopic(topic.name, topic.topic_id, len(topic.partitions), tuple(indexes))
            self._broadcast.stop([only], stopped, to=[broker_id])

    def _is_of_state(self, topic: TopicImage, indexes: Iterable[int], error: CoordinationError) -> bool:
        """Whether a write was refused as a leader has written a state meanwhile."""
        return isinstance(error, NodeError) and any(error.path == partition_state(topic.name, index) for index in indexes)

    def _read(self, topic: TopicImage, indexes: Iterable[int], then: Callable[[CoordinationError | None], object]) -> None:
        """Take the states that leaders have written."""
        wanted = list(indexes)

        def read(states: list[FoundState | MalformedNodeError | None] | CoordinationError) -> None:
            if isinstance(states, CoordinationError):
                then(states)
                return
            for index, state in zip(wanted, states, strict=True):
                if isinstance(state, MalformedNodeError):
                    then(state)
                    return
                if state is not None:
                    topic.take(index, state)
            then(None)

        self._outbox.read_states(queries.partition_states([(topic.name, topic.topic_id, index) for index in wanted]), read)


def _set_or_drop(moving: dict[int, Replicas], index: int, replicas: Replicas) -> None:
    if replicas:
        moving[index] = replicas
    else:
        moving.pop(index, None)
