"""Where the partitions of the canary topic have to be, so that each broker leads one. Pure.

A partition is that of the broker that its replicas begin with, its preferred leader. Partitions of brokers that are away stay, since these
may come back.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from moldau.client.metadata import PartitionMetadata


@dataclass(frozen=True, slots=True)
class Change:
    """What is missing."""

    new: tuple[tuple[int, ...], ...]
    """Replicas of partitions to add, in the order of their numbers."""
    elect: tuple[int, ...]
    """Partitions that another broker leads though their own is there."""


def needed(brokers: Collection[int], partitions: Sequence[PartitionMetadata], replicas: int) -> Change:
    """How each of these brokers gets a partition that it leads, with so many replicas, or as many as there are brokers."""
    owners = {each.replicas[0]: each for each in partitions if each.replicas}
    ordered = sorted(brokers)
    count = min(replicas, len(ordered))
    new = []
    for place, broker in enumerate(ordered):
        if broker not in owners:
            following = ordered[place:] + ordered[:place]
            new.append(tuple(following[:count]))
    elect = [each.partition for owner, each in owners.items() if owner in brokers and each.leader != owner and owner in each.isr]
    return Change(tuple(new), tuple(sorted(elect)))


def own_partitions(partitions: Sequence[PartitionMetadata]) -> dict[int, int]:
    """The partition of each broker: the first of those whose preferred leader it is."""
    found: dict[int, int] = {}
    for each in sorted(partitions, key=lambda partition: partition.partition):
        if each.replicas:
            found.setdefault(int(each.replicas[0]), each.partition)
    return found
