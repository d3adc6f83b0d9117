"""What each end of a process took from the logs: compares where they ended before and where they end after, and judges it.

A process that is killed or stopped loses nothing that it had written. A power cut, or a sync that fails, may take what was written and not
synced, from the end of a log; never what was acknowledged where each batch is synced before its acknowledgement (``flush.messages`` 1).
A log that a promotion or a fail-back of its mirror has cut ends there.
A batch that was damaged on disk after the recovery point is cut at the next start, with what follows it, whatever was acknowledged. The
history learns what was legally lost: it then expects it no longer, and expects a higher leader epoch where its offsets are used again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from moldau.broker.replicas.hosted import HostedPartition
from moldau.log.partition_log import PartitionLog
from moldau.testing.history.history import History, Outcome
from moldau.testing.simulation.clients.context import PartitionNumbers
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.reader import DiskLogEnd, ends_of_logs
from moldau.testing.simulation.tree_view import partitions_in

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class _Log(NamedTuple):
    """A log when it was last looked at."""

    topic: str
    partition: int
    end: int
    epoch: int
    is_synced: bool
    """Whether each batch is synced before its acknowledgement."""
    is_old: bool
    """Whether it went offline before its process ended: it may have grown since it was noted."""
    epochs: dict[int, int]
    """Where the records of each leader epoch begin, the newest first."""


class PowerCuts:
    """See the module."""

    def __init__(self, host: Host, history: History, partitions: PartitionNumbers) -> None:
        self.losses = 0
        """Logs that have legally lost their end."""
        self.may_hang: dict[str, None] = {}
        """Partitions in which a transaction may stay undecided for ever: they have lost their end, or its coordinator has."""
        self._host = host
        self._history = history
        self._partitions = partitions
        self._logs: dict[tuple[bytes, int], _Log] = {}
        """By topic id and index."""
        self._cuts: dict[tuple[bytes, int], float] = {}
        """When the power was cut since a log was last open."""
        self._ends: list[dict[tuple[bytes, int], DiskLogEnd]] = []
        """Where the logs end that the next process recovers, by topic id and index, as the slow reader has it; with and without what a
        failed sync has lost and the system still shows.
        """
        self._seen: dict[tuple[bytes, int], None] = {}
        """Those that the process that runs has opened."""
        self._failed_syncs = 0
        host.on_ending.append(self._ending)
        host.on_ended.append(self._ended)
        host.on_serving.append(self._serving)

    def see(self, partition: HostedPartition) -> None:
        """Note how a log stands, and judge it if it is seen for the first time in this process: it may have been opened late, after a
        full disk.
        """
        key = partition.topic_id, partition.index
        if key not in self._seen:
            self._seen[key] = None
            self._judge(key, partition)
        self._note(key, partition)

    def _judge(self, key: tuple[bytes, int], partition: HostedPartition) -> None:
        log, name = partition.log, str(partition.topic_partition)
        cut_at, before = self._cuts.pop(key, None), self._logs.get(key)
        if before is None:
            return
        if log.log_end_offset < before.end and _is_cut(self._host, key, log):
            return
        found = [each[key] for each in self._ends if key in each]
        ends = [_end_of_epoch(log, each.epoch) for each in found]
        if found and all(end not in (None, max(each.offset, log.start_offset)) for end, each in zip(ends, found, strict=True)):
            raise InvariantError(f"{name} was recovered up to {ends[0]}; the disk had whole batches up to {found[0].offset}")
        end = _end_of_epoch(log, before.epoch) or 0
        if cut_at is not None and not before.is_synced:
            end = min([end, *_turned_back(before.epochs, _epochs_of(log))])
        if before.is_old and cut_at is not None:
            epoch = max(before.epoch, partition.machine.leader_epoch - 1)
            if end >= before.end:  # nothing of then is missing, and what came after may be there too
                end = _end_of_epoch(log, epoch) or 0
            self._lost(before._replace(epoch=epoch), end, cut_at)
        elif end < before.end:
            if cut_at is None:
                raise InvariantError(f"{name} ended at {before.end} and ends at {end} without a power cut")
            self._lost(before, end, cut_at)

    def _note(self, key: tuple[bytes, int], partition: HostedPartition) -> None:
        log, (topic, index) = partition.log, partition.topic_partition
        end, epoch, before = log.log_end_offset, log.latest_epoch, self._logs.get(key)
        epochs = before.epochs if before is not None and before.epoch == epoch and before.end <= end else _epochs_of(log)
        self._logs[key] = _Log(topic, index, end, epoch, log.config.flush_messages == 1, False, epochs)

    def _serving(self, process: Incarnation) -> None:
        self._seen.clear()
        self._see_all(process)

    def _see_all(self, process: Incarnation) -> None:
        assert process.broker is not None
        for partition in list(process.broker.partitions):
            self.see(partition)

    def _ending(self, process: Incarnation, power_cut: bool) -> None:
        if process.is_serving:
            for key in self._seen:
                if key in self._logs:
                    self._logs[key] = self._logs[key]._replace(is_old=True)
            self._see_all(process)
        disk = self._host.disk
        if power_cut or disk.failed_syncs > self._failed_syncs:
            for key in self._logs:
                self._cuts.setdefault(key, self._history.now())

    def _ended(self, _process: Incarnation) -> None:
        disk = self._host.disk
        self._failed_syncs = disk.failed_syncs
        views = (True, False) if disk.failed_syncs else (True,)
        self._ends = [ends_of_logs(disk, self._host.directories, cached=cached) for cached in views]
        for key, log in self._logs.items():
            if f"{log.topic}-{log.partition}" in disk.damaged:
                self._cuts.setdefault(key, self._history.now())
                self._logs[key] = log._replace(is_synced=False)
        disk.damaged.clear()

    def _lost(self, before: _Log, end: int, at: float) -> None:
        history = self._history
        self.losses += 1
        if before.topic == OFFSETS:
            groups = [commit.group for commit in history.offset_commits] + [producer.copies_for for producer in history.producers]
            for group in dict.fromkeys(groups):
                history.lost_group(group, at)
        elif before.topic == TRANSACTIONS:
            for name in dict.fromkeys(producer.transactional_id for producer in history.producers):
                history.lost_transactional_id(name, at)
            self.may_hang |= dict.fromkeys(history.partitions)
        elif (before.topic, before.partition) in list(self._partitions):
            number = self._partitions.number(before.topic, before.partition)
            if before.is_synced:
                self._check_acknowledged(number, end, at)
            history.lost(number, end, at, before.epoch)
            self.may_hang[history.partitions[number]] = None

    def _check_acknowledged(self, number: int, end: int, at: float) -> None:
        sends, name = self._history.sends, self._history.partitions[number]
        losses = [loss for loss in self._history.losses if loss.partition == number]
        for value, partition in enumerate(sends.partition):
            offset, begun = sends.offset[value], sends.begun[value]
            if partition != number or sends.outcome[value] != Outcome.OK or offset < end or begun >= at:
                continue
            if not any(loss.from_offset <= offset and begun < loss.at for loss in losses):  # else it was lost before
                raise InvariantError(f"{name}: offset {offset} was synced and acknowledged, and the log ends at {end}")


def _is_cut(host: Host, key: tuple[bytes, int], log: PartitionLog) -> bool:
    """Whether a log ends where a promotion or a fail-back has cut it: its start may have done that."""
    states = [each.state for each in partitions_in(host.tree) if (each.topic_id, each.number) == key]
    cuts = [state.cut for state in states if state is not None and state.cut is not None]
    return any(log.latest_epoch <= cut.epoch and log.log_end_offset <= cut.offset for cut in cuts)


def _end_of_epoch(log: PartitionLog, epoch: int) -> int | None:
    """Where the records of epochs up to this one end; None without any."""
    if log.latest_epoch <= epoch:
        return log.log_end_offset
    return log.end_offset_for_epoch(epoch)[1] if epoch >= 0 else None


def _epochs_of(log: PartitionLog) -> dict[int, int]:
    """Where the records of each leader epoch begin, the newest first."""
    found, end = {}, log.log_end_offset
    while end > log.start_offset and (epoch := log.epoch_at(end - 1)) >= 0:
        found[epoch] = end = log.end_offset_for_epoch(epoch - 1)[1] if epoch > 0 else log.start_offset
    return found


def _turned_back(before: dict[int, int], now: dict[int, int]) -> Iterator[int]:
    """Where records of an epoch began in whose place there are records of an older one: what was cut or written there has not reached the
    disk, which still has what was there once.
    """
    for epoch, begin in before.items():
        there = next((older for older, begins in now.items() if begins <= begin), epoch)
        if there < epoch:
            yield begin
