"""ListGroups, DescribeGroups, DeleteGroups, OffsetDelete: what administrators do with groups."""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from moldau.broker.groups.deletion import CompletionCounter
from moldau.broker.groups.states import GroupState
from moldau.broker.handlers.services import AdminServices, GroupServices, MetadataServices
from moldau.broker.request import Reply, Request
from moldau.broker.security import GROUP_OPERATIONS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.groups.group import Group
    from moldau.cluster.snapshot import MetadataSnapshot


class Services(AdminServices, GroupServices, MetadataServices, Protocol):
    """What these handlers use of the broker."""


CLASSIC = "classic"
"""The type of all groups here (KIP-848 has others)."""
FIRST_WITH_NOT_FOUND = 6
"""Before, a group that is not there is described as dead."""


def list_groups(services: Services, message: ListGroupsRequest, request: Request, reply: Reply) -> Steps:
    """All groups, or those of some states and types (whatever their case). COORDINATOR_LOAD_IN_PROGRESS while some may be missing."""
    if services.groups.loading:
        reply(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    states = {state.lower() for state in message.states_filter}
    if message.types_filter and CLASSIC not in {kind.lower() for kind in message.types_filter}:
        reply(ListGroupsResponse())
        return
    listed = []
    for partition in services.groups.partitions():
        for group in list(partition.groups.values()):
            yield None
            state, protocol_type = _state_of(group)
            if not states or state.lower() in states:
                listed.append(ListedGroup(group.group_id, protocol_type, state, CLASSIC))
    reply(ListGroupsResponse(groups=listed))


def describe_groups(services: Services, message: DescribeGroupsRequest, request: Request, reply: Reply) -> Steps:
    """State and members of each group, once; what members said and were given where the group is stable.

    Codes: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
    """
    described = []
    for group_id in dict.fromkeys(message.groups):
        described.append(_described(services, group_id, request.api_version))
        yield None
    if message.include_authorized_operations:
        for each in described:
            if not each.error_code:
                each.authorized_operations = GROUP_OPERATIONS
    reply(DescribeGroupsResponse(groups=described))


def delete_groups(services: Services, message: DeleteGroupsRequest, request: Request, reply: Reply) -> Steps:
    """Delete groups without members, with their offsets, each for itself.

    Codes: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
    """
    results = {group_id: DeletableGroupResult(group_id) for group_id in message.groups_names}
    left = set(results)

    def done(group_id: str, error: PeerError | None) -> None:
        if error is not None:
            results[group_id].error_code = error.code
        else:
            services.admin_log.note(request, "group deleted", group=group_id)
        left.remove(group_id)
        if not left:
            reply(DeleteGroupsResponse(results=list(results.values())))

    if not results:
        reply(DeleteGroupsResponse())
    for group_id in results:
        yield None
        try:
            yield from services.groups.delete(_deletable(services, group_id), partial(done, group_id))
        except PeerError as error:
            done(group_id, error)


def _deletable(services: Services, group_id: str) -> "Group":
    group = services.groups.group_for(group_id, empty_id=True)
    if group is None:
        raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}' is not there")
    membership = group.membership
    if membership is not None and membership.state is not GroupState.EMPTY:
        raise PeerError(ErrorCode.NON_EMPTY_GROUP, f"group '{group_id}' is {membership.state.value}")
    return group


def _described(services: Services, group_id: str, version: int) -> DescribedGroup:
    try:
        group = services.groups.group_for(group_id, empty_id=True)
    except PeerError as error:
        return DescribedGroup(error.code, error.message if version >= FIRST_WITH_NOT_FOUND else None, group_id)
    if group is None:
        if version < FIRST_WITH_NOT_FOUND:
            return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", group_id, GroupState.DEAD.value)
    state, protocol_type = _state_of(group)
    membership = group.membership
    if membership is None:
        return DescribedGroup(group_id=group_id, group_state=state, protocol_type=protocol_type)
    protocol = membership.protocol if membership.state is GroupState.STABLE else None
    members = [
        DescribedGroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            b"" if protocol is None else member.metadata(protocol),
            b"" if protocol is None else member.assignment,
        )
        for member in membership.roster.members.values()
    ]
    return DescribedGroup(group_id=group_id, group_state=state, protocol_type=protocol_type, protocol_data=protocol or "", members=members)


def _state_of(group: "Group") -> tuple[str, str]:
    """State and type of protocol, as tools show them."""
    membership = group.membership
    if membership is None:
        return GroupState.EMPTY.value, ""
    return membership.state.value, membership.protocol_type or ""


PLACES_SHOWN = 5
"""Partitions that the line in the log names."""
AT_ONCE_MAX = 100
"""Offsets that are deleted in one step."""


def delete_offsets(services: Services, message: OffsetDeleteRequest, request: Request, reply: Reply) -> Steps:
    """Codes of a partition: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC. Of the request: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP for members that are no consumers, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
    """
    codes: dict[tuple[str, int], ErrorCode] = {}
    for topic in message.topics:
        for each in topic.partitions:
            codes[topic.name, each.partition_index] = _there(services.metadata, topic.name, each.partition_index)
            yield None
    going: list[tuple[str, int]] = []
    wanted = [place for place, code in codes.items() if code is ErrorCode.NONE]

    def answer(error: PeerError | None) -> None:
        if error is None and going:
            places = " ".join(f"{topic}-{partition}" for topic, partition in going[:PLACES_SHOWN])
            services.admin_log.note(request, "group offsets deleted", group=message.group_id, offsets=len(going), first=places)
        reply(OffsetDeleteResponse(error_code=error.code) if error is not None else OffsetDeleteResponse(topics=_topics(message, codes)))

    pieces = [wanted[start : start + AT_ONCE_MAX] for start in range(0, len(wanted), AT_ONCE_MAX)] or [[]]
    done = CompletionCounter(len(pieces), answer)
    for piece in pieces:
        try:
            group = _group_for(services, message.group_id)
        except PeerError as error:
            done(error)
        else:
            some = _deletable_offsets(group, piece, codes)
            going += some
            services.groups.delete_offsets(group, some, done)
        yield None


def _deletable_offsets(group: "Group", places: list[tuple[str, int]], codes: dict[tuple[str, int], ErrorCode]) -> list[tuple[str, int]]:
    """Those of some partitions that have offsets, and may lose them; `codes` says why others may not."""
    membership = group.membership
    if membership is not None:
        subscribed = {name for name in {topic for topic, _ in places} if membership.subscribed_to(name)}
        codes.update((place, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for place in places if place[0] in subscribed)
    return [place for place in places if codes[place] is ErrorCode.NONE and group.offsets.has(*place)]


def _there(snapshot: "MetadataSnapshot", name: str, index: int) -> ErrorCode:
    topic = snapshot.topics.get(name)
    known = topic is not None and 0 <= index < len(topic.partitions)
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _group_for(services: Services, group_id: str) -> "Group":
    group = services.groups.group_for(group_id)
    if group is None:
        raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}' is not there")
    membership = group.membership
    if membership is not None and membership.roster.members and not membership.is_consumer_group:
        raise PeerError(ErrorCode.NON_EMPTY_GROUP, f"group '{group_id}' has members whose subscriptions are unknown")
    return group


def _topics(message: OffsetDeleteRequest, codes: dict[tuple[str, int], ErrorCode]) -> list[OffsetDeleteResponseTopic]:
    return [
        OffsetDeleteResponseTopic(
            topic.name,
            [OffsetDeleteResponsePartition(each.partition_index, codes[topic.name, each.partition_index]) for each in topic.partitions],
        )
        for topic in message.topics
    ]


HANDLERS = {
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.OFFSET_DELETE: delete_offsets,
}
