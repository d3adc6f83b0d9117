"""Coordinators are found, and asked again where they moved or still load; an error names group, partition and offset."""

from collections.abc import Callable, Iterator

import pytest

from moldau.client.cluster import Cluster
from moldau.client.errors import ConnectionLostError, RequestFailedError
from moldau.client.groups import GroupOffset, Groups
from moldau.model.errors import ErrorCode
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import find_coordinator, group_admin, metadata, offsets
from moldau.protocol.versions import SERVED, VersionRange
from support.scripted_broker import HANG_UP, Request, ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Other = Callable[[Request], object]


class Scene:
    """Brokers 1 and 2; `coordinator` is who looks after every group, by number, or an error."""

    def __init__(self, one: ScriptedBroker, two: ScriptedBroker) -> None:
        self.brokers = {1: one, 2: two}
        self.coordinator: int | ErrorCode = 2
        self.pauses = 0
        self.on_pause: Callable[[], object] = lambda: None
        self.clusters: list[Cluster] = []

    def groups(self, other: Other) -> Groups:
        for broker in self.brokers.values():
            broker.script = lambda request: self._answer(request, other)
        self.clusters.append(Cluster(self.brokers[1].bootstrap, timeout_s=5.0, sleep=self._sleep))
        return Groups(self.clusters[-1])

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()

    def _sleep(self, _: float) -> None:
        self.pauses += 1
        self.on_pause()

    def _answer(self, request: Request, other: Other) -> object:
        match request.api_key:
            case ApiKey.METADATA:
                known = [metadata.MetadataResponseBroker(number, "127.0.0.1", broker.port) for number, broker in self.brokers.items()]
                return metadata.MetadataResponse(brokers=known, cluster_id="scripted", controller_id=1)
            case ApiKey.FIND_COORDINATOR:
                (key,) = request.message.coordinator_keys
                if isinstance(self.coordinator, ErrorCode):
                    return find_coordinator.FindCoordinatorResponse(
                        coordinators=[find_coordinator.Coordinator(key, -1, "", -1, self.coordinator)]
                    )
                port = self.brokers[self.coordinator].port
                found = find_coordinator.Coordinator(key, self.coordinator, "127.0.0.1", port)
                return find_coordinator.FindCoordinatorResponse(coordinators=[found])
            case _:
                return other(request)

    def asked(self, broker: int, api_key: ApiKey) -> int:
        return sum(request.api_key is api_key for request in self.brokers[broker].requests)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        scene = Scene(one, two)
        yield scene
        scene.close()


def committed(request: Request, error: ErrorCode = ErrorCode.NONE) -> offsets.OffsetCommitResponse:
    topics = [
        offsets.OffsetCommitResponseTopic(
            topic.name, partitions=[offsets.OffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions]
        )
        for topic in request.message.topics
    ]
    return offsets.OffsetCommitResponse(topics=topics)


def deleted(error: ErrorCode = ErrorCode.NONE) -> group_admin.DeleteGroupsResponse:
    return group_admin.DeleteGroupsResponse(results=[group_admin.DeletableGroupResult("g", error)])


def test_the_coordinator_is_asked_and_remembered(scene: Scene) -> None:
    groups = scene.groups(committed)
    groups.commit("g", {T0: GroupOffset(Offset(5)), T1: GroupOffset(Offset(7), 3, "note")})
    groups.commit("g", {T0: GroupOffset(Offset(6))})
    assert (scene.asked(2, ApiKey.OFFSET_COMMIT), scene.asked(1, ApiKey.OFFSET_COMMIT)) == (2, 0)
    assert scene.asked(1, ApiKey.FIND_COORDINATOR) + scene.asked(2, ApiKey.FIND_COORDINATOR) == 1
    first = next(request for request in scene.brokers[2].requests if request.api_key is ApiKey.OFFSET_COMMIT)
    assert (first.version, first.message.generation_id_or_member_epoch, first.message.member_id) == (9, -1, ""), "by name, as no member"
    (topic,) = first.message.topics
    sent = [(p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata) for p in topic.partitions]
    assert sent == [(0, 5, -1, ""), (1, 7, 3, "note")]


def test_a_coordinator_that_moved_is_looked_up_again(scene: Scene) -> None:
    def other(request: Request) -> object:
        if scene.coordinator == 2:
            scene.coordinator = 1
            return committed(request, ErrorCode.NOT_COORDINATOR)
        return committed(request)

    scene.groups(other).commit("g", {T0: GroupOffset(Offset(5))})
    assert (scene.asked(1, ApiKey.OFFSET_COMMIT), scene.pauses) == (1, 1)


def test_a_coordinator_that_does_not_exist_yet_or_loads_is_waited_for(scene: Scene) -> None:
    scene.coordinator = ErrorCode.COORDINATOR_NOT_AVAILABLE
    errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    scene.on_pause = lambda: setattr(scene, "coordinator", 1)
    scene.groups(lambda request: committed(request, errors.pop() if errors else ErrorCode.NONE)).commit("g", {T0: GroupOffset(Offset(5))})
    assert scene.pauses == 2


def test_a_lost_connection_is_tried_again_only_where_that_does_no_harm(scene: Scene) -> None:
    answers = [HANG_UP]
    scene.groups(lambda request: answers.pop() if answers else committed(request)).commit("g", {T0: GroupOffset(Offset(5))})
    assert scene.pauses == 1
    with pytest.raises(ConnectionLostError):
        scene.groups(lambda _: HANG_UP).delete("g")
    assert scene.asked(2, ApiKey.DELETE_GROUPS) == 1


def test_a_refused_commit_names_group_partition_and_offset(scene: Scene) -> None:
    groups = scene.groups(lambda request: committed(request, ErrorCode.UNKNOWN_MEMBER_ID))
    with pytest.raises(RequestFailedError, match="group g, partition t-1: unknown member id at offset 7") as caught:
        groups.commit("g", {T1: GroupOffset(Offset(7))})
    assert (caught.value.code, caught.value.subject) == (ErrorCode.UNKNOWN_MEMBER_ID, T1)


def test_offsets_without_a_commit_are_left_out_and_an_unknown_group_has_none(scene: Scene) -> None:
    def other(request: Request) -> object:
        (group,) = request.message.groups
        if group.group_id == "none":
            return offsets.OffsetFetchResponse(groups=[offsets.OffsetFetchResponseGroup("none", [], ErrorCode.GROUP_ID_NOT_FOUND)])
        found = [offsets.OffsetFetchResponsePartitions(0, 5, 2, "note"), offsets.OffsetFetchResponsePartitions(1, -1, -1, "")]
        topic = offsets.OffsetFetchResponseTopics("t", partitions=found)
        return offsets.OffsetFetchResponse(groups=[offsets.OffsetFetchResponseGroup("g", [topic])])

    groups = scene.groups(other)
    assert groups.committed("g") == {T0: GroupOffset(Offset(5), 2, "note")}
    assert groups.committed("none") == {}
    assert groups.committed("g", []) == {}


def test_every_broker_lists_its_groups(scene: Scene) -> None:
    errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    def other(request: Request) -> object:
        if errors:
            return group_admin.ListGroupsResponse(error_code=errors.pop())
        name = f"g{len(scene.brokers[1].requests)}" if request in scene.brokers[1].requests else "a"
        return group_admin.ListGroupsResponse(groups=[group_admin.ListedGroup(name, "consumer", "Stable", "classic")])

    listed = scene.groups(other).list_groups(["Stable"])
    assert [each.coordinator for each in listed] == [2, 1], "by name"
    assert (listed[0].group, listed[0].state, listed[0].type) == ("a", "Stable", "classic")
    assert scene.brokers[2].requests[-1].message.states_filter == ["Stable"]


def test_a_dead_group_is_none(scene: Scene) -> None:
    dead = group_admin.DescribeGroupsResponse(groups=[group_admin.DescribedGroup(group_id="g", group_state="Dead")])
    with pytest.raises(RequestFailedError, match="group g: group id not found"):
        scene.groups(lambda _: dead).describe("g")


def test_members_that_are_no_consumers_have_no_known_partitions(scene: Scene) -> None:
    member = group_admin.DescribedGroupMember("m-1", None, "worker", "/10.0.0.1", b"\x00\x01", b"\x00\x01")
    found = group_admin.DescribedGroup(group_id="g", group_state="Stable", protocol_type="connect", members=[member])
    described = scene.groups(lambda _: group_admin.DescribeGroupsResponse(groups=[found])).describe("g")
    assert (described.members[0].host, described.members[0].partitions) == ("10.0.0.1", None)
    assert described.has_members


def test_deleting(scene: Scene) -> None:
    answers: list[object] = [deleted(), deleted(ErrorCode.NON_EMPTY_GROUP), deleted(ErrorCode.NOT_COORDINATOR), deleted()]
    groups = scene.groups(lambda _: answers.pop(0))
    groups.delete("g")
    with pytest.raises(RequestFailedError, match="group g: non empty group"):
        groups.delete("g")
    groups.delete("g")
    assert not answers


def test_deleting_offsets(scene: Scene) -> None:
    def other(request: Request) -> object:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if request.message.group_id == "busy" else ErrorCode.NONE
        partitions = [
            group_admin.OffsetDeleteResponsePartition(each.partition_index, code) for each in request.message.topics[0].partitions
        ]
        return group_admin.OffsetDeleteResponse(topics=[group_admin.OffsetDeleteResponseTopic("t", partitions)])

    groups = scene.groups(other)
    groups.delete_offsets("g", [T1, T0])
    assert [each.partition_index for each in scene.brokers[2].requests[-1].message.topics[0].partitions] == [0, 1]
    with pytest.raises(RequestFailedError, match="group busy, partition t-0: group subscribed to topic"):
        groups.delete_offsets("busy", [T0])


def test_a_broker_that_only_knows_topics_by_id_is_refused() -> None:
    """Offsets of a topic that was deleted have a name and no id."""
    versions = {**SERVED, ApiKey.OFFSET_COMMIT: VersionRange(10, 12)}
    with ScriptedBroker(versions=versions) as one, ScriptedBroker(versions=versions) as two:
        scene = Scene(one, two)
        groups = scene.groups(committed)
        with pytest.raises(RequestFailedError, match="offset_commit is spoken here in versions 8-9, the broker serves versions 10-12"):
            groups.commit("g", {T0: GroupOffset(Offset(5))})
        scene.close()
