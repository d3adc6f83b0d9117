"""Long work of a request runs in turns: others are served between them, its connection's later requests are not."""

import logging
from collections.abc import Callable

import pytest

from moldau.broker.admission.slices import QUANTUM_S, TURN_S, SliceScheduler
from moldau.broker.api import catalog
from moldau.broker.broker import Broker
from moldau.broker.request import Reply, Request
from moldau.model.steps import UNFINISHED, Steps, Suspension
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld

STEP_S = 0.0005


class Works:
    """Works on a clock that moves on with each step, and what they have done."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.scheduler = SliceScheduler(self.clock)
        self.done: list[str] = []
        self.ended: list[tuple[str, Exception | None]] = []

    def steps(self, name: str, count: int, *, unfinished: bool = False, fails: bool = False) -> Steps:
        for _ in range(count):
            self.done.append(name)
            self.clock.advance_within(STEP_S)
            yield (UNFINISHED if unfinished else None)
        if fails:
            raise ZeroDivisionError(name)

    def run(self, name: str, count: int, **options: bool) -> object:
        return self.scheduler.run(self.steps(name, count, **options), lambda error: self.ended.append((name, error)))


def test_short_work_ends_in_its_first_turn() -> None:
    works = Works()
    assert works.run("a", 3) is None
    assert (works.done, works.ended, works.scheduler.running) == (["a"] * 3, [], 0)


def test_long_work_lets_the_loop_run_after_each_turn_and_tells_of_its_end() -> None:
    works = Works()
    steps_of_a_turn = round(TURN_S / STEP_S)
    assert works.run("a", 3 * steps_of_a_turn) is not None
    assert len(works.done) == steps_of_a_turn
    works.clock.settle()
    assert len(works.done) == 2 * steps_of_a_turn
    works.clock.settle()
    works.clock.settle()
    assert (len(works.done), works.ended, works.scheduler.running) == (3 * steps_of_a_turn, [("a", None)], 0)


def test_works_share_a_turn_one_after_the_other() -> None:
    works = Works()
    works.run("a", 100)
    works.run("b", 100)
    first = len(works.done)
    assert set(works.done) == {"a"}, "what is left of the time for first turns is nothing"
    works.clock.settle()
    quantum = round(QUANTUM_S / STEP_S)
    assert works.done[first : first + 2 * quantum] == ["a"] * quantum + ["b"] * quantum
    assert len(works.done) - first == round(TURN_S / STEP_S)


def test_many_works_that_come_in_one_turn_of_the_loop_take_one_turn_together() -> None:
    works = Works()
    for number in range(50):
        works.run(str(number), 15)
    assert len(works.done) <= round(TURN_S / STEP_S)


def test_a_turn_and_what_timers_begin_after_it_take_one_turn_together() -> None:
    works = Works()
    steps_of_a_turn = round(TURN_S / STEP_S)
    works.run("a", 3 * steps_of_a_turn)
    works.clock.call_later(0.0, lambda: works.run("timer", steps_of_a_turn))
    before = len(works.done)
    works.clock.settle()
    assert len(works.done) - before <= steps_of_a_turn + 1
    while works.scheduler.running:
        works.clock.settle()
    assert sorted(works.ended) == [("a", None), ("timer", None)]


def test_dropped_work_does_no_further_step_and_frees_what_it_held() -> None:
    works = Works()
    freed = []

    def steps() -> Steps:
        try:
            yield from works.steps("a", 100)
        finally:
            freed.append(True)

    work = works.scheduler.run(steps(), lambda error: works.ended.append(("a", error)))
    assert work is not None
    count = len(works.done)
    work.drop()
    works.clock.settle()
    assert (len(works.done), works.ended, freed, works.scheduler.running) == (count, [], [True], 0)


def test_dropped_work_goes_on_to_where_what_it_did_is_consistent() -> None:
    works = Works()

    def steps() -> Steps:
        yield from works.steps("a", 50, unfinished=True)
        yield None
        works.done.append("never")
        yield from works.steps("b", 50)

    work = works.scheduler.run(steps(), lambda error: works.ended.append(("a", error)))
    assert work is not None
    work.drop()
    for _ in range(10):
        works.clock.settle()
    assert (works.done, works.ended, works.scheduler.running) == (["a"] * 50, [], 0)


def test_an_error_ends_the_work_alone() -> None:
    works = Works()
    works.run("a", 30, fails=True)
    works.run("b", 30)
    for _ in range(10):
        works.clock.settle()
    assert [(name, type(error)) for name, error in works.ended] == [("a", ZeroDivisionError), ("b", type(None))]


def test_a_stop_drops_all_work() -> None:
    works = Works()
    works.run("a", 100, unfinished=True)
    works.scheduler.close()
    count = len(works.done)
    works.clock.settle()
    assert (len(works.done), works.scheduler.running, works.ended) == (count, 0, [])


# With connections


class SlowListing:
    """Stands for a handler that takes long: 100 steps, then the answer, or a bug."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        self.fails = False
        served = catalog.served_api(ApiKey.LIST_GROUPS)
        monkeypatch.setitem(catalog._served, ApiKey.LIST_GROUPS, served._replace(handler=self.handle))

    def handle(self, broker: Broker, request: ListGroupsRequest, asked: Request, reply: Reply) -> Steps:
        for _ in range(100):
            self.steps += 1
            clock = broker.clock
            assert isinstance(clock, FakeClock)
            clock.advance_within(STEP_S)
            yield None
        if self.fails:
            raise ZeroDivisionError
        reply(ListGroupsResponse())


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> SlowListing:
    return SlowListing(monkeypatch)


def test_others_are_served_while_a_request_runs_and_its_own_connection_waits(listing: SlowListing) -> None:
    world = BrokerWorld()
    slow, other = world.connect(), world.connect()
    slow.send(ListGroupsRequest(), 4)
    slow.send(HeartbeatRequest("g", 1, "m"), 4)
    assert slow.answers() == []
    assert other.ask(HeartbeatRequest("g", 1, "m"), 4).error_code
    assert listing.steps < 100
    for _ in range(10):
        world.clock.settle()
        slow.peer.push()
    assert [type(answer.body).__name__ for answer in slow.answers()] == ["ListGroupsResponse", "HeartbeatResponse"]


def test_the_work_of_a_connection_that_is_lost_is_dropped(listing: SlowListing) -> None:
    world = BrokerWorld()
    slow = world.connect()
    slow.send(ListGroupsRequest(), 4)
    slow.peer.disconnect()
    for _ in range(10):
        world.clock.settle()
    assert listing.steps < 100
    assert (world.broker.slices.running, len(world.broker.connections)) == (0, 0)


def test_a_connection_that_finishes_answers_its_long_request_first(listing: SlowListing) -> None:
    world = BrokerWorld()
    slow = world.connect()
    slow.send(ListGroupsRequest(), 4)
    world.broker.finish_connections()
    for _ in range(10):
        world.clock.settle()
    assert len(slow.answers()) == 1
    assert slow.closed


def test_a_bug_in_a_later_turn_cuts_its_connection_and_no_other(listing: SlowListing, caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld()
    slow, other = world.connect(), world.connect()
    listing.fails = True
    slow.send(ListGroupsRequest(), 4)
    with caplog.at_level(logging.ERROR):
        for _ in range(10):
            world.clock.settle()
    assert slow.closed
    assert "ZeroDivisionError" in caplog.text
    assert other.ask(HeartbeatRequest("g", 1, "m"), 4).error_code


def test_a_handler_can_hold_the_frames_after_its_own_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BrokerWorld()
    client = world.connect()
    replies: list[Reply] = []

    def handle(broker: Broker, request: ListGroupsRequest, asked: Request, reply: Reply) -> None:
        asked.exchange.hold()
        replies.append(reply)

    served = catalog.served_api(ApiKey.LIST_GROUPS)
    monkeypatch.setitem(catalog._served, ApiKey.LIST_GROUPS, served._replace(handler=handle, in_steps=False))
    client.send(ListGroupsRequest(), 4)
    client.send(ListGroupsRequest(), 4)
    client.send(HeartbeatRequest("g", 1, "m"), 4)
    world.clock.settle()
    assert len(replies) == 1
    replies[0](ListGroupsResponse())
    world.clock.settle()
    client.peer.push()
    assert len(replies) == 2
    replies[1](ListGroupsResponse())
    world.clock.settle()
    client.peer.push()
    assert [type(answer.body).__name__ for answer in client.answers()] == ["ListGroupsResponse"] * 2 + ["HeartbeatResponse"]


def test_work_that_waits_for_something_elsewhere_takes_no_turns_and_goes_on_without_its_connection() -> None:
    works = Works()
    resume: list[Callable[[], object]] = []

    def steps() -> Steps:
        works.done.append("before")
        yield Suspension(resume.append)
        works.done.append("after")
        yield None
        works.done.append("more")

    work = works.scheduler.run(steps(), lambda error: works.ended.append(("a", error)))
    assert work is not None
    work.drop()
    for _ in range(5):
        works.clock.settle()
    assert (works.done, works.scheduler.running) == (["before"], 1)
    resume[0]()
    works.clock.settle()
    works.clock.settle()
    assert (works.done, works.scheduler.running) == (["before", "after"], 0), "then it may be dropped"


def test_what_is_there_at_once_is_not_waited_for() -> None:
    works = Works()

    def steps() -> Steps:
        yield Suspension(lambda resume: resume())
        works.done.append("after")

    assert works.scheduler.run(steps(), lambda error: works.ended.append(("a", error))) is None
    assert works.done == ["after"]


def test_what_waits_elsewhere_when_the_broker_stops_is_not_resumed() -> None:
    works = Works()
    resume: list[Callable[[], object]] = []

    def steps() -> Steps:
        yield Suspension(resume.append)
        works.done.append("after")

    works.scheduler.run(steps(), lambda error: works.ended.append(("a", error)))
    works.scheduler.close()
    resume[0]()
    works.clock.settle()
    assert (works.done, works.ended) == ([], [])
