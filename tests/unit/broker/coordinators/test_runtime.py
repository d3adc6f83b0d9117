"""The table of phases, row by row; what a held append keeps back; and resigning at every point."""

import logging
from collections.abc import Callable

import pytest

from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator, Phase
from moldau.broker.coordinators.runtime import BUG_RELOAD_MS, FAILED_RELOAD_MS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps, no_steps
from support.toy_coordinator import WAITS, Answer, ToyState, ToyWorld
from support.turns import slow_down

LOST = PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is lost")


def held() -> ToyWorld:
    """An active partition whose appends wait."""
    world = ToyWorld()
    world.elect()
    world.order.clear()
    world.log.hold()
    return world


# Loading


def test_a_partition_that_is_not_led_has_no_coordinator() -> None:
    world = ToyWorld()
    assert world.phase() is None
    assert world.refusal() is ErrorCode.NOT_COORDINATOR


def test_a_partition_that_another_broker_may_lead_is_not_served_and_continues_without_a_load_when_that_is_over() -> None:
    world = ToyWorld()
    world.leave(("a", "1"))
    world.elect()
    world.order.clear()
    world.log.doubtful.add(world.runtime.log.partition_for("k"))
    assert world.refusal() is ErrorCode.NOT_COORDINATOR
    world.log.doubtful.clear()
    assert world.refusal() is ErrorCode.NONE
    assert (world.values, world.order) == ({"a": "1"}, [])


def test_an_election_loads_the_log_in_its_order_then_serves() -> None:
    world = ToyWorld(loads_later=True)
    world.leave(("a", "1"), ("b", "1"), ("a", "2"), ("b", None))
    world.elect()
    assert world.phase() is Phase.LOADING
    assert world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.clock.settle()
    assert world.phase() is Phase.ACTIVE
    assert world.values == {"a": "2"}
    assert world.order == ["loaded [('a', '2')]"]


def test_what_is_read_is_made_ready_in_slices_before_it_is_served() -> None:
    world = ToyWorld()
    slow_down(world.clock, 0.004)
    world.steps_to_finish = 20
    world.elect()
    assert world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.clock.advance(1)
    assert world.phase() is Phase.ACTIVE


def test_a_load_that_ends_after_resigning_has_no_effect() -> None:
    world = ToyWorld(loads_later=True)
    world.leave(("a", "1"))
    world.elect()
    state = world.coordinator().state
    world.runtime.resigned(0)
    world.clock.settle()
    assert world.order == ["resigned NOT_COORDINATOR"]
    assert state.values == {}
    assert world.phase() is None
    assert world.budget.held == 0


def test_what_the_followers_may_lack_is_not_served_before_they_have_it() -> None:
    """Otherwise the next leader could lack what was answered, or a decision that was carried out."""
    world = held()
    world.put("a", "1")
    world.elect(epoch=2)
    assert world.order == ["resigned NOT_COORDINATOR", "a=1 answered NOT_COORDINATOR"]
    assert world.refusal("a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.log.release()
    assert world.order[2:] == ["loaded [('a', '1')]"]
    assert world.refusal("a") is ErrorCode.NONE


def test_what_was_read_and_never_gets_to_followers_is_not_served() -> None:
    world = held()
    world.put("a", "1")
    world.elect(epoch=2)
    world.log.answer_held(1, LOST)
    assert world.phase() is Phase.FAILED
    assert world.order[2:] == ["resigned NOT_COORDINATOR"]


def test_a_wait_for_followers_that_ends_after_resigning_has_no_effect() -> None:
    world = held()
    world.put("a", "1")
    world.elect(epoch=2)
    world.runtime.resigned(0)
    world.log.release()
    assert world.phase() is None
    assert "loaded" not in " ".join(world.order)


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_election_whose_epoch_is_not_higher_changes_nothing(epoch: int) -> None:
    world = ToyWorld()
    world.elect(epoch=5)
    coordinator = world.coordinator()
    world.elect(epoch=epoch)
    assert world.coordinator() is coordinator


@pytest.mark.parametrize("loads_later", [False, True], ids=["active", "loading"])
def test_an_election_with_a_higher_epoch_loads_again(loads_later: bool) -> None:
    world = ToyWorld(loads_later=loads_later)
    world.elect(epoch=5)
    before = world.coordinator()
    world.leave(("a", "1"))
    world.elect(epoch=6)
    world.clock.settle()
    assert before.is_over
    assert world.coordinator().epoch == 6
    assert world.values == {"a": "1"}
    assert world.order[-2:] == ["resigned NOT_COORDINATOR", "loaded [('a', '1')]"]


def test_a_later_epoch_of_the_same_leader_is_taken_and_nothing_is_lost_or_loaded_again() -> None:
    world = held()
    answer = world.put("a", "1")
    before = world.coordinator()
    world.runtime.epoch_raised(0, 2)
    world.log.release()
    assert world.coordinator() is before
    assert (before.epoch, answer.code, world.values) == (2, ErrorCode.NONE, {"a": "1"})
    assert world.order == ["a=1 applied", "a=1 answered NONE"]
    world.elect(epoch=2)
    assert world.coordinator() is before


def test_a_later_epoch_of_a_partition_that_failed_loads_it_again() -> None:
    world = ToyWorld()
    world.log.load_failure = LOST
    world.elect()
    world.log.load_failure = None
    world.runtime.epoch_raised(0, 2)
    assert (world.phase(), world.coordinator().epoch) == (Phase.ACTIVE, 2)


def test_what_has_resigned_is_released_in_slices_and_the_next_load_waits_for_their_end() -> None:
    """Otherwise the memory of both would count, and the load be refused."""
    world = ToyWorld(limit=10)
    world.leave(*((f"k{number}", "1") for number in range(10)))
    world.steps_to_release = 20
    world.elect(epoch=5)
    slow_down(world.clock, 0.004)
    world.elect(epoch=6)
    world.elect(epoch=7)
    assert world.phase() is Phase.LOADING
    assert world.budget.held == 10
    world.clock.advance(1)
    assert world.phase() is Phase.ACTIVE
    assert world.coordinator().epoch == 7
    assert world.budget.held == len(world.values) == 10


def test_a_stop_releases_what_is_being_released() -> None:
    world = ToyWorld()
    world.leave(("a", "1"))
    world.steps_to_release = 20
    world.elect()
    slow_down(world.clock, 0.004)
    world.runtime.resigned(0)
    assert world.budget.held == 1
    world.runtime.close()
    assert world.budget.held == 0


def test_after_resigning_any_epoch_is_loaded() -> None:
    world = ToyWorld()
    world.elect(epoch=5)
    world.runtime.resigned(0)
    world.elect(epoch=5)
    assert world.phase() is Phase.ACTIVE


# Refused and failed


def test_state_that_does_not_fit_is_refused_and_released_until_a_reload_finds_room(caplog: pytest.LogCaptureFixture) -> None:
    world = ToyWorld(limit=10)
    world.leave(*((f"k{number}", "1") for number in range(12)))
    world.elect(epoch=7)
    assert world.phase() is Phase.REFUSED
    assert world.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.budget.held == 0
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "toy.memory.max.bytes is 10 bytes" in caplog.text
    world.runtime.reload()
    assert world.phase() is Phase.REFUSED
    world.limit = 20
    world.runtime.reload()
    assert world.phase() is Phase.ACTIVE
    assert world.coordinator().epoch == 7
    assert len(world.values) == 12


def test_state_that_fits_at_the_end_may_take_twice_its_limit_while_it_is_read() -> None:
    world = ToyWorld(limit=10)
    keys = [f"k{number}" for number in range(20)]
    world.leave(*((key, "1") for key in keys), *((key, None) for key in keys[10:]))
    world.elect()
    assert world.phase() is Phase.ACTIVE
    world.leave(*((f"l{number}", "1") for number in range(13)), *((f"l{number}", None) for number in range(13)))
    world.elect(epoch=2)
    assert world.phase() is Phase.REFUSED


@pytest.mark.parametrize("by_reload", [True, False])
def test_a_partition_that_cannot_be_read_fails_and_is_read_again_by_a_reload_or_after_a_while(*, by_reload: bool) -> None:
    world = ToyWorld()
    world.leave(("a", "1"))
    world.log.load_failure = LOST
    world.elect()
    assert world.phase() is Phase.FAILED
    assert world.refusal() is ErrorCode.NOT_COORDINATOR
    assert world.budget.held == 0
    world.clock.advance(FAILED_RELOAD_MS / 1000)
    assert world.phase() is Phase.FAILED
    world.log.load_failure = None
    if by_reload:
        world.runtime.reload()
    else:
        world.clock.advance(FAILED_RELOAD_MS / 1000)
    assert world.values == {"a": "1"}


@pytest.mark.parametrize("at_first_step", [True, False])
def test_a_bug_while_what_was_read_is_made_ready_fails_the_partition(
    at_first_step: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = ToyWorld()

    def finish_replay(_self: ToyState) -> Steps:
        if not at_first_step:
            world.clock.advance_within(1)
            yield None
        raise ZeroDivisionError

    monkeypatch.setattr(ToyState, "finish_replay", finish_replay)
    world.elect()
    world.clock.settle()
    assert world.phase() is Phase.FAILED
    assert "ZeroDivisionError" in caplog.text


def test_a_refused_partition_that_is_not_led_any_more_is_not_loaded_again() -> None:
    world = ToyWorld(limit=1)
    world.leave(("a", "1"), ("b", "1"), ("c", "1"))
    world.elect()
    assert world.phase() is Phase.REFUSED
    world.runtime.resigned(0)
    world.runtime.reload()
    assert world.phase() is None
    assert world.refusal() is ErrorCode.NOT_COORDINATOR


def test_growth_beside_reading_gets_a_tenth_of_the_limit_until_the_last_partition_is_read() -> None:
    world = ToyWorld(partitions=2, limit=100, loads_later=True)
    world.elect(partition=0)
    world.elect(partition=1)
    assert not world.budget.has_room(50, "growth")
    world.runtime.resigned(0)
    assert not world.budget.has_room(50, "growth")
    world.clock.settle()
    assert world.budget.has_room(50, "growth")


# Writes


def test_a_write_is_applied_then_answered() -> None:
    world = held()
    world.log.release()
    assert world.put("a", "1").code is ErrorCode.NONE
    assert world.order == ["a=1 applied", "a=1 answered NONE"]


def test_a_write_whose_append_waits_is_neither_applied_nor_answered() -> None:
    world = held()
    answer = world.put("a", "1")
    assert world.log.newest(0) == {b"a": b"1"}
    assert world.values == {}
    assert answer.code is WAITS
    world.log.release()
    assert world.values == {"a": "1"}
    assert answer.code is ErrorCode.NONE


def test_the_base_offset_is_that_of_the_first_record() -> None:
    world = ToyWorld()
    world.elect()
    offsets: list[int] = []
    for count in (2, 3, 1):
        world.coordinator().write([(b"k", b"v")] * count, offsets.append, Answer())
    assert offsets == [0, 2, 5]


def test_writes_are_applied_in_the_order_of_the_log_whatever_the_order_of_its_answers() -> None:
    world = held()
    for value in "123":
        world.put("a", value)
    world.log.answer_held(1)
    world.log.answer_held(1)
    assert world.order == []
    world.log.answer_held(0)
    assert world.order == [f"a={n} {what}" for n in (1, 2, 3) for what in ("applied", "answered NONE")]


def test_a_write_that_an_answer_brings_about_follows_after_those_before_it() -> None:
    world = held()
    coordinator = world.coordinator()
    coordinator.write([(b"a", b"1")], lambda _: world.order.append("first"), lambda _: world.put("b", "1"))
    coordinator.write([(b"a", b"2")], lambda _: world.order.append("second"), Answer())
    world.log.release(2)
    assert world.order == ["first", "second"]
    world.log.release()
    assert world.order == ["first", "second", "b=1 applied", "b=1 answered NONE"]


def test_a_write_inside_an_answer_is_applied_after_the_answer_though_its_append_is_committed_at_once() -> None:
    world = ToyWorld()
    world.elect()

    def done(_error: PeerError | None) -> None:
        world.put("b", "1")
        world.order.append("first answered")

    world.order.clear()
    world.coordinator().write([(b"a", b"1")], None, done)
    assert world.order == ["first answered", "b=1 applied", "b=1 answered NONE"]


def test_a_write_inside_an_append_is_applied_after_the_one_that_is_being_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ToyWorld()
    world.elect()
    world.order.clear()
    append = world.log.append

    def append_and_write(*args: object) -> int | None:
        monkeypatch.setattr(world.log, "append", append)
        offset = append(*args)  # type: ignore[arg-type]
        world.put("b", "1")
        return offset

    monkeypatch.setattr(world.log, "append", append_and_write)
    world.coordinator().write([(b"a", b"1")], lambda offset: world.order.append(f"offset {offset}"), Answer("a", world.order))
    assert world.order == ["offset 0", "a answered NONE", "b=1 applied", "b=1 answered NONE"]


def test_a_refused_write_is_answered_with_its_error_and_holds_up_nothing() -> None:
    world = held()
    first = world.put("a", "1")
    world.log.fail(ErrorCode.MESSAGE_TOO_LARGE)
    refused = world.put("a", "2")
    last = world.put("a", "3")
    assert (first.code, refused.code, last.code) == (WAITS, ErrorCode.MESSAGE_TOO_LARGE, WAITS)
    world.log.release()
    assert (first.code, last.code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert "a=2 applied" not in world.order
    assert world.phase() is Phase.ACTIVE


def test_a_write_that_fails_once_it_is_in_the_log_has_the_coordinator_resign() -> None:
    world = held()
    answers = [world.put("a", "1"), world.put("a", "2"), world.put("a", "3")]
    world.log.answer_held(0)
    world.log.answer_held(0, LOST)
    assert [answer.code for answer in answers] == [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
    assert world.order[2] == "resigned NOT_COORDINATOR"
    assert "a=2 applied" not in world.order
    assert world.refusal() is ErrorCode.NOT_COORDINATOR
    world.log.release()
    assert "a=3 applied" not in world.order


def test_a_bug_in_one_answer_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    world = held()
    world.coordinator().write([(b"a", b"1")], None, lambda _: 1 / 0)
    answer = world.put("b", "1")
    world.log.release()
    assert answer.code is ErrorCode.NONE
    assert "ZeroDivisionError" in caplog.text


def test_a_record_that_cannot_be_applied_fails_the_partition_which_is_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    world = held()
    answer = Answer()
    world.coordinator().write([(b"a", b"1")], lambda _: 1 / 0, answer)
    after = world.put("b", "1")
    world.log.release()
    assert (answer.code, after.code) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)
    assert world.phase() is Phase.FAILED
    assert "ZeroDivisionError" in caplog.text
    world.log.release()
    world.clock.advance(BUG_RELOAD_MS / 1000)
    assert world.values == {"a": "1", "b": "1"}
    world.clock.advance(2 * BUG_RELOAD_MS / 1000)
    assert world.order.count("loaded [('a', '1'), ('b', '1')]") == 1


def test_a_partition_that_changes_hands_after_a_bug_is_not_loaded_again() -> None:
    world = held()
    world.coordinator().fail()
    world.runtime.resigned(0)
    world.clock.advance(2 * BUG_RELOAD_MS / 1000)
    assert world.phase() is None


def test_an_append_that_raises_leaves_no_write_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ToyWorld()
    world.elect()
    with monkeypatch.context() as patched:
        patched.setattr(world.log, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.put("a", "1")
    assert world.put("b", "1").code is ErrorCode.NONE


def test_a_coordinator_that_replays_its_log_does_not_write() -> None:
    world = ToyWorld(loads_later=True)
    world.elect()
    with pytest.raises(AssertionError):
        world.put("a", "1", through=world.coordinator())


def test_what_is_written_to_finish_a_replay_is_applied_before_the_partition_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(state: ToyState) -> Steps:
        world.put("b", "2", through=state.coordinator)
        yield None

    monkeypatch.setattr(ToyState, "finish_replay", finish)
    world = ToyWorld()
    world.leave(("a", "1"))
    world.elect()
    assert world.order == ["b=2 applied", "b=2 answered NONE", "loaded [('a', '1'), ('b', '2')]"]


# After writes


def test_after_writes_comes_at_once_when_nothing_waits() -> None:
    world = held()
    answer = Answer()
    world.coordinator().after_writes(answer)
    assert answer.code is ErrorCode.NONE


def test_after_writes_waits_for_what_was_written_before_and_for_nothing_else() -> None:
    world = held()
    world.put("a", "1")
    world.coordinator().after_writes(Answer("barrier", world.order))
    world.put("a", "2")
    world.log.answer_held(1)
    assert world.order == []
    world.log.answer_held(0)
    assert world.order == ["a=1 applied", "a=1 answered NONE", "barrier answered NONE", "a=2 applied", "a=2 answered NONE"]


# Resigning


def test_resigning_answers_the_state_then_writes_in_order() -> None:
    world = held()
    for value in "12":
        world.put("a", value)
    world.coordinator().after_writes(Answer("barrier", world.order))
    world.coordinator().state.waiting.append(Answer("member", world.order))
    world.runtime.resigned(0)
    assert world.order == [
        "resigned NOT_COORDINATOR",
        *(f"{name} answered NOT_COORDINATOR" for name in ("member", "a=1", "a=2", "barrier")),
    ]
    world.log.release()
    assert len(world.order) == 5


def _answered_then(world: ToyWorld, name: str, action: Callable[[], object]) -> Callable[[PeerError | None], None]:
    def done(_error: PeerError | None) -> None:
        world.order.append(f"{name} answered")
        action()

    return done


Point = Callable[[ToyWorld, Callable[[], object]], object]


def _in_committed(world: ToyWorld, resign: Callable[[], object]) -> None:
    world.coordinator().write([(b"a", b"1")], lambda _: resign(), Answer("write", world.order))


def _in_done(world: ToyWorld, resign: Callable[[], object]) -> None:
    world.coordinator().write([(b"a", b"1")], None, _answered_then(world, "write", resign))


def _in_append(world: ToyWorld, resign: Callable[[], object]) -> None:
    append = world.log.append

    def append_and_resign(*args: object) -> int | None:
        offset = append(*args)  # type: ignore[arg-type]
        resign()
        return offset

    world.log.append = append_and_resign  # type: ignore[method-assign, assignment]
    world.coordinator().write([(b"a", b"1")], None, Answer("write", world.order))
    world.log.append = append  # type: ignore[method-assign]


def _in_after_writes(world: ToyWorld, resign: Callable[[], object]) -> None:
    world.put("a", "1")
    world.coordinator().after_writes(_answered_then(world, "barrier", resign))


def _in_refusal(world: ToyWorld, resign: Callable[[], object]) -> None:
    world.log.fail(ErrorCode.MESSAGE_TOO_LARGE)
    world.coordinator().write([(b"a", b"1")], None, _answered_then(world, "write", resign))


def _in_deadline(world: ToyWorld, resign: Callable[[], object]) -> None:
    coordinator = world.coordinator()
    coordinator.deadline("key", coordinator.now_ms(), resign)
    world.clock.settle()


def _in_sweep(world: ToyWorld, resign: Callable[[], object]) -> None:
    def steps(_coordinator: PartitionCoordinator[ToyState]) -> Steps:
        resign()
        yield None
        world.order.append("swept after resigning")

    world.runtime.add_sweep("toy", lambda: 1000, lambda: False, steps).wake()
    world.clock.advance(1)


POINTS: list[Point] = [_in_committed, _in_done, _in_append, _in_after_writes, _in_refusal, _in_deadline, _in_sweep]


@pytest.mark.parametrize("then", ["resigned", "elected again"])
@pytest.mark.parametrize("point", POINTS, ids=[point.__name__.strip("_").replace("_", " ") for point in POINTS])
def test_resigning_inside_any_callback_answers_each_write_once_and_applies_nothing_more(point: Point, then: str) -> None:
    world = held()
    coordinator = world.coordinator()
    resigned: list[int] = []

    def resign() -> None:
        if not resigned:
            resigned.append(1)
            if then == "resigned":
                world.runtime.resigned(0)
            else:
                world.elect(epoch=2)

    others = [Answer("other", world.order) for _ in range(3)]
    coordinator.deadline("later", coordinator.now_ms() + 60_000, lambda: world.order.append("deadline"))
    point(world, resign)
    if not coordinator.is_over:
        for answer in others:
            coordinator.write([(b"o", b"1")], lambda _: world.order.append("other applied"), answer)
    world.log.release()
    assert coordinator.is_over
    assert resigned
    for answer in others:
        if answer.code is WAITS:
            coordinator.write([(b"o", b"2")], lambda _: world.order.append("other applied"), answer)
    world.clock.advance(100)
    assert [answer.code for answer in others] == [ErrorCode.NOT_COORDINATOR] * 3
    at = world.order.index("resigned NOT_COORDINATOR")
    assert not [line for line in world.order[at:] if "applied" in line or line in {"deadline", "swept after resigning"}]
    assert sum(line.startswith(("write answered", "barrier answered")) for line in world.order) == (
        0 if point in (_in_deadline, _in_sweep) else 1
    )
    assert world.phase() is (None if then == "resigned" else Phase.ACTIVE)


def test_a_write_that_the_log_has_refused_keeps_its_error_when_the_partition_closes_meanwhile() -> None:
    world = ToyWorld()
    world.elect()
    answer = Answer()

    def append(_partition: int, _records: object, done: Callable[[PeerError], object], _producer: object) -> None:
        done(LOST)
        world.runtime.resigned(0)

    world.log.append = append  # type: ignore[method-assign, assignment]
    world.coordinator().write([(b"a", b"1")], None, answer)
    assert answer.code is LOST.code


def test_a_close_resigns_every_partition_and_leaves_no_timer() -> None:
    world = ToyWorld(partitions=2, loads_later=True)
    world.elect(partition=0)
    world.clock.settle()
    world.elect(partition=1)
    sweep = world.runtime.add_sweep("toy", lambda: 1000, lambda: True, lambda _: no_steps())
    sweep.wake()
    world.coordinator().deadline("key", 5000, lambda: None)
    world.clock.settle()
    world.runtime.close()
    sweep.wake()
    assert [world.phase(0), world.phase(1)] == [None, None]
    assert world.clock.pending == 0
