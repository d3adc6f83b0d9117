"""Requests about groups, and what came of them in short.

world = group_world()                              # a broker with the topic "t" of 3 partitions, and a coordinator
commit(client, "g", {("t", 0): 5})                 # {("t", 0): "NONE"}
fetch(client, "g", [("t", 0), ("t", 1)])           # {("t", 0): 5, ("t", 1): -1}
member = join(client, "g")                         # a stable group with one consumer of "t"
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import pytest

from moldau.broker.broker import Broker
from moldau.broker.coordinators import state_log
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_members import JoinGroupRequest, JoinGroupRequestProtocol, SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.records.builder import encode_record
from support.broker_world import BrokerWorld, Client
from support.memberships import subscription

Place = tuple[str, int]


class HasBroker(Protocol):
    """Where a client's broker is."""

    @property
    def broker(self) -> Broker:
        """The broker."""


class Asker(Protocol):
    """A client of one broker."""

    @property
    def world(self) -> HasBroker:
        """Its world."""

    def ask(self, request: Any, version: int) -> Any:
        """Send a request; the response."""


FIRST_WITH_GROUPS = 8
FIRST_BY_ID = 10


def group_world(**settings: Any) -> BrokerWorld:
    """A broker with a topic and a coordinator of groups."""
    immediate = settings.pop("immediate", True)
    world = BrokerWorld(**{"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4, **settings})
    world.create_topic("t", partitions=3)
    world.connect().ask(FindCoordinatorRequest("any"), 2)
    world.background.immediate = immediate
    return world


def delete_between_steps(monkeypatch: pytest.MonkeyPatch, world: BrokerWorld, topic: str, *, recreate: bool = False) -> None:
    """Have the topic deleted, with all that belongs to a deletion, when the first offset of the next commit is encoded."""
    doomed = [topic]

    def delete_then_encode(timestamp_delta: int, index: int, key: bytes | None, value: bytes | None) -> bytes:
        if doomed:
            world.delete_topics(doomed.pop())
            if recreate:
                world.create_topic(topic)
        return encode_record(timestamp_delta, index, key, value)

    monkeypatch.setattr(state_log, "encode_record", delete_then_encode)


def name(code: int) -> str:
    return ErrorCode(code).name


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics


def topic_id(client: Asker, topic: str) -> bytes:
    """The id of a topic; one of its own for a topic that is not there."""
    found = client.world.broker.metadata.topics.get(topic)
    return topic.encode().ljust(16, b"?")[:16] if found is None else found.topic_id


def commit(
    client: Asker,
    group: str,
    offsets: Mapping[Place, int],
    *,
    version: int = 9,
    metadata: str | None = "",
    leader_epoch: int = -1,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    retention_ms: int = -1,
) -> dict[Place, str]:
    """Commit, and the code for each partition."""
    topics = [
        OffsetCommitRequestTopic(
            topic,
            topic_id(client, topic),
            [OffsetCommitRequestPartition(index, offsets[topic, index], leader_epoch, metadata) for index in partitions],
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    answer = client.ask(OffsetCommitRequest(group, generation, member, instance, retention_ms, topics), version)
    names = {topic_id(client, topic): topic for topic, _ in offsets}
    return {
        (topic.name or names[topic.topic_id], each.partition_index): name(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


def commit_in_transaction(
    client: Asker,
    group: str,
    offsets: Mapping[Place, int],
    producer_id: int,
    epoch: int = 0,
    *,
    transactional_id: str = "tx",
    version: int = 3,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str = "",
) -> dict[Place, str]:
    """Commit as part of a transaction, and the code for each partition."""
    topics = [
        TxnOffsetCommitRequestTopic(
            topic, [TxnOffsetCommitRequestPartition(index, offsets[topic, index], -1, metadata) for index in partitions]
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    request = TxnOffsetCommitRequest(transactional_id, group, producer_id, epoch, generation, member, instance, topics)
    answer = client.ask(request, version)
    return {(topic.name, each.partition_index): name(each.error_code) for topic in answer.topics for each in topic.partitions}


class Fetched(NamedTuple):
    """What is committed in one partition, as a client of version 8 and later is told."""

    offset: int
    leader_epoch: int
    metadata: str | None
    error: str


def fetch_all(
    client: Asker, group: str, places: Iterable[Place] | None = None, *, version: int = 9, stable: bool = False
) -> tuple[str, dict[Place, Fetched]]:
    """The code of the group, and what is told of each partition: those asked for, or None for all that the group has."""
    wanted = None if places is None else by_topic(places)
    if version < FIRST_WITH_GROUPS:
        topics = None if wanted is None else [OffsetFetchRequestTopic(*each) for each in wanted.items()]
        answer = client.ask(OffsetFetchRequest(group, topics, require_stable=stable), version)
        error, told = answer.error_code, answer.topics
    else:
        asked = (
            None if wanted is None else [OffsetFetchRequestTopics(topic, topic_id(client, topic), each) for topic, each in wanted.items()]
        )
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=asked)], require_stable=stable)
        (only,) = client.ask(request, version).groups
        assert only.group_id == group
        error, told = only.error_code, only.topics
    names = {topic_id(client, topic): topic for topic in wanted or client.world.broker.metadata.topics}
    return name(error), {
        (topic.name if version < FIRST_BY_ID else names[topic.topic_id], each.partition_index): Fetched(
            each.committed_offset, each.committed_leader_epoch, each.metadata, name(each.error_code)
        )
        for topic in told
        for each in topic.partitions
    }


def fetch(
    client: Asker, group: str, places: Iterable[Place] | None = None, *, version: int = 9, stable: bool = False
) -> dict[Place, int | str]:
    """The offset of each partition, or its code where there is one."""
    error, found = fetch_all(client, group, places, version=version, stable=stable)
    assert error == "NONE", error
    return {place: each.offset if each.error == "NONE" else each.error for place, each in found.items()}


class Joined(NamedTuple):
    """A consumer in a stable group."""

    member_id: str
    generation: int


def join(
    client: Client, group: str, *topics: str, kind: str = "consumer", instance: str | None = None, session_timeout_ms: int = 30_000
) -> Joined:
    """Make a stable group with one member, which consumes `topics`."""
    protocol = JoinGroupRequestProtocol("range", subscription(*(topics or ("t",))))
    request = JoinGroupRequest(
        group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[protocol],
    )
    if instance is None:
        request.member_id = client.ask(request, 5).member_id
    client.send(request, 5)
    client.world.clock.settle()
    (joined,) = (answer.body for answer in client.answers())
    assert joined.error_code == 0, name(joined.error_code)
    assignment = SyncGroupRequestAssignment(joined.member_id, b"all of it")
    sync = SyncGroupRequest(group, joined.generation_id, joined.member_id, instance, kind, "range", [assignment])
    assert client.ask(sync, 5).error_code == 0
    return Joined(joined.member_id, joined.generation_id)
