"""For tests of work that takes several turns of the broker's thread."""

from typing import Any

from moldau.broker.admission.slices import TURN_S
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld, Client


def slow_down(clock: FakeClock, reading_s: float = TURN_S / 10) -> None:
    """Each look at the clock takes so long from now on; by default a tenth of a turn: ten steps are a turn."""
    read = clock.monotonic

    def monotonic() -> float:
        clock.advance_within(reading_s)
        return read()

    clock.monotonic = monotonic  # type: ignore[method-assign]


def served_before_answer(world: BrokerWorld, client: Client) -> tuple[int, Any]:
    """How many requests of another client are answered before the one that `client` has sent, and its answer."""
    other = world.connect()
    for served in range(10_000):
        answers = client.answers()
        if answers:
            return served, answers[0].body
        other.ask(HeartbeatRequest("g", 1, "m"), 4)
        world.clock.settle()
    raise AssertionError("no answer")
