"""A source that leaves fetches unanswered is reported: not one that answers slowly or idles, and not by a broker that was stopped."""

from collections.abc import Callable

from moldau.broker.replicas.silence import SilenceWatch
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.testing.clock import FakeClock, FakeTimer

LIMIT_S = 2.0


class Connection:
    received = 0


class StoppableClock(FakeClock):
    """That of a process that can be stopped: what is due meanwhile is called when it resumes."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Callable[[], object]] | None = None

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> FakeTimer:
        return super().call_later(delay_s, lambda: callback() if self._held is None else self._held.append(callback))

    def stop(self) -> None:
        self._held = []

    def resume(self) -> None:
        held, self._held = self._held or [], None
        for callback in held:
            callback()


class World:
    """A watch of broker 7, its connection, and what was reported when."""

    def __init__(self) -> None:
        self.clock = StoppableClock()
        self.config = BrokerConfig(read_static(settings=["suspicion.timeout.ms=1500", "replica.fetch.wait.max.ms=500"]))
        self.connection = Connection()
        self.reports: list[tuple[float, int]] = []
        self._begun_s = self.clock.monotonic()
        self.watch = SilenceWatch(self, 7, lambda: self.connection)  # type: ignore[arg-type]

    def report(self, source_id: int) -> None:
        self.reports.append((round(self.clock.monotonic() - self._begun_s, 3), source_id))

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)


def test_a_source_without_an_answer_is_reported_again_and_again_until_it_answers() -> None:
    world = World()
    world.watch.asked()
    world.advance(LIMIT_S - 0.1)
    assert world.reports == []
    world.advance(4.2)
    assert world.reports == [(2.0, 7), (4.0, 7), (6.0, 7)]
    world.watch.answered()
    world.advance(10)
    assert len(world.reports) == 3


def test_requests_that_fail_end_no_silence() -> None:
    world = World()
    for _ in range(10):
        world.watch.asked()
        world.advance(0.2)
        world.watch.failed()
        world.connection = Connection()
        world.connection.received = 100  # of the greeting
        world.advance(0.1)
    assert world.reports == [(2.0, 7)]


def test_a_source_that_answers_or_is_not_asked_is_not_reported() -> None:
    world = World()
    for _ in range(100):
        world.watch.asked()
        world.advance(0.5)
        world.watch.answered()
    world.advance(10)
    world.watch.asked()
    world.watch.asked()
    world.advance(1.5)
    world.watch.answered()
    world.advance(1.5)
    assert world.reports == [], "the second request is late from the first answer on"
    world.advance(0.6)
    assert len(world.reports) == 1


def test_a_long_answer_counts_while_it_comes() -> None:
    world = World()
    world.watch.asked()
    for _ in range(50):
        world.connection.received += 1000
        world.advance(0.5)
    assert world.reports == []
    world.advance(4.1)
    assert len(world.reports) == 1


def test_a_broker_that_was_stopped_itself_begins_again() -> None:
    world = World()
    world.watch.asked()
    world.advance(1.0)
    world.clock.stop()
    world.advance(30.0)
    world.clock.resume()
    assert world.reports == []
    world.advance(2.1)
    assert len(world.reports) == 1


def test_nothing_is_reported_after_the_end() -> None:
    world = World()
    world.watch.asked()
    world.watch.close()
    world.advance(10)
    assert world.reports == []
