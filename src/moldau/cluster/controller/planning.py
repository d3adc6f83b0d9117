"""Whether topics can be made or grown as a peer wants them, which brokers get their replicas, and whether a choice by hand can be followed.
Values in, values out.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType

from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.controller.requests import USE_DEFAULT, CreateTopics, DeletedTopic, GrowthSpec, PlannedTopic, TopicChoice, TopicSpec
from moldau.cluster.internal_topics import INTERNAL, check_may_mirror, check_unprotected, internal_topic_spec
from moldau.cluster.snapshot import twice
from moldau.model.config import MIRROR_SOURCE, BrokerConfig, InvalidConfigError, check_topic, format_value, parse_value, topic_definition
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.topic_names import check_name

Replicas = tuple[int, ...]


NO_RACKS: Mapping[int, str | None] = MappingProxyType({})


def spread(
    partitions: int, replication_factor: int, brokers: Collection[int], first: int = 0, racks: Mapping[int, str | None] = NO_RACKS
) -> list[Replicas]:
    """Replicas of each partition, the preferred leader first: leaders go round the brokers, the followers of each round shift by one.

    Where every broker has a rack, neighbours in the round are of different racks, and a partition has replicas in as many racks as it
    can. `first` is the number of the first partition, so that partitions added later continue where the earlier ones stopped.
    INVALID_REPLICATION_FACTOR if there are fewer brokers than replicas.
    """
    if replication_factor > len(brokers):
        raise PeerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of live brokers, {len(brokers)}",
        )
    ring = sorted(brokers)
    by_rack: dict[str, list[int]] = {}
    for broker in ring:
        rack = racks.get(broker)
        if rack is None:
            by_rack = {}
            break
        by_rack.setdefault(rack, []).append(broker)
    if len(by_rack) > 1:
        return _over_racks(by_rack, range(first, first + partitions), replication_factor)
    return [_round(ring, index, replication_factor) for index in range(first, first + partitions)]


def _round(ring: Sequence[int], index: int, count: int) -> Replicas:
    size = len(ring)
    leader = index % size
    shift = index // size
    followers = [ring[(leader + 1 + (shift + offset) % (size - 1)) % size] for offset in range(count - 1)]
    return (ring[leader], *followers)


def _over_racks(by_rack: Mapping[str, Sequence[int]], indexes: range, count: int) -> list[Replicas]:
    """As `spread` says. An example: with racks a (0, 1) and b (2, 3) the ring is 0 2 1 3, and partition 0 of three replicas gets 0 2 1."""
    rows = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    ring = [broker for row in rows for broker in row if broker is not None]
    rack_of = {broker: rack for rack, brokers in by_rack.items() for broker in brokers}
    size = len(ring)
    assigned = []
    for index in indexes:
        leader, shift = index % size, index // size * len(by_rack)
        followers = [ring[(leader + 1 + (shift + offset) % (size - 1)) % size] for offset in range(size - 1)]
        replicas, used = [ring[leader]], {rack_of[ring[leader]]: None}
        for broker in followers:
            if rack_of[broker] not in used and len(replicas) < count:
                replicas.append(broker)
                used[rack_of[broker]] = None
        replicas += [broker for broker in followers if broker not in replicas][: count - len(replicas)]
        assigned.append(tuple(replicas))
    return assigned


def check_by_hand(chosen: Sequence[Sequence[int]], brokers: Collection[int], replication_factor: int | None = None) -> list[Replicas]:
    """Replicas chosen by the peer, one element per partition. INVALID_REPLICA_ASSIGNMENT if they cannot be so.

    All partitions need the same number of replicas: `replication_factor`, or that of the first.
    """
    for number, replicas in enumerate(chosen):
        if not replicas:
            raise _refused(f"the assignment of partition {number} names no broker")
        if len(set(replicas)) < len(replicas):
            raise _refused(f"the assignment of partition {number} names a broker twice: {list(replicas)}")
        for broker in replicas:
            if broker not in brokers:
                raise _refused(f"the assignment of partition {number} names broker {broker}, which is not live")
        if replication_factor is None:
            replication_factor = len(replicas)
        if len(replicas) != replication_factor:
            raise _refused(f"partition {number} has {len(replicas)} replicas, others have {replication_factor}")
    return [tuple(replicas) for replicas in chosen]


def in_order(chosen: Sequence[tuple[int, Sequence[int]]]) -> list[Sequence[int]]:
    """Assignments given as (partition, brokers), by partition. INVALID_REPLICA_ASSIGNMENT unless they number 0, 1, 2, ..."""
    by_index = dict(chosen)
    if len(by_index) < len(chosen):
        raise _refused("a partition is assigned twice")
    if sorted(by_index) != list(range(len(by_index))):
        raise _refused(f"assigned partitions must be numbered from 0 without a gap, not {sorted(by_index)}")
    return [by_index[index] for index in range(len(by_index))]


def _refused(message: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


_LOG = logging.getLogger(__name__)

Plan = PlannedTopic | PeerError


class Collisions:
    """Names that are taken, folded so that those that differ only by '.' and '_' meet: metrics cannot tell them apart."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._by_folded = {name.replace(".", "_"): name for name in taken}

    def take(self, name: str) -> None:
        """Add a name. INVALID_TOPIC_EXCEPTION if it collides with another one."""
        other = self._by_folded.setdefault(name.replace(".", "_"), name)
        if other != name:
            raise PeerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the topic's name '{name}' collides with that of '{other}': '.' and '_' are the same in names of metrics",
            )


class Planner:
    """Plans by what the controller knows and by its configuration."""

    def __init__(self, image: ClusterImage, config: BrokerConfig, new_topic_id: Callable[[], bytes]) -> None:
        self._image = image
        self._config = config
        self._new_topic_id = new_topic_id

    def plan_all(self, request: CreateTopics, plans: dict[str, Plan]) -> Iterator[None]:
        """Fill `plans` with what becomes of each topic, one at a time.

        INVALID_REQUEST for a name that comes twice, TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG; POLICY_VIOLATION at a bound on partitions, for all topics
        of the request that nothing else is wrong with, also those that come later.
        """
        taken = Collisions(self._image.names())
        partitions = 0
        for number, spec in enumerate(request.topics):
            if number:
                yield None
            plan = twice(spec.name) if spec.name in plans else self._plan(spec, taken)
            plans[spec.name] = plan
            if isinstance(plan, PlannedTopic):
                partitions += new_partitions(plan)
                try:
                    self.check_bounds(partitions)
                except PeerError as error:
                    refused = error.as_value()
                    for each in request.topics:
                        if isinstance(plans.setdefault(each.name, refused), PlannedTopic):
                            plans[each.name] = refused
                    return

    def check_bounds(self, added: int) -> None:
        """POLICY_VIOLATION unless so many partitions may be made at once."""
        at_once = self._config.int("partitions.per.request.max")
        if added > at_once:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"{added} partitions at once; partitions.per.request.max is {at_once}")
        most = self._config.int("max.partitions")
        there = self._image.partition_count
        if there + added > most:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"{added} partitions more than the {there} there are; max.partitions is {most}")

    def check_new(self, name: str) -> None:
        """TOPIC_ALREADY_EXISTS if the name is taken."""
        if name in self._image.topics:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' exists already")
        if name in self._image.deleting:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' is being deleted")
        if not self._image.is_free(name):
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' is being created by another request")

    def plan_growth(self, spec: GrowthSpec, topic: TopicImage) -> list[Replicas]:
        """Replicas of the partitions that are added.

        INVALID_PARTITIONS unless there are more than before, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, POLICY_VIOLATION at
        a bound on partitions and for a protected topic.
        """
        check_unprotected(self._config, spec.name, "add partitions")
        named = len(topic.replicas)
        there = named - topic.missing
        added = spec.total - named
        if spec.total <= there or added < 0:
            raise PeerError(ErrorCode.INVALID_PARTITIONS, f"topic '{spec.name}' has {named} partitions; {spec.total} would not be more")
        self.check_bounds(added)
        factor = len(topic.replicas[0]) - len(topic.adding.get(0, ()))
        if spec.assignments is None:
            return spread(added, factor, self._image.live, named, self._image.racks())
        if len(spec.assignments) != added:
            message = f"topic '{spec.name}': {added} partitions to add, but {len(spec.assignments)} assignments"
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return check_by_hand(spec.assignments, self._image.live, factor)

    def _plan(self, spec: TopicSpec, taken: Collisions) -> Plan:
        try:
            check_name(spec.name)
            self.check_new(spec.name)
            if spec.topic_id is not None:
                replicas = check_by_hand(in_order(spec.assignments), self._image.live)
                return PlannedTopic(spec.name, spec.topic_id, replicas, _given(spec), spec.first_epochs or {})
            if spec.name in INTERNAL:
                spec = self._internal(spec)
                if dict(spec.configs).get(MIRROR_SOURCE):
                    check_may_mirror(spec.name)
            replicas = self._replicas_by_hand(spec) if spec.assignments else self._replicas(spec)
            configs = self._checked_configs(spec)
            taken.take(spec.name)
        except PeerError as error:
            return error.as_value()
        return PlannedTopic(spec.name, self._new_topic_id(), replicas, configs, None)

    def _internal(self, wanted: TopicSpec) -> TopicSpec:
        """An internal topic as brokers create it, where nothing else is wanted, also when a client creates it.

        Kafka makes what is created by hand like any topic, and then retention deletes the state of groups and transactions.
        """
        ours = internal_topic_spec(INTERNAL[wanted.name], self._config, len(self._image.live))
        configs = list((dict(ours.configs) | dict(wanted.configs)).items())
        if wanted.assignments:
            return wanted._replace(configs=configs)
        partitions = ours.partitions if wanted.partitions == USE_DEFAULT else wanted.partitions
        factor = ours.replication_factor if wanted.replication_factor == USE_DEFAULT else wanted.replication_factor
        return TopicSpec(wanted.name, partitions, factor, configs=configs)

    def _replicas(self, spec: TopicSpec) -> list[Replicas]:
        partitions = self._config.int("num.partitions") if spec.partitions == USE_DEFAULT else spec.partitions
        if partitions <= 0:
            raise PeerError(ErrorCode.INVALID_PARTITIONS, f"topic '{spec.name}': {spec.partitions} partitions, needed is 1 or more, or -1")
        self.check_bounds(partitions)
        factor = self._config.int("default.replication.factor") if spec.replication_factor == USE_DEFAULT else spec.replication_factor
        if factor <= 0:
            message = f"topic '{spec.name}': replication factor {spec.replication_factor}, needed is 1 or more, or -1"
            raise PeerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        return spread(partitions, factor, self._image.live, racks=self._image.racks())

    def _replicas_by_hand(self, spec: TopicSpec) -> list[Replicas]:
        if spec.partitions != USE_DEFAULT or spec.replication_factor != USE_DEFAULT:
            message = f"topic '{spec.name}': with an assignment by hand, partitions and replication factor must be -1"
            raise PeerError(ErrorCode.INVALID_REQUEST, message)
        return check_by_hand(in_order(spec.assignments), self._image.live)

    def _checked_configs(self, spec: TopicSpec) -> Mapping[str, str]:
        configs: dict[str, str] = {}
        for name, text in spec.configs:
            if text is None:
                raise InvalidConfigError(f"topic '{spec.name}': {name} has no value", name)
            definition = topic_definition(name)
            configs[name] = format_value(definition, parse_value(definition, text)) or ""
        check_topic(configs, self._config)
        return configs


def not_stored(change: str, error: CoordinationError) -> PeerError:
    """Log a failure of the store, and return the error that it is to a peer: KAFKA_STORAGE_ERROR."""
    _LOG.error("metadata not changed: change=%s reason=%s", change, error)
    return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the store of metadata failed: {error}")


def new_partitions(plan: PlannedTopic) -> int:
    """Partitions that count for bounds: not those that exist already, of a topic that is adopted."""
    return len(plan.replicas) if plan.first_epochs is None else 0


def _given(spec: TopicSpec) -> dict[str, str]:
    return {name: text for name, text in spec.configs if text is not None}


class Outcomes:
    """The answer to a request for several topics, as they come to an end one by one."""

    def __init__(self, outbox: Outbox, ticket: int, names: Sequence[str | TopicChoice]) -> None:
        self._outbox = outbox
        self._ticket = ticket
        self._by_name: dict[str | TopicChoice, PlannedTopic | DeletedTopic | PeerError | None] = dict.fromkeys(names)
        self._left = dict.fromkeys(names)
        if not self._left:
            outbox.answer(ticket, {})

    def settle(self, name: str | TopicChoice, outcome: PlannedTopic | DeletedTopic | PeerError | None) -> None:
        """One topic has come to an end."""
        self._by_name[name] = outcome
        del self._left[name]
        if not self._left:
            self._outbox.answer(self._ticket, self._by_name)
