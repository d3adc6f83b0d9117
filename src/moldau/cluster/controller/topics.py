"""Topics are created and grown, and completed where an earlier controller has begun it.

A creation writes the configuration, the topic's node with the whole assignment, and states of partitions in writes of 100; what a
crash leaves, the next controller completes. Brokers receive a topic when all its states are written.

Requests for one topic are carried out one after the other, those for different topics together.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from moldau.cluster import queries, znodes
from moldau.cluster.changes import Change, DropPartitions, NewPartitions, NewState, NewTopic, PutTopic
from moldau.cluster.control import LedPartition
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP, Broadcast, Countdown, Floors, StepRotation
from moldau.cluster.controller.election_rules import NO_LEADER, is_settled
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, Replicas, TopicImage
from moldau.cluster.controller.planning import Outcomes, Plan, Planner, new_partitions, not_stored
from moldau.cluster.controller.requests import CreateTopics, GrowthSpec, GrowTopics, PlannedTopic
from moldau.cluster.queries import FoundTopic, TopicNodes
from moldau.cluster.snapshot import twice, unknown_topic
from moldau.cluster.store import TopicChanged, TopicsChanged, WriteResult
from moldau.cluster.znodes import MalformedNodeError, PartitionState
from moldau.model.config import MIRROR_SOURCE
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import NodeExistsError

_LOG = logging.getLogger(__name__)

WRITES_AT_ONCE = 4
"""Writes of one topic's partitions that are on their way."""
NO_FLOORS: Floors = MappingProxyType({})


class _Creation(NamedTuple):
    plan: PlannedTopic
    outcomes: Outcomes


class _Written(NamedTuple):
    """A creation whose first write is out."""

    creation: _Creation
    states: Sequence[PartitionState]
    """Of its first partitions, by the brokers that were live."""


class TopicChanges:
    """See the module."""

    def __init__(
        self,
        image: ClusterImage,
        outbox: Outbox,
        broadcast: Broadcast,
        elections: Elections,
        works: StepRotation,
        planner: Planner,
        wake: Callable[[], object],
        look: Callable[[TopicsChanged | TopicChanged], object],
    ) -> None:
        """`wake` has `resume_unfinished` called after a while; `look` has read what a write of unknown outcome may have changed."""
        self._image = image
        self._outbox = outbox
        self._broadcast = broadcast
        self._elections = elections
        self._works = works
        self._planner = planner
        self._creations: deque[_Creation] = deque()
        self._is_creating = False
        self._wake = wake
        self._look = look
        self._unfinished: dict[str, TopicImage] = {}
        """Topics of which some states could not be written."""

    # Create

    def create(self, ticket: int, request: CreateTopics) -> None:
        """Create topics, or only check them; answer."""
        taken = next(filter(self._is_being_changed, (spec.name for spec in request.topics)), None) if request.waits else None
        if taken is None:
            self._works.add(self._create(ticket, request))
            return

        def run() -> None:
            self._works.add(after_others())
            self._image.free(taken)

        def after_others() -> Iterator[None]:
            yield None  # others that wait come to this point too, and none waits for another again
            self.create(ticket, request)

        self._image.when_free(taken, run)

    def _is_being_changed(self, name: str) -> bool:
        """Whether it is open what becomes of a name; that of a topic that is being deleted is taken."""
        return not self._image.is_free(name) and name not in self._image.deleting

    def _create(self, ticket: int, request: CreateTopics) -> Iterator[None]:
        plans: dict[str, Plan] = {}
        yield from self._planner.plan_all(request, plans)
        if request.waits and any(map(self._is_being_changed, plans)):  # another one has come first
            self.create(ticket, request)
            return
        if request.validate_only:
            self._outbox.answer(ticket, plans)
            return
        outcomes = Outcomes(self._outbox, ticket, list(plans))
        for creation in self._reserve(plans, outcomes):
            self._image.when_free(creation.plan.name, lambda: None)
            self._image.reserve(creation.plan.name, len(creation.plan.replicas))
            self._creations.append(creation)
        self._write_creations()

    def _reserve(self, plans: dict[str, Plan], outcomes: Outcomes) -> list[_Creation]:
        """Of the topics that are planned, those that no other request creates since, as long as there are not too many partitions."""
        planned = []
        for name, plan in plans.items():
            try:
                if isinstance(plan, PeerError):
                    raise plan
                self._planner.check_new(name)
                planned.append(_Creation(plan, outcomes))
            except PeerError as error:
                outcomes.settle(name, error.as_value())
        try:
            self._planner.check_bounds(sum(new_partitions(each.plan) for each in planned))
        except PeerError as error:
            for each in planned:
                outcomes.settle(each.plan.name, error.as_value())
            return []
        return planned

    def _write_creations(self) -> None:
        """Write topics, as many as fit into one write, unless one is on its way."""
        if self._is_creating or not self._creations:
            return
        batch: list[_Written] = []
        changes: list[Change] = []
        room = PARTITIONS_PER_STEP
        while self._creations and (not batch or len(self._creations[0].plan.replicas) <= room):
            creation = self._creations.popleft()
            plan = creation.plan
            states = [self._first_state(plan, index) for index in _first(plan.replicas)]
            changes.append(NewTopic(plan.name, plan.topic_id, plan.replicas, plan.configs))
            changes += (NewState(plan.name, index, state) for index, state in enumerate(states))
            room -= len(plan.replicas)
            batch.append(_Written(creation, states))
        self._is_creating = True
        self._outbox.write(changes, partial(self._creations_written, batch))

    def _creations_written(self, batch: list[_Written], outcome: WriteResult | CoordinationError) -> None:
        self._is_creating = False
        if isinstance(outcome, WriteResult):
            complete = []
            for creation, states in batch:
                plan = creation.plan
                topic = self._image.insert(TopicImage(plan.name, plan.topic_id, plan.replicas, 0))
                for index, state in enumerate(states):
                    topic.put(index, state, 0)
                self._image.reserve(plan.name, 0)
                if topic.missing:
                    self._write_states(topic, partial(self._first_state, plan), partial(self._states_written, topic, creation))
                else:
                    complete.append((topic, creation))
            self._announce_created(complete)
        elif isinstance(outcome, NodeExistsError) and (taken := [each for each, _ in batch if _is_of(outcome.path, each.plan.name)]):
            exists = PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{taken[0].plan.name}' exists already")
            if taken[0].plan.name not in self._image.topics:
                self._look(TopicsChanged())  # a write of ours whose outcome was not known, or another's
            self._end(taken[0].outcomes, taken[0].plan.name, exists)
            self._creations.extendleft(each for each, _ in reversed(batch) if each is not taken[0])
        else:
            names = [each.plan.name for each, _ in batch]
            self._look(TopicsChanged())
            for each, _ in batch:
                self._end(each.outcomes, each.plan.name, not_stored(f"create topics {names}", outcome))
        self._write_creations()

    def _states_written(self, topic: TopicImage, creation: _Creation, error: CoordinationError | None) -> None:
        if error is None:
            self._announce_created([(topic, creation)])
        else:
            self._keep_unfinished(topic, range(len(topic.partitions)))
            self._end(creation.outcomes, topic.name, not_stored(f"create topic {topic.name}", error))

    def _announce_created(self, created: Sequence[tuple[TopicImage, _Creation]]) -> None:
        def ended() -> None:
            for topic, creation in created:
                self._end(creation.outcomes, topic.name, creation.plan)

        led = [
            LedPartition(topic.name, topic.topic_id, topic.info(index), creation.plan.first_epochs is None)
            for topic, creation in created
            for index in range(len(topic.partitions))
        ]
        self._announce([topic for topic, _ in created], led, ended)

    def _announce(self, topics: Sequence[TopicImage], led: Sequence[LedPartition], then: Callable[[], object]) -> None:
        """Have replicas of new partitions led, and clients answered; elect where a broker has come or gone since the states were made."""
        if not topics:
            return
        replied = Countdown(2, then)

        def opened(floors: Floors) -> None:
            self._elections.again(floors)
            replied()

        self._broadcast.lead(led, opened)
        self._broadcast.update([served for topic in topics if (served := topic.served()) is not None], then=replied)
        candidates, epoch = self._image.candidates(), self._broadcast.epoch
        changed = [
            topic.name
            for topic in topics
            if not all(is_settled(topic.state(index, epoch), candidates) for index in range(len(topic.partitions)))
        ]
        if changed:
            self._elections.run(changed)

    def _first_state(self, plan: PlannedTopic, index: int) -> PartitionState:
        epoch = (plan.first_epochs or {}).get(index, 0)
        return self._state(plan.replicas[index], epoch, is_mirror=bool(plan.configs.get(MIRROR_SOURCE)))

    def _state(self, replicas: Replicas, leader_epoch: int, *, is_mirror: bool) -> PartitionState:
        live = self._image.live
        in_sync = tuple(replica for replica in replicas if replica in live)
        if not in_sync:
            return PartitionState(NO_LEADER, leader_epoch, tuple(replicas), self._broadcast.epoch, is_mirror=is_mirror)
        leader = next((replica for replica in in_sync if replica not in self._image.shutting_down), in_sync[0])
        return PartitionState(leader, leader_epoch, in_sync, self._broadcast.epoch, live[leader], is_mirror=is_mirror)

    def _write_states(
        self, topic: TopicImage, state_of: Callable[[int], PartitionState], then: Callable[[CoordinationError | None], object]
    ) -> None:
        """Write the states that a topic misses, some at a time."""
        missing = [index for index, info in enumerate(topic.partitions) if info is None]
        chunks = deque(missing[start : start + PARTITIONS_PER_STEP] for start in range(0, len(missing), PARTITIONS_PER_STEP))
        out = 0
        failure: CoordinationError | None = None

        def write_more() -> None:
            nonlocal out
            while chunks and out < WRITES_AT_ONCE and failure is None:
                states = {index: state_of(index) for index in chunks.popleft()}
                out += 1
                self._outbox.write([NewState(topic.name, *each) for each in states.items()], partial(written, states))
            if not out:
                then(failure)

        def written(states: dict[int, PartitionState], outcome: WriteResult | CoordinationError) -> None:
            nonlocal out, failure
            out -= 1
            if isinstance(outcome, WriteResult):
                for index, state in states.items():
                    topic.put(index, state, 0)
            else:
                failure = outcome
            write_more()

        write_more()

    # Grow

    def grow(self, ticket: int, request: GrowTopics) -> None:
        """Add partitions to topics, or only check; answer."""
        times = Counter(spec.name for spec in request.topics)
        outcomes = Outcomes(self._outbox, ticket, list(times))

        def steps() -> Iterator[None]:
            for spec in {spec.name: spec for spec in request.topics}.values():
                if times[spec.name] > 1:
                    outcomes.settle(spec.name, twice(spec.name))
                else:
                    self._image.when_free(spec.name, partial(self._grow, spec, outcomes, request.validate_only))
                yield None

        self._works.add(steps())

    def _grow(self, spec: GrowthSpec, outcomes: Outcomes, validate_only: bool) -> None:
        topic = self._image.topics.get(spec.name)
        if topic is None:
            self._end(outcomes, spec.name, unknown_topic(spec.name))
            return
        try:
            added = self._planner.plan_growth(spec, topic)
        except PeerError as error:
            self._end(outcomes, spec.name, error.as_value())
            return
        if validate_only:
            self._end(outcomes, spec.name, None)
            return
        self._image.reserve(spec.name, len(added))
        change = f"add partitions to {spec.name}"

        def nodes_read(nodes: TopicNodes | CoordinationError) -> None:
            """Nodes of partitions that the topic's node does not name are left of an earlier growth, by a broker that wrote them first."""
            if isinstance(nodes, CoordinationError):
                self._end(outcomes, spec.name, not_stored(change, nodes))
            else:
                drop([index for index in nodes.partitions if index >= len(topic.replicas)])

        def drop(left: Sequence[int]) -> None:
            if left:
                some = DropPartitions(topic.name, left[:PARTITIONS_PER_STEP])
                self._outbox.write([some], partial(dropped, left[PARTITIONS_PER_STEP:]))
            elif added:
                everything = [*topic.replicas, *added]
                grown = PutTopic(topic.name, topic.topic_id, everything, topic.version, topic.adding, topic.removing)
                self._outbox.write([grown], named)
            else:
                write_states()

        def dropped(left: Sequence[int], outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, WriteResult):
                drop(left)
            else:
                self._end(outcomes, spec.name, not_stored(change, outcome))

        def named(outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, WriteResult):
                self._image.grow(topic, added, topic.version + 1)
                self._image.reserve(spec.name, 0)
                write_states()
            else:
                self._look(TopicChanged(spec.name))
                self._end(outcomes, spec.name, not_stored(change, outcome))

        def write_states() -> None:
            self._complete(topic, completed)

        def completed(error: CoordinationError | None) -> None:
            self._end(outcomes, spec.name, None if error is None else not_stored(change, error))

        self._outbox.read(queries.topic_nodes(spec.name), nodes_read)

    def _keep_unfinished(self, topic: TopicImage, unsent: Sequence[int]) -> None:
        topic.unsent = unsent
        self._unfinished[topic.name] = topic
        self._wake()

    def resume_unfinished(self) -> None:
        """Complete topics that a failure of the store has left half written."""
        unfinished, self._unfinished = self._unfinished, {}
        for topic in unfinished.values():
            self.complete(topic)

    def complete(self, topic: TopicImage, then: Callable[[], object] = lambda: None, floors: Floors = NO_FLOORS) -> None:
        """Write the states that a topic misses, which another has begun to create or to grow, and have them led. Those that are there
        already, by a write whose outcome was not known, are taken as they are. `then` when they are led, or the store has failed. `floors`
        are leader epochs that logs know.
        """

        def completed(error: CoordinationError | None) -> None:
            if error is not None:
                _LOG.error("topic not completed: topic=%s reason=%s", topic.name, error)
                self._keep_unfinished(topic, topic.unsent)
            end()

        def end() -> None:
            self._image.free(topic.name)
            then()

        def states_read(found: list[FoundTopic] | CoordinationError) -> None:
            if isinstance(found, CoordinationError):
                completed(found)
                return
            missing = [index for index, info in enumerate(topic.partitions) if info is None]
            topic.unsent = sorted(dict.fromkeys((*topic.unsent, *missing)))
            there = dict(enumerate(found[0].states)) if found and found[0].node.topic_id == topic.topic_id else {}
            for index in missing:
                if (state := there.get(index)) is not None:
                    topic.put(index, state.state, state.version)
            self._outbox.read(queries.topic_nodes(topic.name), nodes_read)

        def nodes_read(nodes: TopicNodes | CoordinationError) -> None:
            if isinstance(nodes, CoordinationError):
                completed(nodes)
            elif znodes.partitions(topic.name) in nodes.nodes:
                self._complete(topic, completed, floors)
            else:
                self._outbox.write([NewPartitions(topic.name)], parent_written)

        def parent_written(outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, CoordinationError):
                completed(outcome)
            else:
                self._complete(topic, completed, floors)

        def run() -> None:
            if self._image.topics.get(topic.name) is topic and (topic.missing or topic.unsent):
                self._outbox.read_states(queries.topics([topic.name]), states_read)
            else:
                end()

        self._image.when_free(topic.name, run)

    def _complete(self, topic: TopicImage, then: Callable[[CoordinationError | None], object], floors: Floors = NO_FLOORS) -> None:
        missing = (index for index, info in enumerate(topic.partitions) if info is None)
        unsent = sorted(dict.fromkeys((*topic.unsent, *missing)))

        def written(error: CoordinationError | None) -> None:
            if error is not None:
                self._keep_unfinished(topic, unsent)
                then(error)
                return
            topic.unsent = ()
            led = [LedPartition(topic.name, topic.topic_id, topic.info(index), True) for index in unsent]
            self._announce([topic], led, lambda: then(None))

        def first_state(index: int, *, is_mirror: bool) -> PartitionState:
            epoch = floors.get(TopicPartition(topic.name, index), -1) + 1
            return self._state(topic.replicas[index], epoch, is_mirror=is_mirror)

        def configs_read(found: Mapping[str, dict[str, str] | MalformedNodeError] | CoordinationError) -> None:
            if isinstance(found, CoordinationError):
                written(found)
                return
            values = found.get(topic.name, {})
            if isinstance(values, MalformedNodeError):
                is_mirror = any(info is not None and info.is_mirror for info in topic.partitions)
            else:
                is_mirror = bool(values.get(MIRROR_SOURCE))
            self._write_states(topic, partial(first_state, is_mirror=is_mirror), written)

        if topic.missing:
            self._outbox.read(queries.topic_configs([topic.name]), configs_read)
        else:
            written(None)

    def _end(self, outcomes: Outcomes, name: str, outcome: PlannedTopic | PeerError | None) -> None:
        """What was done for a topic has ended."""
        outcomes.settle(name, outcome)
        self._image.free(name)


def _first(replicas: Sequence[Replicas]) -> range:
    return range(min(len(replicas), PARTITIONS_PER_STEP))


def _is_of(path: str, name: str) -> bool:
    """Whether a node is one of a topic."""
    topic = znodes.topic(name)
    return path in (topic, znodes.topic_config(name)) or path.startswith(f"{topic}/")
