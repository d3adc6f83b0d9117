"""Message streams and groups, and the sample programs of P 3.1; where a group begins, and who may see a message again."""

import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from moldau.client import ConsumedMessage, Consumer, Message, MessageSet, MessageStream, Producer, TopicPartition, create_message_streams
from moldau.testing.broker import Broker
from support.paper import LIMIT_S, note_fetches, wait_until

QUICK = {"fetch.wait.max.ms": 20, "heartbeat.interval.ms": 200}


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return f"group of {request.node.name}"


def publish(broker: Broker, topic: str, count: int, partitions: int = 1) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def streams_of(broker: Broker, topics: Any, count: int = 1, *, group: str, **options: Any) -> Any:
    return create_message_streams(topics, count, group_id=group, bootstrap_servers=broker.bootstrap_servers, settings=QUICK, **options)


def numbers(messages: "list[ConsumedMessage]") -> list[int]:
    return [int(message.payload) for message in messages]


def test_b01_the_sample_producer(broker: Broker, topic: str) -> None:
    """``producer = new Producer(…); message = new Message("test message str".getBytes()); set = new MessageSet(message);
    producer.send("topic1", set);`` P 3.1."""
    producer = Producer(broker.bootstrap_servers)
    message = Message(b"test message str")
    message_set = MessageSet(message)
    producer.send(topic, message_set)
    producer.close()
    with Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [found.payload for found in islice(consumer, 1)] == [b"test message str"]


def test_b02_the_sample_consumer(broker: Broker, topic: str, group: str) -> None:
    """``streams[] = Consumer.createMessageStreams("topic1", 1); for (message : streams[0]) { bytes = message.payload(); … }`` P 3.1."""
    publish(broker, topic, 3)
    done: list[bytes] = []
    streams = streams_of(broker, topic, 1, group=group)
    for message in streams[0]:
        done.append(message.payload)
        if len(done) == 3:
            break
    streams.close()
    assert done == [b"0", b"1", b"2"]


def test_b02_a_stream_never_ends_it_blocks_until_there_is_more(broker: Broker, topic: str, group: str) -> None:
    """If there are no more messages to consume, the iterator blocks until new messages are published. P 3.1."""
    seen: list[ConsumedMessage] = []
    with streams_of(broker, {topic: 1}, group=group) as streams:
        reader = threading.Thread(target=seen.extend, args=(streams[0],))
        reader.start()
        for count in (1, 2):
            publish(broker, topic, 1)
            wait_until(lambda: streams._queues.finished() == {TopicPartition(topic, 0): count}, "the message")  # noqa: B023
            assert reader.is_alive()
    reader.join(LIMIT_S)
    assert numbers(seen) == [0, 0]


def test_b02_streams_share_the_messages_of_a_topic(broker: Broker, group: str) -> None:
    """The messages are evenly distributed into the sub-streams of a topic (P 3.1), a partition to one of them (P 3.2)."""
    topic = broker.create_topic(broker.unique_topic("b02"), partitions=4)
    publish(broker, topic, 400, partitions=4)
    with streams_of(broker, {topic: 2}, group=group) as streams:
        parts = in_threads(list(streams), lambda stream: list(islice(stream, 200)))
        assert [len(stream.partitions()) for stream in streams] == [2, 2]
    assert sorted(numbers([*parts[0], *parts[1]])) == list(range(400))
    assert not {message.partition for message in parts[0]} & {message.partition for message in parts[1]}
    for part in parts:
        for partition in {message.partition for message in part}:
            assert [message.offset for message in part if message.partition == partition] == list(range(100))


def in_threads(streams: list[MessageStream], work: Callable[[MessageStream], list[ConsumedMessage]]) -> list[list[ConsumedMessage]]:
    """What `work` makes of each stream, all at once."""
    results: list[list[ConsumedMessage]] = [[] for _ in streams]
    threads = [threading.Thread(target=lambda n=number, s=stream: results[n].extend(work(s))) for number, stream in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    return results


def test_b03_a_group_shares_one_copy_and_each_group_has_its_own(broker: Broker, group: str) -> None:
    """Point-to-point within a group, publish/subscribe between groups. P 3.1, 3.2."""
    topic = broker.create_topic(broker.unique_topic("b03"), partitions=2)
    publish(broker, topic, 200, partitions=2)
    with (
        streams_of(broker, topic, group=group) as one,
        streams_of(broker, topic, group=group) as two,
        streams_of(broker, topic, group=f"another {group}") as other,
    ):
        wait_until(lambda: len(one.assignment()) == len(two.assignment()) == 1, "a partition each")
        shared = in_threads([one[0], two[0], other[0]], lambda stream: list(islice(stream, 200 if stream is other[0] else 100)))
    seen = [(message.partition, message.offset) for message in (*shared[0], *shared[1])]
    assert set(seen) == {(partition, offset) for partition in range(2) for offset in range(100)}
    assert sorted(numbers(shared[2])) == list(range(200))


def test_b04_after_a_crash_the_next_owner_begins_behind_the_last_committed_offset(broker: Broker, topic: str, group: str) -> None:
    """When a consumer crashes, who takes over may get duplicates that come after the last committed offset, and loses nothing. P 3.2."""
    publish(broker, topic, 100)
    with pytest.raises(ZeroDivisionError), streams_of(broker, topic, group=group) as streams:
        any(1 // (40 - message.offset) < 0 for message in streams[0])
    with streams_of(broker, topic, group=group) as streams:
        assert numbers(list(islice(streams[0], 60))) == list(range(40, 100)), "the message that was worked on comes again"


def test_b04_without_a_commit_everything_comes_again(broker: Broker, topic: str, group: str) -> None:
    publish(broker, topic, 10)
    for _ in range(2):
        with streams_of(broker, topic, group=group, auto_commit=False) as streams:
            assert numbers(list(islice(streams[0], 10))) == list(range(10))
    with streams_of(broker, topic, group=group, auto_commit=False) as streams:
        list(islice(streams[0], 10))
        streams[0].finish()
        streams.commit()
    publish(broker, topic, 1)
    with streams_of(broker, topic, group=group) as streams:
        assert next(streams[0]).offset == 10, "nothing of before comes again"


@pytest.mark.parametrize(("begins", "expected"), [("smallest", [0, 1, 2, 3]), ("largest", [3])])
def test_c03_a_new_group_begins_at_the_smallest_or_the_largest_offset(
    broker: Broker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch, begins: Any, expected: list[int]
) -> None:
    """When a group is created, consumers begin with the smallest or the largest offset, depending on a configuration. P 3.2."""
    publish(broker, topic, 3)
    fetches = note_fetches(monkeypatch, broker, topic)
    with streams_of(broker, topic, group=group, auto_offset_reset=begins) as streams:
        wait_until(lambda: any(offset == 3 for offset, _ in fetches), "it reads from the end, or has come to it")
        with Producer(broker.bootstrap_servers) as producer:
            producer.send(topic, b"3")
        assert numbers(list(islice(streams[0], len(expected)))) == expected


def test_c03_and_afterwards_where_it_was(broker: Broker, topic: str, group: str) -> None:
    publish(broker, topic, 3)
    with streams_of(broker, topic, group=group) as streams:
        list(islice(streams[0], 2))
    with streams_of(broker, topic, group=group, auto_offset_reset="largest") as streams:
        assert numbers(list(islice(streams[0], 2))) == [1, 2]


def test_a12_a_consumer_may_rewind(broker: Broker, topic: str, group: str) -> None:
    """A consumer can deliberately rewind back to an old offset and re-consume data, after an error in its logic for instance. P 3.2."""
    publish(broker, topic, 20)
    with streams_of(broker, topic, group=group) as streams:
        assert numbers(list(islice(streams[0], 20))) == list(range(20))
        streams.seek(TopicPartition(topic, 0), 15)
        assert numbers(list(islice(streams[0], 5))) == list(range(15, 20))
        streams.seek_to_beginning()
        assert numbers(list(islice(streams[0], 20))) == list(range(20))
