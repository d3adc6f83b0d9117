"""Consumer groups that have committed offsets beyond where a log is to be cut: they are moved back to the cut.

A group that stayed there would not read what comes at these offsets, since a mirror moves no group back. Clients that commit leader epochs
notice that themselves (KIP-320); not all do.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror.following.groups import committed_offsets, list_groups
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.wire.group import GroupMetadata, commit_offsets

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.wire.brokers import Brokers

INSIST_S = 15.0


class Moved(NamedTuple):
    """What came of it, by partition."""

    notes: "dict[TopicPartition, list[str]]"
    """Groups that stay where they are, and why."""
    failures: "dict[TopicPartition, str]"
    """Why it is not known which groups there are, or one was not moved."""


async def move_back(brokers: "Brokers", cuts: "Mapping[TopicPartition, int]") -> Moved:
    """Move groups without members back to the cuts, where they are beyond. One that has members stays: they find the end of the log."""
    moved = Moved({}, {})
    if not cuts:
        return moved
    listing = await list_groups(brokers)
    for broker, reason in listing.failures.items():
        return Moved({}, dict.fromkeys(cuts, f"groups not listed by broker {broker}: {reason}"))
    for group, committed in (await committed_offsets(brokers, listing.groups)).items():
        beyond = {each: cut for each, cut in cuts.items() if each in committed.offsets and committed.offsets[each].offset > cut}
        if committed.failure:
            _note(moved, cuts, f"group {group} may stay beyond the cut: {committed.failure}")
        if not beyond:
            continue
        if not listing.groups[group].is_idle:
            _note(moved, beyond, f"group {group} has members here, and committed offsets beyond the cut")
            continue
        texts = {each: committed.offsets[each].metadata for each in beyond}
        try:
            await _commit(brokers, group, beyond, texts)
        except (PeerError, WorldError) as error:
            if isinstance(error, PeerError) and error.code is ErrorCode.UNKNOWN_MEMBER_ID:  # a member has come meanwhile
                _note(moved, beyond, f"group {group} has members here, and committed offsets beyond the cut")
            else:
                moved.failures.update(dict.fromkeys(beyond, f"group {group} was not moved back to the cut: {error}"))
    return moved


async def _commit(brokers: "Brokers", group: str, offsets: "Mapping[TopicPartition, int]", texts: "Mapping[TopicPartition, str]") -> None:
    await brokers.insist(lambda: commit_offsets(brokers, GroupMetadata(group), offsets, metadata=texts), INSIST_S)


def _note(moved: Moved, partitions: "Mapping[TopicPartition, int]", text: str) -> None:
    for each in partitions:
        moved.notes.setdefault(each, []).append(text)
