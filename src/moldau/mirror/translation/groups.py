"""The offsets of one consumer group of the sources: where it continues in the target, and committing that there.

for each in group_offsets(read_plan(Path("standby.toml")), "billing"):
    print(each.target, each.offset, each.reason)
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.mirror import catalog
from moldau.mirror.following.groups import list_groups
from moldau.mirror.operator import Operator, operate
from moldau.mirror.translation.translate import Translated, translate
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.near_names import did_you_mean
from moldau.wire.group import GroupMetadata, commit_offsets, fetch_offsets

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.model.identity import TopicPartition
    from moldau.wire.brokers import Brokers

TIMEOUT_S = 60.0


def group_offsets(plan: "MirrorPlan", group: str, timeout_s: float = TIMEOUT_S) -> list[Translated]:
    """Where a group continues in the target, now. PeerError, GROUP_ID_NOT_FOUND among them; WorldError."""
    return operate(plan, "", timeout_s, lambda operator: read(operator, group))


async def read(operator: Operator, group: str) -> list[Translated]:
    """Where a group continues in the target, now. PeerError, GROUP_ID_NOT_FOUND among them; WorldError."""
    selection = (await operator.board()).selection(operator.plan.selection)
    committed: dict[str, dict[TopicPartition, int]] = {}
    for name, brokers in operator.sources.items():
        await operator.reach_source(name)
        committed[name] = await operator.of_source(name, _committed(brokers, group))
    if not any(committed.values()):
        await _check_exists(operator, group)
    translated = translate(operator.plan, selection, operator.target, operator.sources, committed)
    return await operator.of_target(translated)


async def commit(operator: Operator, group: str, offsets: Iterable[Translated]) -> None:
    """Commit in the target what could be translated. PeerError: UNKNOWN_MEMBER_ID if the group has members there; WorldError."""
    found = {each.target: each.offset for each in offsets if each.offset is not None}
    if found:
        brokers = operator.target
        committing = brokers.insist(lambda: commit_offsets(brokers, GroupMetadata(group), found), TIMEOUT_S)
        await operator.of_target(committing)


async def _check_exists(operator: Operator, group: str) -> None:
    known: set[str] = set()
    for name, brokers in operator.sources.items():
        await operator.of_source(name, catalog.look(brokers))  # with the brokers to ask
        known |= (await operator.of_source(name, list_groups(brokers))).groups.keys()
    if group not in known:
        where = " and ".join(map(operator.plan.label, operator.sources))
        raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group} does not exist in {where}{did_you_mean(group, known)}")


async def _committed(brokers: "Brokers", group: str) -> "dict[TopicPartition, int]":
    return await brokers.insist(lambda: fetch_offsets(brokers, group, None), TIMEOUT_S)
