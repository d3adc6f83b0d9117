"""Metadata, the largest answer that every client asks for: 200 topics of 10 partitions with 3 replicas each."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from codec.timing import row
from moldau.protocol.codec import decoder, encoder
from moldau.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TARGET_US = 3000.0
BROKERS = 3


def response(topics: int = 200, partitions: int = 10) -> MetadataResponse:
    """A cluster of three brokers."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(broker, f"broker-{broker}.example.com", 9092) for broker in range(BROKERS)],
        cluster_id="wh3aYQPWTOKzzdZCvPbXcw",
        controller_id=0,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{topic}", topic_id=topic.to_bytes(16), partitions=[partition(index) for index in range(partitions)]
            )
            for topic in range(topics)
        ],
    )


def partition(index: int) -> MetadataResponsePartition:
    """All replicas in sync."""
    replicas = [(index + step) % BROKERS for step in range(BROKERS)]
    return MetadataResponsePartition(
        partition_index=index, leader_id=replicas[0], leader_epoch=5, replica_nodes=replicas, isr_nodes=replicas
    )


def measure() -> Iterator[dict[str, Any]]:
    """Encoding, which a broker does, and decoding, which our own clients do."""
    message = response()
    for version in (1, 5, 9, 12):
        encode = encoder(MetadataResponse, version)
        data = encode(message)
        yield row(f"encode Metadata v{version} response, 200 x 10", partial(encode, message), target_us=TARGET_US, bytes=len(data))
    decode = decoder(MetadataResponse, version)
    yield row(f"decode Metadata v{version} response, 200 x 10", partial(decode, data, 0), bytes=len(data))
