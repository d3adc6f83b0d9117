"""What holds after every step of a run, whatever has happened.

Only a step of a broker's process can change its state. After each of them one partition is looked at, in turn, since looking at all would
cost more than the steps; nearly all violations last.
"""

from collections.abc import Callable, Iterator

from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.schedule import Actor


class InvariantError(Exception):
    """The broker is in a state that must not be."""


class Invariants:
    """The checks of a run."""

    def __init__(self, host: Host) -> None:
        self.states: set[str] = set()
        """How the offsets of partitions stood to each other: a measure of what a run has explored."""
        self.on_seen: Callable[[HostedPartition], object] = lambda _partition: None
        """Called with each partition that is looked at."""
        self._host = host
        self._process: Incarnation | None = None
        self._turn: Iterator[HostedPartition] = iter(())
        self._epochs: dict[tuple[bytes, int], int] = {}
        """The highest leader epoch of each partition, over all processes."""
        self._watermarks: dict[tuple[bytes, int], tuple[int, int]] = {}
        """Leader epoch and high watermark of each partition when it was last looked at."""
        host.schedule.observe(self.after_step)

    def after_step(self, actor: Actor) -> None:
        """Look at one partition, if this was a step of the broker."""
        process = self._host.process
        if process is None or actor.group is not process.group or process.broker is None or not process.is_serving:
            return
        if process is not self._process:
            self._process = process
            self._turn = iter(())
            self._watermarks.clear()
        partition = next(self._turn, None)
        if partition is None:
            self._turn = iter(list(process.broker.partitions))
            partition = next(self._turn, None)
        if partition is not None and partition.machine.role is ReplicaRole.LEADER and partition.is_led:
            self.on_seen(partition)
            self._check(partition)

    def check_all(self) -> None:
        """Look at every partition."""
        process = self._host.process
        if process is not None and process.broker is not None and process.is_serving:
            for partition in list(process.broker.partitions):
                if partition.machine.role is ReplicaRole.LEADER and partition.is_led:
                    self._check(partition)

    def _check(self, partition: HostedPartition) -> None:
        log, machine = partition.log, partition.machine
        start, stable, high = log.start_offset, log.last_stable_offset, log.high_watermark
        written, staged, flushed = log.log_end_offset, log.staged_end_offset, log.flushed_offset
        name = str(partition.topic_partition)
        key = partition.topic_id, partition.topic_partition.partition
        if not start <= stable <= high <= written <= staged or flushed > written:
            raise InvariantError(
                f"{name}: offsets out of order: start {start}, last stable {stable}, high watermark {high}, "
                f"end {written}, staged end {staged}, flushed {flushed}"
            )
        self.states.add(
            f"{start < stable:d}{stable < high:d}{high < written:d}{written < staged:d}{flushed < written:d}"
            f"{min(log.segment_count, 4)}{min(len(log.producer_ends()), 3)}{partition.is_internal:d}"
        )
        if machine.broker_id not in machine.isr:
            raise InvariantError(f"{name}: the leader {machine.broker_id} is not in sync: {machine.isr}")
        epoch = machine.leader_epoch
        if epoch < self._epochs.get(key, epoch):
            raise InvariantError(f"{name}: leader epoch {epoch} after {self._epochs[key]}")
        self._epochs[key] = epoch
        before = self._watermarks.get(key)
        if before is not None and before[0] == epoch and high < before[1]:
            raise InvariantError(f"{name}: high watermark fell from {before[1]} to {high} in leader epoch {epoch}")
        self._watermarks[key] = epoch, high
