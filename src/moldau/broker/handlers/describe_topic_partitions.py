"""DescribeTopicPartitions: topics page by page (KIP-966). The Java admin client describes topics with it."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.broker.handlers.metadata import WithoutListener, brokers_without_listener, describe, why_missing
from moldau.broker.handlers.operations import NOT_ASKED, TOPIC_OPERATIONS
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause, Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    from moldau.broker.broker import Broker


def handle(broker: "Broker", request: DescribeTopicPartitionsRequest, context: Request, reply: Reply) -> Steps:
    """Topics in the order of their names, from the cursor on, up to a number of partitions; an empty list asks for all topics.

    Codes by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for all with a cursor before partition 0. Where the
    cursor's topic is gone, the page begins with the next one.
    """
    names = sorted({topic.name for topic in request.topics} or broker.registry.snapshot.topics)
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        reply(DescribeTopicPartitionsResponse(topics=[_failed(name, ErrorCode.INVALID_REQUEST, NOT_ASKED) for name in names]))
        return
    start = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    limit = min(broker.config.int("max.request.partition.size.limit"), request.response_partition_limit)
    without = WithoutListener(brokers_without_listener(broker, context), ErrorCode.LISTENER_NOT_FOUND)
    topics, next_cursor = yield from _page(broker, [name for name in names if name >= start[0]], start, max(1, limit), without)
    reply(DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor))


def _page(
    broker: "Broker", names: list[str], start: tuple[str, int], left: int, without: WithoutListener
) -> Generator[Pause, None, tuple[list[DescribeTopicPartitionsResponseTopic], Cursor | None]]:
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield None
        if left == 0:
            return topics, Cursor(name, 0)
        found = _find(broker, name, without)
        if isinstance(found, PeerError):
            topics.append(_failed(name, found.code, TOPIC_OPERATIONS))
            continue
        first = start[1] if name == start[0] else 0
        partitions = [_partition(each) for each in found.partitions[first : first + left]]
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=found.topic_id,
                is_internal=found.is_internal,
                partitions=partitions,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        left -= len(partitions)
        if first + len(partitions) < len(found.partitions):
            return topics, Cursor(name, first + len(partitions))
    return topics, None


def _find(broker: "Broker", name: str, without: WithoutListener) -> MetadataResponseTopic | PeerError:
    topic = broker.registry.snapshot.topics.get(name)
    return why_missing(name) if topic is None else describe(broker, topic, without)


def _partition(told: MetadataResponsePartition) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=told.error_code,
        partition_index=told.partition_index,
        leader_id=told.leader_id,
        leader_epoch=told.leader_epoch,
        replica_nodes=told.replica_nodes,
        isr_nodes=told.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=told.offline_replicas,
    )


def _failed(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_authorized_operations=operations)


HANDLERS = {ApiKey.DESCRIBE_TOPIC_PARTITIONS: handle}
