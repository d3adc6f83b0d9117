"""OffsetDelete: a group forgets how far it has read in partitions that none of its members consumes (KIP-496)."""

from typing import TYPE_CHECKING

from moldau.broker.groups.deletion import LastOf
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.groups.group import Group
    from moldau.cluster.snapshot import MetadataSnapshot

PLACES_SHOWN = 5
"""Partitions that the line in the log names."""
AT_ONCE_MAX = 100
"""Offsets that are deleted in one step."""


def handle(broker: "Broker", request: OffsetDeleteRequest, context: Request, reply: Reply) -> Steps:
    """Codes of a partition: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC. Of the request: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP for members that are no consumers, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
    """
    codes: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        for each in topic.partitions:
            codes[topic.name, each.partition_index] = _there(broker.metadata, topic.name, each.partition_index)
            yield None
    going: list[tuple[str, int]] = []
    wanted = [place for place, code in codes.items() if code is ErrorCode.NONE]

    def answer(error: PeerError | None) -> None:
        if error is None and going:
            places = " ".join(f"{topic}-{partition}" for topic, partition in going[:PLACES_SHOWN])
            broker.admin_log.note(context, "group offsets deleted", group=request.group_id, offsets=len(going), first=places)
        reply(OffsetDeleteResponse(error_code=error.code) if error is not None else OffsetDeleteResponse(topics=_topics(request, codes)))

    pieces = [wanted[start : start + AT_ONCE_MAX] for start in range(0, len(wanted), AT_ONCE_MAX)] or [[]]
    done = LastOf(len(pieces), answer)
    for piece in pieces:
        try:
            group = _group_for(broker, request.group_id)
        except PeerError as error:
            done(error)
        else:
            some = _deletable(group, piece, codes)
            going += some
            broker.groups.delete_offsets(group, some, done)
        yield None


def _deletable(group: "Group", places: list[tuple[str, int]], codes: dict[tuple[str, int], ErrorCode]) -> list[tuple[str, int]]:
    """Those of some partitions that have offsets, and may lose them; `codes` says why others may not."""
    membership = group.membership
    if membership is not None:
        subscribed = {name for name in {topic for topic, _ in places} if membership.subscribed_to(name)}
        codes.update((place, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for place in places if place[0] in subscribed)
    return [place for place in places if codes[place] is ErrorCode.NONE and group.offsets.has(*place)]


def _there(snapshot: "MetadataSnapshot", name: str, index: int) -> ErrorCode:
    topic = snapshot.topics.get(name)
    known = topic is not None and 0 <= index < len(topic.partitions)
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _group_for(broker: "Broker", group_id: str) -> "Group":
    group = broker.groups.group_for(group_id)
    if group is None:
        raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}' is not there")
    membership = group.membership
    if membership is not None and membership.roster.members and not membership.is_consumer_group:
        raise PeerError(ErrorCode.NON_EMPTY_GROUP, f"group '{group_id}' has members of which nobody knows what they consume")
    return group


def _topics(request: OffsetDeleteRequest, codes: dict[tuple[str, int], ErrorCode]) -> list[OffsetDeleteResponseTopic]:
    return [
        OffsetDeleteResponseTopic(
            topic.name,
            [OffsetDeleteResponsePartition(each.partition_index, codes[topic.name, each.partition_index]) for each in topic.partitions],
        )
        for topic in request.topics
    ]


HANDLERS = {ApiKey.OFFSET_DELETE: handle}
