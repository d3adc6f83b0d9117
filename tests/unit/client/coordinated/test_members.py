"""What one member does when others come and go, when its connection or its session ends, and when nodes are not as it expects."""

import logging

import pytest

from moldau.client.coordinated import nodes
from moldau.client.coordinated.member import CONFLICTS_LOGGED
from moldau.client.coordinated.offsets import DualOffsets, Offsets, TreeOffsets
from moldau.model.errors import CoordinationError, MoldauError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Children, Create, Data, Delete, GetChildren, GetData, Outcome, Request, SetData
from support.coordinated_members import GROUP, SESSION_S, TIMING, Member, TreeOfTopics

P = [TopicPartition("t", number) for number in range(8)]


def world(partitions: int = 4) -> TreeOfTopics:
    made = TreeOfTopics({"t": partitions})
    made.logs.update(dict.fromkeys(P, 100))
    return made


def ask(world: TreeOfTopics, request: Request) -> Outcome:
    outcomes: list[Outcome] = []
    world.admin.submit(request, outcomes.append)
    return outcomes[0]


def owners(world: TreeOfTopics, *partitions: TopicPartition) -> list[str | None]:
    found = [world.owner(where) for where in partitions]
    return [None if owner is None else owner[0] for owner in found]


def members(world: TreeOfTopics) -> list[str]:
    found = ask(world, GetChildren(nodes.ids(GROUP)))
    assert isinstance(found, Children)
    return list(found.names)


def put(world: TreeOfTopics, path: str, data: bytes) -> None:
    outcome = ask(world, Create(path, data))
    assert not isinstance(outcome, CoordinationError), outcome


def test_alone_it_registers_owns_all_and_begins_where_the_group_has_committed() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 2})
    assert members(tree) == ["a"]
    found = ask(tree, GetData(nodes.registration(GROUP, "a")))
    assert isinstance(found, Data)
    assert found.data == b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1700000000000"}'
    assert found.stat.owner == one.session.session_id
    assert owners(tree, *P[:4]) == ["a-0", "a-0", "a-1", "a-1"], "a range for each thread"
    assert dict(one.starts) == dict.fromkeys(P[:4])


def test_who_comes_gets_its_range_and_who_goes_leaves_it_to_the_others() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    two = Member(tree, "b", {"t": 1})
    assert owners(tree, *P[:4]) == ["a-0", "a-0", "b-0", "b-0"]
    assert (sorted(one.at), sorted(two.at)) == (P[:2], P[2:4])
    two.close()
    assert two.is_closed
    assert members(tree) == ["a"]
    assert sorted(one.at) == P[:4]
    one.session.suspend()
    one.session.expire()
    assert owners(tree, *P[:4]) == [None] * 4


def test_a_release_commits_what_is_finished_so_that_nothing_comes_twice() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1}, timing=TIMING._replace(commit_interval_s=None))
    for where in P[:4]:
        one.take(where, 7 + where.partition)
    two = Member(tree, "b", {"t": 1})
    assert two.starts == [(P[2], 9), (P[3], 10)]
    assert one.at == {P[0]: 7, P[1]: 8}, "its own too, which it had released"
    two.take(P[2], 1)
    two.close()
    assert one.at[P[2]] == 10


def test_a_change_that_gives_it_no_other_partitions_does_not_interrupt_it() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    other = Member(tree, "x", {"other": 1})
    assert members(tree) == ["a", "x"]
    assert other.at == {}
    assert one.member.rebalances == 1


def test_groups_and_topics_are_shared_out_each_on_its_own() -> None:
    tree = TreeOfTopics({"t": 3, "u": 1})
    Member(tree, "a", {"t": 1, "u": 1})
    Member(tree, "b", {"t": 1})
    assert owners(tree, *P[:3], TopicPartition("u", 0)) == ["a-0", "a-0", "b-0", "a-0"]


def test_more_partitions_are_shared_out_when_they_come() -> None:
    tree = world(2)
    Member(tree, "a", {"t": 1})
    Member(tree, "b", {"t": 1})
    tree.add_partitions("t", 4)
    assert owners(tree, *P[:4]) == ["a-0", "a-0", "b-0", "b-0"]


def test_a_topic_that_does_not_exist_yet_is_read_when_it_does(caplog: pytest.LogCaptureFixture) -> None:
    tree = TreeOfTopics({})
    one = Member(tree, "a", {"t": 1})
    Member(tree, "b", {"t": 1})
    assert one.at == {}
    assert caplog.text.count("topic t does not exist yet") == 2, "once each"
    tree.create_topic("t", 2)
    assert owners(tree, *P[:2]) == ["a-0", "b-0"]


def test_it_waits_for_an_owner_that_has_not_released_yet_and_owns_nothing_meanwhile() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    one.session.hold()  # it is slow to notice
    two = Member(tree, "b", {"t": 1})
    assert two.at == {}
    assert owners(tree, *P[:4]) == ["a-0"] * 4
    one.session.release()
    assert owners(tree, *P[:4]) == ["a-0", "a-0", "b-0", "b-0"], "at once: it has watched the owner, and not waited for the back-off"
    assert sorted(two.at) == P[2:4]


def test_an_owner_that_does_not_release_is_logged_and_claims_go_on(caplog: pytest.LogCaptureFixture) -> None:
    tree = world()
    for path in nodes.parents(GROUP, ["t"]):
        ask(tree, Create(path))
    put(tree, nodes.owner(GROUP, P[1]), b"someone-0")
    one = Member(tree, "a", {"t": 1})
    tree.clock.advance(TIMING.backoff_s * CONFLICTS_LOGGED)
    assert "group g: /consumers/g/owners/t/1 is still owned by someone-0; claimed 4 times, trying again" in caplog.text
    assert owners(tree, P[0], P[2]) == [None, None], "all or nothing"
    ask(tree, Delete(nodes.owner(GROUP, P[1])))
    assert sorted(one.at) == P[:4]


# Connection and session


def test_a_connection_that_is_back_soon_interrupts_nothing() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    one.take(P[0], 5)
    one.store()
    one.session.suspend()
    tree.clock.advance(1.0)
    assert sorted(one.at) == P[:4]
    two = Member(tree, "b", {"t": 1})
    one.session.resume()
    assert (one.at[P[0]], sorted(two.at)) == (5, P[2:4]), "and it sees what came meanwhile"


def test_in_doubt_it_stops_and_commits_what_it_had_finished_if_the_session_lives() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1}, timing=TIMING._replace(commit_interval_s=None))
    one.take(P[0], 5)
    one.store()
    one.take(P[0], 5)
    one.session.suspend()
    tree.clock.advance(SESSION_S / 3)
    assert one.at == {}
    one.session.resume()
    assert one.at[P[0]] == tree.committed(P[0]) == 5


def test_after_its_session_it_registers_again_and_commits_nothing_of_the_old_one() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1}, timing=TIMING._replace(commit_interval_s=None))
    one.take(P[0], 5)
    one.store()
    one.session.suspend()
    one.session.expire()
    two = Member(tree, "b", {"t": 1})
    assert sorted(two.at) == P[:4]
    one.session.resume()  # before it could be in doubt
    assert (tree.committed(P[0]), one.at[P[0]]) == (None, 0)
    assert owners(tree, *P[:4]) == ["a-0", "a-0", "b-0", "b-0"]
    assert tree.owner(P[0]) == ("a-0", one.session.session_id)


@pytest.mark.parametrize("nth", range(1, 30))
def test_whichever_answer_is_lost_all_is_owned_when_the_connection_is_back(nth: int) -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1}, latency_s=0.01)
    one.session.lose_answer(nth)
    tree.clock.advance(1.0)
    one.session.resume()
    two = Member(tree, "b", {"t": 1}, latency_s=0.01)
    tree.clock.advance(1.0)
    one.session.resume()
    tree.clock.advance(1.0)
    assert owners(tree, *P[:4]) == ["a-0", "a-0", "b-0", "b-0"]
    assert (sorted(one.at), sorted(two.at)) == (P[:2], P[2:4])


def test_a_request_that_fails_is_tried_again_after_the_back_off(caplog: pytest.LogCaptureFixture) -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    one.session.fail_next(CoordinationError("the server is busy", retriable=True))
    tree.add_partitions("t", 5)
    assert sorted(one.at) == P[:4]
    assert "rebalance failed: the server is busy; trying again in 0.5 s" in caplog.text
    tree.clock.advance(TIMING.backoff_s)
    assert sorted(one.at) == P[:5]


def test_closed_without_a_connection_it_ends_and_names_what_it_could_not_commit() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    one.take(P[0], 5)
    one.session.suspend()
    one.close()
    assert one.is_closed
    assert one.member.uncommitted == {P[0]: 5}


def test_closed_when_its_connection_ends_on_the_way() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1}, latency_s=0.1)
    tree.clock.advance(5.0)
    one.take(P[0], 5)
    one.close()
    assert not one.is_closed
    one.session.suspend()
    assert one.is_closed


# Nodes of others


def test_members_of_kafka_08_are_counted_and_malformed_ones_named(caplog: pytest.LogCaptureFixture) -> None:
    tree = world(6)
    one = Member(tree, "m", {"t": 1})
    put(
        tree,
        nodes.registration(GROUP, "a_host-1-2"),
        b'{"version":1,"subscription":{"t.*":2},"pattern":"white_list","timestamp":"1400000000000"}',
    )
    put(tree, nodes.registration(GROUP, "b"), b"{}")
    assert sorted(one.at) == P[4:6], "two threads come before it"
    assert "/consumers/g/ids/b: cannot read b'{}'; this member gets no partitions" in caplog.text


def test_a_registration_that_was_removed_is_made_again() -> None:
    tree = world()
    Member(tree, "a", {"t": 1})
    ask(tree, Delete(nodes.registration(GROUP, "a")))
    assert members(tree) == ["a"]
    assert owners(tree, *P[:4]) == ["a-0"] * 4


def test_an_owner_node_that_was_removed_does_not_stop_a_release() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    ask(tree, Delete(nodes.owner(GROUP, P[1])))
    Member(tree, "b", {"t": 1})
    assert owners(tree, *P[:4]) == ["a-0", "a-0", "b-0", "b-0"]
    assert sorted(one.at) == P[:2]


def test_a_malformed_topic_has_no_partitions(caplog: pytest.LogCaptureFixture) -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    ask(tree, SetData("/brokers/topics/t", b"nonsense"))
    assert one.at == {}
    assert "/brokers/topics/t: cannot read b'nonsense'; none of its partitions are read" in caplog.text


# Offsets


def test_commits_by_interval_and_by_hand() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    one.take(P[0], 5)
    one.store()
    assert tree.committed(P[0]) is None
    tree.clock.advance(1.0)
    assert tree.committed(P[0]) == 5
    outcomes: list[MoldauError | None] = []
    one.member.commit({P[0]: 6, P[1]: 9, P[7]: 1}, outcomes.append)
    assert outcomes == [None]
    assert [tree.committed(where) for where in (P[0], P[1], P[7])] == [6, 9, None], "not of a partition that it does not own"


def test_a_commit_that_fails_is_logged_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    one.take(P[0], 5)
    one.store()
    one.session.fail_next(CoordinationError("the server is busy", retriable=True))
    tree.clock.advance(1.0)
    assert "group g: partition t-0 at offset 5 not committed: the server is busy" in caplog.text
    tree.clock.advance(1.0)
    assert tree.committed(P[0]) == 5


def test_offsets_that_a_tool_has_removed_are_written_again() -> None:
    tree = world()
    one = Member(tree, "a", {"t": 1})
    ask(tree, Delete("/consumers/g/offsets/t"))
    ask(tree, Delete("/consumers/g/offsets"))
    one.take(P[0], 5)
    one.take(P[1], 6)
    one.store()
    tree.clock.advance(1.0)
    assert [tree.committed(where) for where in P[:2]] == [5, 6]


def test_an_offset_that_is_no_number_counts_as_none(caplog: pytest.LogCaptureFixture) -> None:
    tree = world()
    for path in nodes.parents(GROUP, ["t"]):
        ask(tree, Create(path))
    put(tree, nodes.offset(GROUP, P[0]), b"many")
    put(tree, nodes.offset(GROUP, P[1]), b"7")
    one = Member(tree, "a", {"t": 1})
    assert dict(one.starts) == {P[0]: None, P[1]: 7, P[2]: None, P[3]: None}
    assert "/consumers/g/offsets/t/0: cannot read b'many'; partition t-0 is read as without a committed offset" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


def test_offsets_in_two_places() -> None:
    """Committed in both, and the larger one counts; what the first has not, the second has not."""
    tree = world()
    for path in nodes.parents("one", ["t"]) + nodes.parents("two", ["t"]):
        ask(tree, Create(path))
    both = DualOffsets(TreeOffsets(tree.admin, "one"), TreeOffsets(tree.admin, "two"))
    put(tree, nodes.offset("one", P[0]), b"3")
    put(tree, nodes.offset("two", P[0]), b"2")
    put(tree, nodes.offset("two", P[1]), b"5")
    found: list[Offsets | MoldauError | None] = []
    both.read(P[:3], found.append)
    assert found.pop() == {P[0]: 3, P[1]: 5}
    both.commit({P[2]: 8}, found.append)
    both.read(P[:3], found.append)
    assert found == [None, {P[0]: 3, P[1]: 5, P[2]: 8}]
    tree.admin.fail_next(CoordinationError("no", retriable=True))
    both.commit({P[2]: 9}, found.append)
    assert isinstance(found[-1], CoordinationError)
    two = ask(tree, GetData(nodes.offset("two", P[2])))
    assert isinstance(two, Data)
    assert two.data == b"8"
