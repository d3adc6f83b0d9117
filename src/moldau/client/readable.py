"""Where a partition can be read again after damage."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.client.checked import checked_batches
from moldau.client.partition_requests import LATEST, FetchLimits
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster


def next_readable(cluster: "Cluster", where: TopicPartition, bad: int) -> Offset:
    """The first offset after `bad` from which whole batches can be read, or the log's end. WorldError, PeerError."""
    end = cluster.list_offsets({where: LATEST})[where].offset
    return Offset(first_true(bad + 1, end, lambda offset: _is_readable(cluster, where, offset)))


def _is_readable(cluster: "Cluster", where: TopicPartition, offset: int) -> bool:
    try:
        fetched = cluster.fetch(*where, offset, FetchLimits(partition_max_bytes=1))
        return next(checked_batches(where, fetched, offset), None) is not None
    except PeerError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        return False


def first_true(start: int, end: int, holds: Callable[[int], bool]) -> int:
    """The first number from `start` to before `end` for which `holds`, where it holds for all after one; else `end`.

    Asks near the start first: about twice the logarithm of how far it is.
    """
    below, step = start - 1, 1
    while below + step < end and not holds(below + step):
        below += step
        step *= 2
    above = min(below + step, end)
    while above - below > 1:
        middle = (below + above) // 2
        if holds(middle):
            above = middle
        else:
            below = middle
    return above
