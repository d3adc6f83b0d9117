"""A stopping broker asks the controller to move its leaderships, and stops in time whatever comes of it (Z20)."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.metadata.hand_over import HandOver
from moldau.cluster.controller.requests import ShutDownBroker
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.testing.clock import FakeClock

REQUEST = ShutDownBroker(1, 7)
TIMEOUT_S = 5.0
LEFT = [TopicPartition("t", 0)]


class World:
    def __init__(self, *, retries: int = 3, back_off_s: float = 1.0, linger_s: float = 0.0) -> None:
        self.clock = FakeClock()
        self.asked: list[tuple[float, Callable[[Any], object], float]] = []
        self.hand_over = HandOver(
            REQUEST, self._ask, self.clock, retries=retries, back_off_s=back_off_s, linger_s=linger_s, timeout_s=TIMEOUT_S
        )

    def _ask(self, request: ShutDownBroker, done: Callable[[Any], object], *, timeout_s: float) -> None:
        assert request == REQUEST
        self.asked.append((self.clock.monotonic(), done, timeout_s))

    def answer(self, outcome: Any) -> None:
        self.asked[-1][1](outcome)


def test_it_stops_when_it_leads_nothing_that_others_can() -> None:
    world = World()
    assert (world.hand_over.is_over, world.asked[0][2]) == (False, TIMEOUT_S)
    world.answer([])
    world.clock.advance(0.0)
    assert world.hand_over.is_over


def test_for_a_moment_it_names_the_new_leaders() -> None:
    world = World(linger_s=0.3)
    world.clock.advance(TIMEOUT_S - 0.01)
    world.answer([])
    world.clock.advance(0.29)
    assert not world.hand_over.is_over
    world.clock.advance(0.01)
    assert world.hand_over.is_over


@pytest.mark.parametrize("outcome", [LEFT, PeerError(ErrorCode.KAFKA_STORAGE_ERROR, "no")])
def test_it_asks_again_about_what_is_left_as_often_as_it_may(outcome: Any) -> None:
    world = World(retries=2)
    for attempt in range(3):
        assert (len(world.asked), world.hand_over.is_over) == (attempt + 1, False)
        assert world.asked[-1][2] == pytest.approx(TIMEOUT_S - attempt)
        world.answer(outcome)
        world.clock.advance(1.0)
    assert (len(world.asked), world.hand_over.is_over) == (3, True)


def test_it_does_not_wait_for_an_attempt_that_would_come_too_late() -> None:
    world = World(back_off_s=TIMEOUT_S)
    world.answer(LEFT)
    assert world.hand_over.is_over


def test_without_an_answer_it_stops_when_the_time_is_over_and_one_that_comes_later_changes_nothing() -> None:
    world = World()
    world.clock.advance(TIMEOUT_S - 0.01)
    assert not world.hand_over.is_over
    world.clock.advance(0.01)
    assert world.hand_over.is_over
    world.answer(LEFT)
    world.clock.advance(10.0)
    assert len(world.asked) == 1
