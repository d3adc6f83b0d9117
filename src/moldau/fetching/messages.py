"""A Fetch that the machine wants, in the words of the protocol; and what its answer says of itself."""

from typing import Any

from moldau.fetching.events import SendFetch
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""The leader does not have the session, or not at this epoch."""
LARGE_BYTES = 256 * 1024
"""Records of an answer from which on the next Fetch is sent before they are applied."""


def wanted_topics(fetch: SendFetch, partition_bytes: int) -> list[FetchTopic]:
    """What to read, of each partition at most so many bytes."""
    topics: dict[bytes, FetchTopic] = {}
    for each in fetch.partitions:
        topic, log = topics.get(each.topic_id), each.log
        if topic is None:
            topic = topics[each.topic_id] = FetchTopic(topic_id=each.topic_id, partitions=[])
        wanted = FetchPartition(each.partition, each.leader_epoch, log.end_offset, log.last_epoch, log.start_offset, partition_bytes)
        topic.partitions.append(wanted)
    return list(topics.values())


def forgotten_topics(fetch: SendFetch) -> list[ForgottenTopic]:
    """What to take out of the session."""
    forgotten: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in fetch.forgotten:
        forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(forgotten.values())


def filled_partitions(response: Any) -> tuple[tuple[bytes, int], ...]:
    """The partitions with records, for `ResponseArrived`; none of an answer with fewer bytes of them than `LARGE_BYTES`."""
    filled, size = [], 0
    for topic in response.responses:
        for each in topic.partitions:
            if each.records:
                filled.append((topic.topic_id, each.partition_index))
                size += len(each.records)
    return tuple(filled) if size >= LARGE_BYTES else ()
