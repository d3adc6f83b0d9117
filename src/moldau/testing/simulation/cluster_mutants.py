"""Bugs of replication and of the controller that are planted to prove that simulated clusters find them."""

from typing import Any

from moldau.testing.simulation.mutant import Function, Mutant

# Committed records


def _acknowledge_early(_real: Function) -> Function:
    def least_end_offset(partition: Any, _minimum: int) -> int:
        return int(partition.log_end_offset)

    return least_end_offset


def _ignore_proposal(real: Function) -> Function:
    def least_end_offset(partition: Any, minimum: int) -> Any:
        proposed, partition.proposed_isr = partition.proposed_isr, None
        try:
            return real(partition, minimum)
        finally:
            partition.proposed_isr = proposed

    return least_end_offset


def _obey_proposal_only(real: Function) -> Function:
    def least_end_offset(partition: Any, minimum: int) -> Any:
        isr = partition.isr
        partition.isr = partition.proposed_isr or isr
        try:
            return real(partition, minimum)
        finally:
            partition.isr = isr

    return least_end_offset


def _commit_below_minimum(real: Function) -> Function:
    def least_end_offset(partition: Any, _minimum: int) -> Any:
        return real(partition, 1)

    return least_end_offset


# The in-sync set


def _join_before_term(real: Function) -> Function:
    def become_leader(self: Any, event: Any) -> Any:
        effects = real(self, event)
        self.term_offset = 0
        return effects

    return become_leader


def _believe_any_fetch(real: Function) -> Function:
    def fetched(self: Any, _offset: int, leader_end_offset: int, now_s: float) -> None:
        real(self, leader_end_offset, leader_end_offset, now_s)

    return fetched


def _never_settle(real: Function) -> Function:
    def settle(self: Any, change: Any, read: Any) -> None:
        found, _ = read
        if found is not None and self._is_ours(change, found):
            real(self, change, read)

    return settle


# Truncation


def _truncate_to_high_watermark(_real: Function) -> Function:
    def truncate(self: Any, hosted: Any, _epoch: int, _end_offset: int) -> None:
        self.truncate_to(hosted, hosted.log.high_watermark)

    return truncate


def _never_truncate(_real: Function) -> Function:
    def truncate(self: Any, hosted: Any, _epoch: int, _end_offset: int) -> None:
        self.truncate_to(hosted, hosted.log.log_end_offset)

    return truncate


# Elections


def _elect_any_replica(real: Function) -> Function:
    def elect(state: Any, replicas: Any, *positional: Any, **named: Any) -> Any:
        return real(state._replace(isr=tuple(replicas), elr=()), replicas, *positional, **named)

    return elect


def _elect_the_dead(real: Function) -> Function:
    def elect(state: Any, replicas: Any, candidates: Any, *positional: Any, **named: Any) -> Any:
        live = {**dict.fromkeys(replicas, 1), **candidates.live}
        return real(state, replicas, candidates._replace(live=live), *positional, **named)

    return elect


def _ignore_bounces(real: Function) -> Function:
    def candidates(self: Any) -> Any:
        return real(self)._replace(lossy=())

    return candidates


def _elect_uncleanly(real: Function) -> Function:
    def rules_of(self: Any, values: Any) -> Any:
        return real(self, values)._replace(unclean=True)

    return rules_of


# The controller


def _write_in_any_epoch(real: Function) -> Function:
    def write(self: Any, changes: Any, done: Any, _epoch_version: int | None = None) -> None:
        real(self, changes, done)

    return write


_LEAST = "moldau.broker.replicas.partition:least_end_offset"
_ELECT = "moldau.cluster.controller.elections:elect"
CLUSTER_MUTANTS = tuple(
    Mutant(name, target, plant, needs_cluster=True)
    for name, target, plant in (
        ("acknowledge before the in-sync set has the record", _LEAST, _acknowledge_early),
        ("commit without those that are proposed", _LEAST, _ignore_proposal),
        ("commit with those that are proposed only", _LEAST, _obey_proposal_only),
        ("commit with fewer in sync than the minimum", _LEAST, _commit_below_minimum),
        (
            "join at the committed offset, before the leader's term",
            "moldau.broker.replicas.partition:Partition._become_leader",
            _join_before_term,
        ),
        ("take any fetch for one at the end", "moldau.broker.replicas.isr:FollowerProgress.fetched", _believe_any_fetch),
        ("keep a change of the in-sync set open after a conflict", "moldau.broker.replicas.isr_changes:IsrChanges._settle", _never_settle),
        (
            "truncate to the high watermark",
            "moldau.broker.replicas.follower_log:FollowerLogs.truncate",
            _truncate_to_high_watermark,
        ),
        ("never truncate", "moldau.broker.replicas.follower_log:FollowerLogs.truncate", _never_truncate),
        ("elect outside the in-sync set", _ELECT, _elect_any_replica),
        ("elect without looking who is live", _ELECT, _elect_the_dead),
        ("elect who has restarted uncleanly", "moldau.cluster.controller.image:ClusterImage.candidates", _ignore_bounces),
        ("elect uncleanly by default", "moldau.cluster.controller.elections:Elections.rules_of", _elect_uncleanly),
        ("write without a check of the controller's epoch", "moldau.cluster.store:MetadataStore.write", _write_in_any_epoch),
    )
)
