"""Nothing on the broker's thread waits for the coordination tree: it answers after half a second, and partitions are served meanwhile."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from moldau.assembly.making import BrokerPorts, make_broker
from moldau.broker.broker import Broker
from moldau.broker.configs import Change, IncrementalChange, Resource, ResourceType
from moldau.cluster import znodes
from moldau.cluster.controller.requests import DeletedTopic, GrowthSpec, PlannedTopic, TopicChoice, TopicSpec
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Multi, SetData
from moldau.testing.clock import FakeClock, FakeTimer
from moldau.testing.coordination import FakeTree
from moldau.testing.network import MemoryNetwork
from support.broker_world import BrokerWorld, Client

if TYPE_CHECKING:
    from moldau.model.errors import WorldError

LATENCY_S = 0.5
PARTITIONS = 1000
GAP_MAX_S = 0.020
PAUSE_S = 0.003
"""Between two requests of the client that must not wait."""
LOOK_S = 0.000_01
CALL_S = 0.000_05
"""What a look at the clock and a call of the file system take."""
START_MAX_S = 15.0
CHANGE_MAX_S = 10.0


class LoopClock(FakeClock):
    """Time as a thread with an event loop has it: what is due at once runs in the next turn of the loop, after its sockets were served."""

    def __init__(self) -> None:
        super().__init__()
        self.look_s = 0.0
        """What a look at the clock takes."""
        self._ready: list[FakeTimer] = []

    def monotonic(self) -> float:
        self._now += self.look_s
        return self._now

    def now(self) -> float:
        """The same, for a look that takes no time."""
        return self._now

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> FakeTimer:
        if delay_s > 0:
            return super().call_later(delay_s, callback)
        timer = FakeTimer(callback)
        self._ready.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """One turn of the loop, which waits only where nothing is left to do."""
        ready, self._ready = self._ready, []
        for timer in ready:
            if timer.callback is not None:
                timer.callback()
        super().advance(0.0 if self._ready else seconds)


class SlowTreeWorld(BrokerWorld):
    """A broker on a `FakeTree`; the work of its thread takes time on the clock, that of its threads in the background does not."""

    def __init__(self) -> None:
        self.fake_tree: FakeTree | None = None
        self.latency_s = 0.0
        self.started: list[WorldError | None] = []
        super().__init__()

    def _start(self, *, adopt: bool = False) -> Broker:
        if self.fake_tree is None:
            self.clock = self.loop = LoopClock()
            self.fake_tree = FakeTree(self.clock)
        self.session = self.fake_tree.session(self.latency_s)
        broker = make_broker(
            BrokerConfig(read_static()),
            BrokerPorts(
                directories=["/data"],
                files=self.disk,
                clock=self.clock,
                background=self.background,
                compute=self.compute,
                recompress=self.recompress,
                coordination=self.session,
                network=lambda: MemoryNetwork(lambda call: self.clock.call_later(0.0, call)),
                random_bytes=self._random_bytes,
                workers=lambda: self.workers,
            ),
        )
        self.started = []
        broker.start(BrokerInfo(broker.broker_id, (Endpoint("PLAINTEXT", "192.0.2.2", 9092),)), self.started.append, adopt=adopt)
        return broker

    def restart_slowly(self) -> None:
        """Stop in order, and start a broker to which the tree answers late."""
        self.stop()
        self.session.close()
        self.latency_s = LATENCY_S
        self.broker = self._start()

    def take_time(self) -> None:
        """From now on the work of the broker's thread takes time."""
        self.now = self.loop.now
        self.loop.look_s = LOOK_S
        jobs: list[bool] = []
        run_next = self.background.run_next

        def run_elsewhere(place: int = 0) -> None:
            work, done = self.background.jobs[place]

            def elsewhere() -> Any:
                jobs.append(True)
                try:
                    return work()
                finally:
                    jobs.pop()

            self.background.jobs[place] = elsewhere, done
            run_next(place)

        def charge(_operation: str, _path: str) -> bool:
            if not jobs:
                self.clock.advance_within(CALL_S)
            return False

        self.disk.fail = charge
        self.background.run_next = run_elsewhere  # type: ignore[method-assign]

    def submit(self, steps: Generator[Any, None, Any]) -> list[Any]:
        """Have the steps of a request run between others; the list gets their outcome."""
        outcomes: list[Any] = []

        def run() -> Generator[Any, None, None]:
            outcomes.append((yield from steps))

        self.broker.slices.run(run(), lambda error: outcomes.append(error) if error is not None else None)
        return outcomes

    def serve_until(self, client: Client, is_done: Callable[[], bool], limit_s: float) -> float:
        """Produce to `served` and fetch from it until something is done; the longest time between two answers."""
        until, last, longest = self.now() + limit_s, self.now(), 0.0

        def answered() -> None:
            nonlocal last, longest
            longest, last = max(longest, self.now() - last), self.now()

        while not is_done():
            assert self.now() < until, "not done in time"
            produced = client.produce("served", b"value")
            assert produced.error_code == 0
            answered()
            assert client.fetch("served", produced.base_offset).error_code == 0
            answered()
            self.clock.advance(PAUSE_S)
        return longest


def world_of(partitions: int = 0) -> SlowTreeWorld:
    world = SlowTreeWorld()
    world.create_topic("served")
    if partitions:
        world.create_topic("many", partitions=partitions)
    world.take_time()
    world.restart_slowly()
    return world


def let_pass(world: SlowTreeWorld, seconds: float) -> None:
    until = world.now() + seconds
    while world.now() < until:
        world.clock.advance(PAUSE_S)


def retention(world: SlowTreeWorld) -> int:
    return world.partition("served").log.config.retention_ms


def moments_of_a_start() -> list[float]:
    """Seconds after its beginning: one in the middle of each wait for the tree."""
    duration_s = start_to_end(world_of())
    return [(number + 0.5) * LATENCY_S for number in range(int(duration_s / LATENCY_S))]


def start_to_end(world: SlowTreeWorld) -> float:
    """Let time pass until the broker has started; how long that takes."""
    began = world.now()
    while not world.started:
        assert world.now() - began < START_MAX_S
        world.clock.advance(PAUSE_S)
    assert world.started == [None]
    return world.now() - began


def test_a_start_with_a_thousand_partitions_waits_for_nothing_and_reports_when_it_serves() -> None:
    world = world_of(PARTITIONS)
    assert world.started == [], "the tree has not answered yet"
    assert not list(world.broker.partitions)
    start_to_end(world)
    assert len(list(world.broker.partitions)) == PARTITIONS + 1, "all are led when the start is reported"
    deadline = world.now() + 5 * LATENCY_S
    assert world.serve_until(world.connect(), lambda: world.now() > deadline, CHANGE_MAX_S) <= GAP_MAX_S


def test_a_partition_is_served_while_topics_are_created_grown_configured_and_deleted() -> None:
    """Also with as many partitions as fill several writes: what they take of the broker's thread is shared with requests."""
    world = world_of()
    start_to_end(world)
    broker, client = world.broker, world.connect()

    def changed(outcomes: list[Any]) -> Any:
        began = world.now()
        assert not outcomes, "the tree has not answered yet"
        assert world.serve_until(client, lambda: bool(outcomes), CHANGE_MAX_S) <= GAP_MAX_S
        assert world.now() - began >= LATENCY_S
        (outcome,) = outcomes
        return outcome

    created = changed(world.submit(broker.admin.create([TopicSpec("many", PARTITIONS // 2, 1), TopicSpec("one", 1, 1)])))
    assert [type(outcome) for outcome in created.values()] == [PlannedTopic, PlannedTopic]
    assert changed(world.submit(broker.admin.grow([GrowthSpec("many", PARTITIONS)]))) == {"many": None}
    assert broker.partitions.get(TopicPartition("many", PARTITIONS - 1)) is not None
    edits = [IncrementalChange("retention.ms", Change.SET, "12345")]
    changed(world.submit(broker.configs.edit(Resource(ResourceType.TOPIC, "many"), edits)))
    assert world.partition("many", PARTITIONS - 1).log.config.retention_ms == 12345
    outcomes = changed(world.submit(broker.admin.delete([TopicChoice("many"), TopicChoice("one")])))
    assert [isinstance(each, DeletedTopic) for each in outcomes.values()] == [True, True]
    assert len(list(broker.partitions)) == 1


def test_a_configuration_that_another_changes_during_a_start_is_obeyed_whenever_that_is() -> None:
    for moment_s in moments_of_a_start():
        world = world_of()
        assert world.fake_tree is not None
        other = world.fake_tree.session()
        let_pass(world, moment_s)
        config = SetData(znodes.topic_config("served"), b'{"version":1,"config":{"retention.ms":"12345"}}')
        notification = Create(znodes.config_change("config_change_"), b'{"version":2,"entity_path":"topics/served"}', sequential=True)
        other.submit(Multi((config, notification)), lambda _outcome: None)
        start_to_end(world)
        let_pass(world, 5 * LATENCY_S)
        assert retention(world) == 12345, f"changed after {moment_s} s"


def test_a_broker_that_was_cut_off_during_its_start_obeys_and_answers_changes_of_configurations() -> None:
    obeyed = 0
    for moment_s in moments_of_a_start():
        world = world_of()
        let_pass(world, moment_s)
        world.session.suspend()
        world.session.resume()
        while not world.started:
            world.clock.advance(PAUSE_S)
        if world.started == [None]:
            edits = [IncrementalChange("retention.ms", Change.SET, "12345")]
            outcomes = world.submit(world.broker.configs.edit(Resource(ResourceType.TOPIC, "served"), edits))
            world.serve_until(world.connect(), lambda outcomes=outcomes: bool(outcomes), CHANGE_MAX_S)  # type: ignore[misc]
            assert retention(world) == 12345, f"cut off after {moment_s} s"
            obeyed += 1
    assert obeyed, "no start got over it"
