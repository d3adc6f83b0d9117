"""The same thing passes once in its interval, and no more things than can be remembered pass in one."""

from moldau.model.log_throttle import LogThrottle


def test_the_same_thing_passes_once_in_the_interval() -> None:
    throttle = LogThrottle(60.0, 10)
    assert [throttle.due("a", now) for now in (0.0, 59.9, 60.0, 60.1, 119.9, 120.0)] == [True, False, True, False, False, True]
    assert throttle.due("b", 120.0)


def test_a_flood_of_things_passes_no_more_often_than_it_can_be_remembered() -> None:
    throttle = LogThrottle(60.0, 10)
    passed = [now for now in range(1000) if throttle.due(f"client {now}", float(now))]
    assert passed[:11] == [*range(10), 60]
    assert len(passed) <= 10 * (1000 // 60 + 1)
