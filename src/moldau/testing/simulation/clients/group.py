"""Membership in a consumer group of the classic protocol: join, sync, heartbeats, leave; eager or cooperative, static or not.

The consumer calls `rejoin` when `needs_rejoin`; heartbeats run by themselves and only set that. A member that the coordinator does not
know any more has lost its partitions: its next join begins without a member id.

What members say of themselves and are assigned is Kafka's consumer protocol, with range assignment. Numbers are big-endian, texts an int16
length and UTF-8::

    subscription: version, topics, user data, from 1: owned partitions, from 2: generation (int32), from 3: rack
    assignment:   version, partitions by topic, user data
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any

from moldau.client.groups import assigned_partitions, subscribed_topics
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from moldau.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.versions import VersionRange
from moldau.testing.simulation.clients.brokers import REQUEST_TIMEOUT_S, Brokers, CoordinatorType

_INT16, _INT32 = Struct(">h"), Struct(">i")
_VERSION = 2
_NO_USER_DATA = _INT32.pack(-1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it has."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    """Of the assignment that gave it what it has."""

    def encode(self) -> bytes:
        """As the metadata of a JoinGroup."""
        names = b"".join(map(_text, self.topics))
        head = _INT16.pack(_VERSION) + _INT32.pack(len(self.topics)) + names + _NO_USER_DATA
        return head + _partitions(self.owned) + _INT32.pack(self.generation_id)

    @staticmethod
    def decode(data: bytes) -> "Subscription":
        """What a member of ours has sent."""
        topics = subscribed_topics(data) or ()
        at = 6 + sum(len(_text(name)) for name in topics) + len(_NO_USER_DATA)
        owned = assigned_partitions(data[:2] + data[at:-4]) or ()
        return Subscription(topics, owned, _INT32.unpack_from(data, len(data) - 4)[0])


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """As an assignment of a SyncGroup."""
    return _INT16.pack(_VERSION) + _partitions(partitions) + _NO_USER_DATA


def range_assignment(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Of each topic's partitions each member gets a range, the first ones by member id one more where they do not divide."""
    found: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    for topic, count in sorted(counts.items()):
        takers = [member for member in found if topic in members[member].topics]
        start = 0
        for place, member in enumerate(takers):
            size = count // len(takers) + (place < count % len(takers))
            found[member] += [TopicPartition(topic, number) for number in range(start, start + size)]
            start += size
    return found


def cooperative_assignment(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """The same without what another member still has: that one revokes it first, and the next generation gives it away.

    Of two members that say they have a partition the one of the later generation has it; of one generation none has.
    """
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member, subscription in sorted(members.items()):
        for partition in subscription.owned:
            generation_id, other = owners.get(partition, (-2, ""))
            if subscription.generation_id == generation_id and other:
                owners[partition] = generation_id, ""
            elif subscription.generation_id > generation_id:
                owners[partition] = subscription.generation_id, member
    target = range_assignment(members, counts)
    return {
        member: [partition for partition in partitions if owners.get(partition, (0, ""))[1] in ("", member)]
        for member, partitions in target.items()
    }


def _text(name: str) -> bytes:
    encoded = name.encode()
    return _INT16.pack(len(encoded)) + encoded


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    entries = (_text(topic) + _INT32.pack(len(numbers)) + b"".join(map(_INT32.pack, numbers)) for topic, numbers in topics.items())
    return _INT32.pack(len(topics)) + b"".join(entries)


PROTOCOL_TYPE = "consumer"
COOPERATIVE = "cooperative-sticky"
RANGE = "range"
_GROUP = CoordinatorType.GROUP
_TWO_STEPS = VersionRange(4, 9)
"""Of JoinGroup: a new member is given its id before it waits."""
_MEMBERS = VersionRange(3, 5)
_BY_NAME = VersionRange(2, 9)
_STABLE = VersionRange(8, 9)
_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who a consumer is in its group; without a member id it commits as one that is no member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


class SimulatedMembership:
    """See the module."""

    def __init__(
        self,
        brokers: Brokers,
        group_id: str,
        topics: tuple[str, ...],
        *,
        assignor: str = RANGE,
        instance_id: str | None = None,
        session_timeout_s: float = 10.0,
        rebalance_timeout_s: float = 20.0,
        heartbeat_s: float = 1.0,
    ) -> None:
        self.metadata = GroupMetadata(group_id, instance_id=instance_id)
        self.topics = topics
        self.needs_rejoin = True
        self.is_lost = False
        """The coordinator has expelled this member, or does not know it: what it has may be another's."""
        self.is_fenced = False
        """Another consumer has the instance id."""
        self._brokers = brokers
        self._assignor = assignor
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._heartbeat_s = heartbeat_s
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions that stay are kept through a rebalance."""
        return self._assignor == COOPERATIVE

    async def rejoin(self, owned: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Join, with what this member has; what it is assigned. PeerError, RequestLostError: it has to be called again.

        FENCED_INSTANCE_ID does not pass.
        """
        owned_now = () if self.is_lost else tuple(sorted(owned))
        generation_id = self.metadata.generation_id
        if self.is_lost:
            self._become(-1, "")
        joined = await self._join(Subscription(self.topics, owned_now, generation_id))
        assignments = await self._assign(joined) if joined.leader == joined.member_id else []
        request = SyncGroupRequest(
            self.metadata.group_id,
            joined.generation_id,
            joined.member_id,
            self.metadata.instance_id,
            PROTOCOL_TYPE,
            joined.protocol_name,
            assignments,
        )
        synced = await self._ask(ApiKey.SYNC_GROUP, request, timeout_s=self._rebalance_timeout_s + REQUEST_TIMEOUT_S)
        self.needs_rejoin = False
        if self._heartbeats is None:
            self._heartbeats = asyncio.ensure_future(self._beat())
        return assigned_partitions(bytes(synced.assignment)) or ()

    async def _join(self, subscription: Subscription) -> Any:
        while True:
            request = JoinGroupRequest(
                self.metadata.group_id,
                int(self._session_timeout_s * 1000),
                int(self._rebalance_timeout_s * 1000),
                self.metadata.member_id,
                self.metadata.instance_id,
                PROTOCOL_TYPE,
                [JoinGroupRequestProtocol(self._assignor, subscription.encode())],
            )
            timeout_s = self._rebalance_timeout_s + REQUEST_TIMEOUT_S
            group_id = self.metadata.group_id
            joined = await self._brokers.ask_coordinator(
                _GROUP, group_id, ApiKey.JOIN_GROUP, request, version=_TWO_STEPS, timeout_s=timeout_s
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._become(-1, joined.member_id)
                continue
            self.check(joined.error_code)
            self._become(joined.generation_id, joined.member_id)
            self.is_lost = False
            return joined

    async def _assign(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        """As the leader: who gets what."""
        if joined.skip_assignment:
            return []
        members = {member.member_id: Subscription.decode(bytes(member.metadata)) for member in joined.members}
        counts: dict[str, int] = {}
        for topic in sorted({topic for subscription in members.values() for topic in subscription.topics}):
            self._brokers.forget_topic(topic)
            counts[topic] = len((await self._brokers.topic(topic)).leaders)
        assign = cooperative_assignment if self.is_cooperative else range_assignment
        return [SyncGroupRequestAssignment(member, encode_assignment(mine)) for member, mine in assign(members, counts).items()]

    async def _beat(self) -> None:
        """Heartbeats for as long as it is a member, and while it joins: the coordinator answers those of an older generation too."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if self.needs_rejoin or self.is_lost:
                continue
            request = HeartbeatRequest(*_identity(self.metadata))
            generation_id = self.metadata.generation_id
            try:
                await self._ask(ApiKey.HEARTBEAT, request)
            except PeerError as error:
                if error.code is ErrorCode.REBALANCE_IN_PROGRESS and generation_id == self.metadata.generation_id:
                    self.needs_rejoin = True
            except WorldError:
                pass

    async def leave(self) -> None:
        """Say good-bye, unless the member is static: that one comes back within its session time-out. RequestLostError, PeerError."""
        self.stop()
        if self.metadata.member_id and self.metadata.instance_id is None:
            request = LeaveGroupRequest(self.metadata.group_id, members=[MemberIdentity(self.metadata.member_id, None)])
            await self._ask(ApiKey.LEAVE_GROUP, request, version=_MEMBERS)

    def stop(self) -> None:
        """Beat no more."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the group's offsets. PeerError, RequestLostError: then it may have happened."""
        await commit_offsets(self._brokers, self.metadata, offsets, self.check)

    async def _ask(
        self, api_key: ApiKey, request: Any, *, version: VersionRange | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        group_id = self.metadata.group_id
        response = await self._brokers.ask_coordinator(_GROUP, group_id, api_key, request, version=version, timeout_s=timeout_s)
        self.check(response.error_code)
        return response

    def check(self, code: int) -> None:
        """PeerError if a response carries an error; remembers what it says of the membership."""
        if code in _LOST:
            self.is_lost = self.needs_rejoin = True
            self.is_fenced |= code == ErrorCode.FENCED_INSTANCE_ID
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs_rejoin = True
        self._brokers.check_coordinator(_GROUP, self.metadata.group_id, code)

    def _become(self, generation_id: int, member_id: str) -> None:
        self.metadata = GroupMetadata(self.metadata.group_id, generation_id, member_id, self.metadata.instance_id)


def _identity(metadata: GroupMetadata) -> tuple[str, int, str, str | None]:
    return metadata.group_id, metadata.generation_id, metadata.member_id, metadata.instance_id


async def commit_offsets(brokers: Brokers, member: GroupMetadata, offsets: Mapping[TopicPartition, int], check: Any = None) -> None:
    """Commit a group's offsets, as a member or as one that is none. PeerError, RequestLostError: then it may have happened."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(partition.topic))
        topic.partitions.append(OffsetCommitRequestPartition(partition.partition, offset, committed_metadata=""))
    request = OffsetCommitRequest(*_identity(member), topics=list(topics.values()))
    response = await brokers.ask_coordinator(_GROUP, member.group_id, ApiKey.OFFSET_COMMIT, request, version=_BY_NAME)
    for answered in response.topics:
        for each in answered.partitions:
            if check is not None:
                check(each.error_code)
            brokers.check_coordinator(_GROUP, member.group_id, each.error_code)


async def fetch_offsets(brokers: Brokers, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """A group's offsets that no open transaction may change (require-stable); partitions without one are left out. PeerError."""
    topics: dict[str, OffsetFetchRequestTopics] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, OffsetFetchRequestTopics(partition.topic)).partition_indexes.append(partition.partition)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=list(topics.values()))], require_stable=True)
    response = await brokers.ask_coordinator(_GROUP, group_id, ApiKey.OFFSET_FETCH, request, version=_STABLE)
    (group,) = response.groups
    brokers.check_coordinator(_GROUP, group_id, group.error_code)
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            brokers.check_coordinator(_GROUP, group_id, each.error_code)
            if each.committed_offset >= 0:
                found[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
    return found
