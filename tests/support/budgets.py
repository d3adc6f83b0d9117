"""What state takes by the fixed costs and the sizes of what is there, counted again from the start: slow and obvious."""

from sys import getsizeof

from moldau.broker.groups.coordinator import GroupCoordinator
from moldau.broker.groups.group import GROUP_COST, Group
from moldau.broker.groups.members import MEMBER_COST, PENDING_COST, PROTOCOL_COST, ROSTER_COST, Member, Roster
from moldau.broker.groups.offsets import OFFSET_COST, TOPIC_COST, TRANSACTION_COST, GroupOffsets
from moldau.broker.groups.offsets import PENDING_COST as PENDING_OFFSET_COST
from moldau.broker.groups.rebalance import TOPIC_COST as SUBSCRIBED_TOPIC_COST
from moldau.broker.groups.rebalance import RebalanceMachine


def roster_bytes(roster: Roster) -> int:
    """Members, ids that were given, and the assignment."""
    members = sum(map(_member_bytes, roster.members.values()))
    return members + sum(PENDING_COST + getsizeof(member_id) for member_id in roster.pending) + roster.assigned_bytes


def membership_bytes(membership: RebalanceMachine) -> int:
    """All that an account has for the members of a group."""
    topics = sum(getsizeof(topic) + SUBSCRIBED_TOPIC_COST for topic in membership.topics or ())
    return ROSTER_COST + roster_bytes(membership.roster) + topics


def group_bytes(group: Group) -> int:
    """A group without its offsets."""
    membership = group.membership
    return GROUP_COST + getsizeof(group.group_id) + (0 if membership is None else membership_bytes(membership))


def offsets_bytes(offsets: GroupOffsets) -> int:
    """Committed offsets and those that wait."""
    committed = [each for partitions in offsets.committed.values() for each in partitions.values()]
    waiting = [each for transaction in offsets.pending.values() for each in transaction.values() if each is not None]
    texts = sum(getsizeof(each.metadata) for each in committed + waiting if each.metadata)
    fixed = len(committed) * OFFSET_COST + len(offsets.committed) * TOPIC_COST
    return texts + fixed + len(waiting) * PENDING_OFFSET_COST + len(offsets.pending) * TRANSACTION_COST


def check_group_budgets(groups: GroupCoordinator) -> None:
    """Both budgets of a coordinator that has read everything hold what its groups take."""
    there = [group for partition in groups.partitions() for group in partition.groups.values()]
    assert groups.memory.groups.held == sum(map(group_bytes, there))
    assert groups.memory.offsets.held == sum(offsets_bytes(group.offsets) for group in there)


def _member_bytes(member: Member) -> int:
    names = (member.member_id, member.group_instance_id or "", member.client_id, member.client_host)
    sent = sum(len(name) + len(metadata) + PROTOCOL_COST for name, metadata in member.protocols.items())
    return MEMBER_COST + sent + sum(map(getsizeof, names))
