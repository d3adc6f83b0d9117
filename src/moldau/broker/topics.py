"""The life of topics: created, grown, deleted. Decides, writes the metadata, then has the broker open or remove partitions.

Each topic of a request succeeds or fails by itself. What can be done is written first, and only then carried out; a crash
between the two is repaired at the next start, from the metadata. All of it goes in steps, a few topics or partitions at a time: others see
the topics of a long request one after the other, and those that are done stay when its connection is lost.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from moldau.broker.host import PartitionHost
from moldau.broker.ineffective import warn_without_effect
from moldau.broker.store_errors import reported
from moldau.broker.topic_names import Collisions
from moldau.cluster.controller.assignment import Replicas, check_by_hand, in_order, spread
from moldau.cluster.controller.requests import USE_DEFAULT, GrowthSpec, TopicSpec
from moldau.cluster.protected_topics import check_unprotected
from moldau.cluster.registry import PARTITIONS_PER_STEP, NewTopic, Registry
from moldau.cluster.snapshot import INTERNAL_TOPICS, TopicInfo
from moldau.model.config import TOPIC, BrokerConfig, InvalidConfigError, check_topic, format_value, parse_value, topic_definition
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Elsewhere, Pause, Steps
from moldau.model.topic_names import check_name

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
CREATED_AT_ONCE_MAX = 100
"""Topics that one Metadata request creates: about 1 ms each."""
REMOVED_PER_STEP = 10
"""Partitions whose folders are renamed before other work runs: each takes about 0.1 ms."""
DELETED_TOGETHER_MAX = 1000
"""Partitions whose removal is brought to disk at once, unless one topic has more: that takes time for all partitions there are."""


def _nothing(_done: object) -> None:
    """For a caller that needs no notification."""


class Topics:
    """See the module. Methods work in steps and return one outcome per name: what was made, or the PeerError that says why not."""

    def __init__(self, registry: Registry, config: BrokerConfig, host: PartitionHost) -> None:
        self._registry = registry
        self._config = config
        self._host = host
        self._reserved: dict[str, int] = {}
        """Topics that requests under way make or add partitions to, and how many."""
        self._waiting: list[Callable[[], object]] = []
        """What resumes those that wait for one of them."""

    def create(
        self, wanted: Sequence[TopicSpec], made: Callable[[NewTopic], object] = _nothing, *, validate_only: bool = False
    ) -> Generator[Pause, None, dict[str, NewTopic | PeerError]]:
        """Create topics, or only check them; `made` is called for each as soon as it is there. INVALID_REQUEST for a name that comes twice.

        Further codes: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
        INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION at a bound on partitions; KAFKA_STORAGE_ERROR when the store of
        metadata fails or no log directory is left.
        """
        lost = self._host.storage_lost()
        if lost is not None:
            return {spec.name: lost for spec in wanted}
        outcomes = yield from self._planned_all(wanted)
        if validate_only:
            return outcomes
        planned = self._reserve(outcomes)
        try:
            for group in _groups(planned, lambda topic: len(topic.replicas), PARTITIONS_PER_STEP):
                yield None
                outcomes |= yield from self._make(group, made)
        finally:
            self._free(topic.name for topic in planned)
        lost = self._host.storage_lost()
        return outcomes if lost is None else _instead_of_topics(outcomes, lost)

    def when_free(self, name: str) -> Steps:
        """Wait until no request that runs makes the topic or adds partitions to it."""
        while name in self._reserved:
            yield Elsewhere(self._waiting.append)

    def _free(self, names: Iterable[str]) -> None:
        for name in names:
            del self._reserved[name]
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()

    def create_for_client(
        self, names: Iterable[str], made: Callable[[NewTopic], object] = _nothing
    ) -> Generator[Pause, None, dict[str, PeerError | None]]:
        """Create topics that a client asked about, where `auto.create.topics.enable` allows it; by name why not, or None.

        Only the first `CREATED_AT_ONCE_MAX` are made, so that the answer comes soon. The client asks again for those that are not there
        (UNKNOWN_TOPIC_OR_PARTITION, as Kafka says of topics that it is about to create), and gets the next.
        """
        wanted = list(names)
        if not self._config.boolean("auto.create.topics.enable"):
            return {name: unknown_topic(name) for name in wanted}
        outcomes = yield from self.create([TopicSpec(name) for name in wanted[:CREATED_AT_ONCE_MAX]], made)
        told = {name: outcome if isinstance(outcome, PeerError) else None for name, outcome in outcomes.items()}
        return told | {name: unknown_topic(name) for name in wanted[CREATED_AT_ONCE_MAX:]}

    def grow(
        self, wanted: Sequence[GrowthSpec], grown: Callable[[GrowthSpec], object] = _nothing, *, validate_only: bool = False
    ) -> Generator[Pause, None, dict[str, PeerError | None]]:
        """Add partitions to topics, or only check; `grown` is called for each that has them. INVALID_REQUEST for a name that comes twice.

        Further codes: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS unless there are more than before, INVALID_REPLICA_ASSIGNMENT,
        INVALID_REPLICATION_FACTOR, POLICY_VIOLATION at a bound on partitions, KAFKA_STORAGE_ERROR when no log directory is left.
        """
        times = Counter(spec.name for spec in wanted)
        outcomes: dict[str, PeerError | None] = {}
        for spec in wanted:
            yield None
            outcomes[spec.name] = twice(spec.name) if times[spec.name] > 1 else (yield from self._grown(spec, grown, validate_only))
        return outcomes

    def delete(
        self, topics: Iterable[TopicInfo], deleted: Callable[[TopicInfo], object] = _nothing
    ) -> Generator[Pause, None, dict[str, PeerError | None]]:
        """Delete topics, and call `deleted` for each; by name why one is not deleted, or None. What is begun, the
        next start finishes if need be.

        The bytes go after `file.delete.delay.ms`. Codes: UNKNOWN_TOPIC_OR_PARTITION for one that was deleted meanwhile;
        KAFKA_STORAGE_ERROR when the store of metadata fails or no log directory is left.
        """
        outcomes: dict[str, PeerError | None] = {}
        for group in _groups(topics, lambda topic: len(topic.partitions), DELETED_TOGETHER_MAX):
            yield None
            outcomes |= {topic.name: unknown_topic(topic.name) for topic in group}
            marked: list[TopicInfo] = []
            error = self._host.storage_lost()
            if error is None:
                try:
                    with reported(f"delete topics {[topic.name for topic in group]}"):
                        yield from self._remove(group, marked, deleted)
                except PeerError as failure:
                    error = failure.as_value()
            there = marked if error is None else [*marked, *filter(self._is_there, group)]
            outcomes |= {topic.name: error for topic in there}
        return outcomes

    def _is_there(self, topic: TopicInfo) -> bool:
        """Whether it is still known; another one of its name does not count."""
        return topic.topic_id in self._registry.snapshot.topics_by_id

    def _remove(self, topics: Sequence[TopicInfo], marked: list[TopicInfo], deleted: Callable[[TopicInfo], object]) -> Steps:
        """Delete those that still exist when their turn comes, and add them to `marked`; others may be deleted and recreated meanwhile.

        When the store fails, the next start may find a mark, and delete the topic: no more is acknowledged there.
        """
        try:
            yield from self._mark(topics, marked, deleted)
        except CoordinationError:
            for some in _few_at_once(topic for topic in marked if not self._is_there(topic)):
                self._host.close_partitions(some)
                yield UNFINISHED
            raise
        for some in _few_at_once(marked):
            self._host.remove_partitions(some)
            yield UNFINISHED
        names = [topic.name for topic in marked]
        yield from self._host.topics_deleted(names)
        yield from self._registry.finish_deletion(names)

    def _mark(self, topics: Sequence[TopicInfo], marked: list[TopicInfo], deleted: Callable[[TopicInfo], object]) -> Steps:
        for start in range(0, len(topics), PARTITIONS_PER_STEP):
            yield from self._registry.writable()
            known = self._registry.snapshot.topics
            there = [known[topic.name] for topic in topics[start : start + PARTITIONS_PER_STEP] if self._is_there(topic)]
            marked += there
            yield from self._registry.mark_deleted([topic.name for topic in there])
            for topic in there:
                deleted(topic)
            yield UNFINISHED

    def _internal(self, wanted: TopicSpec) -> TopicSpec:
        """A topic of the brokers themselves as it has to be, whoever makes it: where nothing else is wanted, as they make it.

        Kafka makes what is created by hand like any topic, and then retention deletes the state of groups and transactions.
        """
        from moldau.cluster.internal_topics import INTERNAL, internal_topic_spec

        ours = internal_topic_spec(INTERNAL[wanted.name], self._config, len(self._registry.snapshot.brokers))
        configs = list((dict(ours.configs) | dict(wanted.configs)).items())
        if wanted.assignments:
            return wanted._replace(configs=configs)
        partitions = ours.partitions if wanted.partitions == USE_DEFAULT else wanted.partitions
        factor = ours.replication_factor if wanted.replication_factor == USE_DEFAULT else wanted.replication_factor
        return TopicSpec(wanted.name, partitions, factor, configs=configs)

    def _reserve(self, outcomes: dict[str, NewTopic | PeerError]) -> list[NewTopic]:
        """Of the topics that are planned, those that no other request created since; they are ours until `_reserved` is without them."""
        planned = []
        for name, topic in outcomes.items():
            if isinstance(topic, NewTopic):
                try:
                    self._check_free(name)
                except PeerError as error:
                    outcomes[name] = error.as_value()
                else:
                    planned.append(topic)
        try:
            self._check_bounds(sum(len(topic.replicas) for topic in planned))
        except PeerError as error:
            outcomes.update(dict.fromkeys((topic.name for topic in planned), error.as_value()))
            return []
        self._reserved.update((topic.name, len(topic.replicas)) for topic in planned)
        return planned

    def _make(
        self, topics: Sequence[NewTopic], made: Callable[[NewTopic], object]
    ) -> Generator[Pause, None, dict[str, NewTopic | PeerError]]:
        """Create topics that fit in one transaction, or one that does not; the error for each where the store fails."""
        try:
            with reported(f"create topics {[topic.name for topic in topics]}"):
                if len(topics) == 1 and len(topics[0].replicas) > PARTITIONS_PER_STEP:
                    yield from self._registry.create_large_topic(topics[0])
                else:
                    yield from self._registry.create_topics(topics)
        except PeerError as error:
            return dict.fromkeys((topic.name for topic in topics), error.as_value())
        for topic in topics:
            made(topic)
            warn_without_effect(f"topic={topic.name}", topic.configs, TOPIC)
        yield from self._open(
            [(TopicPartition(topic.name, index), topic.topic_id) for topic in topics for index in range(len(topic.replicas))]
        )
        return {}

    def _open(self, wanted: Sequence[tuple[TopicPartition, bytes]]) -> Steps:
        for start in range(0, len(wanted), PARTITIONS_PER_STEP):
            yield UNFINISHED
            yield from self._host.open_partitions(wanted[start : start + PARTITIONS_PER_STEP])

    def _planned_all(self, wanted: Sequence[TopicSpec]) -> Generator[Pause, None, dict[str, NewTopic | PeerError]]:
        outcomes: dict[str, NewTopic | PeerError] = {}
        taken = Collisions([*self._registry.snapshot.topics, *self._reserved])
        partitions = 0
        for spec in wanted:
            yield None
            outcome = twice(spec.name) if spec.name in outcomes else self._planned(spec, taken)
            outcomes[spec.name] = outcome
            if isinstance(outcome, NewTopic):
                partitions += len(outcome.replicas)
                try:
                    self._check_bounds(partitions)
                except PeerError as error:
                    return _instead_of_topics(outcomes | {spec.name: outcomes.get(spec.name, error) for spec in wanted}, error.as_value())
        return outcomes

    def _check_free(self, name: str) -> None:
        if name in self._registry.snapshot.topics:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' exists already")
        if name in self._registry.deleting:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' is being deleted; part of it could not be removed")
        if name in self._reserved:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' is being created by another request")

    def _planned(self, spec: TopicSpec, taken: Collisions) -> NewTopic | PeerError:
        if spec.name in INTERNAL_TOPICS:
            spec = self._internal(spec)
        try:
            check_name(spec.name)
            self._check_free(spec.name)
            replicas = self._replicas_by_hand(spec) if spec.assignments else self._replicas(spec)
            configs = self._checked_configs(spec)
            taken.take(spec.name)
        except PeerError as error:
            return error.as_value()
        return NewTopic(spec.name, self._registry.new_topic_id(), replicas, configs)

    def _replicas(self, spec: TopicSpec) -> list[Replicas]:
        partitions = self._config.int("num.partitions") if spec.partitions == USE_DEFAULT else spec.partitions
        if partitions <= 0:
            raise PeerError(ErrorCode.INVALID_PARTITIONS, f"topic '{spec.name}': {spec.partitions} partitions, needed is 1 or more, or -1")
        self._check_bounds(partitions)
        factor = self._config.int("default.replication.factor") if spec.replication_factor == USE_DEFAULT else spec.replication_factor
        if factor <= 0:
            message = f"topic '{spec.name}': replication factor {spec.replication_factor}, needed is 1 or more, or -1"
            raise PeerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        return spread(partitions, factor, self._registry.snapshot.brokers)

    def _replicas_by_hand(self, spec: TopicSpec) -> list[Replicas]:
        if spec.partitions != USE_DEFAULT or spec.replication_factor != USE_DEFAULT:
            message = f"topic '{spec.name}': with an assignment by hand, partitions and replication factor must be -1"
            raise PeerError(ErrorCode.INVALID_REQUEST, message)
        return check_by_hand(in_order(spec.assignments), self._registry.snapshot.brokers)

    def _checked_configs(self, spec: TopicSpec) -> dict[str, str]:
        configs: dict[str, str] = {}
        for name, text in spec.configs:
            if text is None:
                raise InvalidConfigError(f"topic '{spec.name}': {name} has no value", name)
            definition = topic_definition(name)
            configs[name] = format_value(definition, parse_value(definition, text)) or ""
        check_topic(configs, self._config)
        return configs

    def _check_bounds(self, added: int) -> None:
        at_once = self._config.int("partitions.per.request.max")
        if added > at_once:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"{added} partitions at once; partitions.per.request.max is {at_once}")
        most = self._config.int("max.partitions")
        there = self._registry.snapshot.partition_count + sum(self._reserved.values())
        if there + added > most:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"{added} partitions more than the {there} there are; max.partitions is {most}")

    def _grown(
        self, spec: GrowthSpec, grown: Callable[[GrowthSpec], object], validate_only: bool
    ) -> Generator[Pause, None, PeerError | None]:
        yield from self.when_free(spec.name)
        topic = self._registry.snapshot.topics.get(spec.name)
        if topic is None:
            return unknown_topic(spec.name)
        lost = self._host.storage_lost()
        if lost is not None:
            return lost
        try:
            added = self._added(spec, topic)
            if validate_only:
                return None
            self._reserved[spec.name] = len(added)
            try:
                with reported(f"add partitions to {spec.name}"):
                    yield from self._registry.create_partitions(spec.name, added)
                grown(spec)
                yield from self._open(
                    [(TopicPartition(spec.name, index), topic.topic_id) for index in range(len(topic.partitions), spec.total)]
                )
            finally:
                self._free([spec.name])
        except PeerError as error:
            return error.as_value() if spec.name in self._registry.snapshot.topics else unknown_topic(spec.name)
        return self._host.storage_lost()

    def _added(self, spec: GrowthSpec, topic: TopicInfo) -> list[Replicas]:
        check_unprotected(self._config, spec.name, "add partitions")
        there = len(topic.partitions)
        if spec.total <= there:
            raise PeerError(ErrorCode.INVALID_PARTITIONS, f"topic '{spec.name}' has {there} partitions; {spec.total} would not be more")
        added = spec.total - there
        self._check_bounds(added)
        factor = len(topic.partitions[0].replicas)
        brokers = self._registry.snapshot.brokers
        if spec.assignments is None:
            return spread(added, factor, brokers, there)
        if len(spec.assignments) != added:
            message = f"topic '{spec.name}': {added} partitions to add, but {len(spec.assignments)} assignments"
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return check_by_hand(spec.assignments, brokers, factor)


def _groups(topics: Iterable[T], partitions_of: Callable[[T], int], partitions_max: int) -> Iterator[list[T]]:
    """Topics in groups of at most `partitions_max` partitions; a topic that has more is a group by itself."""
    group: list[T] = []
    sum_of_partitions = 0
    for topic in topics:
        partitions = partitions_of(topic)
        if group and sum_of_partitions + partitions > partitions_max:
            yield group
            group, sum_of_partitions = [], 0
        group.append(topic)
        sum_of_partitions += partitions
    if group:
        yield group


def _few_at_once(topics: Iterable[TopicInfo]) -> Iterator[list[TopicPartition]]:
    """All partitions of the topics, some for each step."""
    partitions = (TopicPartition(topic.name, index) for topic in topics for index in range(len(topic.partitions)))
    while some := list(islice(partitions, REMOVED_PER_STEP)):
        yield some


def unknown_topic(name: str) -> PeerError:
    """The error for a topic that is not there."""
    return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")


def twice(name: str) -> PeerError:
    """The error for a topic that one request names more than once."""
    return PeerError(ErrorCode.INVALID_REQUEST, f"topic '{name}' is named twice in one request")


def _instead_of_topics(outcomes: Mapping[str, NewTopic | PeerError], error: PeerError) -> dict[str, NewTopic | PeerError]:
    return {name: error if isinstance(outcome, NewTopic) else outcome for name, outcome in outcomes.items()}
