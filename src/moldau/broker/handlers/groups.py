"""ListGroups, DescribeGroups, DeleteGroups."""

from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_states import State
from moldau.broker.handlers.operations import GROUP_OPERATIONS
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from moldau.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.groups.group import Group

CLASSIC = "classic"
"""The type of all groups here (KIP-848 has others)."""
FIRST_WITH_NOT_FOUND = 6
"""Before, a group that is not there is described as dead."""


def list_groups(broker: "Broker", request: ListGroupsRequest, context: Request, reply: Reply) -> Steps:
    """All groups, or those of some states and types (whatever their case). COORDINATOR_LOAD_IN_PROGRESS while some may be missing."""
    if broker.groups.loading:
        reply(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    states = {state.lower() for state in request.states_filter}
    if request.types_filter and CLASSIC not in {kind.lower() for kind in request.types_filter}:
        reply(ListGroupsResponse())
        return
    listed = []
    for partition in broker.groups.partitions():
        for group in list(partition.groups.values()):
            yield None
            state, protocol_type = _state_of(group)
            if not states or state.lower() in states:
                listed.append(ListedGroup(group.group_id, protocol_type, state, CLASSIC))
    reply(ListGroupsResponse(groups=listed))


def describe_groups(broker: "Broker", request: DescribeGroupsRequest, context: Request, reply: Reply) -> Steps:
    """State and members of each group, once; what members said and were given where the group is stable.

    Codes: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
    """
    described = []
    for group_id in dict.fromkeys(request.groups):
        described.append(_described(broker, group_id, context.api_version))
        yield None
    if request.include_authorized_operations:
        for each in described:
            if not each.error_code:
                each.authorized_operations = GROUP_OPERATIONS
    reply(DescribeGroupsResponse(groups=described))


def delete_groups(broker: "Broker", request: DeleteGroupsRequest, context: Request, reply: Reply) -> Steps:
    """Delete groups without members, with their offsets, each for itself.

    Codes: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
    """
    results = {group_id: DeletableGroupResult(group_id) for group_id in request.groups_names}
    left = set(results)

    def done(group_id: str, error: PeerError | None) -> None:
        if error is not None:
            results[group_id].error_code = error.code
        else:
            broker.admin_log.note(context, "group deleted", group=group_id)
        left.remove(group_id)
        if not left:
            reply(DeleteGroupsResponse(results=list(results.values())))

    if not results:
        reply(DeleteGroupsResponse())
    for group_id in results:
        yield None
        try:
            yield from broker.groups.delete(_deletable(broker, group_id), partial(done, group_id))
        except PeerError as error:
            done(group_id, error)


def _deletable(broker: "Broker", group_id: str) -> "Group":
    group = broker.groups.group_for(group_id, empty_id=True)
    if group is None:
        raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}' is not there")
    membership = group.membership
    if membership is not None and membership.state is not State.EMPTY:
        raise PeerError(ErrorCode.NON_EMPTY_GROUP, f"group '{group_id}' is {membership.state.value}")
    return group


def _described(broker: "Broker", group_id: str, version: int) -> DescribedGroup:
    try:
        group = broker.groups.group_for(group_id, empty_id=True)
    except PeerError as error:
        return DescribedGroup(error.code, error.message if version >= FIRST_WITH_NOT_FOUND else None, group_id)
    if group is None:
        if version < FIRST_WITH_NOT_FOUND:
            return DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", group_id, State.DEAD.value)
    state, protocol_type = _state_of(group)
    membership = group.membership
    if membership is None:
        return DescribedGroup(group_id=group_id, group_state=state, protocol_type=protocol_type)
    protocol = membership.protocol if membership.state is State.STABLE else None
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
        return State.EMPTY.value, ""
    return membership.state.value, membership.protocol_type or ""


HANDLERS = {
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
}
