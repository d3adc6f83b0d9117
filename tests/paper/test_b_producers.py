"""Producers and what they may count on, P 3, 3.2, 3.3."""

import pytest

from moldau.protocol.records.batch import batches, iterate_log
from moldau.testing.broker import Broker
from support.paper import LIMIT_S, connect, message_set, producer_for, producer_in_large_batches, publish, pull, receive, send, values_in


def test_b01_a_partition_is_chosen_by_key(broker: Broker) -> None:
    """The producer chooses the partition by a key and a partitioning function. P 3.2. One key, one partition."""
    topic = broker.create_topic("b01-key", partitions=4)
    producer = producer_for(broker, partitioner="murmur2_random")
    for number in range(400):
        producer.produce(topic, b"%d" % number, key=b"member %d" % (number % 40))
    assert producer.flush(LIMIT_S) == 0
    homes: dict[bytes, set[int]] = {}
    for partition in range(4):
        for record in iterate_log(memoryview(pull(broker, topic, 0, partition=partition)), max_decompressed_bytes=1 << 20):
            homes.setdefault(record.key or b"", set()).add(partition)
    assert len(homes) == 40
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len(set.union(*homes.values())) == 4, "and many keys, all partitions"


def test_b01_or_at_random(broker: Broker) -> None:
    """The producer sends to a randomly selected partition. P 3.2."""
    topic = broker.create_topic("b01-random", partitions=4)
    producer = producer_for(broker, partitioner="random", sticky_partitioning_linger_ms=0)
    for _ in range(400):
        producer.produce(topic, b"anywhere")
    assert producer.flush(LIMIT_S) == 0
    counts = [len(values_in(pull(broker, topic, 0, partition=partition))) for partition in range(4)]
    assert sum(counts) == 400
    assert min(counts) > 50


def test_b01_sending_is_asynchronous_and_in_batches(broker: Broker, topic: str) -> None:
    """A producer sends a set of messages in one request (P 3), and an application goes on meanwhile: 1,000 messages are few batches."""
    reported: list[int] = []
    producer = producer_in_large_batches(broker, topic)
    for number in range(1000):
        producer.produce(topic, b"%d" % number, on_delivery=lambda _, message: reported.append(message.offset()))
    assert reported == [], "nothing is reported before the application asks"
    assert producer.flush(LIMIT_S) == 0
    assert reported == list(range(1000))
    stored = pull(broker, topic, 0)
    assert values_in(stored) == [b"%d" % number for number in range(1000)]
    assert len(list(batches(memoryview(stored)))) <= 10


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_b01_acknowledged_not_at_all_by_the_leader_or_by_all(broker: Broker, topic: str, acks: str) -> None:
    """A producer does not wait for acknowledgements (P 5), or waits for the leader's, or for all in-sync replicas' (N 8, R 2)."""
    (report,) = send(broker, topic, [b"sent"], acks=acks)
    assert report.offset() == (None if acks == "0" else 0), "without an acknowledgement the offset is not known"
    assert receive(broker, topic, 1)[0].value() == b"sent"


def test_b04_order_is_kept_within_a_partition(broker: Broker) -> None:
    """Messages of one partition are delivered in their order; between partitions nothing is promised. P 3.3."""
    topic = broker.create_topic("b04", partitions=2)
    producer = producer_for(broker, enable_idempotence=True, linger_ms=0)
    for number in range(2000):
        producer.produce(topic, b"%d" % number, partition=number % 2)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    for partition in range(2):
        received = receive(broker, topic, 1000, partition=partition)
        assert [message.offset() for message in received] == list(range(1000))
        assert [message.value() for message in received] == [b"%d" % number for number in range(partition, 2000, 2)]


def test_b04_a_message_sent_again_is_there_twice_unless_its_producer_numbers_what_it_sends(broker: Broker, topic: str) -> None:
    """Delivery is at least once: who sends again because an answer was lost may send twice. P 3.3.

    An idempotent producer (later than all five documents) numbers its batches, and the second copy is answered with the first one's offset.
    """
    with connect(broker) as connection:
        again = message_set([b"again"])
        assert [publish(connection, topic, again).offset for _ in range(2)] == [0, 1]
        numbered = message_set([b"numbered"], producer_id=7000, producer_epoch=0, base_sequence=0)
        assert [publish(connection, topic, numbered, acks=-1).offset for _ in range(2)] == [2, 2]
    assert values_in(pull(broker, topic, 0)) == [b"again", b"again", b"numbered"]
