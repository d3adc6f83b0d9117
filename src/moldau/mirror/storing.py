"""Records that a mirror stores outside of transactions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.versions import VersionRange
from moldau.wire.brokers import check

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.wire.brokers import Brokers

ACKS_ALL = -1
INSIST_S = 60.0
_TIMEOUT_MS = 10_000
_BY_NAME = VersionRange(3, 12)


async def store(brokers: "Brokers", partition: "TopicPartition", records: Iterable[tuple[bytes, bytes]], now_ms: int) -> None:
    """Produce keys and values; all in-sync replicas have them when it returns. They may be there twice. PeerError, WorldError."""
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(now_ms, key, value)
    topic = TopicProduceData(partition.topic, partition_data=[PartitionProduceData(partition.partition, builder.build())])
    request = ProduceRequest(None, ACKS_ALL, _TIMEOUT_MS, [topic])

    async def ask() -> None:
        connection = await brokers.connection(await brokers.leader(partition), "store")
        response = await connection.send(ApiKey.PRODUCE, request, timeout_s=_TIMEOUT_MS / 1000 + 5, version=_BY_NAME)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            brokers.forget_topic(partition.topic)
        check(answer.error_code, partition)

    await brokers.insist(ask, INSIST_S)
