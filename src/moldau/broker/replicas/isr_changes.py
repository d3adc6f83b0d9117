"""Writes in-sync sets to the tree: the leader's side of replication (KIP-497), without the controller.

    idle -- may have to change --> reading -- no change --> idle
                                   reading -- differs from what is known --> adopted, or leadership given up
                                   reading -- another set is wanted --> proposed: the maximal set counts
    proposed -- written, refused, not known --> (reading) --> settled --> idle

For each partition one change is under way at a time, and every outcome ends it (KAFKA-12686). What decides is read at once: the state in
the tree and the incarnations of those who may join; the followers' progress is looked at when that is known, and no more until the write
(KAFKA-15221). The write is conditional on the state's version; it names the incarnations of those who join, by which the controller sees
who has restarted since they were read. Where that differs, the state is read: of this leader and epoch it is adopted; otherwise another
broker leads (librdkafka#1575), and clients that ask for metadata receive it: the controller may not reach this broker for long. A state
from before the known one comes from a server of the tree that lags, and says nothing. Where the outcome is not known the state is read
until it is, and meanwhile the maximal set counts.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.replicas.isr import elr_after, is_due, joined_after, may_join, may_propose, wanted_isr
from moldau.broker.replicas.partition_events import IsrSettled, ProposeIsr
from moldau.cluster import queries
from moldau.cluster.changes import PutIsr
from moldau.cluster.store import WriteResult
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.replicas.services import MetadataSource
    from moldau.cluster.queries import FoundState
    from moldau.cluster.store import MetadataStore
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

READ_AGAIN_S = 1.0
"""A read that failed is repeated after this time."""

StateRead = tuple["FoundState | None", dict[int, int]]


class IsrChanges:
    """See the module."""

    def __init__(
        self,
        replicas: "ReplicaManager",
        store: "MetadataStore",
        metadata: "MetadataSource",
        clock: "Clock",
        slices: "SliceScheduler",
        lag_max_s: Callable[[], float],
    ) -> None:
        """`lag_max_s`: `replica.lag.time.max.ms`."""
        self._replicas = replicas
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._slices = slices
        self._lag_max_s = lag_max_s
        self._changes: dict[TopicPartition, _IsrChange] = {}
        self._timer: Timer | None = None
        self._check_later()

    def close(self) -> None:
        """Change nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._changes.clear()

    def look(self, hosted: "HostedPartition") -> None:
        """A replica may have to join or leave."""
        if hosted.topic_partition in self._changes or not is_due(hosted.machine, self._clock.monotonic(), self._lag_max_s()):
            return
        brokers = self._metadata.snapshot.brokers
        joining = [each for each in hosted.machine.replicas if each in brokers and may_join(hosted.machine, each)]
        change = self._changes[hosted.topic_partition] = _IsrChange(hosted)
        self._read(change, joining, self._decide)

    def _check_later(self) -> None:
        self._timer = self._clock.call_later(self._lag_max_s() / 2, self._check)

    def _check(self) -> None:
        """Look for followers that lag."""

        def ended(error: Exception | None) -> None:
            if error is not None:
                _LOG.error("in-sync sets not checked because of a bug", exc_info=error)
            self._check_later()

        if self._slices.run(self._check_all(), ended) is None:
            ended(None)

    def _check_all(self) -> Steps:
        for hosted in self._replicas.partitions:
            if len(hosted.machine.replicas) > 1 and hosted.is_led:
                self.look(hosted)
                yield UNFINISHED

    # One change

    def _read(self, change: "_IsrChange", brokers: list[int], done: "Callable[[_IsrChange, StateRead], None]") -> None:
        where = change.hosted.topic_partition
        query = queries.state_and_brokers(where.topic, where.partition, brokers)

        def found(outcome: StateRead | CoordinationError) -> None:
            if not self._is_current(change):
                return
            if isinstance(outcome, CoordinationError):
                self._not_known(change)
            else:
                done(change, outcome)

        queries.answer(self._store, query, found)

    def _not_known(self, change: "_IsrChange") -> None:
        """The state could not be read: of what is proposed the outcome has to be known, otherwise the next fetch or check looks."""
        if change.is_proposed:
            self._clock.call_later(READ_AGAIN_S, partial(self._read_again, change))
        else:
            self._end(change)

    def _read_again(self, change: "_IsrChange") -> None:
        if self._is_current(change):
            self._read(change, [], self._settle)

    def _is_current(self, change: "_IsrChange") -> bool:
        """Whether the change still matters: a new term or state from the controller has ended it otherwise."""
        machine = change.hosted.machine
        if self._changes.get(change.hosted.topic_partition) is not change:
            return False
        if change.hosted.is_led and (machine.leader_epoch, machine.state_version) == (change.leader_epoch, change.version):
            return True
        self._end(change)
        return False

    def _end(self, change: "_IsrChange") -> None:
        del self._changes[change.hosted.topic_partition]

    def _decide(self, change: "_IsrChange", read: StateRead) -> None:
        """The state and the brokers are known: propose what is wanted now."""
        found, registered = read
        hosted, machine = change.hosted, change.hosted.machine
        if found is None or found.version != change.version or not self._is_ours(change, found):
            self._settle(change, read)
            return
        wanted = wanted_isr(machine, registered, self._clock.monotonic(), self._lag_max_s()) if may_propose(machine) else machine.isr
        if wanted == machine.isr:
            self._end(change)
            return
        elr = elr_after(machine.isr, found.state.elr, wanted, machine.effective_minimum)
        joined = joined_after(found.state.joined, machine.isr, elr, wanted, registered)
        state = found.state._replace(isr=wanted, elr=elr, joined=joined)
        self._replicas.step(hosted, ProposeIsr(wanted))
        change.is_proposed = True
        where = hosted.topic_partition
        self._store.write([PutIsr(where.topic, where.partition, state, change.version)], partial(self._written, change, wanted))

    def _written(self, change: "_IsrChange", wanted: tuple[int, ...], outcome: WriteResult | CoordinationError) -> None:
        if not self._is_current(change):
            return
        if isinstance(outcome, WriteResult):
            machine = change.hosted.machine
            _LOG.info("in-sync set changed: partition=%s isr=%s before=%s", change.hosted.topic_partition, wanted, machine.isr)
            self._settled(change, wanted, change.version + 1)
        else:
            self._read(change, [], self._settle)

    def _settle(self, change: "_IsrChange", read: StateRead) -> None:
        """The state in the tree is not what was expected, or not known to be: obey it."""
        found, _ = read
        machine = change.hosted.machine
        if found is None:  # the topic is being deleted
            self._settled(change, machine.isr, change.version)
        elif found.version < change.version:
            self._not_known(change)
        elif self._is_ours(change, found):
            reached("cluster: a leader obeyed another in-sync set than its own")
            self._settled(change, found.state.isr, found.version)
        else:
            reached("cluster: a leader found a newer leader in the tree")
            self._end(change)
            where, state = change.hosted.topic_partition, found.state
            reason = f"{where}: the tree has leader {state.leader} in epoch {state.leader_epoch}"
            self._metadata.learn(change.hosted.topic_id, where.partition, state.leader, state.leader_epoch, state.isr, found.version)
            self._replicas.lose_leadership(change.hosted, PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason))

    def _is_ours(self, change: "_IsrChange", found: "FoundState") -> bool:
        machine = change.hosted.machine
        return (found.state.leader, found.state.leader_epoch) == (
            machine.broker_id,
            change.leader_epoch,
        ) and machine.broker_id in found.state.isr

    def _settled(self, change: "_IsrChange", isr: tuple[int, ...], version: int) -> None:
        self._end(change)
        self._replicas.step(change.hosted, IsrSettled(change.leader_epoch, isr, version))
        if version > change.version:  # otherwise the next fetch or check looks: the same would be read or refused again
            self.look(change.hosted)


class _IsrChange:
    """The change of one partition's in-sync set."""

    __slots__ = ("hosted", "is_proposed", "leader_epoch", "version")

    def __init__(self, hosted: "HostedPartition") -> None:
        self.hosted = hosted
        self.leader_epoch = hosted.machine.leader_epoch
        self.version = hosted.machine.state_version
        """Of the state that the change begins with."""
        self.is_proposed = False
