"""Groups are listed, described and deleted, and their offsets deleted one by one, as tools expect it."""

import pytest

from moldau.broker.groups.records import group_key
from moldau.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.records.batch import iterate_log
from support.broker_world import BrokerWorld, Client
from support.group_requests import Place, by_topic, commit, fetch, group_world, join, name
from support.memberships import subscription

NOT_ASKED = -2_147_483_648
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11


@pytest.fixture
def world() -> BrokerWorld:
    return group_world()


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    """With a group of one consumer ("busy"), one that only has offsets ("simple"), and one whose consumer has left ("left")."""
    client = world.connect()
    commit(client, "simple", {("t", 0): 1})
    left = join(client, "left", session_timeout_ms=6000)
    commit(client, "left", {("t", 0): 2}, member=left.member_id, generation=left.generation)
    world.clock.advance(6.1)
    join(client, "busy", session_timeout_ms=1_000_000)
    return client


# ListGroups


def listed(
    client: Client, version: int = 5, *, states: list[str] | None = None, types: list[str] | None = None
) -> dict[str, tuple[str, ...]]:
    answer = client.ask(ListGroupsRequest(states or [], types or []), version)
    assert answer.error_code == 0
    return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}


@pytest.mark.parametrize("version", range(6))
def test_every_group_is_listed(client: Client, version: int) -> None:
    groups = {"simple": ("", "Empty", "classic"), "left": ("consumer", "Empty", "classic"), "busy": ("consumer", "Stable", "classic")}
    known = 1 + (version >= 4) + (version >= 5)
    assert listed(client, version) == {group: (*told[:known], "", "")[:3] for group, told in groups.items()}


@pytest.mark.parametrize(
    ("states", "types", "groups"),
    [
        (["Stable"], [], {"busy"}),
        (["eMPTY"], [], {"simple", "left"}),
        (["Empty", "Stable"], ["Classic"], {"simple", "left", "busy"}),
        (["PreparingRebalance"], [], set()),
        (["nonsense"], [], set()),
        ([], ["consumer"], set()),
        ([], ["consumer", "classic"], {"simple", "left", "busy"}),
        (["Stable"], ["share"], set()),
    ],
)
def test_groups_are_listed_by_state_and_by_type(client: Client, states: list[str], types: list[str], groups: set[str]) -> None:
    assert set(listed(client, states=states, types=types)) == groups


def test_without_an_offsets_topic_there_are_no_groups() -> None:
    assert listed(BrokerWorld().connect()) == {}


# DescribeGroups


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_described_with_what_its_members_said_and_were_given(client: Client, version: int) -> None:
    (group,) = client.ask(DescribeGroupsRequest(["busy"]), version).groups
    assert (group.error_code, group.group_id, group.group_state, group.protocol_type, group.protocol_data) == (
        0,
        "busy",
        "Stable",
        "consumer",
        "range",
    )
    assert group.authorized_operations == NOT_ASKED
    (member,) = group.members
    assert member.member_id.startswith("tests-")
    assert (member.client_id, member.client_host, member.group_instance_id) == ("tests", "/192.0.2.1", None)
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"all of it")


@pytest.mark.parametrize("version", range(4, 7))
def test_a_static_member_is_described_with_its_instance(client: Client, version: int) -> None:
    join(client, "static", instance="i-1")
    (group,) = client.ask(DescribeGroupsRequest(["static"]), version).groups
    assert [each.group_instance_id for each in group.members] == ["i-1"]


def test_groups_without_members_are_described(client: Client) -> None:
    answer = client.ask(DescribeGroupsRequest(["simple", "left"]), 5)
    assert [(each.group_state, each.protocol_type, each.protocol_data, each.members) for each in answer.groups] == [
        ("Empty", "", "", []),
        ("Empty", "consumer", "", []),
    ]


def test_a_group_that_is_not_there_is_dead_or_not_found(client: Client) -> None:
    (group,) = client.ask(DescribeGroupsRequest(["no"]), 5).groups
    assert (name(group.error_code), group.group_state) == ("NONE", "Dead")
    (group,) = client.ask(DescribeGroupsRequest(["no"]), 6).groups
    assert (name(group.error_code), group.error_message, group.group_state) == ("GROUP_ID_NOT_FOUND", "Group no not found.", "Dead")


def test_operations_are_told_to_who_asks_for_them(client: Client) -> None:
    asked = client.ask(DescribeGroupsRequest(["simple", "no"], include_authorized_operations=True), 6).groups
    operations = sum(1 << number for number in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
    assert [each.authorized_operations for each in asked] == [operations, NOT_ASKED]


def test_without_an_offsets_topic_nobody_coordinates() -> None:
    (group,) = BrokerWorld().connect().ask(DescribeGroupsRequest(["g"]), 5).groups
    assert name(group.error_code) == "NOT_COORDINATOR"


# DeleteGroups


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted_with_their_offsets(client: Client, version: int) -> None:
    request = DeleteGroupsRequest(["simple", "no", "busy", "left"])
    results = client.ask(request, version).results
    assert [(each.group_id, name(each.error_code)) for each in results] == [
        ("simple", "NONE"),
        ("no", "GROUP_ID_NOT_FOUND"),
        ("busy", "NON_EMPTY_GROUP"),
        ("left", "NONE"),
    ]
    assert set(listed(client)) == {"busy"}
    assert fetch(client, "left") == fetch(client, "simple") == {}
    assert values_in_log(client.world, "left")[group_key("left")] is None


def values_in_log(world: BrokerWorld, group: str) -> dict[bytes | None, bytes | None]:
    """The newest value of every key in the partition of a group; null for those that are deleted."""
    index = world.broker.coordinators.offsets_topic.partition_for(group)
    data = world.disk.read(f"/data/__consumer_offsets-{index}/00000000000000000000.log")
    return {record.key: record.value for record in iterate_log(memoryview(data), max_decompressed_bytes=1 << 20)}


def test_a_deleted_group_may_begin_again(client: Client) -> None:
    client.ask(DeleteGroupsRequest(["left"]), 2)
    member = join(client, "left")
    assert member.generation == 1
    assert commit(client, "left", {("t", 1): 3}, member=member.member_id, generation=1) == {("t", 1): "NONE"}
    assert fetch(client, "left") == {("t", 1): 3}


def test_nothing_is_deleted_by_nobody(client: Client) -> None:
    assert client.ask(DeleteGroupsRequest([]), 2).results == []


def test_a_group_that_cannot_be_deleted_stays(client: Client) -> None:
    client.world.disk.capacity = 0
    (result,) = client.ask(DeleteGroupsRequest(["left"]), 2).results
    assert name(result.error_code) == "COORDINATOR_NOT_AVAILABLE"
    assert fetch(client, "left") == {("t", 0): 2}


# OffsetDelete


def delete(client: Client, group: str, *places: Place) -> tuple[str, dict[Place, str]]:
    topics = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in partitions])
        for topic, partitions in by_topic(places).items()
    ]
    answer = client.ask(OffsetDeleteRequest(group, topics), 0)
    codes = {(topic.name, each.partition_index): name(each.error_code) for topic in answer.topics for each in topic.partitions}
    return name(answer.error_code), codes


def test_offsets_are_deleted_one_by_one(client: Client) -> None:
    commit(client, "simple", {("t", 1): 5})
    assert delete(client, "simple", ("t", 0), ("t", 2), ("t", 3), ("no", 0)) == (
        "NONE",
        {
            ("t", 0): "NONE",
            ("t", 2): "NONE",
            ("t", 3): "UNKNOWN_TOPIC_OR_PARTITION",
            ("no", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        },
    )
    assert fetch(client, "simple") == {("t", 1): 5}


def test_what_a_member_consumes_keeps_its_offsets(client: Client) -> None:
    client.world.create_topic("u")
    member = join(client, "both", "t")
    commit(client, "both", {("t", 0): 1, ("u", 0): 2}, member=member.member_id, generation=member.generation)
    assert delete(client, "both", ("t", 0), ("u", 0)) == ("NONE", {("t", 0): "GROUP_SUBSCRIBED_TO_TOPIC", ("u", 0): "NONE"})
    assert fetch(client, "both") == {("t", 0): 1}


def test_groups_that_cannot_be_asked(client: Client) -> None:
    join(client, "connect", kind="connect")
    assert delete(client, "", ("t", 0)) == ("INVALID_GROUP_ID", {})
    assert delete(client, "no", ("t", 0)) == ("GROUP_ID_NOT_FOUND", {})
    assert delete(client, "connect", ("t", 0)) == ("NON_EMPTY_GROUP", {})
    assert delete(client, "no", ("no", 0)) == ("GROUP_ID_NOT_FOUND", {})
    assert delete(client, "simple", ("no", 0)) == ("NONE", {("no", 0): "UNKNOWN_TOPIC_OR_PARTITION"})
