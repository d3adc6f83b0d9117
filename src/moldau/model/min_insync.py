"""How many replicas of a partition have to be in sync."""

from collections.abc import Sequence


def effective_minimum(min_insync_replicas: int, replicas: Sequence[int]) -> int:
    """`min.insync.replicas`, or the number of assigned replicas if that is less: of a partition with one replica that one is enough.

    During a reassignment those that are added and those that are removed are assigned, as in Kafka (`Partition.effectiveMinIsr`).
    """
    return min(min_insync_replicas, len(replicas))
