"""What was changed on the disk below a broker reaches no application: it is an error with topic, partition and offset, every time."""

import pytest

from moldau.client import ConsumedMessage, ConsumeError, Consumer, Producer, TopicPartition, create_message_streams
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system

LIMIT_S = 30.0
QUICK = {"fetch.wait.max.ms": 20, "heartbeat.interval.ms": 200}
WHERE = TopicPartition("t", 0)


def fill(broker: Broker) -> None:
    broker.create_topic("t")
    with Producer(broker.bootstrap_servers) as producer:
        for value in (b"first", b"second", b"third", b"fourth"):
            producer.send("t", value).result(LIMIT_S)
    (segment,) = broker.directory.rglob("t-0/*.log")
    with segment.open("r+b") as file:
        at = file.read().index(b"second")
        file.seek(at)
        file.write(b"X")


def test_a_consumer_stops_at_damage_and_continues_at_a_seek() -> None:
    with Broker() as broker:
        fill(broker)
        with Consumer(broker.bootstrap_servers, group_id="g", topics=["t"], settings=QUICK) as consumer:
            first = consumer.poll(LIMIT_S)
            assert first is not None
            assert first.value == b"first"
            for _ in range(2):
                with pytest.raises(ConsumeError, match=r"^partition t-0 at offset 1: BAD_MSG: .*failed CRC32C check") as told:
                    consumer.poll(LIMIT_S)
                assert (told.value.topic, told.value.partition, told.value.offset) == ("t", 0, 1)
            consumer.seek(WHERE, 2)
            rest = [told_or_message(consumer) for _ in range(2)]
            assert [message.value for message in rest] == [b"third", b"fourth"]


def told_or_message(consumer: Consumer) -> ConsumedMessage:
    """The next message; an error that was on its way before the seek is passed over."""
    while True:
        try:
            message = consumer.poll(LIMIT_S)
        except ConsumeError:
            continue
        assert message is not None
        return message


def test_streams_end_with_the_damage() -> None:
    with Broker() as broker:
        fill(broker)
        with create_message_streams("t", bootstrap_servers=broker.bootstrap_servers, group_id="g", settings=QUICK) as streams:
            taken = iter(streams["t"][0])
            with pytest.raises(ConsumeError, match="partition t-0 at offset 1: BAD_MSG"):
                assert [next(taken).value, next(taken).value] == [b"first", b"never"]
