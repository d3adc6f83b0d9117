"""The groups of a cluster and what they have committed, asked of many groups at once: a request for each broker, not for each group."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.group_admin import ListGroupsRequest
from moldau.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.protocol.versions import VersionRange
from moldau.wire.brokers import check

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers
    from moldau.wire.connection import Address

GROUPS_AT_ONCE = 50
"""Of one request for offsets."""
TIMEOUT_S = 10.0
_PURPOSE = "groups"
_OF_CONSUMERS = ("", "consumer")
"""Protocol types of groups with offsets; without one it only commits."""
_IDLE = ("", "Empty", "Dead")
"""States of a group without members; a broker before Kafka 2.6 does not say it."""
_OFFSET_FETCH = VersionRange(8, 9)


class ListedGroup(NamedTuple):
    """A group that a broker coordinates."""

    coordinator: "Address"
    is_idle: bool
    """Whether it has no members, as far as is known."""


class Listing(NamedTuple):
    """The groups of a cluster."""

    groups: dict[str, ListedGroup]
    failures: dict[str, str]
    """Why a broker has not said its groups, by address."""


class Committed(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """What a group has committed. Offsets that an open transaction may change are left out."""

    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    failure: str = ""
    """Why it, or some of it, cannot be had."""


async def list_groups(brokers: "Brokers") -> Listing:
    """The consumer groups, asked of each broker of the last metadata."""
    found = Listing({}, {})

    async def ask(address: "Address") -> None:
        try:
            connection = await brokers.connection(address, _PURPOSE)
            response = await connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest(), timeout_s=TIMEOUT_S)
            check(response.error_code, "groups")
        except (PeerError, WorldError) as error:
            found.failures["{}:{}".format(*address)] = str(error)
            return
        for each in response.groups:
            if each.protocol_type in _OF_CONSUMERS:
                found.groups[each.group_id] = ListedGroup(address, each.group_state in _IDLE)

    await asyncio.gather(*map(ask, dict.fromkeys(brokers.addresses.values())))
    return found


async def committed_offsets(brokers: "Brokers", groups: Mapping[str, ListedGroup]) -> dict[str, GroupOffsets]:
    """What each of these has committed. One that fails, fails alone."""
    by_coordinator: dict[Address, list[str]] = {}
    for name, listed in groups.items():
        by_coordinator.setdefault(listed.coordinator, []).append(name)
    found: dict[str, GroupOffsets] = {}

    async def ask(address: "Address", names: list[str]) -> None:
        for start in range(0, len(names), GROUPS_AT_ONCE):
            some = names[start : start + GROUPS_AT_ONCE]
            try:
                found.update(await _ask_offsets(brokers, address, some))
            except (PeerError, WorldError) as error:
                found.update(dict.fromkeys(some, GroupOffsets(failure=str(error))))

    await asyncio.gather(*(ask(address, names) for address, names in by_coordinator.items()))
    return found


async def _ask_offsets(brokers: "Brokers", address: "Address", groups: Iterable[str]) -> Iterator[tuple[str, GroupOffsets]]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in groups], require_stable=True)
    connection = await brokers.connection(address, _PURPOSE)
    response = await connection.send(ApiKey.OFFSET_FETCH, request, timeout_s=TIMEOUT_S, version=_OFFSET_FETCH)
    return ((each.group_id, _offsets_in(each)) for each in response.groups)


def _offsets_in(group: OffsetFetchResponseGroup) -> GroupOffsets:
    found, failures = dict[TopicPartition, Committed](), list[str]()
    if group.error_code:
        failures.append(known_error(group.error_code).name.lower())
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                continue
            if each.error_code:
                failures.append(f"{partition}: {known_error(each.error_code).name.lower()}")
            elif each.committed_offset >= 0:
                found[partition] = Committed(each.committed_offset, each.metadata or "")
    return GroupOffsets(found, "; ".join(failures))
