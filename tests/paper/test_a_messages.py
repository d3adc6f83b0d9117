"""Topics, partitions, messages and their addresses, P 3.1."""

import threading

from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.client.partition_requests import LATEST
from moldau.testing.broker import Broker
from support.paper import (
    FIRST_MS,
    Published,
    look_up,
    message_set,
    producer_for,
    publish_sets,
    pull,
    receive,
    segment_files,
    send,
    values_in,
)

LIMIT_S = 20.0


def test_a01_a_topic_is_divided_into_partitions_for_many_producers_and_consumers_at_once(broker: Broker) -> None:
    """A topic is a stream of messages, divided into partitions, and a broker stores one or more of them. P 3, 3.1.

    Many producers and consumers publish and retrieve at the same time.
    """
    topic = broker.create_topic("a01", partitions=3)
    with Cluster(broker.bootstrap_servers) as cluster:
        described = cluster.topic(topic)
    assert [each.leader for each in described.partitions] == [0, 0, 0]
    assert all((broker.directory / f"{topic}-{number}").is_dir() for number in range(3))

    received: dict[tuple[int, int], list[bytes]] = {}

    def consume(consumer: int, partition: int) -> None:
        received[consumer, partition] = [message.value() for message in receive(broker, topic, 200, partition=partition)]

    def produce(producer: int, partition: int) -> None:
        send(broker, topic, [b"%d.%d" % (producer, number) for number in range(100)], partition=partition)

    work = [threading.Thread(target=task, args=(who, partition)) for task in (consume, produce) for who in (0, 1) for partition in range(3)]
    for each in work:
        each.start()
    for each in work:
        each.join(LIMIT_S)
    everything = sorted(b"%d.%d" % (producer, number) for producer in (0, 1) for number in range(100))
    for partition in range(3):
        assert sorted(received[0, partition]) == everything
        assert received[1, partition] == received[0, partition], "all consumers see one log"


def test_a02_a_message_is_a_payload_of_bytes_with_key_headers_and_time(broker: Broker, topic: str) -> None:
    """A message contains just a payload of bytes, encoded as its user likes. P 3. Later: a key, headers, a timestamp."""
    payload = bytes(range(256)) * 40
    producer = producer_for(broker)
    producer.produce(topic, payload, key=b"\0key\xff", headers=[("source", b"\1\2"), ("source", None)], timestamp=FIRST_MS)
    producer.produce(topic, None, key=b"gone")
    producer.produce(topic, b"")
    assert producer.flush(LIMIT_S) == 0
    first, second, third = receive(broker, topic, 3)
    assert (first.value(), first.key(), first.timestamp()[1]) == (payload, b"\0key\xff", FIRST_MS)
    assert first.headers() == [("source", b"\1\2"), ("source", None)]
    assert (second.value(), second.key()) == (None, b"gone")
    assert third.value() == b""


def test_a02_a_producer_sends_a_set_of_messages_in_one_request(broker: Broker, connection: BrokerConnection) -> None:
    """For efficiency the producer sends a set of messages in a single publish request. P 3. Today: a set for each of several partitions."""
    topic = broker.create_topic("a02-set", partitions=2)
    sets = {0: message_set([b"one", b"two", b"three"]), 1: message_set([b"four"])}
    assert publish_sets(connection, topic, sets) == {0: Published(0, 0), 1: Published(0, 0)}
    assert values_in(pull(broker, topic, 0)) == [b"one", b"two", b"three"]
    assert values_in(pull(broker, topic, 0, partition=1)) == [b"four"]


def test_a05_a_message_is_addressed_by_its_offset_which_counts_messages(broker: Broker, topic: str) -> None:
    """No message has an id; its logical offset in the log addresses it. P 3.1.

    There an offset is a byte position, and the next one is that plus the message's length. From 0.8 on (N 8) offsets count messages, which
    compaction needs; so do ours.
    """
    payloads = [b"x" * size for size in (1, 1000, 10, 20_000, 0)]
    for payload in payloads:
        send(broker, topic, [payload])
    messages = receive(broker, topic, len(payloads))
    assert [message.offset() for message in messages] == [0, 1, 2, 3, 4]
    assert [message.value() for message in receive(broker, topic, 1, offset=3)] == [b"x" * 20_000]
    end_in_bytes = segment_files(broker.directory, topic)[0].stat().st_size
    assert look_up(broker, topic, LATEST) == len(payloads) < end_in_bytes
