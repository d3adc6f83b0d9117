"""DescribeProducers: which producers a partition knows, and where their transactions began (KIP-664)."""

from typing import TYPE_CHECKING

from moldau.broker.request import Reply, Request
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker


def handle(broker: "Broker", request: DescribeProducersRequest, context: Request, reply: Reply) -> Steps:
    """List the producers of each partition, once."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, indexes in wanted.items():
        topics.append(described := TopicResponse(name))
        for index in indexes:
            described.partitions.append(_describe(broker, name.encode(), index))
            yield None
    reply(DescribeProducersResponse(topics=topics))


def _describe(broker: "Broker", topic: bytes, index: int) -> PartitionResponse:
    partition = broker.partitions_of(topic, by_id=False).get(index)
    if partition is None:
        error = broker.missing_partition(topic, index, by_id=False)
        return PartitionResponse(index, error.code, error.message)
    return PartitionResponse(
        index,
        active_producers=[ProducerState(*producer) for producer in partition.log.active_producers()],
    )


HANDLERS = {ApiKey.DESCRIBE_PRODUCERS: handle}
