"""The leader of a mirror's group: sources that it has not seen, members that departed, and states that cannot be read."""

import asyncio

from moldau.mirror.sharing.messages import Assignment, MemberState
from moldau.mirror.sharing.protocol import MirrorSharing
from moldau.mirror.sharing.shares import Ownership, Share

ONE, TWO, ROME = Share("paris", "t", 0), Share("paris", "t", 1), Share("rome", "t", 0)


def assign(sharing: MirrorSharing, **sent: MemberState | bytes) -> dict[str, Assignment]:
    states = {member: state if isinstance(state, bytes) else state.encode() for member, state in sent.items()}
    return {member: Assignment.decode(data) for member, data in asyncio.run(sharing.assign(states)).items()}


def test_partitions_of_a_source_that_is_not_seen_stay_and_those_of_no_source_are_dropped() -> None:
    sharing = MirrorSharing("m", ["paris"])
    owned = MemberState("1", Ownership((ONE, ROME), 3))
    assert assign(sharing, a=owned)["a"].shares == (ONE,)
    sharing.see("paris", [TWO])
    assert assign(sharing, a=owned)["a"].shares == (TWO,)


def test_it_is_outdated_when_it_sees_other_partitions_or_has_not_assigned() -> None:
    sharing = MirrorSharing("m", ["paris"])
    assert sharing.is_outdated
    assign(sharing, a=MemberState("1"))
    assert not sharing.is_outdated
    sharing.see("paris", [ONE])
    assert sharing.is_outdated
    assign(sharing, a=MemberState("1"))
    sharing.see("paris", [ONE])
    assert not sharing.is_outdated
    sharing.begin_join()
    assert sharing.is_outdated


def test_departed_instances_are_reported_until_members_do_not_know_them_but_not_while_a_state_cannot_be_read() -> None:
    sharing = MirrorSharing("m", [])
    knows = MemberState("1", instances=("1", "2"))
    assert assign(sharing, a=knows)["a"].departed == ("2",)
    assert assign(sharing, a=knows, b=MemberState("2"))["a"].departed == ()
    assert assign(sharing, a=MemberState("1", instances=("1",)))["a"].departed == ()
    unread = assign(sharing, a=knows, b=b"what?")["a"]
    assert (unread.departed, unread.instances) == ((), ("1", "2"))


def test_a_member_that_something_is_taken_from_must_rejoin() -> None:
    sharing = MirrorSharing("m", ["paris"])
    sharing.see("paris", [ONE, TWO])
    assigned = assign(sharing, a=MemberState("1", Ownership((ONE, TWO), 3)), b=MemberState("2"))
    assert [(each.shares, each.must_rejoin) for each in assigned.values()] == [((ONE,), True), ((), False)]


def test_rates_are_kept_while_a_partition_is_between_two_members() -> None:
    sharing = MirrorSharing("m", ["paris"])
    sharing.see("paris", [ONE, TWO])
    assign(sharing, a=MemberState("1", Ownership((ONE, TWO), 3), {ONE: 9e6, TWO: 1e6}))
    assert assign(sharing, a=MemberState("1", Ownership((TWO,), 4), {TWO: 1e6}), b=MemberState("2"))["b"].load == 9e6
