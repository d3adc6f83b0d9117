"""What librdkafka calls errors is news, which is logged, or ends reading behind the messages before it and says where."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.client.failures import CommitError, ConsumeError
from moldau.client.message import ConsumedMessage
from moldau.client.reader import Reader
from moldau.client.session import Session
from moldau.model.identity import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def message(offset: int, partition: int = 0, error: KafkaError | None = None, topic: str = "t") -> Any:
    """What librdkafka gives."""
    return SimpleNamespace(
        topic=lambda: topic,
        partition=lambda: partition,
        offset=lambda: offset,
        key=lambda: None,
        value=lambda: b"%d" % offset,
        headers=lambda: None,
        timestamp=lambda: (1, -1),
        error=lambda: error,
    )


class FakeConsumer:
    """A consumer of librdkafka that gives `messages`, and calls what is put among them."""

    made: "FakeConsumer"

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        FakeConsumer.made = self
        self.messages: list[Any] = []
        self.stored: list[tuple[int, int]] = []
        self.sought: list[tuple[int, int]] = []
        self.errors: list[KafkaError] = []
        self.results: list[Any] = []
        self.owned = [T0, T1]
        self.callbacks: dict[str, Callable[[object, list[Any]], None]] = {}

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def poll(self, _: float) -> Any:
        return self._next()

    def consume(self, count: int, _: float) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and (one := self._next()) is not None:
            found.append(one)
        return found

    def _next(self) -> Any:
        while self.messages:
            one = self.messages.pop(0)
            if not callable(one):
                return one
            one()
        return None

    def rebalance(self, name: str, *partitions: TopicPartition) -> None:
        self.callbacks[name](self, [confluent_kafka.TopicPartition(*where) for where in partitions])

    def assignment(self) -> list[Any]:
        return [confluent_kafka.TopicPartition(*where) for where in self.owned]

    def store_offsets(self, offsets: list[Any]) -> None:
        self._fail()
        self.stored += [(each.partition, each.offset) for each in offsets]

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self._fail()
        return self.results

    def seek(self, where: Any) -> None:
        self._fail()
        self.sought.append((where.partition, where.offset))

    def _fail(self) -> None:
        if self.errors:
            raise KafkaException(self.errors.pop(0))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(confluent_kafka, "Consumer", FakeConsumer)
    return Session({"enable.auto.commit": True}, "g")


@pytest.fixture
def inner(session: Session) -> FakeConsumer:
    return FakeConsumer.made


def offsets(messages: list[ConsumedMessage]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in messages]


def test_messages_are_ours(session: Session, inner: FakeConsumer) -> None:
    inner.messages = [message(7)]
    assert session.fetch(5, 0.0) == [ConsumedMessage(b"7", None, (), None, "t", 0, 7)]
    assert session.fetch(5, 0.0) == []


def test_news_are_logged_once_and_no_error(session: Session, inner: FakeConsumer, caplog: pytest.LogCaptureFixture) -> None:
    missing = message(-1, -1, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "missing")
    late = message(-1, -1, KafkaError(KafkaError._MAX_POLL_EXCEEDED), "")
    away = message(-1, -1, KafkaError(KafkaError._ALL_BROKERS_DOWN), "")
    inner.messages = [missing, missing, late, away, message(7)]
    with caplog.at_level(logging.WARNING):
        assert offsets(session.fetch(9, 0.0)) == [(0, 7)]
    assert [record.message for record in caplog.records] == [
        "consumer: topic missing is not there; it is waited for",
        "consumer: group g has gone on without this member, which asked for nothing in time; it joins again",
    ]


def test_an_error_ends_reading_behind_the_messages_before_it(session: Session, inner: FakeConsumer) -> None:
    broken = message(8, 1, KafkaError(KafkaError._BAD_MSG, "damaged"))
    inner.messages = [message(7), broken]
    assert offsets(session.fetch(9, 0.0)) == [(0, 7)]
    with pytest.raises(ConsumeError, match=r"^partition t-1 at offset 8: BAD_MSG: damaged") as caught:
        session.fetch(9, 0.0)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 1, 8)
    inner.messages = [message(-1, -1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "secret")]
    with pytest.raises(ConsumeError, match=r"^topic secret: TOPIC_AUTHORIZATION_FAILED"):
        session.fetch(9, 0.0)


def test_a_commit_names_what_failed_and_is_stored_too(session: Session, inner: FakeConsumer) -> None:
    session.commit({T0: 5})
    assert inner.stored == [(0, 5)]
    inner.errors = [KafkaError(KafkaError.ILLEGAL_GENERATION)]
    with pytest.raises(CommitError, match=r"^group g, partition t-1 at offset 7: ILLEGAL_GENERATION"):
        session.commit({T1: 7})
    inner.results = [SimpleNamespace(topic="t", partition=1, offset=9, error=KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))]
    with pytest.raises(CommitError, match=r"^group g, partition t-1 at offset 9: OFFSET_METADATA_TOO_LARGE"):
        session.commit({T0: 5, T1: 9})


def test_offsets_of_partitions_that_are_gone_are_not_stored(session: Session, inner: FakeConsumer) -> None:
    inner.errors = [KafkaError(KafkaError._STATE)]
    session.store({T0: 5})
    assert inner.stored == []


def test_a_partition_that_was_just_assigned_is_sought_when_it_is_ready(session: Session, inner: FakeConsumer) -> None:
    inner.errors = [KafkaError(KafkaError._STATE), KafkaError(KafkaError._STATE)]
    session.seek(T0, 5)
    assert inner.sought == [(0, 5)]
    inner.owned, inner.errors = [T1], [KafkaError(KafkaError._STATE)]
    with pytest.raises(ConsumeError, match=r"^partition t-0 at offset 5: STATE"):
        session.seek(T0, 5)


# The reader over it


@pytest.fixture
def reader(session: Session, inner: FakeConsumer) -> Reader:
    made = Reader(session)
    session.subscribe(["t"], made)
    return made


def test_messages_of_a_partition_that_goes_in_the_middle_of_a_fetch_are_not_handed_out(reader: Reader, inner: FakeConsumer) -> None:
    inner.messages = [message(7), message(3, 1), lambda: inner.rebalance("on_revoke", T0), message(4, 1)]
    assert offsets(reader.take(9, 0.0)) == [(1, 3), (1, 4)]


def test_unless_it_comes_back_in_the_same_moment(reader: Reader, inner: FakeConsumer) -> None:
    inner.messages = [lambda: inner.rebalance("on_revoke", T0), lambda: inner.rebalance("on_assign", T0), message(7)]
    assert offsets(reader.take(9, 0.0)) == [(0, 7)]


def test_what_is_finished_is_stored_before_its_partition_goes(reader: Reader, inner: FakeConsumer) -> None:
    told: list[str] = []
    reader.on_assign = lambda partitions: told.append(f"got {partitions}")
    reader.on_revoke = lambda partitions: told.append(f"gave {partitions}, stored {inner.stored}")
    inner.messages = [lambda: inner.rebalance("on_assign", T0), message(7), message(8)]
    assert offsets(reader.take(1, 0.0)) == [(0, 7)]
    assert offsets(reader.take(1, 0.0)) == [(0, 8)]
    inner.rebalance("on_revoke", T0)
    assert inner.stored == [(0, 8)], "8 is worked on"
    inner.rebalance("on_lost", T1)
    assert told == [f"got {[T0]}", f"gave {[T0]}, stored []", f"gave {[T1]}, stored [(0, 8)]"]
    assert reader.progress.positions() == {}


def test_a_partition_that_is_held_back_comes_again(reader: Reader, inner: FakeConsumer) -> None:
    inner.messages = [message(7), message(3, 1), message(8)]
    assert offsets(reader.take(1, 0.0)) == [(0, 7)]
    reader.hold_back([T0])
    assert inner.sought == [(0, 8)]
    assert offsets(reader.take(9, 0.0)) == [(1, 3)]


def test_waiting_ends_without_a_message(reader: Reader) -> None:
    assert reader.take(1, 0.01) == []
    assert (reader.ready, reader.buffered, reader.handed_out) == (False, 0, 0)
