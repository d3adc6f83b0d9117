"""One member of a group: registers, watches the others, and rebalances by itself (Algorithm 1 of the paper).

A rebalance, on its own in each member, one at a time; changes that come meanwhile are one more rebalance after it:

1. Read the members and their subscriptions, and the partitions of the topics, with watches; compute the own ranges (`planning`). If they
   are those that this member reads, nothing else is done.
2. Release: stop reading, commit what is finished, delete the own owner nodes.
3. Claim all partitions of the ranges in one request: all owner nodes are created, or none. Where another member owns one still, release,
   wait until that owner has released it or for `backoff_s`, and begin again.
4. Read the committed offsets, and start reading. They are read after the claim (Kafka 0.8 reads them before it), since the owner before
   commits until it releases.

Rules: `claims` has every owner node that may be this session's, before the request that creates it is sent. One in doubt, because an answer
was lost, is read before it is deleted, and deleted only if this session owns it. An owner node and the right to commit end with the
session: at EXPIRED everything is forgotten, and the next session begins with a registration.

While the tree cannot be reached others may take over without this member's knowledge, by the session's timeout at the earliest. A client
notices a lost connection after up to two thirds of that (ZooKeeper's read timeout), so reading ends a third of the timeout after SUSPENDED,
less a margin.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from moldau.client.coordinated import nodes
from moldau.client.coordinated.finished import FinishedOffsets
from moldau.client.coordinated.offsets import WRITES_AT_A_TIME, Offsets, OffsetStore
from moldau.client.coordinated.planning import Plan, Planning
from moldau.client.coordinated.procedure import Procedure, ProcedureRun, Resume, Step, ask
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.ports.clock import Clock, Timer
from moldau.ports.coordination import (
    Coordination,
    Create,
    Data,
    Delete,
    Exists,
    GetData,
    Multi,
    MultiDone,
    NodeError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    SessionEvent,
    SessionState,
    WatchEvent,
)

UNNOTICED_PART = 2 / 3
"""Of the session's timeout: the time without contact after which a client is SUSPENDED."""
MARGIN_PART = 1 / 10
"""Of the session's timeout: for clocks that run apart, and for turns of this process."""
CONFLICTS_LOGGED = 4
"""Claims in a row that fail before that is a warning: some are usual while members come and go."""

log = logging.getLogger("moldau.client")


class PartitionReader(Protocol):
    """Reads the partitions that a member owns."""

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these from there on; None: nothing is committed. A MoldauError, raised before it reads: it is called again later."""

    def stop(self) -> None:
        """Read none any more. What is finished is stored (`GroupMember.store`) before this returns."""

    def abandon(self) -> None:
        """Read none any more; they may belong to another member already."""


class MemberTiming(NamedTuple):
    """Durations, in seconds."""

    session_timeout_s: float
    backoff_s: float
    """Before a rebalance that failed is tried again, unless something has changed before."""
    commit_interval_s: float | None
    """None: what is stored is committed only by `commit` and with a release."""


class GroupMember:
    """A member of `group` with the id `consumer`, that has so many streams for each topic. Everything runs on the tree's thread."""

    def __init__(
        self,
        tree: Coordination,
        clock: Clock,
        offsets: OffsetStore,
        reader: PartitionReader,
        *,
        group: str,
        consumer: str,
        streams: Mapping[str, int],
        timing: MemberTiming,
    ) -> None:
        self.owned: Plan = {}
        """What is read now. Invariant: its owner nodes are this session's, unless the session ends without this member's knowledge."""
        self.rebalances = 0
        """Rebalances that ended with other partitions, or began reading again."""
        self._tree = tree
        self._clock = clock
        self._offsets = offsets
        self._reader = reader
        self._group = group
        self._consumer = consumer
        self._streams = dict(streams)
        self._planning = Planning(tree, group, consumer, streams)
        self._finished = FinishedOffsets(group, offsets)
        self._timing = timing
        self._is_connected = False
        self._is_registered = False
        self._has_parents = False
        self._is_reading = False
        self._claims: dict[str, bool] = {}
        """Owner nodes that may be this session's; whether they certainly are."""
        self._run: ProcedureRun | None = None
        self._has_changed = False
        """Whether a watch fired since a rebalance began to read."""
        self._wake: Resume | None = None
        """Ends the pause of a rebalance."""
        self._doubt_alarm = _Alarm(clock)
        self._retry_alarm = _Alarm(clock)
        self._commit_alarm = _Alarm(clock)
        self._closing: Callable[[], object] | None = None

    def start(self) -> None:
        """Become a member, now or when the session begins."""
        self._tree.listen(self._heard)
        if self._timing.commit_interval_s is not None:
            self._commit_alarm.set(self._timing.commit_interval_s, self._commit_due)

    @property
    def is_rebalancing(self) -> bool:
        """Whether a rebalance is being made."""
        return self._run is not None

    # Offsets

    def store(self, offsets: Offsets) -> None:
        """Offsets to read next, to be committed by the interval and with the release. Partitions that are not owned are skipped."""
        self._finished.add({where: offset for where, offset in offsets.items() if where in self.owned})

    def commit(self, offsets: Offsets, done: Callable[[MoldauError | None], object]) -> None:
        """Store these, and commit what is stored. `done` is called when that has ended, now or later."""
        self.store(offsets)
        self._finished.commit(done)

    @property
    def uncommitted(self) -> dict[TopicPartition, int]:
        """What is stored and not committed."""
        return self._finished.uncommitted

    def _commit_due(self) -> None:
        assert self._timing.commit_interval_s is not None
        self._commit_alarm.set(self._timing.commit_interval_s, self._commit_due)
        if self._is_connected:
            self._finished.commit(self._finished.log_failure)

    # The session

    def _heard(self, event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, WatchEvent):
            self._has_changed = True
            if self._wake is not None:
                self._wake(None)
            elif self._run is None and not self._retry_alarm.is_set:
                self._rebalance()
            return
        match event.state:
            case SessionState.CONNECTED:
                self._is_connected = True
                self._doubt_alarm.cancel()
                self._rebalance()
            case SessionState.SUSPENDED:
                self._is_connected = False
                self._interrupt()
                timeout_s = self._timing.session_timeout_s
                self._doubt_alarm.set(timeout_s * (1 - UNNOTICED_PART - MARGIN_PART), self._doubt)
                if self._closing is not None:
                    self._end()
            case SessionState.EXPIRED:
                self._doubt_alarm.cancel()
                self._abandon()
                self._claims.clear()
                self._finished.forget()
                self._is_registered = False
                log.warning("group %s: session of %s expired; it registers again", self._group, self._consumer)
            case SessionState.CLOSED:
                pass  # by this member

    def _doubt(self) -> None:
        if self._is_reading:
            log.warning("group %s: no connection to the coordination tree; %s stops reading", self._group, self._consumer)
        self._abandon()

    def _abandon(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.owned = {}
            self._reader.abandon()

    def _interrupt(self) -> None:
        self._retry_alarm.cancel()
        self._wake = None
        if self._run is not None:
            self._run.cancel()
            self._run = None

    # Rebalances

    def _rebalance(self) -> None:
        """Begin one, unless one is being made, or this member ends."""
        self._retry_alarm.cancel()
        if self._run is None and self._is_connected and self._closing is None:
            self._run = ProcedureRun(self._rebalanced(), self._run_ended)
            self._run.start()

    def _run_ended(self, error: MoldauError | None) -> None:
        self._run = None
        if error is not None:
            log.warning("group %s: rebalance failed: %s; trying again in %.1f s", self._group, error, self._timing.backoff_s)
            self._retry_alarm.set(self._timing.backoff_s, self._rebalance)
        elif self._has_changed:
            self._rebalance()

    def _rebalanced(self) -> Procedure:
        conflicts = 0
        while True:
            if not self._is_registered:
                yield from self._register()
            self._has_changed = False
            plan = yield from self._planning.plan()
            if plan is None:
                self._is_registered = False
                continue
            if self._is_reading and plan == self.owned:
                return
            yield from self._release()
            conflict = yield from self._claim(plan)
            if conflict is None:
                yield from self._read(plan)
                return
            conflicts += 1
            yield from self._release()
            yield from self._wait_for(conflict, conflicts)

    def _register(self) -> Procedure:
        """Create the own registration, below nodes that last."""
        if not self._has_parents:
            for outcome in (yield from ask(self._tree, [Create(path) for path in nodes.parents(self._group, self._streams)])):
                if isinstance(outcome, NodeError) and not isinstance(outcome, NodeExistsError):
                    raise outcome
            self._has_parents = True
        path = nodes.registration(self._group, self._consumer)
        data = nodes.encode_subscription(self._streams, self._clock.time_ms())
        (created,) = yield from ask(self._tree, [Create(path, data, ephemeral=True)])
        if isinstance(created, NodeExistsError):  # perhaps by a request whose answer was lost
            (stat,) = yield from ask(self._tree, [Exists(path)])
            if not isinstance(stat, NodeStat) or stat.owner != self._tree.session_id:
                raise created
        elif isinstance(created, NodeError):
            self._has_parents = False
            raise created
        self._is_registered = True

    def _release(self) -> Procedure:
        """Stop reading, commit, and delete the own owner nodes."""
        self._stop_reading()
        self._finished.log_failure((yield self._finished.commit))
        while self._claims:
            in_doubt = [path for path, is_certain in self._claims.items() if not is_certain]
            for path, outcome in zip(in_doubt, (yield from ask(self._tree, [GetData(path) for path in in_doubt])), strict=True):
                if isinstance(outcome, Data) and outcome.stat.owner == self._tree.session_id:
                    self._claims[path] = True
                else:
                    del self._claims[path]
            paths = list(self._claims)[:WRITES_AT_A_TIME]
            self._claims.update(dict.fromkeys(paths, False))
            if paths:
                (outcome,) = yield from ask(self._tree, [Multi(tuple(Delete(path) for path in paths))])
                if isinstance(outcome, MultiDone):  # or one was deleted by someone else
                    for path in paths:
                        del self._claims[path]
        self._finished.forget()

    def _claim(self, plan: Plan) -> Generator[Step, Any, str | None]:
        """Create the owner nodes; if another member owns one of them, the path of that."""
        creates = [Create(nodes.owner(self._group, where), thread.encode(), ephemeral=True) for where, thread in plan.items()]
        for first in range(0, len(creates), WRITES_AT_A_TIME):
            batch = creates[first : first + WRITES_AT_A_TIME]
            self._claims.update((each.path, False) for each in batch)
            (outcome,) = yield from ask(self._tree, [Multi(tuple(batch))])
            if isinstance(outcome, NodeError):
                for each in batch:
                    del self._claims[each.path]
                if isinstance(outcome, NodeExistsError):
                    return outcome.path
                self._has_parents = self._is_registered = False
                raise outcome
            self._claims.update((each.path, True) for each in batch)
        return None

    def _read(self, plan: Plan) -> Procedure:
        """Start reading the partitions, all of them claimed."""
        found = yield partial(self._offsets.read, list(plan))
        if isinstance(found, MoldauError):
            raise found
        self._finished.begin(found)
        self.owned = plan
        self._is_reading = True
        try:
            self._reader.start({where: found.get(where) for where in plan})
        except MoldauError:
            self.owned, self._is_reading = {}, False
            raise
        self.rebalances += 1
        log.info("group %s: %s reads %d partitions", self._group, self._consumer, len(plan))

    def _wait_for(self, path: str, conflicts: int) -> Procedure:
        """Until the owner of a partition has released it, something else has changed, or the back-off is over."""
        (owner,) = yield from ask(self._tree, [GetData(path, watch=True)])
        if isinstance(owner, NoNodeError) or self._has_changed:
            return
        if conflicts % CONFLICTS_LOGGED == 0:
            log.warning(
                "group %s: %s is still owned by %s; claimed %d times, trying again", self._group, path, owner.data.decode(), conflicts
            )
        yield self._pause

    def _pause(self, resume: Resume) -> None:
        def wake(_: object) -> None:
            if self._wake is wake:
                timer.cancel()
                self._wake = None
                resume(None)

        self._wake = wake
        timer = self._clock.call_later(self._timing.backoff_s, lambda: wake(None))

    # The end

    def close(self, done: Callable[[], object]) -> None:
        """Stop reading, commit what is finished, and end the session, and with it registration and ownership."""
        self._closing = done
        self._commit_alarm.cancel()
        self._doubt_alarm.cancel()
        self._interrupt()
        if self._is_connected:
            self._run = ProcedureRun(self._leave(), lambda _: self._end())
            self._run.start()
        else:
            self._stop_reading()
            self._end()

    def _leave(self) -> Procedure:
        self._stop_reading()
        yield self._finished.commit

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._reader.stop()
            self._is_reading = False
            self.owned = {}

    def _end(self) -> None:
        done, self._closing = self._closing, lambda: None
        assert done is not None, "closed before"
        self._doubt_alarm.cancel()
        self._tree.close(done)


class _Alarm:
    """One call that is due, or none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, delay_s: float, call: Callable[[], object]) -> None:
        self.cancel()

        def due() -> None:
            self._timer = None
            call()

        self._timer = self._clock.call_later(delay_s, due)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
