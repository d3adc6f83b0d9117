"""The logs of a cluster's leaders as they are on disk, batch by batch, and where two of them differ."""

from collections.abc import Iterable

from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import batches
from moldau.protocol.records.header import BatchHeader
from moldau.testing.simulation.mirrors.judge import MirrorError
from moldau.testing.simulation.mirrors.topics import RETAINED
from moldau.testing.simulation.process import Host
from moldau.testing.simulation.reader import batches_of
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_view import PartitionInTree, partitions_in

Log = dict[int, tuple[BatchHeader, bytes]]
"""Batches by base offset."""


def logs_of_leaders(cluster: Simulation) -> dict[TopicPartition, tuple[PartitionInTree, Log]]:
    """Of each partition that has a leader its log, and what the tree says."""
    found = {}
    for each in partitions_in(cluster.tree):
        host = _leader(cluster, each)
        if host is not None:
            data = batches_of(host.disk, host.directories, f"{each.topic}-{each.number}")
            found[TopicPartition(each.topic, each.number)] = each, log_of(batch for _, batch in data)
    return found


def log_of(data: Iterable[bytes]) -> Log:
    """The batches in pieces of a log."""
    found = [each for piece in data for each in batches(memoryview(piece))]
    return {header.base_offset: (header, bytes(batch)) for header, batch in found}


def end_of(log: Log) -> int:
    """The offset after the last record."""
    return max((header.last_offset + 1 for header, _ in log.values()), default=0)


def check_batches(partition: TopicPartition, source: Log, mirrored: Log, end: int) -> None:
    """The target has each batch of the source from its own start up to `end`, and no other one after the source's start."""
    begins = min(source, default=0)
    for offset, (header, data) in mirrored.items():
        if offset < begins:
            continue
        same = source.get(offset)
        if same is None:
            raise MirrorError(f"{partition}: only the target has a batch at offset {offset}, of epoch {header.partition_leader_epoch}")
        if same[1] != data:
            raise MirrorError(f"{partition}: the batches at offset {offset} differ: {same[0]} in the source, {header} in the target")
    start = min(mirrored, default=0) if partition.topic == RETAINED else begins
    missing = next((offset for offset in source if start <= offset < end and offset not in mirrored), None)
    if missing is not None:
        raise MirrorError(f"{partition}: the target does not have the batch at offset {missing}")


def settled_end(log: Log, epoch: int, offset: int) -> int:
    """Where a log ends that is cut: no transaction is open there."""
    headers = [header for base, (header, _) in sorted(log.items()) if base < offset and header.partition_leader_epoch <= epoch]
    while True:
        begun: dict[int, int] = {}
        for header in headers:
            if header.base_offset >= offset:
                break
            if header.is_control:
                begun.pop(header.producer_id, None)
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
        if not begun:
            return offset
        offset = min(begun.values())


def _leader(cluster: Simulation, partition: PartitionInTree) -> Host | None:
    if len(cluster.hosts) == 1:
        return cluster.host
    return None if partition.state is None or partition.state.leader < 0 else cluster.hosts[partition.state.leader - 1]
