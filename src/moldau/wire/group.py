"""Membership in a group of the classic protocol: join, sync, heartbeats, leave; static or not. Offsets of a group.

The member calls `rejoin` when `needs_rejoin`; heartbeats run by themselves and only set that. A member that the coordinator does not
know any more has lost what it was assigned: its next join begins without a member id.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
from moldau.wire.brokers import REQUEST_TIMEOUT_S, Brokers, CoordinatorType

_GROUP = CoordinatorType.GROUP
_TWO_STEPS = VersionRange(4, 9)
"""Of JoinGroup: a new member is given its id before it waits."""
_MEMBERS = VersionRange(3, 5)
_BY_NAME = VersionRange(2, 9)
_STABLE = VersionRange(8, 9)
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
"""Errors by which a member learns that it is none any more."""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who a consumer is in its group; without a member id it commits as one that is no member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Sharing(Protocol):
    """How the members of a group share what there is: Kafka's embedded protocol of the group."""

    protocol_type: str
    name: str
    """Of the one protocol that all members support."""

    async def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """As the leader: assignments by member id, from what members say. PeerError, RequestLostError: the join is tried again."""


class Membership:
    """See the module."""

    def __init__(
        self,
        brokers: Brokers,
        group_id: str,
        sharing: Sharing,
        *,
        instance_id: str | None = None,
        session_timeout_s: float = 10.0,
        rebalance_timeout_s: float = 20.0,
        heartbeat_s: float = 1.0,
    ) -> None:
        self.metadata = GroupMetadata(group_id, instance_id=instance_id)
        self.needs_rejoin = True
        self.is_lost = False
        """The coordinator has expelled this member, or does not know it: what it has may be another's."""
        self.is_fenced = False
        """Another member has the instance id."""
        self.is_leader = False
        """Whether the coordinator named it the leader when it joined last."""
        self.heartbeat_error: PeerError | WorldError | None = None
        """Of the last heartbeat; None where the coordinator has confirmed the membership."""
        self._brokers = brokers
        self._sharing = sharing
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._heartbeat_s = heartbeat_s
        self._heartbeats: asyncio.Task[None] | None = None
        self._is_joining = False

    async def rejoin(self, said: bytes) -> bytes:
        """Join, with what this member says of itself; its assignment. PeerError, RequestLostError: it has to be called again.

        FENCED_INSTANCE_ID does not pass.
        """
        self._is_joining = True
        try:
            return await self._rejoin(said)
        finally:
            self._is_joining = False

    async def _rejoin(self, said: bytes) -> bytes:
        if self.is_lost:
            self._become(-1, "")
        joined = await self._join(said)
        self.is_leader = joined.leader == joined.member_id
        assignments = await self._assign(joined) if self.is_leader else []
        request = SyncGroupRequest(
            self.metadata.group_id,
            joined.generation_id,
            joined.member_id,
            self.metadata.instance_id,
            self._sharing.protocol_type,
            joined.protocol_name,
            assignments,
        )
        synced = await self._ask(ApiKey.SYNC_GROUP, request, timeout_s=self._rebalance_timeout_s + REQUEST_TIMEOUT_S)
        self.needs_rejoin = False
        self.heartbeat_error = None
        if self._heartbeats is None:
            self._heartbeats = asyncio.ensure_future(self._beat())
        return bytes(synced.assignment)

    async def _join(self, said: bytes) -> Any:
        while True:
            request = JoinGroupRequest(
                self.metadata.group_id,
                int(self._session_timeout_s * 1000),
                int(self._rebalance_timeout_s * 1000),
                self.metadata.member_id,
                self.metadata.instance_id,
                self._sharing.protocol_type,
                [JoinGroupRequestProtocol(self._sharing.name, said)],
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
        assigned = await self._sharing.assign({member.member_id: bytes(member.metadata) for member in joined.members})
        return [SyncGroupRequestAssignment(member, mine) for member, mine in assigned.items()]

    async def _beat(self) -> None:
        """Heartbeats for as long as it is a member; not while it joins, when the coordinator waits for it, and may have a new generation.

        A member that has to rejoin, but has something to finish before, has the rebalance time-out for that: its session lasts.
        """
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if self._is_joining or self.is_lost:
                continue
            request = HeartbeatRequest(*_identity(self.metadata))
            try:
                await self._ask(ApiKey.HEARTBEAT, request)
            except (PeerError, WorldError) as error:
                is_rebalance = isinstance(error, PeerError) and error.code is ErrorCode.REBALANCE_IN_PROGRESS
                self.heartbeat_error = None if is_rebalance else error
            else:
                self.heartbeat_error = None

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

    async def _ask(
        self, api_key: ApiKey, request: Any, *, version: VersionRange | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        group_id = self.metadata.group_id
        response = await self._brokers.ask_coordinator(_GROUP, group_id, api_key, request, version=version, timeout_s=timeout_s)
        self.check(response.error_code)
        return response

    def check(self, code: int) -> None:
        """PeerError if a response carries an error; remembers what it says of the membership."""
        if code in LOST:
            self.is_lost = self.needs_rejoin = True
            self.is_fenced |= code == ErrorCode.FENCED_INSTANCE_ID
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs_rejoin = True
        self._brokers.check_coordinator(_GROUP, self.metadata.group_id, code)

    def _become(self, generation_id: int, member_id: str) -> None:
        self.metadata = GroupMetadata(self.metadata.group_id, generation_id, member_id, self.metadata.instance_id)


def _identity(metadata: GroupMetadata) -> tuple[str, int, str, str | None]:
    return metadata.group_id, metadata.generation_id, metadata.member_id, metadata.instance_id


async def commit_offsets(
    brokers: Brokers,
    member: GroupMetadata,
    offsets: Mapping[TopicPartition, int],
    check: Any = None,
    metadata: Mapping[TopicPartition, str] | None = None,
) -> None:
    """Commit a group's offsets, as a member or as one that is none. `metadata`: texts to be kept with them.

    PeerError, RequestLostError: then it may have happened.
    """
    texts = metadata or {}
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(partition.topic))
        topic.partitions.append(OffsetCommitRequestPartition(partition.partition, offset, committed_metadata=texts.get(partition, "")))
    request = OffsetCommitRequest(*_identity(member), topics=list(topics.values()))
    response = await brokers.ask_coordinator(_GROUP, member.group_id, ApiKey.OFFSET_COMMIT, request, version=_BY_NAME)
    for answered in response.topics:
        for each in answered.partitions:
            if check is not None:
                check(each.error_code)
            brokers.check_coordinator(_GROUP, member.group_id, each.error_code)


async def fetch_offsets(brokers: Brokers, group_id: str, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, int]:
    """A group's offsets that no open transaction may change (require-stable), all of them for None; partitions without one are left out.

    PeerError, RequestLostError.
    """
    topics: dict[str, OffsetFetchRequestTopics] = {}
    for partition in partitions or ():
        topics.setdefault(partition.topic, OffsetFetchRequestTopics(partition.topic)).partition_indexes.append(partition.partition)
    wanted = None if partitions is None else list(topics.values())
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=wanted)], require_stable=True)
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
