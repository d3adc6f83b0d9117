"""A budget bounds what all accounts hold together; what shrinks or stays is always allowed."""

import logging

import pytest

from moldau.broker.admission.state import Account, Budget


class Setting:
    """A setting that changes at run time, and a clock."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = 0.0
        self.budget = Budget("some.max.bytes", lambda: self.limit, lambda: self.now)


def test_accounts_share_one_limit() -> None:
    world = Setting(100)
    one, two = Account(world.budget), Account(world.budget)
    one.add(60)
    assert two.has_room(40, "two")
    assert not two.has_room(41, "two")
    two.add(40)
    assert (world.budget.held, world.budget.refusals) == (100, 1)
    one.add(-10)
    assert two.has_room(10, "two")


def test_a_tenth_is_kept_for_what_is_there() -> None:
    world = Setting(100)
    world.budget.held = 85
    assert world.budget.has_room(5, "new", new=True)
    assert not world.budget.has_room(6, "new", new=True)
    assert world.budget.has_room(15, "known")


def test_what_does_not_grow_is_always_allowed() -> None:
    world = Setting(100)
    world.budget.held = 200
    assert world.budget.is_exceeded()
    assert not world.budget.is_exceeded(2)
    assert world.budget.has_room(0, "the same")
    assert world.budget.has_room(-5, "less")
    assert not world.budget.has_room(1, "more")


def test_growth_beside_reading_leaves_room_for_what_is_read() -> None:
    world = Setting(100)
    world.budget.reading(True)
    assert world.budget.has_room(6, "a client")
    world.budget.reading(True)
    assert not world.budget.has_room(5, "another")
    world.budget.held += 6 + 100
    assert not world.budget.is_exceeded(), "what was within the limit before is served, and what was acknowledged since"
    world.budget.reading(False)
    assert not world.budget.has_room(1, "a client")
    world.budget.held = 50
    assert world.budget.has_room(40, "a client", new=True)


def test_the_limit_may_change_at_any_time() -> None:
    world = Setting(100)
    assert not world.budget.has_room(101, "x")
    world.limit = 101
    assert world.budget.has_room(101, "x")


def test_who_is_gone_holds_nothing_and_what_it_says_later_does_not_count() -> None:
    world = Setting(100)
    account = Account(world.budget)
    account.add(70)
    account.close()
    account.add(20)
    account.close()
    assert world.budget.held == 0


def test_refusals_are_counted_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    world = Setting(10)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            world.budget.has_room(11, "the group 'g'")
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith("bound reached, refusing more: setting=some.max.bytes limit=10 held=0 wanted=11")
        world.now = 60.0
        world.budget.has_room(11, "h")
        assert "refused_so_far=1001" in caplog.messages[1]
