"""The runner of machines: effects in order, an event at a time, a store before what follows from it."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pytest

from moldau.broker.coordinators.machine_runner import MachineRunner
from moldau.broker.coordinators.state_log import KeyValue
from moldau.model.errors import ErrorCode, PeerError
from support.toy_coordinator import ToyWorld


class Put(NamedTuple):
    value: str


class Stored(NamedTuple):
    value: str
    code: ErrorCode


Event = Put | Stored


class Store(NamedTuple):
    value: str


class Say(NamedTuple):
    what: str


class Call(NamedTuple):
    action: Callable[[], object]


Effect = Store | Say | Call


class Register:
    """A machine: a value that counts once it is stored."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = ""
        self.also: list[Effect] = []
        """Effects of the next step, besides."""

    def step(self, event: Event) -> list[Effect]:
        also, self.also = self.also, []
        match event:
            case Put("bug"):
                raise ZeroDivisionError
            case Put(value):
                return [Say(f"{self.name} storing {value}"), Store(value), Say(f"{self.name} after the store"), *also]
            case Stored(value, ErrorCode.NONE):
                self.value = value
                return [Say(f"{self.name} stored {value}"), *also]
            case Stored(value, code):
                return [Say(f"{self.name} did not store {value}: {code.name}"), *also]


class Registers:
    """A :class:`moldau.broker.coordinators.machine_runner.MachineKind`."""

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.wants_to_know = True

    def step(self, machine: Register, event: Event) -> Iterable[Effect]:
        return machine.step(event)

    store = Store

    def records(self, machine: Register, effect: Store) -> Sequence[KeyValue]:
        return [(machine.name.encode(), effect.value.encode())]

    def stored(self, _machine: Register, effect: Store, error: PeerError | None) -> Event | None:
        return Stored(effect.value, ErrorCode.NONE if error is None else error.code) if self.wants_to_know else None

    def carry_out(self, _machine: Register, effect: Effect) -> None:
        match effect:
            case Say(what):
                self.said.append(what)
            case Call(action):
                action()
            case Store():
                raise AssertionError("the runner stores")


class World(ToyWorld):
    def __init__(self) -> None:
        super().__init__()
        self.elect()
        self.said: list[str] = []
        self.kind = Registers(self.said)
        self.runner: MachineRunner[Register, Event, Effect] = MachineRunner(self.coordinator(), self.kind)
        self.a, self.b = Register("a"), Register("b")


@pytest.fixture
def world() -> World:
    return World()


def test_effects_are_carried_out_in_order_and_a_store_that_is_committed_at_once_is_known_after_them(world: World) -> None:
    world.runner.take(world.a, Put("1"))
    assert world.said == ["a storing 1", "a after the store", "a stored 1"]
    assert world.log.newest(0) == {b"a": b"1"}


def test_a_machine_changes_when_its_store_is_committed(world: World) -> None:
    world.log.hold()
    world.runner.take(world.a, Put("1"))
    assert world.a.value == ""
    world.log.release()
    assert world.a.value == "1"


def test_a_refused_store_is_an_event_with_its_error(world: World) -> None:
    world.log.fail(ErrorCode.MESSAGE_TOO_LARGE)
    world.runner.take(world.a, Put("1"))
    assert world.said[-1] == "a did not store 1: MESSAGE_TOO_LARGE"


def test_a_machine_that_does_not_want_to_know_gets_no_event(world: World) -> None:
    world.kind.wants_to_know = False
    world.runner.take(world.a, Put("1"))
    assert world.said == ["a storing 1", "a after the store"]


def test_an_event_that_an_effect_brings_about_waits_for_the_effects_that_follow(world: World) -> None:
    world.a.also = [Call(lambda: world.runner.take(world.b, Put("2"))), Say("last of a")]
    world.runner.take(world.a, Put("1"))
    assert world.said == [
        *("a storing 1", "a after the store", "last of a", "a stored 1"),
        *("b storing 2", "b after the store", "b stored 2"),
    ]


def test_stores_of_several_machines_are_known_in_the_order_of_the_log(world: World) -> None:
    world.log.hold()
    world.runner.take(world.a, Put("1"))
    world.runner.take(world.b, Put("1"))
    world.said.clear()
    world.log.answer_held(1)
    assert world.said == []
    world.log.answer_held(0)
    assert world.said == ["a stored 1", "b stored 1"]


def test_an_effect_that_raises_is_logged_and_the_others_are_carried_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.a.also = [Call(lambda: 1 / 0), Say("the rest")]
    world.runner.take(world.a, Put("1"))
    assert "the rest" in world.said
    assert "effect lost by a bug: effect=Call" in caplog.text


def test_a_step_that_raises_does_so_to_whoever_brought_the_event_and_only_to_them(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError):
        world.runner.take(world.a, Put("bug"))
    world.a.also = [Call(lambda: world.runner.take(world.b, Put("bug"))), Call(lambda: world.runner.take(world.b, Put("2")))]
    world.runner.take(world.a, Put("1"))
    assert world.b.value == "2"
    assert "event lost by a bug" in caplog.text


def test_a_store_that_is_committed_after_resigning_is_not_known(world: World) -> None:
    world.log.hold()
    world.runner.take(world.a, Put("1"))
    world.runtime.resigned(0)
    world.log.release()
    assert world.said == ["a storing 1", "a after the store"]


def test_an_event_that_is_taken_after_resigning_learns_that_its_store_is_refused(world: World) -> None:
    world.a.also = [Call(lambda: world.runner.take(world.b, Put("2"))), Call(lambda: world.runtime.resigned(0))]
    world.runner.take(world.a, Put("1"))
    assert world.said[-1] == "b did not store 2: NOT_COORDINATOR"


def test_effects_of_a_machine_are_carried_out_while_its_coordinator_resigns(world: World) -> None:
    world.runtime.resigned(0)
    world.runner.carry_out(world.a, [Say("answered")])
    assert world.said == ["answered"]
