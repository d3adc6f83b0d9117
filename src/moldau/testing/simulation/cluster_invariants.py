"""What holds after every step of a cluster, whatever has happened.

After each step of a broker one of its replicas is looked at, in turn; nearly all violations last. What was ever shown as committed anywhere
is kept here, as the *true* high watermark of a partition, with the leader epochs of the records before it: no leader, and no replica in
sync, may lack any of it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from moldau.broker.broker import Broker
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.broker.replicas.replication import Replication
from moldau.log.partition_log import PartitionLog
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.schedule import Actor, ActorGroup
from moldau.testing.simulation.tree_invariants import TreeInvariants

Key = tuple[bytes, int]
"""Topic id and index."""


class CommittedRecords:
    """What is committed of a partition."""

    def __init__(self) -> None:
        self.end = 0
        """The true high watermark."""
        self._starts: list[int] = []
        self._epochs: list[int] = []
        """Where the records of each leader epoch begin, in their order."""

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote a committed offset; -1 if it is not known."""
        place = bisect_right(self._starts, offset)
        return self._epochs[place - 1] if place else -1

    def agrees(self, log: PartitionLog, end: int) -> bool:
        """Whether a log has the committed records before `end`. Logs that have a record of the same epoch agree up to there."""
        if end <= log.start_offset:
            return True
        found, known = log.epoch_at(end - 1), self.epoch_of(end - 1)
        return found == known or known < 0

    def grow(self, log: PartitionLog, end: int) -> None:
        """A log shows its records up to `end`."""
        offset = max(self.end, log.start_offset)
        while offset < end:
            epoch = log.epoch_at(offset)
            if not self._epochs or self._epochs[-1] != epoch:
                self._starts.append(offset)
                self._epochs.append(epoch)
            offset = max(offset + 1, log.end_offset_for_epoch(epoch)[1])
        self.end = max(self.end, end)


class ClusterInvariants:
    """The checks of a run."""

    def __init__(self, hosts: Sequence[Host], tree: TreeInvariants, may_lack: Callable[[Host], bool]) -> None:
        """`may_lack`: whether the logs of a host may have lost committed records."""
        self._states: set[tuple[object, ...]] = set()
        self.committed: dict[Key, CommittedRecords] = {}
        self._tree = tree
        self._may_lack = may_lack
        self._turns = {host.name: _Turn(number, host) for number, host in enumerate(hosts, 1)}
        self._leaders: dict[tuple[Key, int], int] = {}
        """Who led a partition in each epoch."""
        hosts[0].schedule.observer = self.after_step

    @property
    def states(self) -> set[str]:
        """How replicas stood: a measure of what a run has explored."""
        return {" ".join(map(str, state)) for state in self._states}

    def after_step(self, actor: Actor) -> None:
        """Look at one replica, if this was a step of a broker."""
        group = actor.group
        if group is None:
            return
        self._tree.check()
        turn = self._turns.get(group.name.partition("/")[0])
        if turn is not None:
            found = turn.next(group)
            if found is not None:
                self._check(turn, found)

    def check_all(self) -> None:
        """Look at every replica."""
        self._tree.check()
        for turn in self._turns.values():
            broker = turn.host.broker
            if broker is not None and turn.host.process is not None and turn.host.process.is_serving:
                for hosted in list(broker.replicas.hosted.values()):
                    self._check(turn, hosted)
                self._check_fetchers(turn, broker)

    def _check(self, turn: "_Turn", hosted: HostedPartition) -> None:
        machine, log = hosted.machine, hosted.log
        name = f"{hosted.topic_partition} on broker {turn.number}"
        key = hosted.topic_id, hosted.index
        start, stable, high = log.start_offset, log.last_stable_offset, log.high_watermark
        written, staged = log.log_end_offset, log.staged_end_offset
        if not start <= stable <= high <= written <= staged or log.flushed_offset > written:
            raise InvariantError(
                f"{name}: offsets out of order: start {start}, last stable {stable}, high watermark {high}, "
                f"end {written}, staged end {staged}, flushed {log.flushed_offset}"
            )
        committed = self.committed.setdefault(key, CommittedRecords())
        shown = min(high, committed.end)
        if not committed.agrees(log, shown):
            raise InvariantError(
                f"{name}: shows offset {shown - 1} of epoch {log.epoch_at(shown - 1)}, committed is epoch {committed.epoch_of(shown - 1)}"
            )
        committed.grow(log, high)
        leads = machine.role is ReplicaRole.LEADER and hosted.is_led
        if leads:
            self._check_leader(turn, hosted, key, name)
        in_tree = self._tree.states.get((hosted.topic_partition.topic, hosted.index))
        is_current = in_tree is not None and self._tree.topic_ids.get(hosted.topic_partition.topic) == hosted.topic_id
        if in_tree is not None and is_current:
            is_leader = leads and in_tree.leader_epoch == machine.leader_epoch
            if is_leader:
                maximal = (*machine.isr, *(machine.proposed_isr or ()))
                if any(replica not in maximal for replica in in_tree.isr):
                    raise InvariantError(f"{name}: waits for {maximal}, and in sync in the tree are {in_tree.isr}")
            if is_leader or (turn.number in in_tree.isr and not self._may_lack(turn.host)):
                self._check_complete(committed, hosted, name, "leads" if is_leader else "is in sync")
        self._check_metadata(turn, hosted, name)
        behind = 0 if in_tree is None else min(in_tree.leader_epoch - machine.leader_epoch, 3)
        in_sync, eligible = (0, 0) if in_tree is None else (len(in_tree.isr), len(in_tree.elr))
        self._states.add(
            (
                machine.role,
                (written > committed.end) - (written < committed.end),
                high < written,
                in_tree is not None and turn.number in in_tree.isr,
                behind,
                machine.proposed_isr is not None,
                machine.in_doubt,
                len(machine.isr),
                len(machine.followers),
                in_sync,
                eligible,
            )
        )

    def _check_leader(self, turn: "_Turn", hosted: HostedPartition, key: Key, name: str) -> None:
        machine, epoch = hosted.machine, hosted.machine.leader_epoch
        if machine.broker_id not in machine.isr:
            raise InvariantError(f"{name}: the leader is not in sync: {machine.isr}")
        other = self._leaders.setdefault((key, epoch), turn.number)
        if other != turn.number:
            raise InvariantError(f"{name}: leads epoch {epoch}, as broker {other} has")
        high = hosted.log.high_watermark
        before = turn.watermarks.get(key)
        if before is not None and before[0] == epoch and high < before[1]:
            raise InvariantError(f"{name}: high watermark fell from {before[1]} to {high} in leader epoch {epoch}")
        turn.watermarks[key] = epoch, high

    @staticmethod
    def _check_complete(committed: CommittedRecords, hosted: HostedPartition, name: str, why: str) -> None:
        log, end = hosted.log, committed.end
        if log.log_end_offset < end or not committed.agrees(log, end):
            raise InvariantError(
                f"{name}: {why} and lacks committed records: it ends at {log.log_end_offset} in epoch {log.latest_epoch}, "
                f"committed are {end} up to epoch {committed.epoch_of(end - 1)}"
            )

    @staticmethod
    def _check_metadata(turn: "_Turn", hosted: HostedPartition, name: str) -> None:
        broker = turn.host.broker
        topic = None if broker is None else broker.metadata.topics.get(hosted.topic_partition.topic)
        if topic is None or topic.topic_id != hosted.topic_id or hosted.index >= len(topic.partitions):
            return
        key, epoch = (hosted.topic_id, hosted.index), topic.partitions[hosted.index].leader_epoch
        if epoch < turn.known_epochs.get(key, epoch):
            raise InvariantError(f"{name}: the metadata has leader epoch {epoch} after {turn.known_epochs[key]}")
        turn.known_epochs[key] = epoch

    @staticmethod
    def _check_fetchers(turn: "_Turn", broker: Broker) -> None:
        replication = broker.replicas._replication
        if not isinstance(replication, Replication):
            return  # nothing has been replicated yet
        fetched: dict[object, int] = {}
        for source_id, source in replication.fetchers._sources.items():
            for topic_partition in source.fetcher.partitions:
                if topic_partition in fetched:
                    raise InvariantError(f"{topic_partition} is fetched from {fetched[topic_partition]} and {source_id} by {turn.number}")
                fetched[topic_partition] = source_id
                if broker.partitions.get(topic_partition) is not None:
                    raise InvariantError(f"{topic_partition} is led and fetched by broker {turn.number}")


class _Turn:
    """Whose turn it is on a host, and what was seen of its process."""

    def __init__(self, number: int, host: Host) -> None:
        self.number = number
        self.host = host
        self.watermarks: dict[Key, tuple[int, int]] = {}
        """Leader epoch and high watermark of each partition when it was last looked at."""
        self.known_epochs: dict[Key, int] = {}
        """The newest leader epoch of each partition in the broker's metadata."""
        self._process: Incarnation | None = None
        self._replicas: Iterator[HostedPartition] = iter(())

    def next(self, group: ActorGroup) -> HostedPartition | None:
        """The replica whose turn it is, after a step of this group."""
        process = self.host.process
        if process is None or process.group is not group or process.broker is None or not process.is_serving:
            return None
        if process is not self._process:
            self._process = process
            self._replicas = iter(())
            self.watermarks.clear()
            self.known_epochs.clear()
        found = next(self._replicas, None)
        if found is None:
            self._replicas = iter(list(process.broker.replicas.hosted.values()))
            found = next(self._replicas, None)
        return found if found is not None and found.is_open else None
