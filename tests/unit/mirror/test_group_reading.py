"""Groups are asked of all brokers at once; one broker or one group that fails, fails alone."""

import asyncio
from typing import Any, cast

from moldau.mirror.following.groups import GROUPS_AT_ONCE, Committed, ListedGroup, committed_offsets, list_groups
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.group_admin import ListedGroup as Answered
from moldau.protocol.messages.group_admin import ListGroupsResponse
from moldau.protocol.messages.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from moldau.wire.connection import RequestLostError

GOOD, AWAY = ("a", 1), ("b", 2)
ORDERS = TopicPartition("orders", 0)


class Cluster:
    """Two brokers, of which one does not answer."""

    def __init__(self, *groups: Answered) -> None:
        self.addresses = {1: GOOD, 2: AWAY}
        self.groups = groups
        self.offsets: dict[str, OffsetFetchResponseGroup] = {}
        self.asked: list[int] = []
        """How many groups each request for offsets was about."""

    async def connection(self, address: tuple[str, int], purpose: str) -> "Cluster":
        if address == AWAY:
            raise RequestLostError(address, "refused", was_sent=False)
        return self

    async def send(self, api_key: ApiKey, request: Any, **_: object) -> Any:
        if api_key is ApiKey.LIST_GROUPS:
            return ListGroupsResponse(groups=list(self.groups))
        assert request.require_stable
        self.asked.append(len(request.groups))
        empty = OffsetFetchResponseGroup("", topics=[])
        return OffsetFetchResponse(groups=[self.offsets.get(each.group_id, empty) for each in request.groups])


def test_groups_of_consumers_with_their_states() -> None:
    cluster = Cluster(
        Answered("empty", "consumer", "Empty"),
        Answered("committer", "", "Empty"),
        Answered("working", "consumer", "Stable", "consumer"),
        Answered("connect-x", "connect", "Empty"),
        Answered("shared", "share", "Stable", "share"),
    )
    found = asyncio.run(list_groups(cast("Any", cluster)))
    assert found.groups == {
        name: ListedGroup(GOOD, is_idle) for name, is_idle in (("empty", True), ("committer", True), ("working", False))
    }
    assert list(found.failures) == ["b:2"], "those of the others are known"


def offsets(*partitions: OffsetFetchResponsePartitions) -> list[OffsetFetchResponseTopics]:
    return [OffsetFetchResponseTopics("orders", partitions=list(partitions))]


def test_one_group_that_is_denied_does_not_hide_the_others() -> None:
    cluster = Cluster()
    cluster.offsets = {
        "denied": OffsetFetchResponseGroup("denied", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
        "open": OffsetFetchResponseGroup(
            "open",
            topics=offsets(
                OffsetFetchResponsePartitions(0, 5, metadata="m"),
                OffsetFetchResponsePartitions(1, -1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT),
                OffsetFetchResponsePartitions(2, -1),
                OffsetFetchResponsePartitions(3, -1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ),
        ),
    }
    asked = {"denied": ListedGroup(GOOD, True), "open": ListedGroup(GOOD, True), "away": ListedGroup(AWAY, True)}
    found = asyncio.run(committed_offsets(cast("Any", cluster), asked))
    assert (found["denied"].offsets, found["denied"].failure) == ({}, "group_authorization_failed")
    assert found["open"].offsets == {ORDERS: Committed(5, "m")}, "an offset that an open transaction may change waits for the next round"
    assert found["open"].failure == "orders-3: topic_authorization_failed"
    assert "refused" in found["away"].failure


def test_many_groups_are_few_requests() -> None:
    cluster = Cluster()
    names = [f"g{number}" for number in range(GROUPS_AT_ONCE * 2 + 1)]
    cluster.offsets = {name: OffsetFetchResponseGroup(name, topics=offsets(OffsetFetchResponsePartitions(0, 7))) for name in names}
    found = asyncio.run(committed_offsets(cast("Any", cluster), dict.fromkeys(names, ListedGroup(GOOD, True))))
    assert {each.offsets[ORDERS].offset for each in found.values()} == {7}
    assert len(found) == len(names)
    assert cluster.asked == [GROUPS_AT_ONCE, GROUPS_AT_ONCE, 1]
