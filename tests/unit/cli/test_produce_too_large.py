"""``moldau produce`` says of records that were too large on which lines they stand, their sizes, the limit, who sets it, and what helps."""

from collections.abc import Iterator

import pytest

from moldau.cli import sending
from moldau.cli.sending import LINES_TOLD, LargeRecords
from moldau.model.errors import ErrorCode
from moldau.testing.broker import Broker
from support.console import ConsoleInside

NOBODY = "127.0.0.1:9"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"message.max.bytes": 50_000}) as made:
        yield made


@pytest.fixture
def moldau(broker: Broker) -> ConsoleInside:
    return ConsoleInside(broker.bootstrap_servers)


def test_a_broker_refuses_a_line(broker: Broker, moldau: ConsoleInside) -> None:
    """Batches are no larger than the topic takes, so that a small record beside a large one is not refused with it."""
    topic = broker.create_topic("small", config={"max.message.bytes": 10_000})
    done = moldau("produce", topic, "--key-separator", ":", text=b"k:a\nkey:" + b"x" * 20_000 + b"\n")
    limit = (
        "topic small: a batch of records may have 10,000 bytes: max.message.bytes of the topic; the largest record of those refused has"
        " 20,003 bytes of key and value; raise max.message.bytes (moldau topic alter small --config max.message.bytes=BYTES), or send"
        " less in one record"
    )
    assert done.code == 1
    assert done.err.splitlines() == [
        "small-0: 1 not delivered: MSG_SIZE_TOO_LARGE: Broker: Message size too large",
        "stdin:2: not delivered to topic small: key and value have 20,003 bytes",
        limit,
        "1 record sent, 1 failed",
    ]


def test_records_that_fit_are_not_refused_for_the_batch_they_came_in(broker: Broker, moldau: ConsoleInside) -> None:
    """librdkafka makes batches of up to 1 MB whatever the topic takes."""
    topic = broker.create_topic("narrow", config={"max.message.bytes": 500})
    done = moldau("produce", topic, text=b"".join(b"%050d\n" % number for number in range(200)))
    assert (done.code, done.err.splitlines()) == (0, ["200 records sent"])


def test_the_limit_may_be_the_brokers(broker: Broker, moldau: ConsoleInside) -> None:
    topic = broker.create_topic("plain")
    done = moldau("produce", topic, text=b"x" * 60_000 + b"\n")
    assert "stdin:1: not delivered to topic plain: key and value have 60,000 bytes" in done.err
    assert "topic plain: a batch of records may have 50,000 bytes: message.max.bytes of the brokers; " in done.err


def test_the_producer_refuses_a_line(broker: Broker, moldau: ConsoleInside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MESSAGE_BYTES_MAX", 5_000)
    topic = broker.create_topic("any")
    done = moldau("produce", topic, text=b"a\n" + b"x" * 6_000 + b"\nb\n")
    assert done.err.splitlines()[-3:] == [
        "stdin:2: not delivered to topic any: key and value have 6,000 bytes",
        "topic any: a record may have 5,000 bytes with headers and framing: message.max.bytes of this producer; send less in one record",
        "1 record sent, 1 failed, stopped at the first failed delivery",
    ]
    assert moldau("produce", topic, "--on-error", "skip", text=b"a\n" + b"x" * 6_000 + b"\nb\n").err.endswith("2 records sent, 1 failed\n")


def test_many_lines_and_no_broker_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest are told, in the order of the file: a broker refuses small ones with those that were too large."""
    monkeypatch.setattr(sending, "ASK_S", 0.05)
    found = LargeRecords(NOBODY, "t", 100)
    assert list(found.lines("f")) == []
    for line in range(1, LINES_TOLD + 4):
        found.by_broker(ErrorCode.RECORD_LIST_TOO_LARGE, line, 10_000 * line)
    found.by_broker(ErrorCode.RECORD_LIST_TOO_LARGE, None, 3)
    told = list(found.lines("f"))
    assert told[0] == "f:4: not delivered to topic t: key and value have 40,000 bytes"
    assert len(told) == LINES_TOLD + 3
    assert told[-3:-1] == [
        "and 3 more lines, with no more bytes",
        "and 1 record of under 4,096 bytes, whose lines are not remembered",
    ]
    assert told[-1].startswith("topic t: a batch of records may have no more than segment.bytes of the topic allows; the largest record")
