"""For tests of work that takes several turns of the broker's thread."""

from collections.abc import Callable
from typing import Any

from moldau.broker.admission.slices import TURN_S
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.testing.clock import FakeClock
from support.broker_world import Answer, BrokerWorld, Client


def slow_down(clock: FakeClock, reading_s: float = TURN_S / 10) -> None:
    """Each look at the clock takes so long from now on; by default a tenth of a turn: ten steps are a turn."""
    read = clock.monotonic

    def monotonic() -> float:
        clock.advance_within(reading_s)
        return read()

    clock.monotonic = monotonic  # type: ignore[method-assign]


def served_before_answer(world: BrokerWorld, client: Client) -> tuple[int, Any]:
    """How many requests of another client are answered before the one that `client` has sent, and its answer."""
    answers: list[Answer] = []

    def has_come() -> bool:
        answers.extend(client.answers())
        return bool(answers)

    return served_until(world, has_come), answers[0].body


def served_until(world: BrokerWorld, holds: Callable[[], bool]) -> int:
    """How many requests of another client are answered until something holds."""
    other = world.connect()
    for served in range(10_000):
        if holds():
            return served
        other.ask(HeartbeatRequest("g", 1, "m"), 4)
        world.clock.settle()
    raise AssertionError("it has not come to hold")
