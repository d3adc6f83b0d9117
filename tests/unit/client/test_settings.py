"""Nothing said is safe; what cannot be meant is refused by name."""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from moldau.client import CommitError, Consumer, Message, MessageSet, Producer, SendError, TopicPartition, create_message_streams
from moldau.client.settings import ConsumerOptions, consumer_settings

NOBODY = "127.0.0.1:9"


def test_the_defaults_of_a_consumer() -> None:
    made = consumer_settings(NOBODY, "g", ConsumerOptions())
    expected = {
        "group.id": "g",
        "auto.offset.reset": "smallest",
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "range,roundrobin",
        "fetch.queue.backoff.ms": 10,
        "check.crcs": True,
    }
    assert made | expected == made
    assert consumer_settings(NOBODY, None, ConsumerOptions())["enable.auto.commit"] is False, "without a group nothing is committed"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"acks": 1, "transactional_id": "x"}, "transactional id x: a transaction needs acks='all', not 1"),
        ({"transactional_id": ""}, "the transactional id is empty"),
        ({"bootstrap_servers": "nowhere"}, "nowhere"),
        ({"bootstrap_servers": []}, "no broker"),
        ({"settings": {"no.such": 1}}, "no.such"),
        ({"settings": {"batch.size": "big"}}, "batch.size"),
        ({"settings": {"on_delivery": print}}, "on_delivery is the library's own; use Delivery.add_done_callback"),
        ({"compression": "rar"}, "producer: Invalid value .rar. for configuration property compression$"),
        ({"linger_ms": -1}, r"property linger_ms value -1 is outside allowed range 0\.\.900000$"),
        ({"acks": 2}, "acks is 'all', 1 or 0, not 2"),
        ({"acks": "most"}, "acks is 'all', 1 or 0, not 'most'"),
        ({"settings": {"linger.ms": 1}}, "setting linger.ms is set by the argument linger_ms"),
        ({"settings": {"queue.buffering.max.ms": 1}}, "is set by the argument linger_ms"),
        ({"settings": {"acks": 1}}, "is set by the argument acks"),
    ],
)
def test_a_producer_that_cannot_be(arguments: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Producer(**{"bootstrap_servers": NOBODY, **arguments})


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"topics": ["t"]}, "subscribe needs a group_id"),
        ({"group_id": ""}, "the group id is empty"),
        ({"topics": "t", "group_id": "g"}, r"topics is a list: \['t'\]"),
        ({"auto_offset_reset": "middle"}, "auto_offset_reset"),
        ({"settings": {"group.id": "h"}, "group_id": "g"}, "setting group.id is set by the argument group_id"),
        ({"settings": {"bootstrap.servers": "h:1"}}, "is set by the argument bootstrap_servers"),
        ({"settings": {"enable.auto.commit": False}}, "is set by the argument auto_commit"),
        ({"close_timeout_ms": -1}, "close_timeout_ms is 0 or more, not -1"),
        ({"settings": {"enable.auto.offset.store": True}}, "enable.auto.offset.store is the library's own"),
        ({"assignor": "fair", "group_id": "g"}, "fair"),
    ],
)
def test_a_consumer_that_cannot_be(arguments: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Consumer(**{"bootstrap_servers": NOBODY, **arguments})


def test_streams_that_cannot_be() -> None:
    for topics in ({}, {"t": 0}):
        with pytest.raises(ValueError, match="each topic needs at least one stream"):
            create_message_streams(topics, group_id="g", bootstrap_servers=NOBODY)


def test_what_a_consumer_without_a_group_cannot_do() -> None:
    with Consumer(NOBODY) as consumer:
        for call in (consumer.commit, consumer.committed, consumer.check_transactional):
            with pytest.raises(ValueError, match="commit needs a group_id"):
                call()


def test_places_that_cannot_be() -> None:
    where = TopicPartition("t", 0)
    with Consumer(NOBODY, group_id="g") as consumer:
        wrong = "partition t-0: an offset is 0 or more, not -5"
        with pytest.raises(ValueError, match=wrong):
            consumer.seek(where, -5)
        with pytest.raises(ValueError, match=wrong):
            consumer.commit({where: -5})
        with pytest.raises(ValueError, match=wrong):
            consumer.assign({where: -5})
        for move in (consumer.pause, consumer.resume, consumer.seek_to_end, consumer.seek_to_beginning):
            with pytest.raises(TypeError, match=rf"{move.__name__} takes partitions, TopicPartition\('orders', 0\), not \['t'\]"):
                move(["t"])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^assign takes partitions, .* not 't'$"):
            consumer.assign(["t"])  # type: ignore[list-item]


def test_an_error_is_said_once() -> None:
    """Librdkafka's own words say again what was tried, and whose words they are."""
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "Commit failed: Broker: Unknown topic or partition")
    assert (
        str(CommitError("g", "t", 0, 5, error)) == "group g, partition t-0 at offset 5: UNKNOWN_TOPIC_OR_PART: Unknown topic or partition"
    )
    assert str(SendError("t", 7, KafkaError(KafkaError._UNKNOWN_PARTITION))) == "partition t-7: UNKNOWN_PARTITION: Unknown partition"


def test_a_consumer_that_commits_by_itself_takes_no_part_in_a_transaction() -> None:
    producer = Producer(NOBODY, transactional_id="x")
    with Consumer(NOBODY, group_id="g") as consumer, pytest.raises(ValueError, match="is made with auto_commit=False"):
        producer.transaction(consumer)
    with pytest.raises(ValueError, match="need a producer with a transactional_id"), Producer(NOBODY).transaction():
        pass
    producer.close()


def test_a_closed_producer_sends_nothing() -> None:
    producer = Producer(NOBODY)
    producer.close()
    producer.close()
    with pytest.raises(RuntimeError, match="the producer is closed"):
        producer.send("t", b"")


def test_messages_and_sets_of_them() -> None:
    """``new MessageSet(new Message("test message str".getBytes()))``, P 3.1."""
    several = MessageSet(Message(b"one", key=b"k"), b"two", "three")
    assert [each.payload for each in several] == [b"one", b"two", b"three"]
    assert several[0].key == b"k"
    assert Message(None).payload == b""
    with pytest.raises(TypeError, match="messages, bytes and text, not int"):
        MessageSet(3)  # type: ignore[arg-type]


def test_times_that_librdkafka_would_take_for_now_are_refused() -> None:
    producer = Producer(NOBODY)
    with pytest.raises(ValueError, match="topic t: a timestamp is at least 1 ms, not 0"):
        producer.send("t", Message(b"", timestamp=0))
    producer.close()


def test_what_cannot_be_a_message_is_not_taken_for_several() -> None:
    """A dict has an iterator too: its keys would be sent, and the rest lost without a word."""
    with Producer(NOBODY) as producer:
        for value in ({"a": 1}, 5):
            with pytest.raises(TypeError, match=f"a value is bytes, text, a Message or several of these, not {type(value).__name__}"):
                producer.send("t", value)  # type: ignore[arg-type]


def test_a_slip_in_the_name_of_an_option_of_streams_is_reported() -> None:
    with pytest.raises(TypeError, match="unknown options: auto_offset_rest"):
        create_message_streams("t", group_id="g", bootstrap_servers=NOBODY, auto_offset_rest="largest")  # type: ignore[call-arg]
