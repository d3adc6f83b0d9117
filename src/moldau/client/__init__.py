"""Connections to a broker: a raw one for tools and for Spark, and producers and consumers over librdkafka.

``from moldau.client import Producer, Consumer, create_message_streams``. Nothing is imported before it is asked for: tools and the Spark
source, which use the raw connection, do not pay for librdkafka.
"""

from typing import TYPE_CHECKING, Any

from moldau.model.extras import load

if TYPE_CHECKING:
    from moldau.client.asynchronous import AsyncConsumer, AsyncProducer
    from moldau.client.consumer import Consumer
    from moldau.client.coordinated.streams import create_coordinated_streams
    from moldau.client.delivery import Deliveries, Delivery
    from moldau.client.failures import (
        ClientError,
        CommitError,
        ConsumeError,
        FencedError,
        SendError,
        TransactionAbortedError,
        TransactionError,
    )
    from moldau.client.message import ConsumedMessage, Delivered, Message, MessageSet
    from moldau.client.partitioning import murmur2, partition_of
    from moldau.client.producer import Producer
    from moldau.client.streams import MessageStream, MessageStreams, create_message_streams
    from moldau.client.transactions import Transaction
    from moldau.model.identity import TopicPartition

_HOMES = {
    "AsyncConsumer": "moldau.client.asynchronous",
    "AsyncProducer": "moldau.client.asynchronous",
    "ClientError": "moldau.client.failures",
    "CommitError": "moldau.client.failures",
    "ConsumeError": "moldau.client.failures",
    "ConsumedMessage": "moldau.client.message",
    "Consumer": "moldau.client.consumer",
    "Delivered": "moldau.client.message",
    "Deliveries": "moldau.client.delivery",
    "Delivery": "moldau.client.delivery",
    "FencedError": "moldau.client.failures",
    "Message": "moldau.client.message",
    "MessageSet": "moldau.client.message",
    "MessageStream": "moldau.client.streams",
    "MessageStreams": "moldau.client.streams",
    "Producer": "moldau.client.producer",
    "SendError": "moldau.client.failures",
    "TopicPartition": "moldau.model.identity",
    "Transaction": "moldau.client.transactions",
    "TransactionAbortedError": "moldau.client.failures",
    "TransactionError": "moldau.client.failures",
    "create_coordinated_streams": "moldau.client.coordinated.streams",
    "create_message_streams": "moldau.client.streams",
    "murmur2": "moldau.client.partitioning",
    "partition_of": "moldau.client.partitioning",
}

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "ClientError",
    "CommitError",
    "ConsumeError",
    "ConsumedMessage",
    "Consumer",
    "Delivered",
    "Deliveries",
    "Delivery",
    "FencedError",
    "Message",
    "MessageSet",
    "MessageStream",
    "MessageStreams",
    "Producer",
    "SendError",
    "TopicPartition",
    "Transaction",
    "TransactionAbortedError",
    "TransactionError",
    "create_coordinated_streams",
    "create_message_streams",
    "murmur2",
    "partition_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(__name__, name, _HOMES[name], "client")
