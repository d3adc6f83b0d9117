"""Consumer groups from the outside: who they are, how far they have read, and setting that.

Subscription and assignment both begin with a version (int16) and topics; later versions add fields after those. Numbers are big-endian::

    subscription: version, topic count (int32), topic names (int16 length and text), ...
    assignment:   version, topic count (int32), for each: topic name, partition count (int32), partitions (int32 each), ...

An answer with an error raises RequestFailedError. A commit here is not one of a member: the coordinator accepts it only while the
group has no members (UNKNOWN_MEMBER_ID otherwise).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct, error
from typing import Any

from moldau.client.cluster import Cluster, CoordinatorClient, not_found
from moldau.client.errors import RequestFailedError, failure
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.identity import BrokerId, Offset, TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.versions import VersionRange

_INT16, _INT32 = Struct(">h"), Struct(">i")


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Topics in a member's subscription, sorted; None where it is of another format, or cut off."""
    try:
        count, at = _INT32.unpack_from(metadata, 2)[0], 6
        topics = []
        for _ in range(_sane(count, metadata)):
            name, at = _text(metadata, at)
            topics.append(name)
    except (error, ValueError):
        return None
    return tuple(sorted(topics))


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Partitions in a member's assignment, sorted; None where it is of another format, or cut off. No bytes are no partitions."""
    if not assignment:
        return ()
    partitions = []
    try:
        count, at = _INT32.unpack_from(assignment, 2)[0], 6
        for _ in range(_sane(count, assignment)):
            name, at = _text(assignment, at)
            (size,) = _INT32.unpack_from(assignment, at)
            at += 4
            for _ in range(_sane(size, assignment)):
                partitions.append(TopicPartition(name, _INT32.unpack_from(assignment, at)[0]))
                at += 4
    except (error, ValueError):
        return None
    return tuple(sorted(partitions))


def _sane(count: int, data: bytes) -> int:
    if not 0 <= count <= len(data):
        raise ValueError("a count beyond the end of the bytes")
    return count


def _text(data: bytes, at: int) -> tuple[str, int]:
    size: int = _INT16.unpack_from(data, at)[0]
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError("a name beyond the end of the bytes")
    return data[at + 2 : end].decode(), end


CONSUMER = "consumer"
"""Protocol type of groups of consumers; Kafka Connect's workers and others have their own."""
EMPTY, DEAD = "Empty", "Dead"
"""States of a group without members: one that is kept for its offsets, and one that is deleted."""

_BY_NAME = VersionRange(8, 9)
"""Versions of OffsetFetch and OffsetCommit that name topics, deleted ones too; from 10 on topics are ids."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in the list of its coordinator. `state` and `type` are empty where the broker does not send them."""

    group: str
    protocol_type: str
    state: str
    type: str
    coordinator: BrokerId


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member, and its assigned partitions; `partitions` is None where its assignment is of an unknown format."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members; `protocol` is the assignor that they agreed on."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: BrokerId
    members: tuple[GroupMember, ...]

    @property
    def has_members(self) -> bool:
        """Whether the group has members, or is about to."""
        return bool(self.members) or self.state not in (EMPTY, DEAD)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The offset that a group reads next in a partition, and the text that was committed with it."""

    offset: Offset
    leader_epoch: int = -1
    metadata: str = ""


class Groups:
    """The groups of `cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = CoordinatorClient(cluster)

    def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """All groups by name, or those in one of `states`, asked of every broker."""
        from moldau.protocol.messages.group_admin import ListGroupsRequest

        wanted = sorted(states)
        request = ListGroupsRequest(states_filter=wanted)
        found = []
        for broker in self._cluster.metadata([]).brokers:
            retry = self._cluster.retry()
            while True:
                response = self._cluster.at_broker(broker, ApiKey.LIST_GROUPS, request)
                if not response.error_code:
                    break
                retry.pause(failure(response.error_code, f"groups of broker {broker}"))
            found += [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type, broker) for g in response.groups]
        return sorted(found, key=lambda group: group.group)

    def describe(self, group: str) -> GroupDescription:
        """State and members of a group. RequestFailedError: GROUP_ID_NOT_FOUND, also where the broker calls it dead."""
        from moldau.protocol.messages.group_admin import DescribeGroupsRequest

        def read(response: Any) -> GroupDescription:
            found = _only(response.groups, group)
            if found.error_code:
                raise failure(found.error_code, f"group {group}", found.error_message)
            if found.group_state == DEAD:
                raise failure(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}")
            members = tuple(_member(each, found.protocol_type) for each in found.members)
            coordinator = self._coordinators.find(group)
            return GroupDescription(group, found.group_state, found.protocol_type, found.protocol_data, coordinator, members)

        return self._coordinators.ask(group, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest([group]), read)

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
    ) -> dict[TopicPartition, GroupOffset]:
        """What the group committed in these partitions, None: in all; those without a commit are left out. Nothing for an unknown group.

        Offsets that an open transaction is about to commit do not count yet; with `stable` its end is waited for (KIP-447).
        """
        from moldau.protocol.messages import offsets as messages

        topics = None
        if partitions is not None:
            topics = [messages.OffsetFetchRequestTopics(name, partition_indexes=ids) for name, ids in _numbers(partitions).items()]
            if not topics:
                return {}
        wanted = messages.OffsetFetchRequestGroup(group, topics=topics)

        def read(response: Any) -> dict[TopicPartition, GroupOffset]:
            found = _only(response.groups, group)
            if found.error_code:
                raise failure(found.error_code, f"group {group}")
            committed = {}
            for topic in found.topics:
                for each in topic.partitions:
                    where = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        raise _failure_at(each.error_code, group, where)
                    if each.committed_offset >= 0:
                        committed[where] = GroupOffset(Offset(each.committed_offset), each.committed_leader_epoch, each.metadata or "")
            return committed

        request = messages.OffsetFetchRequest(groups=[wanted], require_stable=stable)
        try:
            return self._coordinators.ask(group, ApiKey.OFFSET_FETCH, request, read, version=_BY_NAME)
        except RequestFailedError as error:
            if not_found(error):
                return {}
            raise

    def commit(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Set where the group reads next. RequestFailedError names group, partition and offset; UNKNOWN_MEMBER_ID: it has members."""
        from moldau.protocol.messages import offsets as messages

        topics: dict[str, list[Any]] = {}
        for where, to in sorted(offsets.items()):
            topics.setdefault(where.topic, []).append(
                messages.OffsetCommitRequestPartition(where.partition, to.offset, to.leader_epoch, to.metadata)
            )
        request = messages.OffsetCommitRequest(
            group, topics=[messages.OffsetCommitRequestTopic(name, partitions=partitions) for name, partitions in topics.items()]
        )

        def read(response: Any) -> None:
            for where, code in _codes(response):
                if code:
                    raise _failure_at(code, group, where, offsets[where].offset)

        if offsets:
            self._coordinators.ask(group, ApiKey.OFFSET_COMMIT, request, read, version=_BY_NAME)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget how far the group has read there. RequestFailedError: GROUP_SUBSCRIBED_TO_TOPIC, GROUP_ID_NOT_FOUND."""
        from moldau.protocol.messages import group_admin as messages

        topics = [
            messages.OffsetDeleteRequestTopic(name, [messages.OffsetDeleteRequestPartition(number) for number in numbers])
            for name, numbers in _numbers(partitions).items()
        ]

        def read(response: Any) -> None:
            if response.error_code:
                raise failure(response.error_code, f"group {group}")
            for where, code in _codes(response):
                if code:
                    raise _failure_at(code, group, where)

        self._coordinators.ask(group, ApiKey.OFFSET_DELETE, messages.OffsetDeleteRequest(group, topics), read)

    def delete(self, group: str) -> None:
        """Delete a group and its offsets. RequestFailedError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        from moldau.protocol.messages.group_admin import DeleteGroupsRequest

        def read(response: Any) -> None:
            code = _only(response.results, group).error_code
            if code:
                raise failure(code, f"group {group}")

        self._coordinators.ask(group, ApiKey.DELETE_GROUPS, DeleteGroupsRequest([group]), read, repeatable=False)


def _member(each: Any, protocol_type: str) -> GroupMember:
    topics: tuple[str, ...] | None = ()
    partitions: tuple[TopicPartition, ...] | None = None
    if protocol_type == CONSUMER:
        topics, partitions = subscribed_topics(each.member_metadata), assigned_partitions(each.member_assignment)
    host = each.client_host.removeprefix("/")
    return GroupMember(each.member_id, each.group_instance_id, each.client_id, host, topics or (), partitions)


def _only(answers: list[Any], group: str) -> Any:
    if len(answers) != 1:
        raise ProtocolError(f"group {group}: {len(answers)} answers where one was asked for")
    return answers[0]


def _numbers(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for where in sorted(partitions):
        topics.setdefault(where.topic, []).append(where.partition)
    return topics


def _codes(response: Any) -> Iterable[tuple[TopicPartition, int]]:
    return ((TopicPartition(topic.name, each.partition_index), each.error_code) for topic in response.topics for each in topic.partitions)


def _failure_at(code: int, group: str, where: TopicPartition, offset: int | None = None) -> RequestFailedError:
    at = "" if offset is None else f" at offset {offset}"
    error = failure(code, where)
    return RequestFailedError(error.code, f"group {group}, {error.message}{at}", where)
