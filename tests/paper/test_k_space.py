"""The experiments of P 5, as far as they are figures and not speeds."""

import pytest

from moldau.client.connection import BrokerConnection
from moldau.testing.broker import Broker
from support.paper import message_set, publish, segment_files

HEADER = 61
"""Bytes of a batch before its messages."""


def overhead(messages_in_batch: int) -> int:
    """Bytes of a batch beyond its messages' 200 each: its header and 9 per message, 10 from the 65th on, whose number is longer."""
    return HEADER + 9 * messages_in_batch + max(0, messages_in_batch - 64)


@pytest.mark.parametrize(("messages_in_batch", "bytes_per_message"), [(1, 70.0), (50, 10.22), (4800, 10.0)])
def test_k03_nine_bytes_for_a_message_in_its_batch(
    broker: Broker, connection: BrokerConnection, messages_in_batch: int, bytes_per_message: float
) -> None:
    """A message of 200 bytes takes 9 bytes more, where ActiveMQ takes 144. P 5.

    It still does: 9 bytes of its own (10 behind the 64th of a batch), and its share of the batch's 61.
    """
    topic = broker.create_topic(f"k03-{messages_in_batch}")
    messages = message_set([b"x" * 200] * messages_in_batch)
    for _ in range(3):
        publish(connection, topic, messages)
    (segment,) = segment_files(broker.directory, topic)
    beyond = segment.stat().st_size - 3 * 200 * messages_in_batch
    assert beyond == 3 * overhead(messages_in_batch)
    assert round(beyond / (3 * messages_in_batch), 2) == bytes_per_message
