"""Offsets and groups that nobody needs any more go by themselves, by Kafka's rules (KIP-211); what might still be needed stays."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from moldau.broker.groups import deletion
from moldau.broker.groups.records import group_key
from moldau.model.steps import drain
from moldau.testing.clock import FakeTimer
from support.broker_world import BrokerWorld, Client
from support.group_requests import commit, fetch, group_world, join
from support.turns import slow_down

PLACE = ("t", 0)
HOUR_S = 3600.0
CHECK_S = 601.0
"""Offsets are looked over every 600 s."""


@pytest.fixture
def world() -> BrokerWorld:
    return group_world(offsets_retention_minutes=60, group_max_session_timeout_ms=1_000_000_000)


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def groups(world: BrokerWorld) -> set[str]:
    return {group_id for partition in world.broker.groups.partitions() for group_id in partition.groups}


def test_the_offsets_of_a_group_that_never_had_members_go_one_by_one_by_their_commit(world: BrokerWorld, client: Client) -> None:
    commit(client, "g", {PLACE: 1, ("t", 1): 1})
    world.clock.advance(HOUR_S - CHECK_S)
    commit(client, "g", {("t", 1): 2})
    world.clock.advance(2 * CHECK_S)
    assert fetch(client, "g") == {("t", 1): 2}
    world.clock.advance(HOUR_S)
    assert groups(world) == set()


def test_a_group_keeps_them_from_when_its_last_member_left(world: BrokerWorld, client: Client) -> None:
    member = join(client, "g", session_timeout_ms=3_000_000)
    commit(client, "g", {PLACE: 1}, member=member.member_id, generation=member.generation)
    world.clock.advance(3001)  # the member is gone now
    world.clock.advance(HOUR_S - CHECK_S)
    assert fetch(client, "g") == {PLACE: 1}
    world.clock.advance(2 * CHECK_S)
    assert groups(world) == set()
    index = world.broker.coordinators.offsets_topic.partition_for("g")
    assert group_key("g") in world.disk.read(f"/data/__consumer_offsets-{index}/00000000000000000000.log")[-100:]


def test_a_settled_group_loses_those_of_topics_that_nobody_consumes(world: BrokerWorld, client: Client) -> None:
    world.create_topic("u")
    member = join(client, "g", session_timeout_ms=1_000_000_000)
    commit(client, "g", {PLACE: 1, ("u", 0): 1}, member=member.member_id, generation=member.generation)
    world.clock.advance(HOUR_S + CHECK_S)
    assert fetch(client, "g") == {PLACE: 1}


def test_a_group_of_other_than_consumers_keeps_all_while_it_has_members(world: BrokerWorld, client: Client) -> None:
    member = join(client, "g", kind="connect", session_timeout_ms=1_000_000_000)
    commit(client, "g", {PLACE: 1}, member=member.member_id, generation=member.generation)
    world.clock.advance(2 * HOUR_S)
    assert fetch(client, "g") == {PLACE: 1}


def test_a_time_of_its_own_counts_instead(world: BrokerWorld, client: Client) -> None:
    commit(client, "short", {PLACE: 1}, version=2, retention_ms=1000)
    commit(client, "long", {PLACE: 1}, version=4, retention_ms=2 * 3_600_000)
    world.clock.advance(CHECK_S)
    assert groups(world) == {"long"}
    world.clock.advance(HOUR_S)
    assert groups(world) == {"long"}
    world.clock.advance(HOUR_S)
    assert groups(world) == set()


def test_what_a_transaction_is_about_to_change_stays(world: BrokerWorld, client: Client) -> None:
    commit(client, "g", {PLACE: 1})
    group = world.broker.groups.group_for("g")
    assert group is not None
    group.offsets.put_pending(7, [("t", 0, group.offsets.committed["t"][0])])
    world.clock.advance(2 * HOUR_S)
    assert fetch(client, "g") == {PLACE: 1}
    drain(group.offsets.end_transaction(7, committed=False))
    world.clock.advance(CHECK_S)
    assert groups(world) == set()


def test_a_group_with_members_and_without_offsets_stays_and_one_without_either_goes(world: BrokerWorld, client: Client) -> None:
    join(client, "busy", session_timeout_ms=1_000_000_000)
    join(client, "left", session_timeout_ms=6000)
    world.clock.advance(7)
    assert groups(world) == {"busy", "left"}
    world.clock.advance(CHECK_S)
    assert groups(world) == {"busy"}


def test_what_could_not_be_deleted_goes_the_next_time(world: BrokerWorld, client: Client) -> None:
    commit(client, "g", {PLACE: 1})
    world.disk.capacity = 0
    world.clock.advance(HOUR_S + CHECK_S)
    assert fetch(client, "g") == {PLACE: 1}
    world.disk.capacity = None
    world.clock.advance(CHECK_S)
    assert groups(world) == set()


def test_the_retention_and_how_often_it_is_looked_for_are_configured() -> None:
    world = group_world(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    client = world.connect()
    commit(client, "g", {PLACE: 1})
    world.clock.advance(59)
    assert groups(world) == {"g"}
    world.clock.advance(2)
    assert groups(world) == set()


def test_others_are_served_while_many_offsets_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "OFFSETS_AT_ONCE", 5)
    world = group_world(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    client = world.connect()
    world.create_topic("wide", 500)
    commit(client, "g", {("wide", index): 1 for index in range(500)})
    left: list[int] = []
    call_later = world.clock.call_later

    def observed(delay_s: float, callback: Callable[[], object]) -> FakeTimer:
        left.append(world.broker.groups.statistics()["offsets_committed"])
        return call_later(delay_s, callback)

    monkeypatch.setattr(world.clock, "call_later", observed)
    slow_down(world.clock)
    world.clock.advance(59)
    assert groups(world) == {"g"}
    world.clock.advance(10)
    assert groups(world) == set()
    assert all(before - after <= 12 * 5 for before, after in pairwise(left)), "a look at the clock takes a tenth of a turn"


def test_a_stop_ends_the_looking(world: BrokerWorld) -> None:
    world.stop()
    assert world.clock.pending == 0
