"""Elects leaders where one is needed, by `election_rules`; writes the states, and sends them.

A run looks at all partitions of some topics, in steps. For those that are not settled it reads what their topics set themselves,
unless they have one replica, decides, and writes; where another writer was faster it reads the states, and decides again.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.cluster import queries
from moldau.cluster.control import LedPartition
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP, Broadcast, Floors, StepRotation
from moldau.cluster.controller.election_rules import TopicRules, elect, is_settled
from moldau.cluster.controller.events import EpochsRaised, Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.queries import FoundState
from moldau.cluster.store import WriteResult
from moldau.cluster.znodes import MalformedNodeError, PartitionState
from moldau.model.config import BrokerConfig
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import NodeError
from moldau.ports.probe import reached

_LOG = logging.getLogger(__name__)


def _nothing(_: object = None) -> None:
    """For a caller that needs no notification."""


class _Wanted(NamedTuple):
    topic: TopicImage
    partition: int
    floor: int


class _ElectedLeader(NamedTuple):
    topic: TopicImage
    partition: int
    after: FoundState


class Elections:
    """See the module."""

    def __init__(
        self,
        image: ClusterImage,
        outbox: Outbox,
        broadcast: Broadcast,
        works: StepRotation,
        config: BrokerConfig,
        failed: Callable[[], object],
    ) -> None:
        """`failed` is called when the store has failed in a run: it is to be repeated."""
        self._image = image
        self._outbox = outbox
        self._broadcast = broadcast
        self._works = works
        self._config = config
        self._failed = failed
        broadcast.on_offline = self.run

    def run(
        self,
        names: Iterable[str],
        floors: Floors | None = None,
        then: Callable[[], object] = _nothing,
        failed: Callable[[CoordinationError], object] = _nothing,
        *,
        forgets_elr: bool = False,
    ) -> None:
        """Elect for partitions of topics, and send what has changed; `then`, or `failed` if the store has failed.

        With `forgets_elr` eligible replicas stop being so: the setting that they depended on has changed.
        """
        run = _Run(self, floors or {}, PARTITIONS_PER_STEP, self.announce, self._noting(failed), then, forgets_elr=forgets_elr)
        run.begin(list(names))

    def elect(
        self,
        wanted: Collection[TopicPartition],
        *,
        preferred: bool,
        unclean: bool,
        without_suspected: bool = False,
        without: Collection[int] = (),
        then: Callable[[], object] = _nothing,
        failed: Callable[[CoordinationError], object] = _nothing,
    ) -> None:
        """Elect for some partitions: their preferred replicas, or of those without a leader any that may lead, an unclean one too. With
        `without_suspected` brokers that do not answer count as shutting down, and so do those `without`: they leave where others stay.
        """
        run = _Run(
            self,
            {},
            PARTITIONS_PER_STEP,
            self.announce,
            self._noting(failed),
            then,
            preferred=preferred,
            unclean=unclean,
            without_suspected=without_suspected,
            without=without,
        )
        run.begin_with(dict.fromkeys(wanted))

    def again(self, floors: Floors) -> None:
        """Elect again where logs know later epochs than were sent."""
        if floors:
            self.run(dict.fromkeys(each.topic for each in floors), floors)

    def run_first(self, floors: Floors, per_write: int, failed: Callable[[CoordinationError], object], then: Callable[[], object]) -> None:
        """Elect for all partitions, before any is sent."""
        _Run(self, floors, per_write, lambda _moved: None, failed, then).begin(list(self._image.topics))

    def announce(self, moved: Sequence[tuple[TopicImage, int]]) -> None:
        """Send states of partitions that were written, each to its replicas, and to all brokers what clients are answered."""
        led = [LedPartition(topic.name, topic.topic_id, topic.info(index), False) for topic, index in moved]
        topics = dict.fromkeys(topic for topic, _ in moved)
        self._broadcast.lead(led, self.again)
        self._broadcast.update([served for topic in topics if (served := topic.served()) is not None])

    def without_eligible(self, topic: TopicImage, index: int) -> PartitionState:
        """The next state of a partition, in which no replica is eligible any more."""
        state = topic.state(index, self._broadcast.epoch)
        return state._replace(leader_epoch=state.leader_epoch + 1, elr=(), last_known_elr=())

    def rules_of(self, values: Mapping[str, str] | MalformedNodeError | None) -> TopicRules:
        """What elections depend on, of a topic that sets these values itself."""
        config = self._config.topic({} if values is None or isinstance(values, MalformedNodeError) else values)
        return TopicRules(config.int("min.insync.replicas"), config.boolean("unclean.leader.election.enable"))

    def _noting(self, failed: Callable[[CoordinationError], object]) -> Callable[[CoordinationError], object]:
        def note(error: CoordinationError) -> None:
            _LOG.error("leaders not elected: the store of metadata failed; repeated soon: reason=%s", error)
            self._failed()
            failed(error)

        return note


class _Run:
    """One run of elections, until all its states are written."""

    def __init__(
        self,
        elections: Elections,
        floors: Floors,
        per_write: int,
        elected: Callable[[Sequence[tuple[TopicImage, int]]], object],
        failed: Callable[[CoordinationError], object],
        then: Callable[[], object],
        *,
        preferred: bool = False,
        unclean: bool = False,
        forgets_elr: bool = False,
        without_suspected: bool = False,
        without: Collection[int] = (),
    ) -> None:
        self._elections = elections
        self._image = elections._image
        self._outbox = elections._outbox
        self._epoch = elections._broadcast.epoch
        self._floors = floors
        self._per_write = per_write
        self._elected = elected
        self._failed = failed
        self._then = then
        self._preferred = preferred
        self._unclean = unclean
        self._forgets_elr = forgets_elr
        self._without_suspected = without_suspected
        self._without = without
        self._outstanding = 1
        self._raised = 0
        self._has_failed = False

    def begin(self, names: Sequence[str]) -> None:
        """Look at all partitions of topics."""
        self._elections._works.add(self._steps(names))

    def begin_with(self, wanted: Iterable[TopicPartition]) -> None:
        """Look at some partitions, settled or not."""
        self._elections._works.add(self._some_steps(wanted))

    def _steps(self, names: Sequence[str]) -> Iterator[None]:
        wanted: list[_Wanted] = []
        candidates = self._image.candidates()
        seen = 0
        for name in names:
            topic = self._image.topics.get(name)
            if topic is None:
                continue
            for index in range(len(topic.partitions)):
                if topic.partitions[index] is None:
                    continue
                floor = self._floors.get(TopicPartition(name, index), 0) if self._floors else 0
                seen += 1
                if not seen % PARTITIONS_PER_STEP:
                    yield None
                    if self._image.topics.get(name) is not topic:
                        break
                    candidates = self._image.candidates()
                state = topic.state(index, self._epoch)
                if floor or not is_settled(state, self._image.candidates_of(candidates, name, index)) or (self._forgets_elr and state.elr):
                    wanted.append(_Wanted(topic, index, floor))
                    if len(wanted) >= self._per_write:
                        self._decide(wanted)
                        wanted = []
        self._decide(wanted)
        self._end()

    def _some_steps(self, partitions: Iterable[TopicPartition]) -> Iterator[None]:
        wanted: list[_Wanted] = []
        for name, index in partitions:
            topic = self._image.topics.get(name)
            if topic is not None and 0 <= index < len(topic.partitions) and topic.partitions[index] is not None:
                wanted.append(_Wanted(topic, index, 0))
            if len(wanted) >= self._per_write:
                self._decide(wanted)
                wanted = []
                yield None
        self._decide(wanted)
        self._end()

    def _decide(self, wanted: Sequence[_Wanted]) -> None:
        names = dict.fromkeys(each.topic.name for each in wanted if len(each.topic.replicas[each.partition]) > 1)
        self._outstanding += 1
        if names:
            self._outbox.read(queries.topic_configs(list(names)), partial(self._elect, wanted))
        else:
            self._elect(wanted, {})

    def _elect(self, wanted: Sequence[_Wanted], configs: Mapping[str, dict[str, str] | MalformedNodeError] | CoordinationError) -> None:
        if isinstance(configs, CoordinationError):
            self._end(configs)
            return
        rules = {name: self._elections.rules_of(values) for name, values in configs.items()}
        default = self._elections.rules_of(None)
        candidates = self._image.candidates()
        if self._without_suspected or self._without:
            suspected = candidates.suspected if self._without_suspected else ()
            candidates = candidates._replace(shutting_down=dict.fromkeys((*candidates.shutting_down, *suspected, *self._without)))
        moved: list[_ElectedLeader] = []
        for topic, index, floor in wanted:
            if self._image.topics.get(topic.name) is not topic:
                continue
            before = topic.state(index, self._epoch)
            of_topic = rules.get(topic.name, default)
            if self._unclean:
                of_topic = of_topic._replace(unclean=True)
            has_elr = self._forgets_elr and bool(before.elr)
            if has_elr:
                before = before._replace(elr=(), last_known_elr=())
            able = self._image.candidates_of(candidates, topic.name, index)
            state = elect(before, topic.replicas[index], able, of_topic, self._epoch, floor, preferred=self._preferred)
            if state is None and has_elr:
                state = self._elections.without_eligible(topic, index)
            if state is not None:
                if state.leader in before.elr:
                    reached("cluster: an eligible replica was elected")
                elif state.leader < 0 <= before.leader:
                    reached("cluster: a partition lost its last leader")
                self._raised += floor > before.leader_epoch and not before.is_mirror  # whose log has the epochs of its source
                moved.append(_ElectedLeader(topic, index, topic.next(index, state)))
        if moved:
            changes = [topic.change(index, after) for topic, index, after in moved]
            self._outbox.write(changes, partial(self._written, moved))
        else:
            self._end()

    def _written(self, moved: Sequence[_ElectedLeader], outcome: WriteResult | CoordinationError) -> None:
        if isinstance(outcome, WriteResult):
            moved = [each for each in moved if self._image.topics.get(each.topic.name) is each.topic]
            for topic, index, after in moved:
                topic.take(index, after)
            self._elected([(topic, index) for topic, index, _ in moved])
            self._end()
        elif isinstance(outcome, NodeError):
            self._read_again(moved, outcome)
        else:
            self._end(outcome)

    def _read_again(self, moved: Sequence[_ElectedLeader], error: NodeError) -> None:
        """Another writer has written states, or removed a topic: take what is there, and elect by that."""
        reached("cluster: an election found another state than it expected")
        names = dict.fromkeys(topic.name for topic, _, _ in moved)
        _LOG.warning("election repeated: a state has changed meanwhile: topics=%s reason=%s", ",".join(list(names)[:10]), error)

        def read(outcome: list[FoundState | MalformedNodeError | None] | CoordinationError) -> None:
            if isinstance(outcome, CoordinationError):
                self._end(outcome)
                return
            wanted = []
            for (topic, index, _), found in zip(moved, outcome, strict=True):
                if isinstance(found, MalformedNodeError):
                    _LOG.error("no leader elected until the state is repaired: partition=%s-%d reason=%s", topic.name, index, found)
                elif found is not None:
                    self._image.take_read(topic, index, found)
                    wanted.append(_Wanted(topic, index, self._floors.get(TopicPartition(topic.name, index), 0)))
            self._decide(wanted)
            self._end()

        self._outbox.read_states(queries.partition_states([(topic.name, topic.topic_id, index) for topic, index, _ in moved]), read)

    def _end(self, error: CoordinationError | None = None) -> None:
        """A part of the run has come to its end; the run, when all have."""
        if error is not None and not self._has_failed:
            self._has_failed = True
            self._failed(error)
        self._outstanding -= 1
        if self._outstanding:
            return
        if self._raised:
            self._outbox.effects.append(EpochsRaised(self._raised))
        if not self._has_failed:
            self._then()
