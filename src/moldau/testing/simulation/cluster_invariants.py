"""What holds after every step of a cluster, whatever has happened.

After each step of a broker one of its replicas is looked at, in turn; nearly all violations last. What was ever shown as committed anywhere
is kept here, as the *true* high watermark of a partition, with the leader epochs of the records before it: no leader, and no replica in
sync, may lack any of it. What a replica has shown since it was looked at is noted when a client reads, when the replica is stopped or goes
offline, and when the process ends.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.broker.replicas.replication import Replication
from moldau.cluster.znodes import PartitionState
from moldau.log.partition_log import PartitionLog
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.schedule import Actor, ActorGroup
from moldau.testing.simulation.tree_invariants import TreeInvariants

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

Key = tuple[bytes, int]
"""Topic id and index."""


class CommittedRecords:
    """What is committed of a partition."""

    def __init__(self) -> None:
        self.end = 0
        """The true high watermark."""
        self.start = 0
        """The largest offset at which a log was seen to begin: what is before it was deleted."""
        self._starts: list[int] = []
        self._epochs: list[int] = []
        """Where the records of each leader epoch begin, in their order."""

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote a committed offset; -1 if it is not known."""
        if self._starts and offset >= self._starts[-1]:
            return self._epochs[-1]
        place = bisect_right(self._starts, offset)
        return self._epochs[place - 1] if place else -1

    def agrees(self, log: PartitionLog, end: int) -> bool:
        """Whether a log has the committed records before `end`. Logs that have a record of the same epoch agree up to there.

        Records that are deleted, all of them, may be there again after a crash, of unknown epochs; or in their place what an earlier leader
        had alone, since a leader that has deleted them has forgotten their epochs. Its followers delete them when it says so.
        """
        if end <= max(self.start, log.start_offset):
            return True
        found, known = log.epoch_at(end - 1), self.epoch_of(end - 1)
        return known in (found, -1)

    def grow(self, log: PartitionLog, end: int) -> None:
        """A log shows its records up to `end`."""
        offset = max(self.end, log.start_offset)
        if self.end < offset <= end:  # they were committed and deleted since the log was looked at last
            self._starts.append(self.end)
            self._epochs.append(-1)
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
        self._hosts = hosts
        self._turns = {host.name: _Turn(number, host) for number, host in enumerate(hosts, 1)}
        self._turn_of: dict[ActorGroup, _Turn] = {}
        """By the processes that have made steps."""
        self._leaders: dict[tuple[Key, int], int] = {}
        """Who led a partition in each epoch."""
        hosts[0].schedule.observe(self.after_step)
        for host in hosts:
            host.on_ending.append(lambda process, _power_cut: self._note_committed(_replicas(process.broker)))

    @property
    def states(self) -> set[str]:
        """How replicas stood: a measure of what a run has explored."""
        return {" ".join(map(str, state)) for state in self._states}

    def after_step(self, actor: Actor) -> None:
        """Look at one replica, if this was a step of a broker."""
        group = actor.group
        if group is None:
            return
        if self._tree.violations:
            self._tree.check()
        turn = self._turn_of.get(group)
        if turn is None:
            turn = self._turns.get(group.name.partition("/")[0])
            if turn is None:  # a process of another cluster, or of none
                return
            self._turn_of[group] = turn
        self._note_committed(turn.gone())
        found = turn.next(group)
        if found is not None and (broker := turn.host.broker) is not None:
            self._check(turn, broker, found)

    def check_all(self) -> None:
        """Look at every replica."""
        self._tree.check()
        for turn in self._turns.values():
            broker = turn.host.broker
            if broker is not None and turn.host.process is not None and turn.host.process.is_serving:
                for hosted in list(broker.replicas.hosted.values()):
                    self._check(turn, broker, hosted)

    def check_read(self, topic_partition: TopicPartition, offset: int) -> None:
        """A client has read a record: it is committed."""
        for host in self._hosts:
            self._note_committed(_replicas(host.broker))
        committed = self.committed.get((self._tree.topic_ids.get(topic_partition.topic, b""), topic_partition.partition))
        if committed is not None and offset >= committed.end:
            raise InvariantError(f"{topic_partition}: offset {offset} was read, committed are {committed.end}")

    def deposed_since(self, topic_partition: TopicPartition) -> float | None:
        """Since when a broker has taken itself for the leader of a partition that has another one; None if none does.

        It may answer a look-up with what it had then, as Kafka's does.
        """
        times = []
        for host in self._hosts:
            hosted = None if host.broker is None else host.broker.replicas.hosted.get(topic_partition)
            if hosted is not None and hosted.is_led and hosted.machine.role is ReplicaRole.LEADER:
                times.append(self._tree.over_since((topic_partition.topic, topic_partition.partition), hosted.machine.leader_epoch))
        return min((each for each in times if each is not None), default=None)

    def _note_committed(self, replicas: Iterable[HostedPartition]) -> None:
        """Note what replicas show, or have shown, also where it is not their turn."""
        for hosted in replicas:
            committed = self.committed.get((hosted.topic_id, hosted.index))
            if committed is not None and hosted.log.high_watermark > committed.end:
                committed.grow(hosted.log, hosted.log.high_watermark)

    def _check(self, turn: "_Turn", broker: "Broker", hosted: HostedPartition) -> None:
        machine, log, number = hosted.machine, hosted.log, turn.number
        topic_partition = hosted.topic_partition
        key = hosted.topic_id, hosted.index
        start, stable, high = log.start_offset, log.last_stable_offset, log.high_watermark
        written, staged = log.log_end_offset, log.staged_end_offset
        if not start <= stable <= high <= written <= staged or log.flushed_offset > written:
            raise InvariantError(
                f"{_name(turn, hosted)}: offsets out of order: start {start}, last stable {stable}, high watermark {high}, "
                f"end {written}, staged end {staged}, flushed {log.flushed_offset}"
            )
        committed = self.committed.get(key)
        if committed is None:
            committed = self.committed[key] = CommittedRecords()
        shown = min(high, committed.end)
        if not committed.agrees(log, shown):
            raise InvariantError(
                f"{_name(turn, hosted)}: shows offset {shown - 1} of epoch {log.epoch_at(shown - 1)}, "
                f"committed is epoch {committed.epoch_of(shown - 1)}"
            )
        if high > committed.end:
            committed.grow(log, high)
        if start > committed.start:
            committed.start = start
        leads = machine.role is ReplicaRole.LEADER and hosted.is_led
        if leads:
            self._check_leader(turn, hosted, key)
        self._check_watermark(turn, hosted, key, high)
        self._check_fetcher(turn, broker, hosted)
        self._check_metadata(turn, broker, hosted, key)
        in_tree = self._tree.states.get((topic_partition.topic, hosted.index))
        behind, in_sync, eligible, is_in_sync = 0, 0, 0, False
        if in_tree is not None:
            is_in_sync = number in in_tree.isr
            behind, in_sync, eligible = min(in_tree.leader_epoch - machine.leader_epoch, 3), len(in_tree.isr), len(in_tree.elr)
            if self._tree.topic_ids.get(topic_partition.topic) == hosted.topic_id:
                self._check_against_tree(turn, hosted, in_tree, committed, agreed=shown, is_leader=leads and behind == 0)
        self._states.add(
            (
                leads,
                machine.leader_id >= 0,
                (written > committed.end) - (written < committed.end),
                high < written,
                is_in_sync,
                behind,
                machine.proposed_isr is not None,
                machine.in_doubt,
                len(machine.isr),
                len(machine.followers),
                in_sync,
                eligible,
            )
        )

    def _check_against_tree(
        self, turn: "_Turn", hosted: HostedPartition, in_tree: PartitionState, committed: CommittedRecords, *, agreed: int, is_leader: bool
    ) -> None:
        machine = hosted.machine
        if is_leader and in_tree.isr != machine.isr:
            maximal = (*machine.isr, *(machine.proposed_isr or ()))
            if any(replica not in maximal for replica in in_tree.isr):
                raise InvariantError(f"{_name(turn, hosted)}: waits for {maximal}, and in sync in the tree are {in_tree.isr}")
        if is_leader:
            self._check_complete(committed, agreed, turn, hosted, "leads")
        elif turn.number in in_tree.isr and not self._may_lack(turn.host):
            self._check_complete(committed, agreed, turn, hosted, "is in sync")

    def _check_leader(self, turn: "_Turn", hosted: HostedPartition, key: Key) -> None:
        machine, epoch = hosted.machine, hosted.machine.leader_epoch
        if machine.broker_id not in machine.isr:
            raise InvariantError(f"{_name(turn, hosted)}: the leader is not in sync: {machine.isr}")
        other = self._leaders.setdefault((key, epoch), turn.number)
        if other != turn.number:
            raise InvariantError(f"{_name(turn, hosted)}: leads epoch {epoch}, as broker {other} has")
        for broker_id, progress in machine.followers.items():
            known = self._epoch_known_by(broker_id, progress.broker_epoch, hosted)
            if known is not None and known < epoch:
                raise InvariantError(f"{_name(turn, hosted)}: counts broker {broker_id} in epoch {epoch}, which knows epoch {known}")

    def _epoch_known_by(self, broker_id: int, incarnation: int, hosted: HostedPartition) -> int | None:
        """The leader epoch that another broker knows; None if it runs no more in that incarnation, or has no replica."""
        broker = self._hosts[broker_id - 1].broker
        if broker is None or broker.applier.broker_epoch != incarnation:
            return None
        found = broker.replicas.hosted.get(hosted.topic_partition)
        return found.machine.leader_epoch if found is not None and found.topic_id == hosted.topic_id else None

    @staticmethod
    def _check_watermark(turn: "_Turn", hosted: HostedPartition, key: Key, high: int) -> None:
        """It does not fall, but where a follower has truncated what its leader had compacted before it fetched it."""
        epoch, before = hosted.machine.leader_epoch, turn.watermarks.get(key)
        refetches = hosted.machine.role is ReplicaRole.FOLLOWER and hosted.log.config.compacts
        if before is not None and before[0] == epoch and high < before[1] and not refetches:
            raise InvariantError(f"{_name(turn, hosted)}: high watermark fell from {before[1]} to {high} in leader epoch {epoch}")
        if before is None or before != (epoch, high):
            turn.watermarks[key] = epoch, high

    @staticmethod
    def _check_complete(committed: CommittedRecords, agreed: int, turn: "_Turn", hosted: HostedPartition, why: str) -> None:
        """`agreed`: up to there the log is known to have what is committed."""
        log, end = hosted.log, committed.end
        if log.log_end_offset < end or (end != agreed and not committed.agrees(log, end)):
            raise InvariantError(
                f"{_name(turn, hosted)}: {why} and lacks committed records: it ends at {log.log_end_offset} in epoch {log.latest_epoch}, "
                f"committed are {end} up to epoch {committed.epoch_of(end - 1)}"
            )

    @staticmethod
    def _check_metadata(turn: "_Turn", broker: "Broker", hosted: HostedPartition, key: Key) -> None:
        topic = broker.metadata.topics.get(hosted.topic_partition.topic)
        if topic is None or topic.topic_id != hosted.topic_id or hosted.index >= len(topic.partitions):
            return
        epoch = topic.partitions[hosted.index].leader_epoch
        if epoch < turn.known_epochs.get(key, epoch):
            raise InvariantError(f"{_name(turn, hosted)}: the metadata has leader epoch {epoch} after {turn.known_epochs[key]}")
        turn.known_epochs[key] = epoch

    @staticmethod
    def _check_fetcher(turn: "_Turn", broker: "Broker", hosted: HostedPartition) -> None:
        """A replica is fetched from its leader, in its epoch, or from no broker; one that leads from none."""
        replication = broker.replicas._replication
        if not isinstance(replication, Replication):
            return  # nothing has been replicated yet
        machine = hosted.machine
        for source_id, source in replication.fetchers._sources.items():
            followed = source.fetcher.partitions.get(hosted.topic_partition)
            if followed is None:
                continue
            if machine.role is not ReplicaRole.FOLLOWER or (source_id, followed.leader_epoch) != (machine.leader_id, machine.leader_epoch):
                raise InvariantError(
                    f"{_name(turn, hosted)}: it is fetched from broker {source_id} in epoch {followed.leader_epoch}, "
                    f"and is {machine.role.value} of broker {machine.leader_id} in epoch {machine.leader_epoch}"
                )


def _replicas(broker: "Broker | None") -> Iterable[HostedPartition]:
    return () if broker is None else broker.replicas.hosted.values()


def _name(turn: "_Turn", hosted: HostedPartition) -> str:
    return f"{hosted.topic_partition} on broker {turn.number}"


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
        self._held: dict[TopicPartition, HostedPartition] = {}
        """The replicas that it had after its last step."""

    def gone(self) -> list[HostedPartition]:
        """The replicas that its process had before its last step and has no more: stopped, offline, or with another log since."""
        broker = self.host.broker
        hosted = {} if broker is None else broker.replicas.hosted
        if hosted == self._held:
            return []
        before, self._held = self._held, dict(hosted)
        return [each for topic_partition, each in before.items() if hosted.get(topic_partition) is not each]

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
