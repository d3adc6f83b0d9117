"""The replicas of this broker: opened, led or followed, reconfigured, stopped, and what their disks do to them.

Decisions come from the controller (`become_leader`, `become_follower`, `stop`, `reconfigure`); each partition's machine says whether they
are newer than what is known and what follows from them, and this class carries that out. A replica whose log cannot be opened is offline,
alone: its machine stays, so that epochs are still compared, and `retry_full` tries it again where only room was missing.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, assert_never

from moldau.broker.replicas.appends import AppendBugError, AppendPipeline
from moldau.broker.replicas.early_batches import EarlyBatches
from moldau.broker.replicas.flusher import LogFlusher
from moldau.broker.replicas.hosted import HostedPartition, PartitionTable
from moldau.broker.replicas.partition import NO_LEADER, Partition
from moldau.broker.replicas.partition_events import (
    BecomeFollower,
    BecomeLeader,
    DirectoryFailed,
    EndPermits,
    FailAppends,
    KeepEpochs,
    LeadEpoch,
    LeadershipLost,
    Level,
    LogTruncated,
    OpenedLogOffsets,
    PartitionEffect,
    PartitionEvent,
    ReplicaStopped,
    RulesChanged,
    SessionDoubted,
    ShowUpTo,
    StaleEpochError,
    WakeFetches,
)
from moldau.broker.replicas.rules import TopicSettings
from moldau.model.errors import ErrorCode, MoldauError, PeerError, StorageError
from moldau.model.identity import LogCut, TopicPartition
from moldau.model.steps import UNFINISHED, Steps
from moldau.model.value import Value
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.metrics.counters import Counters
    from moldau.broker.replicas.purgatory import Purgatory
    from moldau.broker.replicas.services import MetadataSource, PartitionListener, Replication
    from moldau.log.manager import LogManager
    from moldau.log.partition_log import PartitionLog
    from moldau.ports.background import Background
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)


class LeaderState(Value):
    """A partition that this broker leads, as the controller decided. `version`: of the state in the tree."""

    epoch: int
    version: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_mirror: bool = False
    cut: LogCut | None = None
    """What the log must not have when this broker begins to lead."""


class FollowerState(Value):
    """A partition of which this broker has a replica, and `leader_id` leads; -1: no leader."""

    epoch: int
    version: int
    replicas: tuple[int, ...]
    leader_id: int
    is_mirror: bool = False


class _Offline(Value):
    """A replica whose log is not open."""

    machine: Partition
    state: LeaderState | FollowerState
    topic_id: bytes
    settings: TopicSettings
    is_new: bool = False
    no_room: bool = False
    """Whether the log could not be made on a full disk."""


class ReplicaManager:
    """See the module.

    Invariant: `partitions` has exactly those of `hosted` that are led; no partition is in `hosted` and offline.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        clock: "Clock",
        background: "Background",
        metadata: "MetadataSource",
        purgatory: "Purgatory",
        counters: "Counters",
        listener: "Callable[[], PartitionListener]",
        flush_interval: Callable[[int], object],
        replication: "Callable[[], Replication]",
    ) -> None:
        """`background` runs syncs. `replication` makes what there is for partitions with other replicas, with the first of them;
        `listener` gives who is notified of partitions of internal topics, when there is the first one; `flush_interval` is called with the
        `flush.ms` of a log that is opened or reconfigured.
        """
        self.partitions = PartitionTable()
        """The partitions that this broker leads."""
        self.hosted: dict[TopicPartition, HostedPartition] = {}
        """All replicas with an open log."""
        self.early_batches = EarlyBatches()
        self.flusher = LogFlusher(background, self.synced, self.sync_failed)
        self.appends = AppendPipeline(clock, purgatory, self.flusher.request, self.storage_failed)
        self.append = self.appends.append
        self.append_at_once = self.appends.append_at_once
        self.write_staged = self.appends.write_staged
        self.wait = self.appends.wait
        self.logs: LogManager
        """Set before the first partition is opened."""
        self._offline: dict[TopicPartition, _Offline] = {}
        self._broker_id = broker_id
        self._clock = clock
        self._metadata = metadata
        self._counters = counters
        self._listener = listener
        self._flush_interval = flush_interval
        self._make_replication = replication
        self._replication: Replication | None = None
        self.in_doubt = False
        """Whether the session with the tree may have expired."""

    @property
    def replication(self) -> "Replication":
        """What there is for partitions with other replicas; made when first needed."""
        if self._replication is None:
            self._replication = self._make_replication()
        return self._replication

    @property
    def replication_if_any(self) -> "Replication | None":
        """The same; None if it was not needed."""
        return self._replication

    # Decisions of the controller

    def become_leader(
        self, topic_partition: TopicPartition, state: LeaderState, topic_id: bytes, settings: TopicSettings, *, is_new: bool = False
    ) -> None:
        """Lead a partition, or take a newer state of one that is led. `is_new`: whether its log has to be made if it is missing.

        StaleEpochError: nothing changed. PeerError KAFKA_STORAGE_ERROR, StorageError: the replica is offline.
        """
        self._become(topic_partition, state, topic_id, settings, is_new=is_new)

    def become_follower(
        self, topic_partition: TopicPartition, state: FollowerState, topic_id: bytes, settings: TopicSettings, *, is_new: bool = False
    ) -> None:
        """Follow another leader. Errors as for `become_leader`."""
        self._become(topic_partition, state, topic_id, settings, is_new=is_new)

    def stop(self, topic_partitions: Sequence[TopicPartition], *, delete: bool) -> None:
        """Serve replicas no more; what waits for them fails. With `delete` their logs are marked for removal (`LogManager.settle_deleted`
        makes that durable), otherwise they stay as they are.
        """
        for topic_partition in topic_partitions:
            self._offline.pop(topic_partition, None)
            hosted = self.hosted.pop(topic_partition, None)
            if hosted is not None:
                self._unfollow(topic_partition)
                self._end(hosted, ReplicaStopped(StorageError("the partition is gone", path=str(topic_partition))))
        if delete:
            self.logs.mark_deleted(topic_partitions, self._clock.time_ms())
        self.appends.complete()

    def reconfigure(self, topic_partition: TopicPartition, settings: TopicSettings) -> None:
        """Let a replica obey the settings that its topic has now."""
        event = RulesChanged(settings.rules.min_insync_replicas, settings.shows_flushed)
        offline = self._offline.get(topic_partition)
        if offline is not None:
            offline.machine.step(event)
            self._offline[topic_partition] = offline._replace(settings=settings)
        hosted = self.hosted.get(topic_partition)
        if hosted is not None:
            hosted.log.reconfigure(settings.log)
            hosted.rules, hosted.limits = settings.rules, settings.limits
            self._carry_out(hosted, hosted.machine.step(event))
            self._flush_interval(settings.log.flush_ms)
            self.appends.complete()

    def close(self) -> None:
        """Lead and follow no partition any more: the broker stops, and its logs are closed next."""
        if self._replication is not None:
            self._replication.close()
        for hosted in self.partitions:
            hosted.count_messages()
            hosted.is_led = False
            self.appends.end_permits(hosted)

    # What requests ask

    def missing(self, topic: bytes, index: int, *, by_id: bool) -> PeerError:
        """Why a partition cannot be served here, for a client."""
        info = self._metadata.snapshot.find(topic, by_id=by_id)
        if info is None:
            if by_id:
                return PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.hex()}")
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.decode()} is not known")
        if not 0 <= index < len(info.partitions):
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {info.name} has no partition {index}")
        problem = self.logs.problem(TopicPartition(info.name, index))
        if problem is not None:
            return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{info.name}-{index} is offline: {problem}")
        return PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{info.name}-{index} is not led by broker {self._broker_id}")

    def leader_elsewhere(self, topic: bytes, index: int, *, by_id: bool) -> tuple[int, int] | None:
        """Broker and epoch of a partition's leader as known here; None if it is this broker, or not known."""
        info = self._metadata.snapshot.find(topic, by_id=by_id)
        if info is None or not 0 <= index < len(info.partitions):
            return None
        leader, epoch = info.partitions[index].leader, info.partitions[index].leader_epoch
        hosted = self.hosted.get(TopicPartition(info.name, index))
        if hosted is not None and hosted.machine.leader_epoch > epoch:  # the metadata comes after the role
            leader, epoch = hosted.machine.leader_id, hosted.machine.leader_epoch
        return None if leader in (NO_LEADER, self._broker_id) else (leader, epoch)

    def storage_lost(self) -> PeerError | None:
        """KAFKA_STORAGE_ERROR when no log directory is left."""
        if not self.logs.all_failed:
            return None
        return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline; the broker stops")

    def fetched_by_follower(
        self, partition: HostedPartition, broker_id: int, broker_epoch: int, offset: int, leader_epoch: int, log_start_offset: int
    ) -> None:
        """A follower fetches from `offset`, which passed every check: note its progress. PeerError: see `Partition.follower_fetched`."""
        machine = partition.machine
        before = machine.high_watermark
        if machine.follower_fetched(broker_id, offset, leader_epoch, self._clock.monotonic(), broker_epoch, log_start_offset):
            self.appends.committed_since(partition, before)
        if broker_id not in machine.isr and self._replication is not None:
            self._replication.look(partition)

    # What replication decides

    def step(self, hosted: HostedPartition, event: PartitionEvent) -> None:
        """Have a partition's machine decide about an event that leaves its role as it is, and carry that out."""
        self._carry_out(hosted, hosted.machine.step(event))
        self.appends.complete()

    def doubt_session(self, in_doubt: bool) -> None:
        """Whether the session with the tree may have expired: then leaders of partitions with other replicas commit nothing."""
        self.in_doubt = in_doubt
        for hosted in list(self.hosted.values()):
            self._carry_out(hosted, hosted.machine.step(SessionDoubted(in_doubt)))
        self.appends.complete()

    def lose_leadership(self, hosted: HostedPartition, error: PeerError) -> None:
        """There may be another leader: serve a partition no more until the controller says who leads it."""
        if hosted.is_led:
            _LOG.warning("leadership given up until the controller's next statement: partition=%s reason=%s", hosted.topic_partition, error)
            effects = hosted.machine.step(LeadershipLost(error))
            self._resign(hosted)
            self._carry_out(hosted, effects)
            self.appends.complete()

    # The disks

    def storage_failed(self, partition: HostedPartition, error: StorageError) -> None:
        """A log's disk failed: a full one passes, any other takes the log's directory offline. A bug takes this log offline alone.

        A log that was closed does not count: its files may be removed under a sync, and the partition's next log may be open.
        """
        if partition.is_open and isinstance(error, AppendBugError):
            self.logs.take_offline(partition.topic_partition, error)
        elif partition.is_open:
            self.logs.storage_failed(partition.topic_partition, error)

    def directory_offline(self, path: str, topic_partitions: Iterable[TopicPartition]) -> None:
        """A log directory is offline, and these replicas with it; also called by `LogManager.storage_failed`."""
        for topic_partition in topic_partitions:
            hosted = self.hosted.pop(topic_partition, None)
            if hosted is not None:
                self._unfollow(topic_partition)
                machine, settings = hosted.machine, TopicSettings(hosted.log.config, hosted.rules, hosted.limits)
                known = machine.leader_epoch, machine.state_version, machine.replicas
                state: LeaderState | FollowerState
                if hosted.is_led:  # its log was truncated to the cut when the term began
                    state = LeaderState(*known, machine.isr, machine.is_mirror)
                else:
                    state = FollowerState(*known, machine.leader_id, machine.is_mirror)
                self._offline[topic_partition] = _Offline(machine, state, hosted.topic_id, settings)
                self._end(hosted, DirectoryFailed(StorageError("the partition went offline", path=path)))
        if self._replication is not None:
            self._replication.report_offline()
        self.appends.complete()

    def change_log(self, hosted: HostedPartition, log: "PartitionLog") -> None:
        """Serve a replica, in its role and term, from another log with the same records, all of them on disk; its own one is closed."""
        self.appends.end_permits(hosted)
        successor = self.hosted[hosted.topic_partition] = hosted.with_log(log)
        if hosted.is_led:
            self._resign(hosted)
            if not hosted.machine.is_mirror:
                log.lead_epoch(hosted.machine.leader_epoch)
            successor.lead()
            self.partitions.add(successor)
            if successor.is_internal:
                self._listener().elected(successor.topic_partition)
        self.synced(successor)

    def retry_full(self) -> Steps:
        """Try again to open, or to make, the logs that a full disk kept closed. The controller may have others lead meanwhile."""
        yield from self.logs.retry_full(self._clock.time_ms())
        is_back = False
        for topic_partition, offline in list(self._offline.items()):
            yield UNFINISHED
            if self._offline.get(topic_partition) is offline and (offline.no_room or self.logs.get(topic_partition) is not None):
                reached("replicas: tried again after a full disk")
                try:
                    self._become(topic_partition, offline.state, offline.topic_id, offline.settings, is_new=offline.is_new)
                    is_back |= len(offline.state.replicas) > 1
                except MoldauError as error:
                    _LOG.error("partition offline: partition=%s reason=%s", topic_partition, error)
        if is_back:
            self.replication.report_offline()

    def synced(self, partition: HostedPartition) -> None:
        """A sync has brought more of the partition's log to disk."""
        flushed_offset = partition.log.flushed_offset
        partition.machine.flushed(flushed_offset)
        if partition.advanced():
            self.appends.wake(partition)
        if partition.gate is not None and partition.gate.waits_for_disk(flushed_offset):
            self.flusher.request(partition)
        self.appends.complete()

    def sync_failed(self, partition: HostedPartition, error: BaseException) -> None:
        """A sync of the partition's log failed, by its disk or by a bug: what waits for the disk fails."""
        if partition.is_open:
            if isinstance(error, StorageError):
                self.logs.storage_failed(partition.topic_partition, error)
            else:
                error = StorageError("a sync ended with a bug", path=str(partition.topic_partition))
            if partition.gate is not None:
                partition.gate.fail(error, Level.FLUSHED)
            self.appends.complete()

    # Changes of a replica

    def _become(
        self, topic_partition: TopicPartition, state: LeaderState | FollowerState, topic_id: bytes, settings: TopicSettings, *, is_new: bool
    ) -> None:
        hosted = self.hosted.get(topic_partition)
        was_led = hosted is not None and hosted.is_led
        if hosted is None:
            hosted = self._open(topic_partition, state, topic_id, settings, is_new=is_new)
            is_new_term = True
        else:
            epoch_before = hosted.machine.leader_epoch
            if isinstance(state, LeaderState) and state.cut is not None and state.epoch > epoch_before:
                self._cut_hosted(hosted, state.cut)
            self._carry_out(hosted, hosted.machine.step(_event(state, None, self._clock)))
            is_new_term = not was_led or hosted.machine.leader_epoch > epoch_before
        if isinstance(state, LeaderState):
            if not hosted.is_led:
                self._unfollow(topic_partition)
                hosted.lead()
                self.partitions.add(hosted)
                self.early_batches.hand_over(hosted, self._clock.time_ms())
            if is_new_term and hosted.is_internal:
                listener = self._listener()
                if was_led:
                    listener.epoch_raised(topic_partition)
                else:
                    listener.elected(topic_partition)
            if len(state.replicas) > 1:
                self.replication.look(hosted)
        else:
            if hosted.is_led:
                self._resign(hosted)
            self._follow(hosted, state.leader_id)
        self.appends.complete()

    def _open(
        self, topic_partition: TopicPartition, state: LeaderState | FollowerState, topic_id: bytes, settings: TopicSettings, *, is_new: bool
    ) -> HostedPartition:
        """Open the log of a replica that is new here or offline."""
        offline = self._offline.get(topic_partition)
        if offline is None:
            machine = Partition(topic_partition, self._broker_id, settings.rules.min_insync_replicas, shows_flushed=settings.shows_flushed)
        else:
            machine = offline.machine
            if offline.no_room and offline.topic_id == topic_id:
                is_new = is_new or offline.is_new  # it was not made, so no directory has it, whichever fail meanwhile
        try:
            log = self.logs.create(topic_partition, topic_id, settings.log, self._clock.time_ms(), is_new=is_new)
            self.logs.decide_high_watermark(topic_partition, is_replicated=len(state.replicas) > 1)
            if settings.shows_flushed:
                self.logs.flush_recovered(log)
            if isinstance(state, LeaderState) and state.cut is not None and machine.takes(state.epoch, state.version):
                self._cut(log, state.cut)
            machine.step(SessionDoubted(self.in_doubt))
            opened = OpenedLogOffsets(log.log_end_offset, log.flushed_offset, log.high_watermark)
            effects = machine.step(_event(state, opened, self._clock))
            hosted = HostedPartition(machine, log, topic_id, settings, self._counters.topic(topic_partition.topic))
            self._carry_out(hosted, effects)
        except StaleEpochError:
            raise
        except (StorageError, PeerError) as error:
            no_room = isinstance(error, StorageError) and error.no_space
            self._offline[topic_partition] = _Offline(machine, state, topic_id, settings, is_new, no_room)
            raise
        self._offline.pop(topic_partition, None)
        self.hosted[topic_partition] = hosted
        self._flush_interval(settings.log.flush_ms)
        return hosted

    def _cut_hosted(self, hosted: HostedPartition, cut: LogCut) -> None:
        """Truncate the log of a replica that is about to begin a term as leader. Nothing is fetched or acknowledged meanwhile."""
        log = hosted.log
        if _cut_end(log, cut) is None:
            return
        self._unfollow(hosted.topic_partition)
        if hosted.is_led:
            error = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{hosted.topic_partition}: its log is truncated to offset {cut.offset}")
            effects = hosted.machine.step(LeadershipLost(error))
            self._resign(hosted)
            self._carry_out(hosted, effects)
        self._cut(log, cut)
        self._carry_out(hosted, hosted.machine.step(LogTruncated(log.log_end_offset, log.start_offset)))

    def _cut(self, log: "PartitionLog", cut: LogCut) -> None:
        """Truncate a log if it has more than a cut allows. The checkpoints on disk are lowered first: see `follower_log`."""
        while (end_offset := _cut_end(log, cut)) is not None:
            _LOG.warning(
                "log truncated to where its mirror was cut when it was promoted: partition=%s end_offset=%d to=%d epoch=%d cut_offset=%d",
                log.topic_partition,
                log.log_end_offset,
                end_offset,
                *cut,
            )
            try:
                log.truncate_to(end_offset, partial(self.logs.lower_checkpoints, log.topic_partition))
            except StorageError as error:
                self.logs.storage_failed(log.topic_partition, error)
                raise

    def _follow(self, hosted: HostedPartition, leader_id: int) -> None:
        """Fetch from a leader, or not at all while there is none."""
        try:
            hosted.log.truncate_to(hosted.log.log_end_offset)  # epochs at the end that no record has, as of an own term, end (KAFKA-10706)
        except StorageError as error:
            self.storage_failed(hosted, error)
            return
        if leader_id < 0:
            self._unfollow(hosted.topic_partition)
            return
        self.replication.follow(hosted)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        if self._replication is not None:
            self._replication.unfollow(topic_partition)

    def _end(self, hosted: HostedPartition, event: ReplicaStopped | DirectoryFailed) -> None:
        """Carry out an event after which the replica is served no more."""
        effects = hosted.machine.step(event)
        hosted.is_open = False
        hosted.count_messages()
        if hosted.is_led:
            self._resign(hosted)
        self._carry_out(hosted, effects)

    def _resign(self, hosted: HostedPartition) -> None:
        """Lead a partition no more."""
        hosted.is_led = False
        self.partitions.remove(hosted.topic_partition)
        if hosted.is_internal:
            self._listener().resigned(hosted.topic_partition)

    def _carry_out(self, hosted: HostedPartition, effects: Iterable[PartitionEffect]) -> None:
        for effect in effects:
            match effect:
                case LeadEpoch(epoch):
                    hosted.log.lead_epoch(epoch)
                case KeepEpochs():
                    hosted.log.truncate_to(hosted.log.log_end_offset)  # ends an own term, as in `_follow`
                case FailAppends(error, level):
                    if hosted.gate is not None:
                        hosted.gate.fail(error, level)
                case ShowUpTo():
                    if hosted.advanced():
                        self.appends.wake(hosted)
                case WakeFetches():
                    self.appends.wake(hosted)
                case EndPermits():
                    self.appends.end_permits(hosted)
                case _:
                    assert_never(effect)


def _event(state: LeaderState | FollowerState, opened: OpenedLogOffsets | None, clock: "Clock") -> BecomeLeader | BecomeFollower:
    if isinstance(state, LeaderState):
        now_s = clock.monotonic() if len(state.replicas) > 1 else 0.0  # only who has followers asks when the term began
        return BecomeLeader(state.epoch, state.version, state.replicas, state.isr, opened, now_s, state.is_mirror)
    return BecomeFollower(state.epoch, state.version, state.replicas, state.leader_id, opened, state.is_mirror)


def _cut_end(log: "PartitionLog", cut: LogCut) -> int | None:
    """Where a log has to end for a cut; None if it need not be truncated.

    A transaction that began before the cut and ended after it would stay open for ever, since its marker is dropped: the log ends before
    it. That depends on the log before the cut alone, so every replica finds the same end. Once a later epoch has written, its transactions
    are its producers'.
    """
    if log.end_up_to_epoch(cut.epoch) > cut.offset:
        return cut.offset
    return log.first_ongoing_transaction if log.latest_epoch <= cut.epoch else None
