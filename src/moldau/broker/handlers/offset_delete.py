"""OffsetDelete: a group forgets how far it has read in partitions that none of its members consumes (KIP-496)."""

from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.dispatch import Reply
    from moldau.broker.groups.group import Group
    from moldau.cluster.snapshot import MetadataSnapshot

PLACES_SHOWN = 5
"""Partitions that the line in the log names."""


def handle(broker: "Broker", request: OffsetDeleteRequest, context: RequestContext, reply: "Reply") -> None:
    """Codes of a partition: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC. Of the request: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP for members that are no consumers, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
    """
    codes: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        for each in topic.partitions:
            codes[topic.name, each.partition_index] = _there(broker.metadata, topic.name, each.partition_index)
    going: list[tuple[str, int]] = []
    wanted = [place for place, code in codes.items() if code is ErrorCode.NONE]

    def answer(error: PeerError | None) -> None:
        if error is None and going:
            places = " ".join(f"{topic}-{partition}" for topic, partition in going[:PLACES_SHOWN])
            broker.admin_log.note(context, "group offsets deleted", group=request.group_id, offsets=len(going), first=places)
        reply(OffsetDeleteResponse(error_code=error.code) if error is not None else OffsetDeleteResponse(topics=_topics(request, codes)))

    try:
        group = _group_for(broker, request.group_id)
    except PeerError as error:
        answer(error)
        return
    membership = group.membership_if_any
    if membership is not None:
        codes.update((place, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for place in wanted if membership.subscribed_to(place[0]))
    present = group.offsets.places()
    going += [place for place in wanted if codes[place] is ErrorCode.NONE and place in present]
    broker.groups.removal.offsets(group, going, answer)


def _there(snapshot: "MetadataSnapshot", name: str, index: int) -> ErrorCode:
    topic = snapshot.topics.get(name)
    known = topic is not None and 0 <= index < len(topic.partitions)
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _group_for(broker: "Broker", group_id: str) -> "Group":
    group = broker.groups.group_for(group_id)
    if group is None:
        raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}' is not there")
    membership = group.membership_if_any
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
