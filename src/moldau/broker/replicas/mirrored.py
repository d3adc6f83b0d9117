"""Appends batches of a mirror's source to a partition that is led here: as a follower would, at once and not staged."""

from typing import TYPE_CHECKING

from moldau.log.mirrored import new_batches
from moldau.log.partition_log import AppendResult
from moldau.model.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.broker.replicas.hosted import HostedPartition


def append_mirrored(
    partition: "HostedPartition", records: memoryview, now_ms: int, before_holes: "Callable[[], object]"
) -> tuple[memoryview, AppendResult]:
    """Write those of whole batches that the log does not have: these, and what became of them. `before_holes` is called before offsets are
    left out.

    PeerError with the log unchanged; StorageError, with some batches in the log perhaps.
    """
    log = partition.log
    new = new_batches(records, str(partition.topic_partition), log.log_end_offset)
    if new:
        try:
            log.append_as_follower(new, now_ms, before_holes)
        except StorageError:
            if partition.machine.grew(log.log_end_offset):
                partition.advanced()
            raise
    end_offset = log.log_end_offset
    return new, AppendResult(end_offset, end_offset - 1, -1, duplicate=not new)
