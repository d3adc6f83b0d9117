"""Waiting requests are completed by appends, by changes or by time; each once, and none is kept longer than it waits."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from moldau.broker.network.responses import RANGE_COST
from moldau.broker.replicas.purgatory import ATTEMPTS_PER_TURN, SWEEP_MIN, DelayedFetch, FetchIsolation, Purgatory
from moldau.protocol.fast.fetch import encode_fetch_response
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld, fetch_request


class Place:
    def __init__(self) -> None:
        self.watchers: dict[DelayedFetch, None] = {}
        self.grows: int | None = None
        """How much there is more for who reads committed records, if that is not what was appended."""

    def stable_growth(self, count: int) -> int:
        return count if self.grows is None else self.grows


class Story:
    """What happened to requests, in order."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.delayed = Purgatory(self.clock)
        self.finished: list[tuple[str, bool]] = []

    def wait(
        self, name: str, places: list[Place], ms: int, missing: int = 1, *, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    ) -> DelayedFetch:
        def attempt(expired: bool) -> bool:
            self.finished.append((name, expired))
            return True

        request = DelayedFetch(attempt, places, missing, lambda: self.finished.append((name, False)), isolation=isolation)
        self.delayed.wait(request, ms)
        return request


def test_an_append_of_enough_completes_whoever_watches() -> None:
    story, place, other = Story(), Place(), Place()
    story.wait("little", [place], 1000, missing=10)
    story.wait("much", [place, other], 1000, missing=100)
    story.delayed.appended([(place, 50, 0)])
    assert story.finished == [("little", False)]
    story.delayed.appended([(other, 50, 0)])
    assert story.finished == [("little", False), ("much", False)]
    assert story.delayed.waiting == 0
    assert not place.watchers
    assert not other.watchers


def test_who_wants_committed_records_waits_for_what_is_decided() -> None:
    story, place = Story(), Place()
    story.wait("any", [place], 1000, missing=100)
    story.wait("committed", [place], 1000, missing=100, isolation=FetchIsolation.LAST_STABLE)
    place.grows = 0  # of a transaction that goes on
    story.delayed.appended([(place, 100, 0)])
    assert story.finished == [("any", False)]
    place.grows = 1000  # its marker, and with it all that came before
    story.delayed.appended([(place, 78, 0)])
    assert story.finished == [("any", False), ("committed", False)]


def test_time_completes_in_the_order_of_deadlines() -> None:
    story, place = Story(), Place()
    for name, ms in (("late", 300), ("early", 100), ("between", 200)):
        story.wait(name, [place], ms)
    story.clock.advance(0.25)
    assert story.finished == [("early", True), ("between", True)]
    story.clock.advance(0.1)
    assert story.finished[-1] == ("late", True)


def test_an_attempt_that_cannot_answer_yet_waits_on() -> None:
    story, place = Story(), Place()
    answers = [False, False, True]
    request = DelayedFetch(lambda expired: answers.pop(0), [place], 10, lambda: None)
    story.delayed.wait(request, 1000)
    story.delayed.appended([(place, 10, 0)])
    story.delayed.changed([place])
    assert story.delayed.waiting == 1
    story.clock.advance(1.1)
    assert (story.delayed.waiting, answers) == (0, [])


def test_cancelled_requests_are_never_attempted() -> None:
    story, place = Story(), Place()
    request = story.wait("gone", [place], 100)
    story.delayed.cancel(request)
    story.delayed.cancel(request)
    story.delayed.appended([(place, 100, 0)])
    story.clock.advance(1.0)
    assert story.finished == []
    assert story.delayed.waiting == 0


def test_a_bug_in_one_attempt_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    story, place = Story(), Place()
    given_up: list[str] = []

    def broken(expired: bool) -> bool:
        raise ZeroDivisionError

    story.delayed.wait(DelayedFetch(broken, [place], 1, lambda: given_up.append("broken")), 1000)
    story.wait("good", [place], 1000)
    story.delayed.appended([(place, 1, 0)])
    assert (given_up, story.finished) == (["broken"], [("good", False)])
    assert story.delayed.waiting == 0
    assert caplog.records[0].exc_info


def test_close_finishes_all() -> None:
    story, place = Story(), Place()
    for number in range(3):
        story.wait(str(number), [place], 1000)
    story.delayed.close()
    assert story.finished == [("0", True), ("1", True), ("2", True)]
    assert story.clock.pending == 0


def test_requests_that_are_done_do_not_pile_up() -> None:
    """A busy consumer completes thousands of fetches before the first of their deadlines."""
    story, place = Story(), Place()
    for _ in range(50_000):
        story.wait("x", [place], 1_000_000)
        story.delayed.appended([(place, 1, 0)])
    assert len(story.delayed._heap) <= SWEEP_MIN + 1
    assert story.clock.pending <= 1


def test_any_sequence_against_a_list() -> None:
    """Random waits, appends and time; the list says who must be done."""
    choice = random.Random(1)
    story, places = Story(), [Place() for _ in range(3)]
    expected: dict[str, tuple[set[int], float, int]] = {}
    done: set[str] = set()
    for number in range(3000):
        match choice.randrange(3):
            case 0:
                watched = set(choice.sample(range(3), choice.randint(1, 3)))
                ms, missing = choice.randint(0, 500), choice.randint(1, 40)
                expected[str(number)] = (watched, story.clock.monotonic() + ms / 1000, missing)
                story.wait(str(number), [places[index] for index in watched], ms, missing)
            case 1:
                index, count = choice.randrange(3), choice.randint(1, 20)
                story.delayed.appended([(places[index], count, 0)])
                for name, (watched, due, missing) in list(expected.items()):
                    if name not in done and index in watched:
                        expected[name] = (watched, due, missing - count)
            case 2:
                story.clock.advance(choice.random() / 10)
        now = story.clock.monotonic()
        done |= {name for name, (_, due, missing) in expected.items() if missing <= 0 or due < now}
        answered = {name for name, _ in story.finished}
        assert done <= answered
        assert all(expected[name][1] <= now for name in answered - done)
        done |= answered
    assert len(story.finished) == len(done) > 500


def grow(delayed: Purgatory, partitions: Sequence[Place]) -> None:
    """One write to all of them."""
    delayed.appended([(each, 10, 0) for each in partitions])


@pytest.mark.parametrize("notify", [grow, Purgatory.changed])
@pytest.mark.parametrize("count", [1, 3 * ATTEMPTS_PER_TURN])
def test_many_that_wait_for_one_write_are_attempted_a_few_at_a_time(
    notify: Callable[[Purgatory, Sequence[Place]], object], count: int
) -> None:
    """Of one partition as of many."""
    clock = FakeClock()
    delayed = Purgatory(clock)
    partitions = [Place() for _ in range(count)]
    answered: list[int] = []

    def attempt_of(number: int) -> Callable[[bool], bool]:
        def attempt(_expired: bool) -> bool:
            answered.append(number)
            return True

        return attempt

    for number in range(3 * ATTEMPTS_PER_TURN):
        delayed.wait(DelayedFetch(attempt_of(number), [partitions[number % count]], 10, lambda: None), 60_000)
    notify(delayed, partitions)
    assert answered == list(range(ATTEMPTS_PER_TURN))
    clock.settle()
    assert (answered, delayed.waiting) == (list(range(3 * ATTEMPTS_PER_TURN)), 0)


def test_many_whose_time_is_over_together_are_answered_in_turns() -> None:
    clock = FakeClock()
    delayed = Purgatory(clock)
    turns: list[float] = []

    def attempt(_expired: bool) -> bool:
        clock.advance_within(0.001)
        turns.append(clock.monotonic())
        return True

    for _ in range(3 * ATTEMPTS_PER_TURN):
        delayed.wait(DelayedFetch(attempt, [Place()], 10, lambda: None), 1000)
    clock.advance(1.0)
    assert len(turns) == ATTEMPTS_PER_TURN
    for _ in range(3):
        clock.settle()
    assert (len(turns), delayed.waiting) == (3 * ATTEMPTS_PER_TURN, 0)


def test_nothing_is_read_or_encoded_for_a_peer_that_has_not_taken_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it asks for more stays with it until there is room in its queue."""
    queued_max = 4096
    world = BrokerWorld(connection_queued_max_bytes=queued_max)
    world.create_topic("t")
    world.connect().produce("t", bytes(2000))
    reads, encodings = 0, 0
    log = world.partition("t").log
    read, encode = log.read, encode_fetch_response

    def counted_read(*arguments: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(*arguments, **options)

    def counted_encode(*arguments: Any) -> Any:
        nonlocal encodings
        encodings += 1
        return encode(*arguments)

    monkeypatch.setattr(log, "read", counted_read)
    monkeypatch.setattr("moldau.broker.handlers.fetch.operation.encode_fetch_response", counted_encode)
    client = world.connect(window=1000)
    for _ in range(100):
        client.send(fetch_request("t", 0), 12)
    world.clock.settle()
    done = reads
    assert 1 < done == encodings <= queued_max // RANGE_COST + 2
    for _ in range(100):
        client.send(fetch_request("t", 0), 12)
        world.clock.settle()
    assert (reads, encodings) == (done, done)
    answered = 0
    while answered < 200:
        answers = client.answers()
        assert answers
        answered += len(answers)
        world.clock.settle()
        client.peer.push()
    assert reads == 200
