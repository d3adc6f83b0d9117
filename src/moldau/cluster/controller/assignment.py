"""Which brokers get a partition's replicas, and whether a choice by hand can be followed. Values in, values out."""

from collections.abc import Collection, Sequence

from moldau.model.errors import ErrorCode, PeerError

Replicas = tuple[int, ...]


def spread(partitions: int, replication_factor: int, brokers: Collection[int], first: int = 0) -> list[Replicas]:
    """Replicas of each partition, the preferred leader first: leaders go round the brokers, the followers of each round shift by one.

    `first` is the number of the first partition, so that partitions added later go on where the earlier ones stopped.
    INVALID_REPLICATION_FACTOR if there are fewer brokers than replicas.
    """
    if replication_factor > len(brokers):
        raise PeerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of live brokers, {len(brokers)}",
        )
    ring = sorted(brokers)
    return [_round(ring, index, replication_factor) for index in range(first, first + partitions)]


def _round(ring: Sequence[int], index: int, count: int) -> Replicas:
    size = len(ring)
    leader = index % size
    shift = index // size
    followers = [ring[(leader + 1 + (shift + offset) % (size - 1)) % size] for offset in range(count - 1)]
    return (ring[leader], *followers)


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
