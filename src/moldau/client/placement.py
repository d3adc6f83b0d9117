"""Where the replicas of partitions are to be: values in, values out.

A placement names the brokers of each partition, the preferred leader first. These rules hold for every plan: a broker has a partition at
most once; a replica that may stay stays; no step leaves a partition in fewer racks than before it; replicas are chosen in a rack that the
partition does not have yet, then on the broker with the fewest replicas. Equal input gives an equal plan.

Where a broker has no rack, racks are ignored, as they are when topics are created.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition

Replicas = tuple[int, ...]
Placement = dict[TopicPartition, Replicas]


def fitted(placement: Mapping[TopicPartition, Replicas], racks: Mapping[int, str | None], factor: int | None = None) -> Placement:
    """Every partition with `factor` replicas (None: as many as it has), all on the brokers in `racks`.

    Those on other brokers are replaced; new ones come last. INVALID_REPLICATION_FACTOR with too few brokers.
    """
    layout = _Layout(placement, racks)
    sizes = {partition: factor or len(replicas) for partition, replicas in placement.items()}
    for partition, size in sizes.items():
        layout.keep(partition, [each for each in placement[partition] if each in racks][:size])
    for partition, size in sizes.items():
        while len(layout.replicas[partition]) < size:
            layout.add(partition)
    return layout.placement()


def without_broker(placement: Mapping[TopicPartition, Replicas], racks: Mapping[int, str | None], broker: int) -> Placement:
    """The partitions that have a replica on `broker`, with another one on a broker in `racks` instead. Leaders move evenly.

    INVALID_REPLICATION_FACTOR where none is left that could have it.
    """
    others = {each: rack for each, rack in racks.items() if each != broker}
    layout = _Layout(placement, others)
    moved = [partition for partition, replicas in placement.items() if broker in replicas]
    for partition in moved:
        layout.keep(partition, [each for each in placement[partition] if each != broker])
    for partition in moved:
        layout.add(partition)
    led = [partition for partition in moved if placement[partition][0] == broker]
    found = with_even_leaders(layout.placement(), others, led)
    return {partition: found[partition] for partition in moved}


def balanced(
    placement: Mapping[TopicPartition, Replicas], racks: Mapping[int, str | None], movable: Collection[TopicPartition]
) -> Placement:
    """`movable` partitions moved so that all lie in as many racks as they can, and brokers have equal numbers of replicas and of
    preferred leaders, or nearly: they differ by one where the rules allow it. What is not movable counts.
    """
    layout = _Layout(placement, racks)
    layout.spread_over_racks(movable)
    layout.even_replicas(movable)
    return with_even_leaders(layout.placement(), racks, movable)


def with_even_leaders(
    placement: Mapping[TopicPartition, Replicas], brokers: Collection[int], movable: Iterable[TopicPartition]
) -> Placement:
    """The same replicas, in `movable` partitions in another order where that evens the numbers of preferred leaders, in the fewest steps.

    A leader moves along the shortest chain from a broker to the one with the fewest, if these are at least two fewer: a to b and b to c,
    where none of a's partitions has a replica on c.
    """
    found = dict(placement)
    counts = _preferred(found, brokers)
    led: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in counts}
    for partition in movable:
        if found[partition][0] in led:
            led[found[partition][0]][partition] = None
    while (chain := _chain(found, counts, led)) is not None:
        for partition, to in chain:
            source = found[partition][0]
            found[partition] = (to, *(each for each in found[partition] if each != to))
            del led[source][partition]
            led[to][partition] = None
            counts[source] -= 1
            counts[to] += 1
    return found


def led_elsewhere(
    placement: Mapping[TopicPartition, Replicas], candidates: Mapping[TopicPartition, Sequence[int]], broker: int, brokers: Collection[int]
) -> Placement:
    """The partitions of `candidates`, with another preferred leader than `broker`, which comes last: of their candidates the one that
    leads fewest. None of these may be `broker`.
    """
    counts = _preferred(placement, brokers)
    moved: Placement = {}
    for partition, able in candidates.items():
        leader = min(able, key=lambda each: (counts.get(each, 0), each))
        rest = [each for each in placement[partition] if each not in (leader, broker)]
        moved[partition] = (leader, *rest, broker)
        counts[leader] = counts.get(leader, 0) + 1
    return moved


def _preferred(placement: Mapping[TopicPartition, Replicas], brokers: Collection[int]) -> dict[int, int]:
    counts = dict.fromkeys(sorted(brokers), 0)
    for replicas in placement.values():
        if replicas[0] in counts:
            counts[replicas[0]] += 1
    return counts


def _chain(
    placement: Placement, counts: Mapping[int, int], led: Mapping[int, Mapping[TopicPartition, None]]
) -> list[tuple[TopicPartition, int]] | None:
    """Partitions and their next preferred leaders, by which a leader moves from a broker to one with at least two fewer."""
    for source in sorted(counts, key=lambda broker: -counts[broker]):
        came: dict[int, tuple[TopicPartition, int]] = {}
        queue = deque([source])
        while queue:
            at = queue.popleft()
            for partition in led[at]:
                for to in placement[partition][1:]:
                    if to in counts and to != source and to not in came:
                        came[to] = (partition, at)
                        queue.append(to)
        at = min(came, key=lambda broker: counts[broker], default=source)  # of equal ones the nearest
        if counts[at] <= counts[source] - 2:
            chain: list[tuple[TopicPartition, int]] = []
            while at != source:
                partition, before = came[at]
                chain.append((partition, at))
                at = before
            return chain
    return None


class _Layout:
    """A placement that changes, with what the choices need: how many replicas brokers have, of all topics and of each."""

    def __init__(self, placement: Mapping[TopicPartition, Replicas], racks: Mapping[int, str | None]) -> None:
        self.replicas = {partition: list(replicas) for partition, replicas in placement.items()}
        self._brokers = sorted(racks)
        by_rack = all(rack is not None for rack in racks.values())
        self._racks: dict[int, object] = {broker: racks[broker] if by_rack else broker for broker in self._brokers}
        self._held: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._brokers}
        self._of_topic: dict[tuple[str, int], int] = {}
        for partition, replicas in placement.items():
            for broker in replicas:
                self._count(partition, broker)

    def placement(self) -> Placement:
        return {partition: tuple(replicas) for partition, replicas in self.replicas.items()}

    def keep(self, partition: TopicPartition, kept: Sequence[int]) -> None:
        for broker in self.replicas[partition]:
            if broker not in kept:
                self._uncount(partition, broker)
        self.replicas[partition] = list(kept)

    def add(self, partition: TopicPartition) -> None:
        """One more replica, where it is best. INVALID_REPLICATION_FACTOR if no broker can have it."""
        racks = {self._rack(broker) for broker in self.replicas[partition]}
        able = [broker for broker in self._brokers if broker not in self.replicas[partition]]
        if not able:
            brokers = ", ".join(map(str, self._brokers)) or "none"
            message = f"partition {partition}: more replicas than brokers that may have them ({brokers})"
            raise PeerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        chosen = min(able, key=lambda broker: (self._rack(broker) in racks, *self._load(partition, broker)))
        self.replicas[partition].append(chosen)
        self._count(partition, chosen)

    def spread_over_racks(self, movable: Iterable[TopicPartition]) -> None:
        """Move replicas that share a rack into racks that their partition does not have."""
        for partition in movable:
            while (step := self._rack_step(partition)) is not None:
                self._move(partition, *step)

    def even_replicas(self, movable: Collection[TopicPartition]) -> None:
        """Move replicas from brokers with more to brokers with at least two fewer."""
        free = dict.fromkeys(movable)
        while (step := self._even_step(free)) is not None:
            self._move(*step)

    def _rack_step(self, partition: TopicPartition) -> tuple[int, int] | None:
        racks = [self._rack(broker) for broker in self.replicas[partition]]
        doubled = [broker for at, broker in enumerate(self.replicas[partition]) if racks[at] in racks[:at]]
        able = [broker for broker in self._brokers if self._rack(broker) not in racks]
        if not doubled or not able:
            return None
        return doubled[-1], min(able, key=lambda broker: self._load(partition, broker))

    def _even_step(self, free: Mapping[TopicPartition, None]) -> tuple[TopicPartition, int, int] | None:
        for source, target in self._uneven():
            able = [each for each in self._held[source] if each in free and self._may_move(each, source, target)]
            if able:
                return min(able, key=lambda each: self._cost(each, source, target)), source, target
        return None

    def _uneven(self) -> Iterator[tuple[int, int]]:
        """Brokers of which the first has at least two replicas more, the largest differences first."""
        size = {broker: len(self._held[broker]) for broker in self._brokers}
        pairs = [(source, target) for source in self._brokers for target in self._brokers if size[source] >= size[target] + 2]
        yield from sorted(pairs, key=lambda pair: size[pair[1]] - size[pair[0]])

    def _may_move(self, partition: TopicPartition, source: int, target: int) -> bool:
        replicas = self.replicas[partition]
        if target in replicas:
            return False
        racks = [self._rack(broker) for broker in replicas if broker != source]
        return self._rack(target) not in racks or self._rack(source) in racks

    def _cost(self, partition: TopicPartition, source: int, target: int) -> tuple[int, bool, TopicPartition]:
        """Topics that are uneven on these two come first, followers before preferred leaders."""
        excess = self._of_topic.get((partition.topic, source), 0) - self._of_topic.get((partition.topic, target), 0)
        return -excess, self.replicas[partition][0] == source, partition

    def _move(self, partition: TopicPartition, source: int, target: int) -> None:
        """The new replica takes the place of the old one."""
        self.replicas[partition] = [target if broker == source else broker for broker in self.replicas[partition]]
        self._uncount(partition, source)
        self._count(partition, target)

    def _load(self, partition: TopicPartition, broker: int) -> tuple[int, int, int]:
        return len(self._held[broker]), self._of_topic.get((partition.topic, broker), 0), broker

    def _rack(self, broker: int) -> object:
        """Of a broker that is not among those that may have replicas: one of its own."""
        return self._racks.get(broker, broker)

    def _count(self, partition: TopicPartition, broker: int) -> None:
        if broker in self._held:
            self._held[broker][partition] = None
        self._of_topic[partition.topic, broker] = self._of_topic.get((partition.topic, broker), 0) + 1

    def _uncount(self, partition: TopicPartition, broker: int) -> None:
        if broker in self._held:
            del self._held[broker][partition]
        self._of_topic[partition.topic, broker] -= 1
