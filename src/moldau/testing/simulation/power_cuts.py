"""What each end of a process took from the logs: compares where they ended before and where they end after, and judges it.

A process that is killed or stopped loses nothing that it had written. A power cut may take what was written and not synced, from the end
of a log; never what was acknowledged where each batch is synced before its acknowledgement (``flush.messages`` 1). What was legally lost is
told to the history, which then expects it no longer, and expects a higher leader epoch where its offsets are used again.
"""

from typing import NamedTuple

from moldau.broker.replicas.hosted import HostedPartition
from moldau.testing.history.history import History, Outcome
from moldau.testing.simulation.clients.context import PartitionNumbers
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.reader import ends_of_logs

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class _Log(NamedTuple):
    """A log when it was last open."""

    topic: str
    partition: int
    end: int
    epoch: int
    is_synced: bool
    """Whether each batch is synced before its acknowledgement."""


class PowerCuts:
    """See the module."""

    def __init__(self, host: Host, history: History, partitions: PartitionNumbers) -> None:
        self.losses = 0
        self._host = host
        self._history = history
        self._partitions = partitions
        self._logs: dict[tuple[bytes, int], _Log] = {}
        """By topic id and index."""
        self._cuts: dict[tuple[bytes, int], float] = {}
        """When the power was cut since a log was last open."""
        self._ends: dict[str, int] = {}
        """Where the logs end that the next process recovers, by folder, as the slow reader has it."""
        self._seen: dict[tuple[bytes, int], None] = {}
        """Those that the process that runs has opened."""
        host.on_ending.append(self._ending)
        host.on_ended.append(self._ended)
        host.on_serving.append(self._serving)

    def see(self, partition: HostedPartition) -> None:
        """Judge a log, if it is seen for the first time in this process: it may have been opened late, after a full disk."""
        key = partition.topic_id, partition.index
        if key in self._seen:
            return
        self._seen[key] = None
        log, name = partition.log, str(partition.topic_partition)
        cut_at, before = self._cuts.pop(key, None), self._logs.get(key)
        if before is None:
            return
        end = log.end_offset_for_epoch(before.epoch)[1] if before.epoch >= 0 and log.latest_epoch > before.epoch else log.log_end_offset
        whole = self._ends.get(name)
        if whole is not None and end != max(whole, log.start_offset):
            raise InvariantError(f"{name} was recovered up to {end}; the disk had whole batches up to {whole}")
        if end < before.end:
            if cut_at is None:
                raise InvariantError(f"{name} ended at {before.end} and ends at {end} without a power cut")
            self._lost(before, end, cut_at)

    def _serving(self, process: Incarnation) -> None:
        self._seen.clear()
        self._see_all(process)

    def _see_all(self, process: Incarnation) -> None:
        assert process.broker is not None
        for partition in list(process.broker.partitions):
            self.see(partition)

    def _ending(self, process: Incarnation, power_cut: bool) -> None:
        if process.is_serving:
            self._see_all(process)
            assert process.broker is not None
            for partition in list(process.broker.partitions):
                log, (topic, index) = partition.log, partition.topic_partition
                is_synced = log.config.flush_messages == 1
                self._logs[partition.topic_id, index] = _Log(topic, index, log.log_end_offset, log.latest_epoch, is_synced)
        if power_cut:
            for key in self._logs:
                self._cuts.setdefault(key, self._history.now())

    def _ended(self, _process: Incarnation) -> None:
        self._ends = {}
        for directory in self._host.directories:
            if self._host.disk.exists(directory):
                self._ends |= ends_of_logs(self._host.disk, directory)

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
        elif (before.topic, before.partition) in list(self._partitions):
            number = self._partitions.number(before.topic, before.partition)
            if before.is_synced:
                self._check_acknowledged(number, end, at)
            history.lost(number, end, at, before.epoch)

    def _check_acknowledged(self, number: int, end: int, at: float) -> None:
        sends, name = self._history.sends, self._history.partitions[number]
        for value, partition in enumerate(sends.partition):
            if partition == number and sends.outcome[value] == Outcome.OK and sends.offset[value] >= end and sends.begun[value] < at:
                raise InvariantError(f"{name}: offset {sends.offset[value]} was synced and acknowledged, and the log ends at {end}")
