"""Bugs of replication and of the controller that are planted to prove that simulated clusters find them."""

from typing import Any

from moldau.broker.replicas.partition_events import LogTruncated
from moldau.cluster.controller.reassignments import move_of
from moldau.cluster.store import BrokersChanged
from moldau.fetching.events import Apply, Truncate
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


def _commit_without_the_late(real: Function) -> Function:
    def least_end_offset(partition: Any, minimum: int) -> Any:
        isr, known = partition.isr, (partition.broker_id, *partition.followers)
        partition.isr = tuple(each for each in isr if each in known)
        try:
            return real(partition, min(minimum, len(partition.isr)))
        finally:
            partition.isr = isr

    return least_end_offset


def _show_with_divergence(real: Function) -> Function:
    def answered(self: Any, event: Any, now_s: float) -> Any:
        effects = real(self, event, now_s)
        if effects and isinstance(effects[0], Truncate):
            return [Apply(effects[0].topic_partition, event.high_watermark, event.log_start_offset), *effects]
        return effects

    return answered


def _acknowledge_in_doubt(real: Function) -> Function:
    def least_end_offset(partition: Any, minimum: int) -> Any:
        return partition.log_end_offset if partition.in_doubt else real(partition, minimum)

    return least_end_offset


# Reading


def _show_early(real: Function) -> Function:
    def answer(self: Any, answer: Any, name: bytes, wanted: Any) -> None:
        real(self, answer, name, wanted)
        partition = self._services.partitions_of(name, by_id=False).get(wanted.partition_index)
        if wanted.timestamp == -1 and answer.error_code == self._not_available and partition is not None:
            answer.error_code, answer.offset, answer.leader_epoch = 0, self._limit(partition), partition.machine.leader_epoch

    return answer


class _ShowsAll:
    """A partition that shows its log up to the end."""

    def __init__(self, shown: Any) -> None:
        self._shown = shown

    def __getattr__(self, name: str) -> Any:
        if name == "log":
            return _ShowsAll(self._shown.log)
        return getattr(self._shown, "log_end_offset" if name in ("high_watermark", "last_stable_offset") else name)


def _show_all_of_followers(real: Function) -> Function:
    def followed_partition(*positional: Any, **named: Any) -> Any:
        found = real(*positional, **named)
        return None if found is None else _ShowsAll(found)

    return followed_partition


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


def _keep_progress(real: Function) -> Function:
    def become_leader(self: Any, event: Any) -> Any:
        followers = dict(self.followers)
        effects = real(self, event)
        self.followers.update(followers)
        return effects

    return become_leader


def _ignore_epochs_of_fetches(real: Function) -> Function:
    def read_partition(self: Any, partition: Any, want: Any, *positional: Any, **named: Any) -> Any:
        return real(self, partition, want._replace(current_leader_epoch=partition.machine.leader_epoch), *positional, **named)

    return read_partition


# Truncation


def _forget_epochs(_real: Function) -> Function:
    def add_epochs(_self: Any, _path: str, _data: bytes) -> None:
        pass

    return add_epochs


def _truncate_to_high_watermark(real: Function) -> Function:
    def follow(self: Any, hosted: Any, leader_id: int) -> None:
        self.logs.lower_checkpoints(hosted.topic_partition, hosted.log.high_watermark)
        hosted.log.truncate_to(hosted.log.high_watermark)
        hosted.machine.step(LogTruncated(hosted.log.log_end_offset, hosted.log.start_offset))
        real(self, hosted, leader_id)

    return follow


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


# Moves


def _complete_at_first_target(_real: Function) -> Function:
    def state_of_target(self: Any, topic: Any, index: int) -> Any:
        info, target = topic.partitions[index], move_of(topic, index).target
        if info is None or not topic.is_led(index, self._image.live) or not any(each in info.isr for each in target):
            return None
        return self._state_among(topic, index, target)

    return state_of_target


def _move_in_same_epoch(real: Function) -> Function:
    def next_state(self: Any, *positional: Any) -> Any:
        state = real(self, *positional)
        return state._replace(leader_epoch=state.leader_epoch - 1)

    return next_state


# The controller


def _look_every_second_time(real: Function) -> Function:
    def listen(self: Any, listener: Function) -> None:
        changes: list[Any] = []

        def heard(event: Any) -> None:
            if isinstance(event, BrokersChanged):
                changes.append(event)
            if not isinstance(event, BrokersChanged) or len(changes) % 2:
                listener(event)

        real(self, heard)

    return listen


def _compare_ids(real: Function) -> Function:
    def set_brokers(self: Any, brokers: Any) -> None:
        real(self, {broker_id: self.brokers.get(broker_id, broker) for broker_id, broker in brokers.items()})

    return set_brokers


def _write_in_any_epoch(real: Function) -> Function:
    def write(self: Any, changes: Any, done: Any, _epoch_version: int | None = None) -> None:
        real(self, changes, done)

    return write


# Coordinators


def _answer_while_resigning(real: Function) -> Function:
    def resign(self: Any, error: Any) -> Any:
        waiting = list(self._writes)
        self._writes.clear()
        released = real(self, error)
        for write in waiting:
            self._answer(write, None)
        return released

    return resign


_LEAST = "moldau.broker.replicas.partition:least_end_offset"
_ELECT = "moldau.cluster.controller.elections:elect"
CLUSTER_MUTANTS = tuple(
    Mutant(name, target, plant, needs_cluster=True)
    for name, target, plant in (
        ("acknowledge before the in-sync set has the record", _LEAST, _acknowledge_early),
        ("commit without those that are proposed", _LEAST, _ignore_proposal),
        ("commit with those that are proposed only", _LEAST, _obey_proposal_only),
        ("commit with fewer in sync than the minimum", _LEAST, _commit_below_minimum),
        ("commit without members that have not fetched in this term", _LEAST, _commit_without_the_late),
        ("acknowledge after the session is lost", _LEAST, _acknowledge_in_doubt),
        (
            "take the high watermark of an answer with a diverging epoch",
            "moldau.fetching.fetcher:Fetcher._answered",
            _show_with_divergence,
        ),
        (
            "list the end before the high watermark is that of the leader before",
            "moldau.broker.handlers.offset_lookups:_Lookups._answer",
            _show_early,
        ),
        ("show all that a follower has", "moldau.broker.handlers.fetch.read_replicas:followed_partition", _show_all_of_followers),
        (
            "join at the committed offset, before the leader's term",
            "moldau.broker.replicas.partition:Partition._become_leader",
            _join_before_term,
        ),
        ("take any fetch for one at the end", "moldau.broker.replicas.isr:FollowerProgress.fetched", _believe_any_fetch),
        ("keep a change of the in-sync set open after a conflict", "moldau.broker.replicas.isr_changes:IsrChanges._settle", _never_settle),
        (
            "truncate to the high watermark",
            "moldau.broker.replicas.manager:ReplicaManager._follow",
            _truncate_to_high_watermark,
        ),
        ("fetch in any leader epoch", "moldau.broker.handlers.fetch.operation:Fetch._read_partition", _ignore_epochs_of_fetches),
        ("keep the progress of followers in a new term", "moldau.broker.replicas.partition:Partition._become_leader", _keep_progress),
        ("never store leader epochs", "moldau.log.unsynced:FlushJob.add_epochs", _forget_epochs),
        ("never truncate", "moldau.broker.replicas.follower_log:FollowerLogs.truncate", _never_truncate),
        ("elect outside the in-sync set", _ELECT, _elect_any_replica),
        ("elect without looking who is live", _ELECT, _elect_the_dead),
        ("elect who has restarted uncleanly", "moldau.cluster.controller.image:ClusterImage.candidates", _ignore_bounces),
        ("elect uncleanly by default", "moldau.cluster.controller.elections:Elections.rules_of", _elect_uncleanly),
        (
            "complete a reassignment at the first target in sync",
            "moldau.cluster.controller.reassignments:Reassignments._state_of_target",
            _complete_at_first_target,
        ),
        (
            "move replicas in the same leader epoch",
            "moldau.cluster.controller.reassignments:Reassignments._next_state",
            _move_in_same_epoch,
        ),
        ("read registrations at every second watch only", "moldau.cluster.store:MetadataStore.listen", _look_every_second_time),
        ("compare ids of brokers, not registrations", "moldau.cluster.controller.image:ClusterImage.set_brokers", _compare_ids),
        ("write without a check of the controller's epoch", "moldau.cluster.store:MetadataStore.write", _write_in_any_epoch),
        (
            "confirm writes while the coordinator resigns",
            "moldau.broker.coordinators.partition_coordinator:PartitionCoordinator.resign",
            _answer_while_resigning,
        ),
    )
)
