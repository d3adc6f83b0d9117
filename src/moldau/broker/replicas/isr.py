"""Which replicas of a led partition belong in its in-sync set: values in, a decision out. `isr_changes` writes it to the tree.

A replica joins when all three hold (replication rules of KIP-101, KIP-497, KIP-903):

* it has every record that is committed;
* it has every record from before this leader's term: the committed offset that a new leader knows may be an early one (KAFKA-7128);
* it has fetched in this leader epoch, and the incarnation that fetched is the one that is registered.

A replica leaves when for `replica.lag.time.max.ms` it has not had all that the leader had. That time begins with the leader's term at the
earliest: a new leader knows nothing of its followers' past. One whose log ends where the leader's does never leaves for being late; if it
is dead, the controller removes it.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Protocol

from moldau.broker.replicas.partition_events import PartitionView, ReplicaRole

if TYPE_CHECKING:
    from moldau.model.config.store import BrokerConfig

NO_OFFSET = -1
NO_BROKER_EPOCH = -1


class FollowerProgress:
    """How far a follower has come in the present leader epoch."""

    __slots__ = ("broker_epoch", "caught_up_s", "fetched_s", "leader_end_offset", "log_end_offset", "log_start_offset")

    def __init__(self, broker_epoch: int = NO_BROKER_EPOCH, caught_up_s: float = -inf) -> None:
        self.broker_epoch = broker_epoch
        """The incarnation that fetches; -1 if it does not say."""
        self.log_end_offset = NO_OFFSET
        """Of the follower: the offset of its last fetch."""
        self.log_start_offset = 0
        """Of the follower, as its last fetch says."""
        self.caught_up_s = caught_up_s
        """Monotonic time at which it last had all that the leader had."""
        self.fetched_s = -inf
        self.leader_end_offset = 2**63 - 1
        """The leader's log end offset at the last fetch."""

    def fetched(self, offset: int, leader_end_offset: int, now_s: float) -> None:
        """Note a fetch at `offset`. One that reaches the end that the leader had at the fetch before was caught up then (KIP-16): under
        constant load a follower never has it all.
        """
        if offset >= leader_end_offset:
            self.caught_up_s = now_s
        elif offset >= self.leader_end_offset:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.log_end_offset = offset
        self.fetched_s = now_s
        self.leader_end_offset = leader_end_offset

    def has_all(self, leader_end_offset: int, now_s: float) -> None:
        """Note a fetch from where it has fetched before, which is still the end of the leader's log."""
        self.caught_up_s = self.fetched_s = now_s
        self.leader_end_offset = leader_end_offset


class LeaderView(PartitionView, Protocol):
    """The same of a leader."""

    followers: dict[int, FollowerProgress]


def maximal_isr(partition: LeaderView) -> Sequence[int]:
    """The replicas that count as in sync: those that are, and those that this leader has proposed (KIP-497). Some may be there twice."""
    return (*partition.isr, *partition.proposed_isr) if partition.proposed_isr else partition.isr


def least_end_offset(partition: LeaderView, minimum: int) -> int:
    """Least log end offset of the maximal in-sync set; -1 if too few are in sync, not all are known, or there may be another leader."""
    if len(partition.isr) < minimum or (partition.in_doubt and len(partition.replicas) > 1):
        return NO_OFFSET
    least = partition.log_end_offset
    for broker_id in maximal_isr(partition):
        if broker_id != partition.broker_id:
            progress = partition.followers.get(broker_id)
            if progress is None:
                return NO_OFFSET
            least = min(least, progress.log_end_offset)
    return least


def is_followed(partition: LeaderView, minimum: int, since_s: float) -> bool:
    """Whether no other leader had been elected at that time, but for an unclean election: every replica that could be one has fetched in
    this leader epoch since. With fewer in sync than the minimum some that are not in sync could be, too (KIP-966).
    """
    for broker_id in maximal_isr(partition):
        if broker_id != partition.broker_id:
            progress = partition.followers.get(broker_id)
            if progress is None or progress.fetched_s < since_s:
                return False
    return len(partition.isr) >= minimum


def silence_max_s(config: "BrokerConfig") -> float:
    """How long a leader or a follower may be silent before the other one doubts it: a fetch may wait before it is answered."""
    return (config.int("suspicion.timeout.ms") + config.int("replica.fetch.wait.max.ms")) / 1000


def may_propose(partition: LeaderView) -> bool:
    """Whether a leader may propose another in-sync set now: one proposal is out at a time."""
    return partition.role is ReplicaRole.LEADER and partition.proposed_isr is None and not partition.in_doubt


def may_join(partition: LeaderView, broker_id: int) -> bool:
    """Whether a replica outside the in-sync set has what its members have to have."""
    if broker_id in partition.isr or broker_id not in partition.replicas:
        return False
    progress = partition.followers.get(broker_id)
    return progress is not None and progress.log_end_offset >= max(partition.committed_offset, partition.term_offset)


def lags(partition: LeaderView, broker_id: int, now_s: float, lag_max_s: float) -> bool:
    """Whether a member other than the leader has to leave."""
    progress, caught_up_s = partition.followers.get(broker_id), partition.term_s
    if progress is not None:
        if progress.log_end_offset >= partition.log_end_offset:
            return False
        caught_up_s = max(caught_up_s, progress.caught_up_s)
    return now_s - caught_up_s > lag_max_s


def is_due(partition: LeaderView, now_s: float, lag_max_s: float) -> bool:
    """Whether another in-sync set may have to be proposed: cheap, to be asked often."""
    if not may_propose(partition):
        return False
    return any(
        lags(partition, each, now_s, lag_max_s) if each in partition.isr else may_join(partition, each)
        for each in partition.replicas
        if each != partition.broker_id
    )


def wanted_isr(partition: LeaderView, registered: Mapping[int, int], now_s: float, lag_max_s: float) -> tuple[int, ...]:
    """The in-sync set to propose, in the order of the assignment; the present one if nothing changes. `registered`: the incarnations of
    live brokers, at least of those that may join.
    """

    def belongs(broker_id: int) -> bool:
        if broker_id == partition.broker_id:
            return True
        if broker_id in partition.isr:
            return not lags(partition, broker_id, now_s, lag_max_s)
        if broker_id not in registered or not may_join(partition, broker_id):
            return False
        return partition.followers[broker_id].broker_epoch in (NO_BROKER_EPOCH, registered[broker_id])

    wanted = tuple(each for each in partition.replicas if belongs(each))
    return partition.isr if sorted(wanted) == sorted(partition.isr) else wanted


def joined_after(
    joined: tuple[tuple[int, int], ...], isr: tuple[int, ...], elr: tuple[int, ...], wanted: tuple[int, ...], registered: Mapping[int, int]
) -> tuple[tuple[int, int], ...]:
    """In which incarnations replicas have joined, as far as the controller may not have taken account of it: those of before that are still
    in sync or eligible (`elr`), and those that join now, with which `wanted` is the in-sync set in the place of `isr`.
    """
    kept = [each for each in joined if (each[0] in isr and each[0] in wanted) or each[0] in elr]
    return (*kept, *((each, registered[each]) for each in wanted if each not in isr))


def elr_after(isr: tuple[int, ...], elr: tuple[int, ...], wanted: tuple[int, ...], minimum: int) -> tuple[int, ...]:
    """The eligible leader replicas once `wanted` is the in-sync set in the place of `isr` (KIP-966): none with enough in sync, otherwise
    those of before and those that leave now, which have every committed record, for none is committed from here on.
    """
    if len(wanted) >= minimum:
        return ()
    return tuple(each for each in dict.fromkeys((*elr, *isr)) if each not in wanted)
