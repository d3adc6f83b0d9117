"""Where partitions of a source end, for those that are not fetched."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.client.partition_requests import LATEST, READ_COMMITTED, READ_UNCOMMITTED
from moldau.model.errors import PeerError, WorldError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_lookups import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.versions import VersionRange
from moldau.wire.brokers import check

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.wire.brokers import Brokers
    from moldau.wire.connection import Address

TIMEOUT_S = 5.0
INSIST_S = 30.0
_CONSUMER = -1
_LIST_OFFSETS = VersionRange(4, 9)
_EPOCH_ENDS = VersionRange(3, 4)


async def ends_of(brokers: "Brokers", partitions: "Iterable[TopicPartition]", *, committed: bool) -> "dict[TopicPartition, int]":
    """Their ends, of those whose leaders say it now. WorldError, PeerError: nothing is known."""
    by_leader: dict[Address, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            by_leader.setdefault(await brokers.leader(partition), []).append(partition)
        except PeerError:
            continue
    found: dict[TopicPartition, int] = {}
    for address, mine in by_leader.items():
        topics: dict[str, ListOffsetsTopic] = {}
        for each in mine:
            wanted = ListOffsetsPartition(each.partition, -1, LATEST)
            topics.setdefault(each.topic, ListOffsetsTopic(each.topic)).partitions.append(wanted)
        request = ListOffsetsRequest(_CONSUMER, READ_COMMITTED if committed else READ_UNCOMMITTED, list(topics.values()))
        try:
            connection = await brokers.connection(address)
            response = await connection.send(ApiKey.LIST_OFFSETS, request, timeout_s=TIMEOUT_S, version=_LIST_OFFSETS)
        except WorldError:
            for each in mine:
                brokers.forget_topic(each.topic)
            continue
        answers = {(topic.name, answer.partition_index): answer for topic in response.topics for answer in topic.partitions}
        for each in mine:
            answer = answers.get((each.topic, each.partition))
            if answer is None or answer.error_code:
                brokers.forget_topic(each.topic)
            else:
                found[each] = int(answer.offset)
    return found


async def epoch_end(brokers: "Brokers", partition: "TopicPartition", epoch: int) -> int:
    """Where the records of a leader epoch, and of those before it, end in a partition; -1 if its leader does not know.

    PeerError, WorldError.
    """
    wanted = OffsetForLeaderPartition(partition.partition, -1, epoch)
    request = OffsetForLeaderEpochRequest(_CONSUMER, [OffsetForLeaderTopic(partition.topic, [wanted])])

    async def ask() -> int:
        connection = await brokers.connection(await brokers.leader(partition))
        response = await connection.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, timeout_s=TIMEOUT_S, version=_EPOCH_ENDS)
        (found,) = response.topics[0].partitions
        if found.error_code:
            brokers.forget_topic(partition.topic)
        check(found.error_code, partition)
        return int(found.end_offset)

    return await brokers.insist(ask, INSIST_S)
