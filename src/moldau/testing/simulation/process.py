"""A broker's host, and the processes that run on it one after another.

An *incarnation* is one process from its start to its end. Everything that it has of the outside is a port of this module, and each call of
one may be its last: there the process is killed, or the power is cut, and the call raises `ProcessCrash`. From then on every call of a port
of that incarnation raises it without effect, so that neither ``finally`` nor ``except BaseException`` of the product changes anything.

Work in the background is done in one piece, at a drawn moment, by one of a few threads, each an actor; its answer comes on the broker's.
"""

import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TypeVar

from moldau.assembly.making import BrokerPorts, make_broker
from moldau.broker.broker import Broker
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import WorldError
from moldau.model.steps import Steps
from moldau.ports.background import WorkerError
from moldau.testing.background import FakeJob, FakeWorkers
from moldau.testing.simulation.disk import SimulatedDisk, no_operation
from moldau.testing.simulation.network import ClientNetwork, Party, SimulatedNetwork
from moldau.testing.simulation.schedule import Actor, ActorGroup, Schedule, ScheduledCall
from moldau.testing.simulation.tree import SimulatedTree

T = TypeVar("T")
LISTENER = "PLAINTEXT"
PORT = 9092
THREADS = 4
"""Of the background; the other two have one each."""
STOP_S = 5.0
"""How long a stop waits for connections."""


class ProcessCrash(BaseException):
    """The process has ended in the middle of a call."""


def ignore_crashes_of_the_collector() -> None:
    """Generators of a process that has ended are collected at some time, and their ``finally`` calls ports once more: no error."""
    before = sys.unraisablehook
    if getattr(before, "ignores_crashes", False):
        return

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if not isinstance(unraisable.exc_value, ProcessCrash):
            before(unraisable)

    hook.ignores_crashes = True  # type: ignore[attr-defined]
    sys.unraisablehook = hook


class Host:
    """A machine with a disk, on which a broker runs, or does not."""

    def __init__(
        self, name: str, schedule: Schedule, network: SimulatedNetwork, disk: SimulatedDisk, tree: SimulatedTree, random: Random
    ) -> None:
        self.name = name
        self.schedule = schedule
        self.network = network
        self.disk = disk
        self.tree = tree
        self.random = random
        self.settings: Mapping[str, object] = {}
        """Of the broker, at its next start."""
        self.directories = ["/data"]
        self.reading_cost_s = 0.0
        """How much time passes for each reading of the broker's clock."""
        self.process: Incarnation | None = None
        self.incarnations: list[Incarnation] = []
        """All so far: what of an ended one is still referred to is not collected at a moment that nothing has drawn."""
        self.on_ended: list[Callable[[Incarnation], object]] = []
        """Called when a process has ended, in whatever way."""
        self.on_ending: list[Callable[[Incarnation, bool], object]] = []
        """Called before that with whether the power is cut, when nothing is lost yet."""
        self.on_serving: list[Callable[[Incarnation], object]] = []
        """Called when a process has started."""
        self.damage: Callable[[], object] | None = None
        """Called once, when the next process has ended, before anything looks at what it has left on the disk."""

    @property
    def broker(self) -> Broker | None:
        """The broker that runs; None while none does."""
        return self.process.broker if self.process is not None else None

    def start(self, *, crash_at: int = -1, power_cut: bool = False) -> "Incarnation":
        """Start a process. Whether it has got through its start shows in `Incarnation.is_serving`. `crash_at`: see there."""
        assert self.process is None, f"{self.name} runs"
        self.network.host_started(self.name)
        self.process = Incarnation(self, len(self.incarnations) + 1)
        process = self.process
        self.incarnations.append(process)
        self.disk.on_operation = process.enter
        process.crash_at, process.crash_with_power = crash_at, power_cut
        process.begin()
        return process

    def kill(self) -> None:
        """End the process at once; what it has written stays."""
        if self.process is not None:
            self.process.end(power_cut=False)

    def power_cut(self) -> None:
        """End the process, and lose what the disk had not synced."""
        if self.process is not None:
            self.process.end(power_cut=True)

    def pause(self, seconds: float) -> None:
        """Have nothing of the process happen for some time."""
        process = self.process
        if process is not None and not process.group.is_paused:
            self.schedule.pause(process.group)
            others = self.schedule.actor("resume")
            self.schedule.post(others, partial(self.schedule.resume, process.group), seconds)
            if 0 < self.tree.session_s < seconds:
                self.schedule.post(others, process.session.expire, self.tree.session_s)


class Incarnation:
    """See the module."""

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.name = f"{host.name}/{number}"
        self.group = ActorGroup(self.name)
        self.thread = host.schedule.actor(f"{self.name} thread", self.group)
        self.broker: Broker | None = None
        self.failure: WorldError | None = None
        """Why it did not start."""
        self.is_serving = False
        self.port_calls = 0
        self.crash_at = -1
        """The number of the port call that is its last; -1: none."""
        self.crash_with_power = False
        self.background = SimulatedBackground(self, "background", THREADS)
        self.others = [SimulatedBackground(self, name, 1) for name in ("compute", "recompress")]
        self.clock = ProcessClock(self)
        self.workers = SimulatedWorkers(self)
        self.session = host.tree.session(self.enter, partial(self.post, self.thread))
        self._is_over = False
        self.is_stopping = False
        """Whether an orderly stop has begun."""

    # Life

    def begin(self) -> None:
        """Start the broker."""
        self.run(self._start)

    def end(self, *, power_cut: bool) -> None:
        """The process is gone, now."""
        if self._is_over:
            return
        self._is_over = True
        host = self.host
        for ending in host.on_ending:
            ending(self, power_cut)
        self.is_serving = False
        host.schedule.end(self.group)
        host.network.process_ended(host.name, silently=power_cut)
        self.session.process_ended()
        if power_cut:
            host.disk.power_cut()
        else:
            host.disk.process_ended()
        host.process = None
        host.disk.on_operation = no_operation
        damage, host.damage = host.damage, None
        if damage is not None:
            damage()
        for listener in host.on_ended:
            listener(self)

    def stop(self) -> None:
        """Begin an orderly stop, at whose end the process is gone."""
        if self.is_serving and not self.is_stopping:
            self.is_stopping = True
            self.run(self._hand_over)

    def run(self, call: Callable[[], object]) -> object:
        """Make a call of the process, which may be its last."""
        if self._is_over:
            return None
        try:
            return call()
        except ProcessCrash:
            self.end(power_cut=self.crash_with_power)
            return None

    def post(self, actor: Actor, call: Callable[[], object], delay_s: float = 0.0) -> ScheduledCall:
        """Have the process make a call later."""
        return self.host.schedule.post(actor, partial(self.run, call), delay_s)

    def enter(self, _operation: str) -> None:
        """A port is called."""
        self.port_calls += 1
        if self._is_over or (self.crash_at >= 0 and self.port_calls >= self.crash_at):
            raise ProcessCrash

    def _start(self) -> None:
        host = self.host
        settings = {"listeners": f"{LISTENER}://{host.name}:{PORT}", **host.settings}
        config = BrokerConfig(read_static(settings=[f"{name}={value}" for name, value in settings.items()]))
        compute, recompress = self.others
        self.broker = broker = make_broker(
            config,
            BrokerPorts(
                directories=host.directories,
                files=host.disk,
                clock=self.clock,
                background=self.background,
                compute=compute,
                recompress=recompress,
                coordination=self.session,
                network=lambda: ClientNetwork(host.network, Party(host.name, self.group, self.run)),
                random_bytes=self._random_bytes,
                workers=lambda: self.workers,
                on_all_failed=lambda _failure: self.post(self.thread, self.stop),
            ),
        )
        endpoint = Endpoint(LISTENER, host.name, PORT)
        broker.advertised = {LISTENER: endpoint}
        try:
            broker.start(BrokerInfo(broker.broker_id, (endpoint,), config.optional_string("broker.rack")), self._started)
        except WorldError as error:
            self._started(error)

    def _started(self, error: WorldError | None) -> None:
        host, broker = self.host, self.broker
        assert broker is not None
        if error is not None:
            self.failure = error
            self.end(power_cut=False)
            return
        self.is_serving = True
        try:
            for listener in host.on_serving:
                listener(self)
        except Exception as verdict:  # of the simulation, not of the product that has called this
            host.schedule.post(host.schedule.actor("judge"), partial(_raise, verdict))
        host.network.listen(Party(host.name, self.group, self.run), PORT, lambda transport: broker.accept(transport, LISTENER))

    def _hand_over(self) -> None:
        broker = self.broker
        assert broker is not None
        hand_over = broker.membership.hand_over()

        def wait() -> None:
            if hand_over is not None and not hand_over.is_over:
                self.post(self.thread, wait, 0.01)
            else:
                self._finish_connections()

        wait()

    def _finish_connections(self) -> None:
        broker = self.broker
        assert broker is not None
        self.host.network.stop_listening(self.host.name)
        broker.finish_connections()
        until = self.host.schedule.now + STOP_S

        def wait() -> None:
            if broker.connections and self.host.schedule.now < until:
                self.post(self.thread, wait, 0.01)
                return
            broker.housekeeping.stop()
            broker.flusher.stop()
            wait_for_background()

        def wait_for_background() -> None:
            if self.background.running:
                self.post(self.thread, wait_for_background, 0.01)
                return
            if broker.slices.run(self._stopping(broker), ended) is None:
                ended(None)

        def ended(error: Exception | None) -> None:
            if error is not None:
                raise error
            self.end(power_cut=False)

        wait()

    def _stopping(self, broker: Broker) -> Steps:
        yield from broker.stop(self.background, lambda: False)

    def _random_bytes(self, count: int) -> bytes:
        self.enter("random_bytes")
        return self.host.random.randbytes(count)


def _raise(error: Exception) -> None:
    raise error


class ProcessClock:
    """A :class:`moldau.ports.clock.Clock`. Reading it may cost time."""

    def __init__(self, process: Incarnation) -> None:
        self._process = process
        self._host = process.host
        self._schedule = process.host.schedule

    def time_ms(self) -> int:
        """The wall's time."""
        return self._schedule.time_ms()

    def monotonic(self) -> float:
        """Seconds since the run began."""
        schedule = self._schedule
        schedule.now += self._host.reading_cost_s
        return schedule.now

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ScheduledCall:
        """Have the broker's thread make a call."""
        process = self._process
        process.enter("call_later")
        return process.post(process.thread, callback, max(delay_s, 0.0))


class SimulatedBackground:
    """A :class:`moldau.ports.background.Background`: threads that take jobs in their order and do each in one piece."""

    def __init__(self, process: Incarnation, name: str, threads: int) -> None:
        self.running = 0
        """Jobs that have not been answered."""
        self._process = process
        self._jobs: deque[tuple[Callable[[], object], Callable[[object, BaseException | None], object]]] = deque()
        self._idle = [process.host.schedule.actor(f"{process.name} {name} {number}", process.group) for number in range(threads)]

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Take a job."""
        process = self._process
        process.enter("run")
        self.running += 1
        self._jobs.append((work, done))  # type: ignore[arg-type]
        if self._idle:
            thread = self._idle.pop()
            process.post(thread, partial(self._take, thread), process.host.disk.job_s())

    def _take(self, thread: Actor) -> None:
        process = self._process
        if not self._jobs:  # another thread was faster
            self._idle.append(thread)
            return
        work, done = self._jobs.popleft()
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        process.post(process.thread, partial(self._answer, done, result, failure))
        process.post(thread, partial(self._take, thread), process.host.disk.job_s())

    def _answer(self, done: Callable[[object, BaseException | None], object], result: object, failure: BaseException | None) -> None:
        self.running -= 1
        done(result, failure)


class SimulatedWorkers:
    """:class:`moldau.ports.background.Workers`: one process beside the broker's, that ends with it."""

    def __init__(self, process: Incarnation) -> None:
        self._process = process
        self._fake = FakeWorkers(process.host.disk)
        self._actor = process.host.schedule.actor(f"{process.name} worker", process.group)

    def run(self, work: str, task: bytes, on_message: Callable[[bytes], object], done: Callable[[WorkerError | None], object]) -> FakeJob:
        """Take a job; its messages come on the broker's thread."""
        process = self._process
        process.enter("workers")
        if not self._fake.running:
            process.post(self._actor, self._step, process.host.disk.job_s())
        return self._fake.run(
            work,
            task,
            lambda message: process.post(process.thread, partial(on_message, message)),
            lambda error: process.post(process.thread, partial(done, error)),
        )

    def _step(self) -> None:
        self._fake.step()
        if self._fake.running:
            self._process.post(self._actor, self._step, self._process.host.disk.job_s())
