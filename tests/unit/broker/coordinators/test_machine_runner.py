"""The runner of machines: effects in order, an event at a time, a store before what follows from it."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pytest

from moldau.broker.coordinators.machine_runner import MachineRunner
from moldau.broker.coordinators.partition_coordinator import Phase
from moldau.broker.coordinators.runtime import BUG_RELOAD_MS
from moldau.broker.coordinators.state_log import KeyValue
from moldau.model.errors import ErrorCode, PeerError
from support.toy_coordinator import ToyWorld


class Put(NamedTuple):
    value: str


class Wake(NamedTuple):
    """An event that no client waits for."""


class Stored(NamedTuple):
    value: str
    code: ErrorCode


Event = Put | Wake | Stored


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
            case Put("bug") | Wake():
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
    requests = (Put,)

    def records(self, machine: Register, effect: Store) -> Sequence[KeyValue]:
        return [(machine.name.encode(), effect.value.encode())]

    def stored(self, _machine: Register, effect: Store, error: PeerError | None) -> Event | None:
        return Stored(effect.value, ErrorCode.NONE if error is None else error.code) if self.wants_to_know else None

    def refuse(self, cause: Event | Effect) -> bool:
        self.said.append(f"{type(cause).__name__} refused")
        return isinstance(cause, (Put, Say))

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


def test_an_effect_that_raises_fails_the_partition_which_is_served_again_later(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Its machine might wait for it for ever, and the client with it."""
    world.a.also = [Call(lambda: 1 / 0), Say("the rest")]
    world.runner.take(world.a, Put("1"))
    assert "the rest" in world.said
    assert "effect lost by a bug: effect=Call" in caplog.text
    assert world.phase() is Phase.FAILED
    assert world.refusal() is ErrorCode.NOT_COORDINATOR
    world.clock.advance(BUG_RELOAD_MS / 1000)
    assert world.phase() is Phase.ACTIVE
    assert world.values == {"a": "1"}


def test_an_answer_that_raises_has_its_client_answered_and_harms_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = world.kind.carry_out

    def fails(machine: Register, effect: Effect) -> None:
        carry_out(machine, effect)
        if effect == Say("a storing 1"):
            raise ZeroDivisionError

    monkeypatch.setattr(world.kind, "carry_out", fails)
    world.runner.take(world.a, Put("1"))
    assert world.said == ["a storing 1", "Say refused", "a after the store", "a stored 1"]
    assert world.phase() is Phase.ACTIVE


@pytest.mark.parametrize("queued", [False, True])
def test_a_bug_in_the_step_of_what_is_no_request_fails_the_partition(world: World, queued: bool) -> None:
    if queued:
        world.a.also = [Call(lambda: world.runner.take(world.b, Wake()))]
        world.runner.take(world.a, Put("1"))
    else:
        with pytest.raises(ZeroDivisionError):
            world.runner.take(world.b, Wake())
    assert world.phase() is Phase.FAILED


def test_a_store_whose_append_raises_fails_the_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(world.log, "append", lambda *_: 1 / 0)
        world.runner.take(world.a, Put("1"))
    assert world.phase() is Phase.FAILED


def test_a_step_that_raises_does_so_to_whoever_brought_the_event_and_only_to_them(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError):
        world.runner.take(world.a, Put("bug"))
    world.a.also = [Call(lambda: world.runner.take(world.b, Put("bug"))), Call(lambda: world.runner.take(world.b, Put("2")))]
    world.runner.take(world.a, Put("1"))
    assert world.b.value == "2"
    assert "event lost by a bug: event=Put" in caplog.text
    assert world.said.count("Put refused") == 1
    assert world.phase() is Phase.ACTIVE


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
