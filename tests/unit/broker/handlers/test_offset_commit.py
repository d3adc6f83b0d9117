"""OffsetCommit and OffsetFetch: what is committed is what is fetched, in every version, by members and by those who are none."""

from pathlib import Path

import pytest

from moldau.broker.groups.offsets import NO_TOPIC_ID
from moldau.broker.groups.records import decode_offset, offset_key
from moldau.cluster import znodes
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.records.batch import iterate_log
from support.broker_world import BrokerWorld, Client
from support.group_requests import Fetched, commit, delete_between_steps, fetch, fetch_all, group_world, join

NOTHING = Fetched(-1, -1, "", "NONE")
INT64_MAX = 2**63 - 1
DAY_MS = 86_400_000


@pytest.fixture
def world() -> BrokerWorld:
    return group_world()


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


@pytest.mark.parametrize("version", range(2, 11))
def test_what_is_committed_in_any_version_is_fetched_in_any(client: Client, version: int) -> None:
    committed = {("t", 0): 5, ("t", 2): 0}
    assert commit(client, "g", committed, version=version, metadata="where", leader_epoch=3) == dict.fromkeys(committed, "NONE")
    epoch = 3 if version >= 6 else -1
    for other in range(1, 11):
        told_epoch = epoch if other >= 5 else -1
        error, found = fetch_all(client, "g", [("t", 0), ("t", 1), ("t", 2)], version=other)
        assert error == "NONE"
        assert found == {
            ("t", 0): Fetched(5, told_epoch, "where", "NONE"),
            ("t", 1): NOTHING,
            ("t", 2): Fetched(0, told_epoch, "where", "NONE"),
        }


@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_stand_for_all_that_the_group_has(world: BrokerWorld, client: Client, version: int) -> None:
    world.create_topic("u")
    commit(client, "g", {("t", 1): 7, ("u", 0): 9})
    assert fetch(client, "g", version=version) == {("t", 1): 7, ("u", 0): 9}
    assert fetch(client, "other", version=version) == {}
    assert fetch(client, "g", [], version=version) == {}


@pytest.mark.parametrize("version", range(8, 11))
def test_many_groups_are_told_at_once_each_for_itself(client: Client, version: int) -> None:
    commit(client, "a", {("t", 0): 1})
    commit(client, "b", {("t", 0): 2})
    answer = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None) for group in ("b", "none", "a")]), version)
    assert [(each.group_id, [topic.partitions[0].committed_offset for topic in each.topics]) for each in answer.groups] == [
        ("b", [2]),
        ("none", []),
        ("a", [1]),
    ]


def test_metadata_is_kept_as_it_is_and_null_is_the_empty_text(client: Client) -> None:
    for text in ("", "héllo 😀", "x" * 4096):
        commit(client, "g", {("t", 0): 1}, metadata=text)
        assert fetch_all(client, "g")[1]["t", 0].metadata == text
    commit(client, "g", {("t", 0): 1}, metadata=None)
    assert fetch_all(client, "g")[1]["t", 0].metadata == ""


def test_metadata_that_is_too_long_is_refused_alone() -> None:
    client = group_world(offset_metadata_max_bytes=10).connect()
    place = ("t", 0)
    assert commit(client, "g", {place: 1}, metadata="ten chars!") == {place: "NONE"}
    for text in ("eleven char", "😀" * 6):  # the length is Java's
        assert commit(client, "g", {place: 2}, metadata=text) == {place: "OFFSET_METADATA_TOO_LARGE"}
    assert commit(client, "g", {place: 2}, metadata="😀" * 5) == {place: "NONE"}
    assert commit(client, "new", {place: 2}, metadata="eleven char") == {place: "OFFSET_METADATA_TOO_LARGE"}
    assert client.world.broker.groups.group_for("new") is None


def test_a_partition_that_is_not_there_is_refused_alone(client: Client) -> None:
    assert commit(client, "g", {("t", 0): 1, ("t", 3): 1, ("t", -1): 1, ("no", 0): 1}) == {
        ("t", 0): "NONE",
        ("t", 3): "UNKNOWN_TOPIC_OR_PARTITION",
        ("t", -1): "UNKNOWN_TOPIC_OR_PARTITION",
        ("no", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert commit(client, "g", {("no", 0): 1}, version=10) == {("no", 0): "UNKNOWN_TOPIC_ID"}
    assert commit(client, "other", {("no", 0): 1}) == {("no", 0): "UNKNOWN_TOPIC_OR_PARTITION"}
    assert client.world.broker.groups.group_for("other") is None
    assert client.ask(OffsetCommitRequest("g"), 9).topics == []


def test_a_topic_of_an_unknown_id_is_told_so_and_one_of_an_unknown_name_has_nothing(client: Client) -> None:
    assert fetch(client, "g", [("no", 0)], version=9) == {("no", 0): -1}
    topics = [OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0])]
    (group,) = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)]), 10).groups
    ((told,),) = (topic.partitions for topic in group.topics)
    assert (told.committed_offset, told.error_code) == (-1, 100)


def test_the_empty_id_is_a_group_for_those_who_assign_themselves(client: Client) -> None:
    assert commit(client, "", {("t", 0): 4}) == {("t", 0): "NONE"}
    assert fetch(client, "") == {("t", 0): 4}


def test_there_is_a_bound_on_groups() -> None:
    client = group_world(groups_max=2).connect()
    for group in ("a", "b", "a"):
        assert commit(client, group, {("t", 0): 1}) == {("t", 0): "NONE"}
    assert commit(client, "c", {("t", 0): 1}) == {("t", 0): "POLICY_VIOLATION"}
    assert commit(client, "b", {("t", 0): 2}) == {("t", 0): "NONE"}


# Members


def test_a_member_commits_in_its_generation_and_nobody_else_does(client: Client) -> None:
    place = ("t", 0)
    member = join(client, "g")
    assert commit(client, "g", {place: 1}, member=member.member_id, generation=member.generation) == {place: "NONE"}
    refused = [
        (commit(client, "g", {place: 2}), "UNKNOWN_MEMBER_ID"),
        (commit(client, "g", {place: 2}, member="somebody", generation=member.generation), "UNKNOWN_MEMBER_ID"),
        (commit(client, "g", {place: 2}, member=member.member_id, generation=member.generation + 1), "ILLEGAL_GENERATION"),
        (commit(client, "g", {place: 2}, member=member.member_id, generation=member.generation - 1), "ILLEGAL_GENERATION"),
        (commit(client, "g", {place: 2}, member=member.member_id, instance="other", generation=1), "UNKNOWN_MEMBER_ID"),
    ]
    assert [codes[place] for codes, _ in refused] == [code for _, code in refused]
    assert fetch(client, "g") == {place: 1}


def test_a_static_member_that_was_replaced_is_fenced(client: Client) -> None:
    member = join(client, "g", instance="i")
    place = ("t", 0)
    assert commit(client, "g", {place: 1}, member="old", instance="i", generation=member.generation) == {place: "FENCED_INSTANCE_ID"}
    assert commit(client, "g", {place: 1}, member=member.member_id, instance="i", generation=member.generation) == {place: "NONE"}


@pytest.mark.parametrize(("version", "code"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND"), (10, "GROUP_ID_NOT_FOUND")])
def test_a_member_of_a_group_that_is_not_there_is_told_so(client: Client, version: int, code: str) -> None:
    assert commit(client, "g", {("t", 0): 1}, member="m", generation=1, version=version) == {("t", 0): code}


def test_a_member_of_a_group_without_members_is_unknown(client: Client) -> None:
    commit(client, "g", {("t", 0): 1})
    assert commit(client, "g", {("t", 0): 1}, member="m", generation=1) == {("t", 0): "UNKNOWN_MEMBER_ID"}


def test_a_commit_is_as_good_as_a_heartbeat(world: BrokerWorld, client: Client) -> None:
    member = join(client, "g", session_timeout_ms=10_000)
    for _ in range(10):
        world.clock.advance(6)
        assert commit(client, "g", {("t", 0): 1}, member=member.member_id, generation=member.generation) == {("t", 0): "NONE"}
    world.clock.advance(11)
    assert commit(client, "g", {("t", 0): 1}, member=member.member_id, generation=member.generation) == {("t", 0): "UNKNOWN_MEMBER_ID"}


# Coordinators


def test_who_does_not_coordinate_the_group_says_so() -> None:
    world = BrokerWorld()
    world.create_topic("t")
    client = world.connect()
    assert commit(client, "g", {("t", 0): 1}) == {("t", 0): "NOT_COORDINATOR"}
    assert fetch_all(client, "g", [("t", 0)]) == ("NOT_COORDINATOR", {})
    assert fetch_all(client, "g", [("t", 0)], version=2) == ("NOT_COORDINATOR", {})
    assert fetch_all(client, "g", [("t", 0)], version=1)[1] == {("t", 0): Fetched(-1, -1, "", "NOT_COORDINATOR")}


def test_a_restarted_broker_knows_everything(tmp_path: Path) -> None:
    world = group_world(store=str(tmp_path / "store"))
    client = world.connect()
    commit(client, "g", {("t", 0): 5, ("t", 1): 6}, metadata="m", leader_epoch=2)
    commit(client, "g", {("t", 1): 7})
    world.restart()
    world.clock.settle()
    assert fetch_all(world.connect(), "g") == ("NONE", {("t", 0): Fetched(5, 2, "m", "NONE"), ("t", 1): Fetched(7, -1, "", "NONE")})


def test_while_it_reads_clients_are_told_to_come_again(tmp_path: Path) -> None:
    world = group_world(store=str(tmp_path / "store"))
    commit(world.connect(), "g", {("t", 0): 5})
    world.restart()
    broker = world.broker
    with pytest.raises(PeerError, match="is being read") as caught:
        broker.groups.group_for("g")
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.clock.settle()
    assert broker.groups.group_for("g") is not None


def test_a_commit_that_cannot_be_stored_leaves_what_was_there(world: BrokerWorld, client: Client) -> None:
    commit(client, "g", {("t", 0): 1})
    world.disk.capacity = 0
    assert commit(client, "g", {("t", 0): 2}) == {("t", 0): "COORDINATOR_NOT_AVAILABLE"}
    assert fetch(client, "g") == {("t", 0): 1}
    world.disk.capacity = None
    assert commit(client, "g", {("t", 0): 3}) == {("t", 0): "NONE"}
    assert fetch(client, "g") == {("t", 0): 3}


def test_a_commit_of_more_than_a_batch_may_hold_is_refused() -> None:
    world = group_world(message_max_bytes=1000)
    client = world.connect()
    places = {("t", index): 1 for index in range(3)}
    assert set(commit(client, "g", places, metadata="x" * 400).values()) == {"INVALID_COMMIT_OFFSET_SIZE"}
    assert set(commit(client, "g", places, metadata="x" * 100).values()) == {"NONE"}


def test_an_answer_waits_for_the_sync_that_the_topic_asks_for() -> None:
    world = group_world(immediate=False, log_flush_interval_messages=1)
    world.background.run_all()
    client = world.connect()
    with pytest.raises(ValueError, match="not enough values"):
        commit(client, "g", {("t", 0): 1})
    world.background.run_all()
    (answer,) = client.answers()
    assert answer.body.topics[0].partitions[0].error_code == 0


# Topics that come and go


def test_the_offsets_of_a_deleted_topic_go_with_it(world: BrokerWorld, client: Client, tmp_path: Path) -> None:
    world.create_topic("u")
    commit(client, "g", {("t", 0): 1, ("u", 0): 2})
    commit(client, "h", {("u", 0): 2})
    world.delete_topics("u")
    assert fetch(client, "g") == {("t", 0): 1}
    world.create_topic("u")
    assert fetch(client, "h", [("u", 0)]) == {("u", 0): -1}
    assert stored(world, "h", "u") is None


@pytest.mark.parametrize("recreate", [False, True])
def test_a_commit_whose_topic_is_deleted_before_it_is_appended_leaves_no_offset(
    monkeypatch: pytest.MonkeyPatch, world: BrokerWorld, recreate: bool
) -> None:
    """The topic exists when the commit is judged, and the removal of its offsets has ended at the append. Clients retry."""
    client = world.connect()
    world.create_topic("wide", 200)
    places = [("t", 0), *(("wide", index) for index in range(200))]
    delete_between_steps(monkeypatch, world, "wide", recreate=recreate)
    assert set(commit(client, "g", dict.fromkeys(places, 5)).values()) == {"COORDINATOR_LOAD_IN_PROGRESS"}
    assert world.broker.groups.group_for("g") is None
    codes = commit(client, "g", dict.fromkeys(places, 5))
    stored = [place for place, code in codes.items() if code == "NONE"]
    assert stored == ([("t", 0), ("wide", 0)] if recreate else [("t", 0)])
    assert set(codes.values()) == {"NONE", "UNKNOWN_TOPIC_OR_PARTITION"}
    assert fetch(client, "g") == dict.fromkeys(stored, 5)


def test_a_deletion_that_a_crash_interrupted_takes_the_offsets_too(tmp_path: Path) -> None:
    world = group_world(store=str(tmp_path / "store"))
    world.create_topic("u")
    commit(world.connect(), "g", {("t", 0): 1, ("u", 0): 2})
    world.store.create(znodes.delete_topic("u"))
    world.restart()
    world.clock.settle()
    assert fetch(world.connect(), "g") == {("t", 0): 1}
    assert stored(world, "g", "u") is None


def stored(world: BrokerWorld, group: str, topic: str) -> bytes | None:
    """The newest value in the log of what a group has committed in partition 0 of a topic."""
    index = world.broker.coordinators.offsets_topic.partition_for(group)
    data = world.disk.read(f"/data/__consumer_offsets-{index}/00000000000000000000.log")
    records = iterate_log(memoryview(data), max_decompressed_bytes=1 << 20)
    return [record.value for record in records if record.key == offset_key(group, topic, 0)][-1]


def test_what_was_committed_in_an_earlier_topic_of_the_name_does_not_count(world: BrokerWorld, client: Client) -> None:
    """A crash between the end of a topic and that of its offsets leaves them; the topic's id tells."""
    world.create_topic("u")
    commit(client, "g", {("u", 0): 2})
    group = world.broker.groups.group_for("g")
    assert group is not None
    offset = group.offsets.committed["u"][0]
    world.delete_topics("u")
    world.create_topic("u")
    group.offsets.put("u", 0, offset)
    assert fetch(client, "g", [("u", 0)]) == {("u", 0): -1}
    assert fetch(client, "g") == {}
    group.offsets.put("u", 0, offset._replace(topic_id=NO_TOPIC_ID))  # an older broker did not say it
    assert fetch(client, "g") == {("u", 0): 2}


def test_a_time_of_its_own_is_kept_with_an_offset_in_the_versions_that_have_it(world: BrokerWorld, client: Client) -> None:
    for version, expires in [(2, DAY_MS), (4, DAY_MS), (5, None)]:
        commit(client, "g", {("t", 0): 1}, version=version, retention_ms=DAY_MS)
        value = stored(world, "g", "t")
        assert value is not None
        assert value[:2] == (b"\0\1" if expires else b"\0\4")
        expected = -1 if expires is None else world.clock.time_ms() + expires
        assert decode_offset(value, 0, {}).expire_timestamp_ms == expected


def test_the_longest_time_to_keep_an_offset_is_one_without_an_end(world: BrokerWorld, client: Client) -> None:
    assert commit(client, "g", {("t", 0): 1}, version=2, retention_ms=INT64_MAX) == {("t", 0): "NONE"}
    value = stored(world, "g", "t")
    assert value is not None
    assert decode_offset(value, 0, {}).expire_timestamp_ms == INT64_MAX
