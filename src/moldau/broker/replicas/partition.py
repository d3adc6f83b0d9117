"""The replica of one partition as a state machine: role, leader epoch, in-sync replicas, followers' progress, high watermark.

Events come in, effects come out in the order in which they are carried out. The machine has no log and no clock: it receives offsets and
times, and decides. It alone decides whether an append may be acknowledged (`check_acks`, `open_offset`) and what is visible
(`high_watermark`).

    event                OFFLINE                  FOLLOWER of epoch e         LEADER of epoch e
    BecomeLeader e'      LEADER                   e' > e: LEADER              e' > e: new term; e' = e, newer version: new in-sync set
    BecomeFollower e'    FOLLOWER                 newer: another leader       e' > e: FOLLOWER
    grew, flushed        bug                      log end, flushed offset     the same, committed offset, high watermark
    follower_fetched     NOT_LEADER_OR_FOLLOWER   NOT_LEADER_OR_FOLLOWER      progress, committed offset, high watermark
    ProposeIsr           bug                      bug                         proposed set
    IsrSettled           -                        -                           of epoch e: in-sync set, version, high watermark
    SessionDoubted       doubt                    doubt                       the same, and nothing is committed while in doubt
    LeadershipLost       -                        -                           FOLLOWER without a leader, until a newer state comes
    LeaderHighWatermark  bug                      committed offset            bug
    LogTruncated         bug                      offsets move                bug: a leader never truncates
    RulesChanged         settings                 settings                    settings, committed offset, enough in sync?
    DirectoryFailed      stays                    OFFLINE                     OFFLINE
    ReplicaStopped       REMOVED                  REMOVED                     REMOVED

A state that is not newer raises `StaleEpochError` and changes nothing; newer is a higher epoch, or the same epoch and a higher version. An
OFFLINE replica, whose log is opened again, also accepts the state that it had. Bugs raise AssertionError, as does any event after REMOVED.

Rules:

* A record is committed when the *maximal* in-sync set has it: the replicas in sync, and those that this leader has proposed and whose
  acceptance it does not know yet (KIP-497). A member that has not fetched in this leader epoch stops the committed offset.
* The committed offset moves, and appends with acks=all are accepted, only while as many replicas are in sync as `effective_minimum`
  (KIP-966): otherwise the last replica in sync could be lost with records that consumers have read.
* A follower's progress counts for one leader epoch only, and is dropped when the replica leaves the assignment or the in-sync set: it
  may come back empty.
* The leader of a mirror's partition begins no epoch in its log. Its leader epoch counts elections here, the epochs in the log are the
  source's, and neither says anything of the other.
"""

from typing import assert_never

from moldau.broker.replicas import partition_errors as errors
from moldau.broker.replicas.isr import NO_BROKER_EPOCH, FollowerProgress, least_end_offset, may_propose
from moldau.broker.replicas.partition_events import (
    BecomeFollower,
    BecomeLeader,
    DirectoryFailed,
    EndPermits,
    FailAppends,
    IsrSettled,
    KeepEpochs,
    LeadEpoch,
    LeaderHighWatermark,
    LeadershipLost,
    Level,
    LogTruncated,
    OpenedLogOffsets,
    PartitionEffect,
    PartitionEvent,
    ProposeIsr,
    ReplicaRole,
    ReplicaStopped,
    RulesChanged,
    SessionDoubted,
    ShowUpTo,
    WakeFetches,
)
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.min_insync import effective_minimum

ACKS_ALL = -1
NO_EPOCH = -1
NO_LEADER = -1
NO_VERSION = -1


_FLUSHED, _REPLICATED = int(Level.FLUSHED), int(Level.REPLICATED)


class Partition:
    """See the module. Every field is changed here only.

    Invariant: high_watermark <= committed_offset <= log_end_offset, flushed_offset <= log_end_offset. `committed_offset` and
    `high_watermark` fall by truncation only, and when the log is opened again.
    Invariant: `followers` has the replicas that have fetched in this leader epoch; empty unless LEADER.
    """

    __slots__ = (
        "broker_id",
        "committed_offset",
        "effective_minimum",
        "flushed_offset",
        "followers",
        "high_watermark",
        "in_doubt",
        "is_mirror",
        "is_sole",
        "isr",
        "leader_epoch",
        "leader_id",
        "log_end_offset",
        "min_insync_replicas",
        "proposed_isr",
        "replicas",
        "role",
        "shows_flushed",
        "state_version",
        "term_offset",
        "term_s",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, broker_id: int, min_insync_replicas: int, *, shows_flushed: bool) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.min_insync_replicas = min_insync_replicas
        self.shows_flushed = shows_flushed
        self.role = ReplicaRole.OFFLINE
        self.leader_epoch = NO_EPOCH
        self.leader_id = NO_LEADER
        self.state_version = NO_VERSION
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """As in the tree, as far as is known; empty unless LEADER."""
        self.proposed_isr: tuple[int, ...] | None = None
        """What this leader has proposed instead, not answered yet."""
        self.followers: dict[int, FollowerProgress] = {}
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.committed_offset = 0
        """Every record before it is in the log of every member of the maximal in-sync set, or, on a follower, was so on its leader."""
        self.high_watermark = 0
        self.term_offset = 0
        """Where this leader's term begins."""
        self.term_s = 0.0
        """Monotonic time at which it began."""
        self.in_doubt = False
        """Whether there may be another leader that this broker cannot hear of."""
        self.is_sole = False
        """Whether this leader is the whole of the maximal in-sync set, and that is enough: what is written is replicated."""
        self.effective_minimum = 1
        self.is_mirror = False
        """Whether the partition is a mirror's: only the mirror appends to it."""

    def step(self, event: PartitionEvent) -> list[PartitionEffect]:
        """Carry out `event`; what is to be done now, in this order. StaleEpochError, with nothing changed."""
        if self.role is ReplicaRole.REMOVED:
            raise self._bug(event)
        match event:
            case BecomeLeader():
                return self._become_leader(event)
            case BecomeFollower():
                return self._become_follower(event)
            case ProposeIsr(isr):
                return self._propose(isr)
            case IsrSettled():
                return self._isr_settled(event)
            case SessionDoubted(in_doubt):
                return self._doubted(in_doubt)
            case LeadershipLost():
                return self._leadership_lost(event)
            case RulesChanged():
                return self._reconfigured(event)
            case LeaderHighWatermark():
                return self._leader_high_watermark(event)
            case LogTruncated():
                return self._truncated(event)
            case DirectoryFailed():
                return self._directory_failed(event)
            case ReplicaStopped():
                return self._end(ReplicaRole.REMOVED, event.error)
            case _:
                assert_never(event)

    # What happens often.

    def grew(self, log_end_offset: int) -> bool:
        """A write ended and the log ends at `log_end_offset`. Whether the committed offset or the high watermark moved."""
        if self.is_sole and not self.shows_flushed and log_end_offset >= self.log_end_offset:  # all that moves, without a call
            moved = log_end_offset > self.high_watermark
            self.log_end_offset = self.committed_offset = self.high_watermark = log_end_offset
            return moved
        leads = self.role is ReplicaRole.LEADER
        if log_end_offset < self.log_end_offset or not (leads or self.role is ReplicaRole.FOLLOWER):
            raise self._bug(f"a write that ends at {log_end_offset}")
        self.log_end_offset = log_end_offset
        return leads and self._advance()

    def flushed(self, offset: int) -> bool:
        """A sync ended, and every record before `offset` is on disk. Whether the high watermark moved."""
        if (self.role is not ReplicaRole.LEADER and self.role is not ReplicaRole.FOLLOWER) or offset > self.log_end_offset:
            raise self._bug(f"a sync up to {offset}")
        if offset > self.flushed_offset:
            self.flushed_offset = offset
        return self._show()

    def follower_fetched(
        self, broker_id: int, offset: int, leader_epoch: int, now_s: float, broker_epoch: int = NO_BROKER_EPOCH, log_start_offset: int = 0
    ) -> bool:
        """A follower fetches from `offset`, so it has every record before it. Whether the committed offset or the high watermark moved.

        `broker_epoch`: its incarnation, if it says so; what an earlier one has had counts no more.

        To be called after the fetch has passed every other check: one that is answered with a diverging epoch has proved nothing.
        PeerError, with nothing changed: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (an epoch has to be given,
        KIP-320), OFFSET_OUT_OF_RANGE.
        """
        self.check_follower(broker_id)
        if leader_epoch != self.leader_epoch:
            raise errors.wrong_epoch(self, leader_epoch)
        if not 0 <= offset <= self.log_end_offset:
            raise errors.beyond(self, broker_id, offset)
        progress = self.followers.get(broker_id)
        if progress is None:
            progress = self.followers[broker_id] = FollowerProgress(broker_epoch)
        elif broker_epoch > progress.broker_epoch:  # under load it may have all that there was at its next fetch only
            progress = self.followers[broker_id] = FollowerProgress(broker_epoch, progress.caught_up_s)
        elif broker_epoch < progress.broker_epoch:
            raise errors.earlier_incarnation(self, broker_id)
        progress.fetched(offset, self.log_end_offset, now_s)
        progress.log_start_offset = log_start_offset
        return self._advance()

    # What is asked.

    def check_acks(self, acks: int) -> None:
        """Whether an append may begin whose acknowledgement is `acks`, as on the wire. PeerError: NOT_LEADER_OR_FOLLOWER,
        NOT_ENOUGH_REPLICAS.
        """
        if self.role is not ReplicaRole.LEADER:
            self._check_leads()
        if acks == ACKS_ALL and len(self.isr) < self.effective_minimum:
            raise errors.not_enough(self, ErrorCode.NOT_ENOUGH_REPLICAS)

    def takes(self, epoch: int, version: int) -> bool:
        """Whether a state of the controller is newer than the one known here."""
        known, sent = (self.leader_epoch, self.state_version), (epoch, version)
        return sent > known or (sent == known and self.role is ReplicaRole.OFFLINE)

    def check_follower(self, broker_id: int) -> None:
        """Whether that broker follows this one. PeerError: NOT_LEADER_OR_FOLLOWER."""
        self._check_leads()
        if broker_id not in self.replicas or broker_id == self.broker_id:
            raise PeerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition}: broker {broker_id} is no follower, replicas are {self.replicas}"
            )

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare the epoch that a client knows, -1 for none. PeerError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH."""
        if epoch >= 0 and epoch != self.leader_epoch:
            raise errors.wrong_epoch(self, epoch)

    def open_offset(self, level: Level) -> int:
        """Every record before it has reached `level`, which acknowledges appends up to there.

        REPLICATED looks at the committed offset and not at the high watermark: with ``visibility=flushed`` an append is acknowledged before
        it is visible.
        """
        bits = int(level)
        offset = self.log_end_offset
        if bits & _FLUSHED:
            offset = min(offset, self.flushed_offset)
        if bits & _REPLICATED:
            offset = min(offset, self.committed_offset)
        return offset

    # Transitions.

    def _become_leader(self, event: BecomeLeader) -> list[PartitionEffect]:
        before = self.role
        if before is ReplicaRole.FOLLOWER and event.epoch == self.leader_epoch:
            raise errors.stale(self, event)
        self._check_newer(event)
        if self.broker_id not in event.isr:
            raise self._bug(event)
        self._open(event.opened)
        effects: list[PartitionEffect] = []
        if before is not ReplicaRole.LEADER or event.epoch > self.leader_epoch:
            self.followers.clear()
            self.term_offset, self.term_s = self.log_end_offset, event.now_s
            effects.append(KeepEpochs() if event.is_mirror else LeadEpoch(event.epoch))
        else:
            self._drop_leavers(event.replicas, event.isr)
        self.role = ReplicaRole.LEADER
        self.leader_id = self.broker_id
        self.isr = event.isr
        self._take(event)
        moved = self._advance()
        if moved or before is ReplicaRole.OFFLINE:
            effects.append(ShowUpTo(self.high_watermark))
        if before is ReplicaRole.LEADER and len(self.isr) < self.effective_minimum:
            effects.append(errors.fail_replicated(self))
        if before is ReplicaRole.FOLLOWER:
            effects.append(WakeFetches())
        if before is not ReplicaRole.OFFLINE:
            effects.append(EndPermits())
        return effects

    def _become_follower(self, event: BecomeFollower) -> list[PartitionEffect]:
        before = self.role
        if before is ReplicaRole.LEADER and event.epoch == self.leader_epoch:
            raise errors.stale(self, event)
        self._check_newer(event)
        if event.leader_id == self.broker_id:
            raise self._bug(event)
        self._open(event.opened)
        self._resign(ReplicaRole.FOLLOWER)
        self.leader_id = event.leader_id
        self._take(event)
        if before is not ReplicaRole.LEADER:
            return []
        error = PeerError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition}: broker {event.leader_id} leads from epoch {event.epoch} on"
        )
        return [FailAppends(error, Level.WRITTEN), WakeFetches(), EndPermits()]

    def _propose(self, isr: tuple[int, ...]) -> list[PartitionEffect]:
        if not may_propose(self) or self.broker_id not in isr:
            raise self._bug(f"a proposal of {isr}")
        self.proposed_isr = isr
        self._derive()
        return [EndPermits()]

    def _isr_settled(self, event: IsrSettled) -> list[PartitionEffect]:
        if self.role is not ReplicaRole.LEADER or event.leader_epoch != self.leader_epoch or event.version < self.state_version:
            return []
        if self.broker_id not in event.isr:
            raise self._bug(event)
        self._drop_leavers(self.replicas, event.isr)
        self.isr, self.state_version, self.proposed_isr = event.isr, event.version, None
        return self._derived()

    def _doubted(self, in_doubt: bool) -> list[PartitionEffect]:
        self.in_doubt = in_doubt
        if self.role is not ReplicaRole.LEADER:
            return []
        self._derive()
        effects: list[PartitionEffect] = [ShowUpTo(self.high_watermark)] if self._advance() else []
        return [*effects, EndPermits()]

    def _leadership_lost(self, event: LeadershipLost) -> list[PartitionEffect]:
        return self._end(ReplicaRole.FOLLOWER, event.error) if self.role is ReplicaRole.LEADER else []

    def _reconfigured(self, event: RulesChanged) -> list[PartitionEffect]:
        self.min_insync_replicas, self.shows_flushed = event.min_insync_replicas, event.shows_flushed
        if self.role is ReplicaRole.LEADER:
            return self._derived()
        self._derive()
        return []

    def _derived(self) -> list[PartitionEffect]:
        """A leader's in-sync set or its minimum has changed: what follows, the high watermark evaluated afresh (KAFKA-13091)."""
        self._derive()
        effects: list[PartitionEffect] = [ShowUpTo(self.high_watermark)] if self._advance() else []
        if len(self.isr) < self.effective_minimum:
            effects.append(errors.fail_replicated(self))
        effects.append(EndPermits())
        return effects

    def _leader_high_watermark(self, event: LeaderHighWatermark) -> list[PartitionEffect]:
        if self.role is not ReplicaRole.FOLLOWER:
            raise self._bug(event)
        committed = min(event.offset, self.log_end_offset)
        moved = committed > self.committed_offset
        if moved:
            self.committed_offset = committed
        return [ShowUpTo(self.high_watermark)] if self._show() or moved else []

    def _truncated(self, event: LogTruncated) -> list[PartitionEffect]:
        start, end = event.log_start_offset, event.log_end_offset
        if self.role is not ReplicaRole.FOLLOWER or start > end:
            raise self._bug(event)
        self.log_end_offset = end
        self.flushed_offset = min(max(self.flushed_offset, start), end)
        self.committed_offset = min(max(self.committed_offset, start), end)
        self.high_watermark = min(max(self.high_watermark, start), end)
        return [WakeFetches()]

    def _directory_failed(self, event: DirectoryFailed) -> list[PartitionEffect]:
        return [] if self.role is ReplicaRole.OFFLINE else self._end(ReplicaRole.OFFLINE, event.error)

    def _end(self, role: ReplicaRole, error: PeerError | StorageError) -> list[PartitionEffect]:
        """Serve no more, as `role`."""
        before = self.role
        self._resign(role)
        if before is ReplicaRole.LEADER:
            return [FailAppends(error, Level.WRITTEN), WakeFetches(), EndPermits()]
        return [WakeFetches()] if before is ReplicaRole.FOLLOWER else []

    # Straight work.

    def _open(self, opened: OpenedLogOffsets | None) -> None:
        """Take the offsets of a log that was opened for a replica that was OFFLINE; otherwise they are known."""
        if (opened is not None) != (self.role is ReplicaRole.OFFLINE):
            raise self._bug(opened)
        if opened is not None:
            if max(opened.high_watermark, opened.flushed_offset) > opened.log_end_offset:
                raise self._bug(opened)
            self.log_end_offset, self.flushed_offset = opened.log_end_offset, opened.flushed_offset
            self.high_watermark = self.committed_offset = opened.high_watermark

    def _take(self, event: BecomeLeader | BecomeFollower) -> None:
        self.leader_epoch, self.state_version, self.replicas = event.epoch, event.version, event.replicas
        self.is_mirror = event.is_mirror
        self.proposed_isr = None
        self._derive()

    def _resign(self, role: ReplicaRole) -> None:
        self.role = role
        self.leader_id = NO_LEADER
        self.isr = ()
        self.proposed_isr = None
        self.followers.clear()
        self._derive()

    def _drop_leavers(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """Forget the progress of replicas that have left the assignment or the in-sync set, before the new ones are taken."""
        for broker_id in list(self.followers):
            if broker_id not in replicas or (broker_id in self.isr and broker_id not in isr):
                del self.followers[broker_id]

    def _derive(self) -> None:
        """What depends on role, replicas and minimum."""
        self.effective_minimum = effective_minimum(self.min_insync_replicas, self.replicas)
        self.is_sole = (
            self.role is ReplicaRole.LEADER
            and self.isr == (self.broker_id,)
            and self.proposed_isr is None
            and self.effective_minimum <= 1
            and not (self.in_doubt and len(self.replicas) > 1)
        )

    def _advance(self) -> bool:
        """Move the committed offset and the high watermark of a leader; whether either moved."""
        committed = self.log_end_offset if self.is_sole else least_end_offset(self, self.effective_minimum)
        if committed > self.committed_offset:
            self.committed_offset = committed
            self._show()
            return True
        return self._show()

    def _show(self) -> bool:
        """Move the high watermark up to what is committed and, with ``visibility=flushed``, on disk; whether it moved."""
        shown = self.committed_offset
        if self.shows_flushed and self.flushed_offset < shown:
            shown = self.flushed_offset
        if shown <= self.high_watermark:
            return False
        self.high_watermark = shown
        return True

    # Errors.

    def _check_leads(self) -> None:
        if self.role is not ReplicaRole.LEADER:
            raise PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition}: broker {self.broker_id} does not lead it")

    def _check_newer(self, event: BecomeLeader | BecomeFollower) -> None:
        if not self.takes(event.epoch, event.version):
            raise errors.stale(self, event)

    def _bug(self, what: object) -> AssertionError:
        return AssertionError(f"{self.topic_partition}: {what} while broker {self.broker_id} is {self.role.value}")
