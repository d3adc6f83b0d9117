"""What coordinators of groups and of transactions have in common: their partitions are loaded, served and resigned.

A :class:`CoordinatorRuntime` has one :class:`PartitionCoordinator` for each partition of its internal topic that this broker leads. The
kinds differ in the :class:`moldau.broker.coordinators.partition_coordinator.CoordinatorState`.

==============  ==================================  ===================================================================  ===========
phase           event                               effect                                                               next
==============  ==================================  ===================================================================  ===========
none            elected                             make the state, mark its budgets, load                               LOADING
LOADING         batch                               `replay`, unless twice a budget is held: refuse
LOADING         end of the log                      wait until all that was read is committed; then `finish_replay` in   ACTIVE
                                                    slices, check the budgets, `loaded`
LOADING         a budget is exceeded                drop the state, keep the reason                                      REFUSED
LOADING         the partition cannot be read        drop the state, keep the reason, `reload` after `FAILED_RELOAD_MS`   FAILED
any             elected with a higher epoch         as resigned, then as elected                                         LOADING
any             elected, the epoch is not higher    none
LOADING ACTIVE  epoch raised                        take the epoch: the log was written by this coordinator all along
REFUSED FAILED  epoch raised                        as elected                                                           LOADING
ACTIVE          `write`                             append, and queue
ACTIVE          an append is committed              of queued writes, in the order of the log: `committed`, then `done`
ACTIVE          an append is refused                `done(error)`; the log has nothing of it
ACTIVE          an append fails when in the log     as resigned, since log and memory may differ                         none
ACTIVE          a change is lost by a bug           as resigned, keep the reason, `reload` it after `BUG_RELOAD_MS`      FAILED
REFUSED FAILED  `reload`                            as elected                                                           LOADING
any             resigned                            drop the load, `done(NOT_COORDINATOR)` for writes,                   none
                                                    `PartitionState.resigned` in slices; a load of the partition waits
                                                    for their end
==============  ==================================  ===================================================================  ===========

Rules. State changes once, when its record is committed, in the order of the log; so it is at any time what a replay of the committed
records gives. A leader that has just been elected may have records in its log that its followers lack, and that the next leader then
lacks: a decision among them must not be carried out, nor an offset be answered, before they are committed. Every callback that is handed
out (to the log, to the clock, to a sweep) is without effect once its coordinator has resigned. `done` of a write is called exactly once.
Where another broker may lead a partition by now and this one cannot learn it, its coordinator answers NOT_COORDINATOR, and stays as it
is: its session with the tree may continue. While its followers fetch as before no other leads, and it serves without the tree too.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple

from moldau.broker.admission.slices import Ended, SliceScheduler
from moldau.broker.coordinators.deadlines import Deadlines
from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator, Phase, S
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps, drain
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import LoadedBatch, StateLog
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

PEAK_FACTOR = 2
"""While partitions are read, their state may take up to this many times a limit on memory: later records delete some of it."""
FAILED_RELOAD_MS = 30_000
"""After how long a partition that could not be read is read again: an error of a disk may pass."""
BUG_RELOAD_MS = 5000
"""How long a partition is not served after a bug, so that one which repeats does not take all time."""


class _Unserved(NamedTuple):
    """A partition that is led here, and has no coordinator. `reason` is a message for clients."""

    epoch: int
    phase: Phase
    reason: str


class CoordinatorRuntime(Generic[S]):
    """See the module. Everything runs on the broker's thread."""

    def __init__(self, topic: str, log: "StateLog", clock: "Clock", make_state: "Callable[[PartitionCoordinator[S]], S]") -> None:
        self.topic = topic
        self.log = log
        self.clock = clock
        self.make_state = make_state
        self.deadlines = Deadlines(clock)
        self.unserved: dict[int, _Unserved] = {}
        """By partition: those that are refused or failed."""
        self._coordinators: dict[int, PartitionCoordinator[S]] = {}
        """By partition: those that are loading or active."""
        self._releasing: dict[PartitionCoordinator[S], Steps] = {}
        """Those that have resigned, and whose state has not been released yet."""
        self._loads: dict[int, Callable[[], Callable[[], object]]] = {}
        """By partition: what reads it, once the state of the coordinator before is released."""
        self._drops: dict[int, Callable[[], object]] = {}
        """By partition: what drops the load that has begun last."""
        self._sweeps: list[Sweep[S]] = []
        self._slices = SliceScheduler(clock)

    # For the broker

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition in that epoch, and another may have led it before: what that one wrote has to be read."""
        known = self._coordinators.get(partition) or self.unserved.get(partition)
        if known is not None:
            if leader_epoch <= known.epoch:
                return
            self.resigned(partition)
        self._load(partition, leader_epoch)

    def epoch_raised(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition in that epoch, and has not stopped to since the one before. Otherwise each follower that ends
        would cost all groups their coordinator for the time of a load.
        """
        coordinator = self._coordinators.get(partition)
        if coordinator is not None:
            coordinator.epoch = leader_epoch
        else:
            self.elected(partition, leader_epoch)

    def resigned(self, partition: int) -> None:
        """This broker does not lead the partition any more, or not its log: those who wait are answered NOT_COORDINATOR."""
        self.unserved.pop(partition, None)
        self._resign(self._coordinators.get(partition))

    def reload(self) -> None:
        """Load again what was refused or has failed: settings have changed, or other state was deleted."""
        for partition, unserved in list(self.unserved.items()):
            self._reload(partition, unserved)

    def close(self) -> None:
        """The broker stops."""
        for sweep in self._sweeps:
            sweep.close()
        for partition in [*self._coordinators, *self.unserved]:
            self.resigned(partition)
        for steps in list(self._releasing.values()):
            drain(steps)
        self._slices.close()
        self.deadlines.close()

    # For a kind of coordinator

    def coordinator_of(self, key: str) -> PartitionCoordinator[S]:
        """The active coordinator of a group or a transactional id. PeerError NOT_COORDINATOR, also for a partition that has
        failed or that another broker may lead by now, COORDINATOR_LOAD_IN_PROGRESS; COORDINATOR_NOT_AVAILABLE for one that was refused.
        """
        partition = self.log.partition_for(key)
        found = self._coordinators.get(partition)
        if found is None or found.phase is not Phase.ACTIVE:
            raise self._not_served(key, partition, found)
        if self.log.may_be_led_elsewhere(partition):
            text = "may be led elsewhere: the coordination tree is out of reach, and followers do not fetch any more"
            raise PeerError(ErrorCode.NOT_COORDINATOR, f"'{key}': {self.topic}-{partition} {text}")
        return found

    def coordinator(self, partition: int) -> PartitionCoordinator[S] | None:
        """The coordinator of a partition, also one that loads."""
        return self._coordinators.get(partition)

    def coordinators(self) -> list[PartitionCoordinator[S]]:
        """Those of all partitions, also the ones that load."""
        return list(self._coordinators.values())

    def active(self) -> Iterator[PartitionCoordinator[S]]:
        """Those that are active now; some may resign while they are iterated."""
        return iter([each for each in self._coordinators.values() if each.phase is Phase.ACTIVE])

    def phase(self, partition: int) -> Phase | None:
        """How far a partition is; None if it is not led here."""
        found = self._coordinators.get(partition) or self.unserved.get(partition)
        return None if found is None else found.phase

    @property
    def loading(self) -> int:
        """How many partitions are being loaded."""
        return sum(each.phase is Phase.LOADING for each in self._coordinators.values())

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded."""
        return self.loading > 0

    def add_sweep(
        self,
        name: str,
        interval_ms: Callable[[], int],
        wanted: Callable[[], bool],
        steps_of: "Callable[[PartitionCoordinator[S]], Steps]",
        *,
        reloads: bool = False,
    ) -> "Sweep[S]":
        """Make a sweep, see `Sweep`; it starts with `Sweep.wake`."""
        sweep = Sweep(self, name, interval_ms, wanted, steps_of, reloads=reloads)
        self._sweeps.append(sweep)
        return sweep

    # For its parts

    def run_steps(self, steps: Steps, ended: Ended, *, droppable: bool) -> None:
        """Run steps in slices, then `ended`, also when that is at once."""
        try:
            work = self._slices.run(steps, ended, droppable=droppable)
        except Exception as bug:
            ended(bug)
            return
        if work is None:
            ended(None)

    def write_lost(self, coordinator: PartitionCoordinator[S], error: PeerError) -> None:
        """A write is in the log and will not be committed."""
        _LOG.error("coordinator resigns, a write is lost: partition=%s-%d reason=%s", self.topic, coordinator.partition, error.message)
        self._resign(coordinator)

    def failed_by_bug(self, coordinator: PartitionCoordinator[S]) -> None:
        """See `PartitionCoordinator.fail`."""
        if coordinator.is_over:
            return
        partition = coordinator.partition
        _LOG.error("coordinator resigns after a bug: partition=%s-%d loads_again_ms=%d", self.topic, partition, BUG_RELOAD_MS)
        self._drop(coordinator, Phase.FAILED, f"{self.topic}-{partition} is loaded again after a bug, see the log")
        self._reload_after(partition, BUG_RELOAD_MS)

    def not_coordinator(self, partition: int) -> PeerError:
        """The error for a partition without a coordinator here."""
        return PeerError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{partition} is not led here")

    def _reload_after(self, partition: int, delay_ms: int) -> None:
        again = partial(self._reload, partition, self.unserved[partition])
        self.deadlines.set(self, partition, self.deadlines.now_ms() + delay_ms, again)

    def _reload(self, partition: int, unserved: _Unserved) -> None:
        if self.unserved.get(partition) is unserved:
            del self.unserved[partition]
            self._load(partition, unserved.epoch)

    def _load(self, partition: int, epoch: int) -> None:
        coordinator = self._coordinators[partition] = PartitionCoordinator(self, partition, epoch)
        self._note_reading(coordinator)

        def take(batch: "LoadedBatch") -> None:
            if not coordinator.is_over:
                self._check_memory(coordinator, PEAK_FACTOR)
                coordinator.state.replay(batch)

        def read(error: PeerError | None) -> None:
            if coordinator.is_over:
                return
            if error is None:
                self.log.settled(partition, settled)
            else:
                self._not_loaded(coordinator, error)

        def settled(error: PeerError | None) -> None:
            if coordinator.is_over:
                return
            if error is None:
                coordinator.has_replayed = True
                self.run_steps(coordinator.while_serving(coordinator.state.finish_replay()), finished, droppable=False)
            else:
                self._not_loaded(coordinator, error)

        def finished(bug: Exception | None) -> None:
            if coordinator.is_over:
                return
            if bug is None:
                self._activate(coordinator)
            else:
                _LOG.error("partition not loaded by a bug: partition=%s-%d", self.topic, partition, exc_info=bug)
                self._not_loaded(coordinator, PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug, see the log"))

        self._loads[partition] = partial(self.log.load, partition, take, read)
        self._begin_load(partition)

    def _begin_load(self, partition: int) -> None:
        """Read, unless the state of a coordinator before is still being released: memory would be counted twice."""
        if not any(each.partition == partition for each in self._releasing):
            load = self._loads.pop(partition, None)
            if load is not None:
                self._drops[partition] = load()

    def _activate(self, coordinator: PartitionCoordinator[S]) -> None:
        try:
            self._check_memory(coordinator)
        except _DoesNotFitError as too_large:
            self._not_loaded(coordinator, too_large)
            return
        coordinator.phase = Phase.ACTIVE
        reached("coordinators: loaded a partition")
        self._note_reading(coordinator)
        coordinator.state.loaded()

    def _not_loaded(self, coordinator: PartitionCoordinator[S], error: PeerError) -> None:
        _LOG.error("coordinator not loaded: partition=%s-%d reason=%s", self.topic, coordinator.partition, error.message)
        if isinstance(error, _DoesNotFitError):
            self._drop(coordinator, Phase.REFUSED, error.message)
        else:
            self._drop(coordinator, Phase.FAILED, error.message)
            self._reload_after(coordinator.partition, FAILED_RELOAD_MS)

    def _drop(self, coordinator: PartitionCoordinator[S], phase: Phase, reason: str) -> None:
        self._resign(coordinator)
        self.unserved[coordinator.partition] = _Unserved(coordinator.epoch, phase, reason)
        for sweep in self._sweeps:
            sweep.wake_to_reload()

    def _resign(self, coordinator: PartitionCoordinator[S] | None) -> None:
        if coordinator is not None and not coordinator.is_over:
            del self._coordinators[coordinator.partition]
            self._loads.pop(coordinator.partition, None)
            drop = self._drops.pop(coordinator.partition, None)
            if drop is not None:
                drop()
            steps = self._releasing[coordinator] = coordinator.resign(self.not_coordinator(coordinator.partition))
            self._note_reading(coordinator)
            self.run_steps(steps, partial(self._released, coordinator), droppable=False)

    def _released(self, coordinator: PartitionCoordinator[S], bug: Exception | None) -> None:
        if bug is not None:
            _LOG.error("state not released by a bug: partition=%s-%d", self.topic, coordinator.partition, exc_info=bug)
        self._releasing.pop(coordinator, None)
        self._begin_load(coordinator.partition)

    def _note_reading(self, coordinator: PartitionCoordinator[S]) -> None:
        under_way = self.is_loading
        for budget in coordinator.state.memory():
            budget.reading(under_way)

    def _check_memory(self, coordinator: PartitionCoordinator[S], factor: int = 1) -> None:
        for budget in coordinator.state.memory():
            if budget.is_exceeded(factor):
                raise _DoesNotFitError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{self.topic}-{coordinator.partition} does not fit into memory: {budget.setting} is {budget.limit} bytes,"
                    f" {budget.held} are needed so far; nothing is lost, raise the setting to have it served",
                )

    def _not_served(self, key: str, partition: int, found: PartitionCoordinator[S] | None) -> PeerError:
        if found is not None:
            return PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"'{key}': {self.topic}-{partition} is being read")
        unserved = self.unserved.get(partition)
        if unserved is not None:
            refused = unserved.phase is Phase.REFUSED
            return PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE if refused else ErrorCode.NOT_COORDINATOR, unserved.reason)
        return PeerError(ErrorCode.NOT_COORDINATOR, f"'{key}': {self.topic}-{partition} is not led here")


class Sweep(Generic[S]):
    """A sweep over the partitions of a runtime; `CoordinatorRuntime.add_sweep` makes it.

    It goes through the active partitions one after the other, in steps between which requests are served. Its timer runs only while there
    is something to look for: late transactions, expired offsets.
    """

    __slots__ = ("_interval_ms", "_is_closed", "_reloads", "_runtime", "_steps_of", "_timer", "_wanted", "name")

    def __init__(
        self,
        runtime: "CoordinatorRuntime[S]",
        name: str,
        interval_ms: Callable[[], int],
        wanted: Callable[[], bool],
        steps_of: Callable[[PartitionCoordinator[S]], Steps],
        *,
        reloads: bool,
    ) -> None:
        """`wanted`: whether there may be something to find, so that another sweep is due an interval after the one before. `reloads`: at
        its end partitions that were refused or failed are loaded again, since it may have made room; while there are such it is wanted.
        """
        self.name = name
        self._runtime = runtime
        self._interval_ms = interval_ms
        self._wanted = wanted
        self._steps_of = steps_of
        self._reloads = reloads
        self._timer: Timer | None = None
        self._is_closed = False

    def wake(self) -> None:
        """There is something to look for, or may be soon: the next sweep comes after an interval at most."""
        if self._timer is None and not self._is_closed:
            self._timer = self._runtime.clock.call_later(self._interval_ms() / 1000, self._begin)

    def close(self) -> None:
        """No more sweeps."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def wake_to_reload(self) -> None:
        """A partition was refused or has failed."""
        if self._reloads:
            self.wake()

    def _begin(self) -> None:
        # The timer stays until the end, so that sweeps of one kind do not overlap.
        self._runtime.run_steps(self._steps(), self._end, droppable=True)

    def _steps(self) -> Steps:
        for coordinator in self._runtime.active():
            if not coordinator.is_over:
                yield from coordinator.while_serving(self._steps_of(coordinator))
            yield None

    def _end(self, bug: Exception | None) -> None:
        self._timer = None
        if self._is_closed:
            return
        if bug is not None:
            _LOG.error("sweep ended by a bug: topic=%s sweep=%s", self._runtime.topic, self.name, exc_info=bug)
        if self._reloads:
            self._runtime.reload()
        if self._wanted() or (self._reloads and self._runtime.unserved):
            self.wake()


class _DoesNotFitError(PeerError):
    """The state of a partition takes more memory than a setting allows."""
