"""The error of a message that is too large names its size, the limit, and what helps, whether producer or broker refused it."""

from collections.abc import Iterator

import pytest

from moldau.client import Producer
from moldau.client.failures import refused_by_broker, refused_by_producer
from moldau.testing.broker import Broker

LIMIT_S = 30.0
OTHER = 7


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def test_the_producer_refuses_by_its_own_setting(broker: Broker) -> None:
    with Producer(broker.bootstrap_servers, settings={"message.max.bytes": 2000}) as producer:
        error = producer.send("t", "\u00fc" * 1500, key=b"k").exception(LIMIT_S)
    assert str(error) == (
        "topic t: MSG_SIZE_TOO_LARGE: Message size too large; key and value have 3001 bytes, and with headers and framing a message may"
        " have 2000, by the producer's setting message.max.bytes: raise it, with max.message.bytes of the topic, or send less in one"
        " message"
    )


def test_the_limit_of_a_producer_that_sets_none_is_librdkafkas(broker: Broker) -> None:
    topic = broker.create_topic("roomy", config={"max.message.bytes": 4_000_000})
    with Producer(broker.bootstrap_servers) as producer:
        assert "a message may have 1000000, by" in str(producer.send(topic, bytes(1_000_000)).exception(LIMIT_S))
        assert producer.send(topic, bytes(999_900)).exception(LIMIT_S) is None


def test_the_broker_refuses_by_the_topics_setting(broker: Broker) -> None:
    topic = broker.create_topic("small", config={"max.message.bytes": 1000})
    with Producer(broker.bootstrap_servers) as producer:
        error = producer.send(topic, bytes(3000), key=b"k").exception(LIMIT_S)
        assert producer.send(topic, bytes(300)).exception(LIMIT_S) is None
    assert str(error) == (
        "partition small-0: MSG_SIZE_TOO_LARGE: Message size too large; key and value have 3001 bytes, and their batch is larger than"
        " max.message.bytes of the topic allows (message.max.bytes of the brokers where the topic has none): raise it, or send less in one"
        " message, or in one batch (batch.size of the producer)"
    )


def test_a_batch_that_is_larger_than_a_segment(broker: Broker) -> None:
    topic = broker.create_topic("segments", config={"segment.bytes": 1_048_576, "max.message.bytes": 4_000_000})
    with Producer(broker.bootstrap_servers, settings={"message.max.bytes": 4_000_000}) as producer:
        error = str(producer.send(topic, bytes(2_000_000)).exception(LIMIT_S))
    assert error.startswith("partition segments-0: RECORD_LIST_TOO_LARGE: ")
    assert "key and value have 2000000 bytes, and their batch is larger than segment.bytes of the topic allows" in error


def test_other_errors_have_nothing_to_do_with_sizes() -> None:
    assert refused_by_producer(OTHER, b"", None, 1) == ""
    assert refused_by_broker(OTHER, None) == ""  # type: ignore[arg-type]
