"""OffsetFetch: how far groups have read. A group, a topic or a partition of which nothing is known has the offset -1, without an error."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.broker.groups.offsets import CommittedOffset, GroupOffsets, is_other_topic
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause, Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.cluster.snapshot import TopicInfo

FIRST_WITH_GROUPS = 8
FIRST_BY_ID = 10
FIRST_WITH_ERROR = 2
"""Before, an error of the group stands with each partition."""
NOTHING = -1


def handle(broker: "Broker", request: OffsetFetchRequest, context: Request, reply: Reply) -> Steps:
    """Answer for one group, or from version 8 on for many; null topics stand for all that the group has.

    Codes of a group: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS. Of a partition: UNKNOWN_TOPIC_ID; UNSTABLE_OFFSET_COMMIT where stable
    offsets are asked for and a transaction that has not ended is about to change this one.
    """
    version = context.api_version
    if version >= FIRST_WITH_GROUPS:
        fetching = _Fetching(broker, stable=request.require_stable, by_id=version >= FIRST_BY_ID)
        groups = []
        for each in _once(request.groups):
            groups.append((yield from fetching.group(each)))
            yield None
        reply(OffsetFetchResponse(groups=groups))
        return
    topics = (
        None
        if request.topics is None
        else [OffsetFetchRequestTopics(each.name, partition_indexes=each.partition_indexes) for each in request.topics]
    )
    asked = OffsetFetchRequestGroup(request.group_id, topics=topics)
    found = yield from _Fetching(broker, stable=request.require_stable, by_id=False).group(asked)
    reply((yield from _as_one(found, asked, version)))


def _once(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Without the repeated wishes for all that a group has: they would multiply the answer."""
    whole = {each.group_id: each for each in groups if each.topics is None}
    return [each for each in groups if each.topics is not None or each is whole[each.group_id]]


class _Fetching:
    """One request."""

    def __init__(self, broker: "Broker", *, stable: bool, by_id: bool) -> None:
        self._broker = broker
        self._snapshot = broker.metadata
        self._stable = stable
        self._by_id = by_id

    def group(self, asked: OffsetFetchRequestGroup) -> Generator[Pause, None, OffsetFetchResponseGroup]:
        try:
            group = self._broker.groups.group_for(asked.group_id, empty_id=True)
        except PeerError as error:
            return OffsetFetchResponseGroup(asked.group_id, error_code=error.code)
        offsets = GroupOffsets() if group is None else group.offsets
        if asked.topics is None:
            return OffsetFetchResponseGroup(asked.group_id, (yield from self._all(offsets)))
        topics = []
        for topic in asked.topics:
            found = yield from self._topic(offsets, topic)
            topics.append(found)
        return OffsetFetchResponseGroup(asked.group_id, topics)

    def _topic(self, offsets: GroupOffsets, asked: OffsetFetchRequestTopics) -> Generator[Pause, None, OffsetFetchResponseTopics]:
        topic = self._snapshot.topics_by_id.get(asked.topic_id) if self._by_id else self._snapshot.topics.get(asked.name)
        if self._by_id and topic is None:
            partitions = [_failed(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes]
        else:
            name = asked.name if topic is None else topic.name
            partitions = []
            for index in asked.partition_indexes:
                partitions.append(self._partition(offsets, name, index, topic))
                yield None
        return OffsetFetchResponseTopics(asked.name, asked.topic_id, partitions)

    def _all(self, offsets: GroupOffsets) -> Generator[Pause, None, list[OffsetFetchResponseTopics]]:
        """What the group has; not of topics that are gone where topics are named by id."""
        topics = []
        for name, committed in list(offsets.committed.items()):
            topic = self._snapshot.topics.get(name)
            if topic is None and self._by_id:
                continue
            partitions = []
            for index, offset in list(committed.items()):
                if topic is None or not is_other_topic(offset.topic_id, topic.topic_id):
                    partitions.append(self._partition(offsets, name, index, topic))
                yield None
            if partitions:
                topics.append(OffsetFetchResponseTopics(name, bytes(16) if topic is None else topic.topic_id, partitions))
        return topics

    def _partition(self, offsets: GroupOffsets, name: str, index: int, topic: "TopicInfo | None") -> OffsetFetchResponsePartitions:
        if self._stable and offsets.is_pending(name, index):
            return _failed(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found: CommittedOffset | None = offsets.get(name, index) if topic is None else offsets.get(name, index, topic.topic_id)
        if found is None:
            return _failed(index, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(index, found.offset, found.leader_epoch, found.metadata)


def _failed(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NOTHING, NOTHING, "", code)


def _as_one(group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int) -> Generator[Pause, None, OffsetFetchResponse]:
    """The answer in the versions before 8."""
    if group.error_code and version < FIRST_WITH_ERROR:
        code = ErrorCode(group.error_code)
        group.topics = [
            OffsetFetchResponseTopics(each.name, partitions=[_failed(index, code) for index in each.partition_indexes])
            for each in asked.topics or ()
        ]
    topics: list[OffsetFetchResponseTopic] = []
    for topic in group.topics:
        partitions: list[OffsetFetchResponsePartition] = []
        for each in topic.partitions:
            found = OffsetFetchResponsePartition(
                each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
            )
            partitions.append(found)
            yield None
        topics.append(OffsetFetchResponseTopic(topic.name, partitions))
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


HANDLERS = {ApiKey.OFFSET_FETCH: handle}
