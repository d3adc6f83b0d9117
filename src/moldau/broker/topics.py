"""The life of topics: created, grown, deleted. Decides, writes the metadata, then has the broker open or remove partitions.

Each topic of a request stands for itself: an error concerns it alone. What can be done is written in one transaction, and only then
carried out; a crash between the two is made good at the next start, from the metadata.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.broker.assignment import Replicas, check_by_hand, in_order, spread
from moldau.broker.host import PartitionHost
from moldau.broker.ineffective import warn_without_effect
from moldau.broker.protected_topics import check_unprotected
from moldau.broker.store_errors import reported
from moldau.broker.topic_names import Collisions, check_name
from moldau.cluster.registry import NewTopic, Registry
from moldau.cluster.snapshot import INTERNAL_TOPICS, TopicInfo
from moldau.model.config import TOPIC, BrokerConfig, InvalidConfigError, check_topic, format_value, parse_value, topic_definition
from moldau.model.errors import ErrorCode, MoldauError, PeerError
from moldau.model.identity import TopicPartition

_LOG = logging.getLogger(__name__)
USE_DEFAULT = -1
CREATED_AT_ONCE_MAX = 100
"""Topics that one Metadata request creates: about 1 ms each."""


class TopicSpec(NamedTuple):
    """A topic as a peer wants it. `partitions` and `replication_factor` may be -1: the broker's default, or as `assignments` say."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class GrowthSpec(NamedTuple):
    """How many partitions a topic shall have; `assignments` are those of the new ones, None leaves them to the broker."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class Topics:
    """See the module. Methods answer with one outcome per name: what was made, or the PeerError that says why not."""

    def __init__(self, registry: Registry, config: BrokerConfig, host: PartitionHost) -> None:
        self._registry = registry
        self._config = config
        self._host = host

    def create(self, wanted: Sequence[TopicSpec], *, validate_only: bool = False) -> dict[str, NewTopic | PeerError]:
        """Create topics, or only check them. INVALID_REQUEST for a name that comes twice.

        Further codes: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
        INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION at a bound on partitions; KAFKA_STORAGE_ERROR, for all of them, when
        no log directory is left.
        """
        lost = self._host.storage_lost()
        if lost is not None:
            return {spec.name: lost for spec in wanted}
        outcomes = self._planned_all(wanted)
        planned = [topic for topic in outcomes.values() if isinstance(topic, NewTopic)]
        if not planned or validate_only:
            return outcomes
        try:
            with reported(f"create topics {[topic.name for topic in planned]}"):
                self._registry.create_topics(planned)
        except PeerError as error:
            return _instead_of_topics(outcomes, error)
        for topic in planned:
            warn_without_effect(f"topic={topic.name}", topic.configs, TOPIC)
            self._open(topic.name, range(len(topic.replicas)))
        lost = self._host.storage_lost()
        return outcomes if lost is None else _instead_of_topics(outcomes, lost)

    def create_for_client(self, names: Iterable[str]) -> dict[str, PeerError | None]:
        """Create topics that a client asked about, where `auto.create.topics.enable` allows it; by name why not, or None.

        Nobody else is served meanwhile, so that only the first `CREATED_AT_ONCE_MAX` are made. The client asks again for those that are
        not there (UNKNOWN_TOPIC_OR_PARTITION, as Kafka says of topics that it is about to create), and gets the next.
        """
        wanted = list(names)
        if not self._config.boolean("auto.create.topics.enable"):
            return {name: unknown_topic(name) for name in wanted}
        first = wanted[:CREATED_AT_ONCE_MAX]
        made = self.create([TopicSpec(name) for name in first])
        told = {name: outcome if isinstance(outcome, PeerError) else None for name, outcome in made.items()}
        return told | {name: unknown_topic(name) for name in wanted[CREATED_AT_ONCE_MAX:]}

    def grow(self, wanted: Sequence[GrowthSpec], *, validate_only: bool = False) -> dict[str, PeerError | None]:
        """Add partitions to topics, or only check. INVALID_REQUEST for a name that comes twice.

        Further codes: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS unless there are more than before, INVALID_REPLICA_ASSIGNMENT,
        INVALID_REPLICATION_FACTOR, POLICY_VIOLATION at a bound on partitions, KAFKA_STORAGE_ERROR when no log directory is left.
        """
        times = Counter(spec.name for spec in wanted)
        return {spec.name: twice(spec.name) if times[spec.name] > 1 else self._grown(spec, validate_only) for spec in wanted}

    def delete(self, names: Sequence[str]) -> PeerError | None:
        """Delete topics that are there, all of them; the error if the store failed. Once begun, the next start finishes what is left.

        The bytes go after `file.delete.delay.ms`. KAFKA_STORAGE_ERROR when no log directory is left.
        """
        lost = self._host.storage_lost()
        if lost is not None:
            return lost
        try:
            with reported(f"delete topics {list(names)}"):
                sizes = {name: len(self._registry.snapshot.topics[name].partitions) for name in names}
                self._registry.mark_deleted(names)
                self._host.remove_partitions([TopicPartition(name, index) for name, size in sizes.items() for index in range(size)])
                self._registry.finish_deletion(names)
        except PeerError as error:
            return error
        return None

    def _internal(self, wanted: TopicSpec) -> TopicSpec:
        """A topic of the brokers themselves as it has to be, whoever makes it: where nothing else is wanted, as they make it.

        Kafka makes what is created by hand like any topic, and then retention deletes the state of groups and transactions.
        """
        from moldau.broker.internal_topics import INTERNAL, internal_topic_spec

        ours = internal_topic_spec(INTERNAL[wanted.name], self._config, len(self._registry.snapshot.brokers))
        configs = list((dict(ours.configs) | dict(wanted.configs)).items())
        if wanted.assignments:
            return wanted._replace(configs=configs)
        partitions = ours.partitions if wanted.partitions == USE_DEFAULT else wanted.partitions
        factor = ours.replication_factor if wanted.replication_factor == USE_DEFAULT else wanted.replication_factor
        return TopicSpec(wanted.name, partitions, factor, configs=configs)

    def _open(self, name: str, indexes: Iterable[int]) -> None:
        for index in indexes:
            try:
                self._host.open_partition(TopicPartition(name, index))
            except MoldauError as error:
                _LOG.error("partition offline: partition=%s-%d reason=%s", name, index, error)

    def _planned_all(self, wanted: Sequence[TopicSpec]) -> dict[str, NewTopic | PeerError]:
        outcomes: dict[str, NewTopic | PeerError] = {}
        taken = Collisions(self._registry.snapshot.topics)
        partitions = 0
        for spec in wanted:
            outcome = twice(spec.name) if spec.name in outcomes else self._planned(spec, taken)
            outcomes[spec.name] = outcome
            if isinstance(outcome, NewTopic):
                partitions += len(outcome.replicas)
                try:
                    self._check_bounds(partitions)
                except PeerError as error:
                    return _instead_of_topics(outcomes | {spec.name: outcomes.get(spec.name, error) for spec in wanted}, error)
        return outcomes

    def _planned(self, spec: TopicSpec, taken: Collisions) -> NewTopic | PeerError:
        if spec.name in INTERNAL_TOPICS:
            spec = self._internal(spec)
        try:
            check_name(spec.name)
            if spec.name in self._registry.snapshot.topics:
                raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{spec.name}' exists already")
            if spec.name in self._registry.deleting:
                raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{spec.name}' is being deleted; part of it could not be removed")
            replicas = self._replicas_by_hand(spec) if spec.assignments else self._replicas(spec)
            configs = self._checked_configs(spec)
            taken.take(spec.name)
        except PeerError as error:
            return error
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
        there = self._registry.snapshot.partition_count
        if there + added > most:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"{added} partitions more than the {there} there are; max.partitions is {most}")

    def _grown(self, spec: GrowthSpec, validate_only: bool) -> PeerError | None:
        topic = self._registry.snapshot.topics.get(spec.name)
        if topic is None:
            return unknown_topic(spec.name)
        lost = self._host.storage_lost()
        if lost is not None:
            return lost
        try:
            added = self._added(spec, topic)
            if not validate_only:
                with reported(f"add partitions to {spec.name}"):
                    self._registry.create_partitions(spec.name, added)
                self._open(spec.name, range(len(topic.partitions), spec.total))
        except PeerError as error:
            return error
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


def unknown_topic(name: str) -> PeerError:
    """The error for a topic that is not there."""
    return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")


def twice(name: str) -> PeerError:
    """The error for a topic that one request names more than once."""
    return PeerError(ErrorCode.INVALID_REQUEST, f"topic '{name}' is named twice in one request")


def _instead_of_topics(outcomes: Mapping[str, NewTopic | PeerError], error: PeerError) -> dict[str, NewTopic | PeerError]:
    return {name: error if isinstance(outcome, NewTopic) else outcome for name, outcome in outcomes.items()}
