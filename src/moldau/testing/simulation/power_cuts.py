"""What each end of a process took from the logs: compares where they ended before and where they end after, and judges it.

A process that is killed or stopped loses nothing that it had written. A power cut may take what was written and not synced, from the end
of a log; never what was acknowledged where each batch is synced before its acknowledgement (``flush.messages`` 1). What was legally lost is
told to the history, which then expects it no longer, and expects a higher leader epoch where its offsets are used again.
"""

from typing import NamedTuple

from moldau.testing.history.history import History, Outcome
from moldau.testing.simulation.clients.context import PartitionNumbers
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.process import Host, Incarnation

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
        self._history = history
        self._partitions = partitions
        self._logs: dict[tuple[bytes, int], _Log] = {}
        """By topic id and index."""
        self._cut_at: float | None = None
        """When the power was cut since the logs were last open."""
        host.on_ending.append(self._ending)
        host.on_serving.append(self._serving)

    def _ending(self, process: Incarnation, power_cut: bool) -> None:
        if process.is_serving:
            self._note(process)
        if power_cut and self._cut_at is None:
            self._cut_at = self._history.now()

    def _note(self, process: Incarnation) -> None:
        assert process.broker is not None
        for partition in list(process.broker.partitions):
            log = partition.log
            topic = log.topic_partition
            key = partition.topic_id, topic.partition
            self._logs[key] = _Log(topic.topic, topic.partition, log.log_end_offset, log.latest_epoch, log.config.flush_messages == 1)

    def _serving(self, process: Incarnation) -> None:
        assert process.broker is not None
        cut_at, self._cut_at = self._cut_at, None
        for partition in list(process.broker.partitions):
            before = self._logs.get((partition.topic_id, partition.log.topic_partition.partition))
            end = partition.log.log_end_offset
            if before is not None and end < before.end:
                where = f"{before.topic}-{before.partition}"
                if cut_at is None:
                    raise InvariantError(f"{where} ended at {before.end} and ends at {end} without a power cut")
                self._lost(before, end, cut_at)
        self._note(process)

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
