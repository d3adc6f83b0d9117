"""Whether a topic or partition that a broker does not know was deleted for certain, or is only unknown to it for a moment.

A broker that was just started, or that has not yet heard of a change, does not know topics that are there. An auditor that took them for
deleted would count them from their beginning when they come back.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from moldau.client.cluster import Cluster
from moldau.client.errors import failure
from moldau.client.metadata import NO_TOPIC_ID, TopicMetadata
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition

UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
LATE_S: Final = 2.0
"""So long after it was made may a topic be unknown to the broker that is asked."""
_LOOK_S: Final = 0.1


def deleted(
    cluster: Cluster, among: Collection[TopicPartition], ids: Mapping[TopicPartition, bytes], stopping: Callable[[], bool]
) -> set[TopicPartition]:
    """Those partitions that were deleted for certain, by their topics' names and the `ids` that these had.

    Topics that nobody knows are given a little time, all of them the same. One that is there and cannot be read is waited for, but not
    by who is `stopping`: it was not deleted. RequestFailedError by then.
    """
    gone: set[TopicPartition] = set()
    unsure = set(among)
    retry, deadline = cluster.retry(), time.monotonic() + LATE_S
    while unsure:
        late = time.monotonic() >= deadline
        topics = cluster.metadata(sorted({where.topic for where in unsure})).topics
        unreadable: set[TopicPartition] = set()
        for where in sorted(unsure):
            found = topics.get(where.topic)
            if found is None or found.error in UNKNOWN:
                if late:
                    gone.add(where)
            elif found.error:
                unreadable.add(where)
            else:
                unsure.remove(where)
                if _is_of_another(where, ids.get(where, NO_TOPIC_ID), found):
                    gone.add(where)
        unsure -= gone
        if unreadable and not stopping():
            retry.pause(failure(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {min(unreadable).topic}"))
            continue
        unsure -= unreadable
        if unsure:
            time.sleep(_LOOK_S)  # not the cluster's pause, which ends who is to stop: the counts would be lost with it
    return gone


def _is_of_another(where: TopicPartition, topic_id: bytes, topic: TopicMetadata) -> bool:
    """Whether this is not the topic that the partition was of: it has another id, or not so many partitions."""
    is_another = NO_TOPIC_ID not in (topic_id, topic.id) and topic_id != topic.id
    return is_another or where.partition >= len(topic.partitions)
