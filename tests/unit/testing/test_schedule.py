"""Time moves from event to event, and never past one that the caller has to look at."""

from random import Random

from moldau.testing.simulation.schedule import ActorGroup, Schedule


def test_an_event_of_a_process_that_stands_still_does_not_make_time_jump_to_the_next_one() -> None:
    """The loop has timers of its own between the two."""
    schedule, group, done = Schedule(Random(1)), ActorGroup("process"), list[str]()
    schedule.post(schedule.actor("thread", group), lambda: done.append("first"), 1.0)
    schedule.post(schedule.actor("other"), lambda: done.append("second"), 600.0)
    schedule.pause(group)
    assert schedule.step()
    assert (schedule.now, done) == (1.0, [])
    schedule.resume(group)
    assert schedule.step()
    assert (schedule.now, done) == (1.0, ["first"])
    assert schedule.step()
    assert (schedule.now, done) == (600.0, ["first", "second"])
    assert not schedule.step()


def test_events_of_a_process_that_has_ended_are_not_waited_for() -> None:
    schedule, group = Schedule(Random(1)), ActorGroup("process")
    schedule.post(schedule.actor("thread", group), lambda: None, 1.0)
    schedule.end(group)
    assert not schedule.step()
    assert schedule.now == 0.0
