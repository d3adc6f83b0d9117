"""Connections to a broker: a raw one for tools and for Spark, and producers and consumers over librdkafka.

``from moldau.client import Producer, Consumer, create_message_streams``. Nothing is imported before it is asked for: tools and the Spark
source, which use the raw connection, do not pay for librdkafka.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from moldau.client.transactions import Transaction
    from moldau.model.identity import TopicPartition

_HOMES = {
    "ClientError": "failures",
    "CommitError": "failures",
    "ConsumeError": "failures",
    "ConsumedMessage": "message",
    "Deliveries": "delivery",
    "Delivered": "message",
    "Delivery": "delivery",
    "FencedError": "failures",
    "Message": "message",
    "MessageSet": "message",
    "Producer": "producer",
    "SendError": "failures",
    "Transaction": "transactions",
    "TransactionAbortedError": "failures",
    "TransactionError": "failures",
    "murmur2": "partitioning",
    "partition_of": "partitioning",
}

__all__ = [
    "ClientError",
    "CommitError",
    "ConsumeError",
    "ConsumedMessage",
    "Delivered",
    "Deliveries",
    "Delivery",
    "FencedError",
    "Message",
    "MessageSet",
    "Producer",
    "SendError",
    "TopicPartition",
    "Transaction",
    "TransactionAbortedError",
    "TransactionError",
    "murmur2",
    "partition_of",
]


def __getattr__(name: str) -> Any:
    if name == "TopicPartition":
        from moldau.model.identity import TopicPartition

        return TopicPartition
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
