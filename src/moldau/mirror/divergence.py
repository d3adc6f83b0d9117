"""Where the log of a former source leaves that of the copy that was promoted: pure reckoning with the leader epochs of both.

    offset            0 ........ 100 ... 103 ........
    former source     epoch 5          | end
    promoted copy     epoch 5  | epoch 65541 ........

The copy had the source's records up to offset 100 when it was promoted. Offsets 100 to 102 of the source were never mirrored, and must be
cut before it can follow: an offset and its epoch name one record in both logs. What is cut has epochs before 65541, so that the cut drops
nothing that comes after it, whenever it is applied.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from moldau.mirror.log_ends import EpochRun
from moldau.model.identity import LogCut


class UnrelatedLogsError(Exception):
    """The one log cannot follow the other."""


class Divergence(NamedTuple):
    """Where the former source leaves the promoted copy."""

    offset: int
    """Invariant: both logs have the same records before it."""
    end: int
    """Of the former source: what it has from `offset` on was never mirrored."""
    cut: LogCut | None
    """None if it has no epoch but those of the copy: it follows already, and records of its last epoch are still to come."""


def divergence(former: Sequence[EpochRun], promoted: Sequence[EpochRun]) -> Divergence:
    """Compare two logs. UnrelatedLogsError if the former source's is not that of one."""
    start, end = former[0].start, former[-1].end
    low, high = max(start, promoted[0].start), min(end, promoted[-1].end)
    if low > high or (start < low == high):
        raise UnrelatedLogsError(
            f"nothing is left to compare: the target has offsets {start} to {end}, and the source {promoted[0].start} to {promoted[-1].end}"
        )
    offset = low
    for at, until, ours, theirs in _both(former, promoted, low, high):
        if ours == theirs:
            if at != offset:
                raise UnrelatedLogsError(f"the logs part at offset {offset}, and both have epoch {ours} at offset {at}")
            offset = until
    if offset == low < high and low:
        raise UnrelatedLogsError(f"at offset {low}, the first one that both have, the logs have different epochs already")
    newest = max(each.epoch for each in former)
    successor = next((each.epoch for each in promoted if each.end > offset), promoted[-1].epoch)
    if newest > max(each.epoch for each in promoted):
        raise UnrelatedLogsError(
            f"the target has epoch {newest}, which is after all of the source: it was promoted later, is FILE the wrong way round?"
        )
    if newest > successor:
        raise UnrelatedLogsError(
            f"the target lost records of epoch {successor} from offset {offset} on, which the source has, and wrote others later: "
            "delete the topic in the target, and the mirror copies it from the beginning"
        )
    if newest < successor:
        return Divergence(offset, end, LogCut(successor - 1, offset))
    if end > offset:
        raise UnrelatedLogsError(f"the source lost records of epoch {newest} from offset {offset} on, which the target has")
    return Divergence(offset, end, None)


def _both(former: Sequence[EpochRun], promoted: Sequence[EpochRun], low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of offsets in which each log has one epoch: first offset, offset after the last, and the epochs."""
    for ours in former:
        for theirs in promoted:
            at, until = max(ours.start, theirs.start, low), min(ours.end, theirs.end, high)
            if at < until:
                yield at, until, ours.epoch, theirs.epoch
