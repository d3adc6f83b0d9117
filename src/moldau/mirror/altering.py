"""What partitions of a cluster are: a mirror's, or their clients'. Asked of their leaders, and altered at the controller."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from moldau.mirror.log_ends import INSIST_S
from moldau.mirror.reading import ask_leader, check_leader
from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.alter_mirror import AlterMirrorPartition, AlterMirrorRequest, AlterMirrorTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.versions import VersionRange
from moldau.wire.brokers import check

if TYPE_CHECKING:
    from moldau.model.identity import LogCut, TopicPartition
    from moldau.wire.brokers import Brokers

AT_A_TIME = 32
"""Partitions that are asked about at once."""
PARTITIONS_PER_REQUEST = 200
CONFIRM_S = 30.0
POLL_S = 0.1
TIMEOUT_MS = 60_000
_ACKS_LEADER = 1
_PRODUCE_VERSIONS = VersionRange(9, 12)

K = TypeVar("K")
R = TypeVar("R")
Failures = dict["TopicPartition", str]
"""Why something was not done, by partition."""


class Alteration(NamedTuple):
    """What a partition is to be."""

    is_mirror: bool
    cut: "LogCut | None"
    source: str = ""
    """`mirror.source` of its topic; empty: as it is."""


async def each_of(wanted: Collection[K], act: Callable[[K], Awaitable[R]]) -> "tuple[dict[K, R], dict[K, str]]":
    """Do something for each, some at a time: what came of it, and why not."""
    places = asyncio.Semaphore(AT_A_TIME)
    done: dict[K, R] = {}
    failed: dict[K, str] = {}

    async def one(key: K) -> None:
        async with places:
            try:
                done[key] = await act(key)
            except (PeerError, WorldError) as error:
                failed[key] = str(error)

    await asyncio.gather(*(one(key) for key in wanted))
    return {key: done[key] for key in wanted if key in done}, failed


async def is_mirrors(brokers: "Brokers", partition: "TopicPartition") -> bool:
    """Whether the leader of a partition takes records from a mirror, and none from clients. PeerError, WorldError.

    It is asked to store nothing, in the name of a mirror: INVALID_REQUEST says that the partition is no mirror's.
    """

    async def ask() -> bool:
        data = [TopicProduceData(partition.topic, partition_data=[PartitionProduceData(partition.partition, None)])]
        request = ProduceRequest(None, _ACKS_LEADER, TIMEOUT_MS, data, mirror="")
        response = await ask_leader(brokers, partition, ApiKey.PRODUCE, request, _PRODUCE_VERSIONS)
        (found,) = response.responses[0].partition_responses
        if found.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_REQUEST):
            return bool(found.error_code == ErrorCode.INVALID_RECORD)
        check_leader(brokers, partition, found.error_code)
        raise PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{partition}: a request without records was taken")

    return await brokers.insist(ask, INSIST_S)


async def alter(brokers: "Brokers", wanted: "Mapping[TopicPartition, Alteration]") -> Failures:
    """Have the controller alter partitions; to repeat it changes nothing. Why it did not. PeerError, WorldError for all of them."""
    failures: Failures = {}
    partitions = sorted(wanted)
    for first in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        some = partitions[first : first + PARTITIONS_PER_REQUEST]
        failures |= await _alter(brokers, {each: wanted[each] for each in some})
    return failures


async def _alter(brokers: "Brokers", wanted: "Mapping[TopicPartition, Alteration]") -> Failures:
    topics: dict[str, AlterMirrorTopic] = {}
    for (name, index), alteration in wanted.items():
        topic = topics.setdefault(name, AlterMirrorTopic(name, alteration.source, []))
        cut = (-1, -1) if alteration.cut is None else alteration.cut
        topic.partitions.append(AlterMirrorPartition(index, alteration.is_mirror, *cut))
    request = AlterMirrorRequest(TIMEOUT_MS, list(topics.values()))

    async def ask() -> Failures:
        connection = await brokers.controller()
        response = await connection.send(ApiKey.ALTER_MIRROR, request, timeout_s=TIMEOUT_MS / 1000 + 5)
        check(response.error_code, response.error_message or "alter mirror")
        by_key = {(topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions}
        return {
            partition: f"{known_error(by_key[partition].error_code).name}: {by_key[partition].error_message}"
            for partition in wanted
            if by_key[partition].error_code
        }

    return await brokers.insist(ask, INSIST_S)


async def confirm(partitions: "Iterable[TopicPartition]", holds: "Callable[[TopicPartition], Awaitable[bool]]", what: str) -> "Failures":
    """Wait until something holds for each; the others, after `CONFIRM_S`, with `what` did not come."""

    async def wait(partition: "TopicPartition") -> bool:
        deadline = asyncio.get_running_loop().time() + CONFIRM_S
        while not await holds(partition):
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    done, failed = await each_of(list(partitions), wait)
    return failed | {partition: what for partition, came in done.items() if not came}


def of_topics(partitions: "Iterable[TopicPartition]") -> "dict[str, Sequence[TopicPartition]]":
    """Partitions by their topics."""
    found: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return {name: sorted(each) for name, each in found.items()}
