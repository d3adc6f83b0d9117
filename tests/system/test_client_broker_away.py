"""A broker that is away: nothing hangs for longer than its limit, what was not committed is raised, and the log has one line of it."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.broker.handlers import coordinators
from moldau.client import (
    AsyncConsumer,
    CommitError,
    Consumer,
    Producer,
    TopicPartition,
    TransactionError,
    create_message_streams,
)
from moldau.protocol.messages.find_coordinator import Coordinator
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system

LIMIT_S = 30.0
CLOSE_S = 0.5
WAITS_LONG_S = 20.0
"""Far beyond CLOSE_S on any machine, and far below what librdkafka would wait for (45 s)."""
NOBODY = "127.0.0.1:9"
T0 = TopicPartition("t", 0)
OPTIONS = {"close_timeout_ms": int(1000 * CLOSE_S), "auto_commit_interval_ms": 100}


@pytest.fixture
def broker() -> Iterator[Broker]:
    """With thirty messages in one partition."""
    with Broker(settings={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}) as made:
        made.create_topic("t")
        with Producer(made.bootstrap_servers, acks=1) as producer:
            producer.send("t", [b"%d" % number for number in range(30)], partition=0).result(LIMIT_S)
        yield made


def reading(broker: Broker, **options: object) -> Consumer:
    """A member of group g that holds the messages 0 to 9, nine of them finished, and knows nothing of its broker's end."""
    consumer = Consumer(broker.bootstrap_servers, group_id="g", topics=["t"], **{**OPTIONS, **options})  # type: ignore[arg-type]
    for _ in range(10):
        assert consumer.poll(LIMIT_S) is not None
    return consumer


def test_close_does_not_wait_for_a_broker_that_is_away_and_says_what_was_not_committed(broker: Broker) -> None:
    """librdkafka waits for the coordinator as long as a session may last, and then reports nothing."""
    consumer = reading(broker, auto_commit_interval_ms=3_600_000)
    broker.stop()
    begun = time.monotonic()
    with pytest.raises(CommitError, match=r"^group g, partition t-0 at offset 9: ") as caught:
        consumer.close()
    assert time.monotonic() - begun < WAITS_LONG_S
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 9)
    consumer.close()


def test_the_timeout_of_close_and_a_consumer_with_nothing_to_commit(broker: Broker) -> None:
    consumer = reading(broker, auto_commit=False)
    broker.stop()
    begun = time.monotonic()
    consumer.close(timeout=0.1)
    assert time.monotonic() - begun < WAITS_LONG_S


def test_where_an_exception_leaves_already_the_failure_is_logged_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        with reading(broker, auto_commit_interval_ms=3_600_000):
            broker.stop()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    found = [record.message for record in caplog.records if "group g, partition t-0 at offset 9" in record.message]
    assert len(found) == 1
    assert found[0].startswith("consumer: while closing: ")


def test_asyncio(broker: Broker) -> None:
    options: dict[str, Any] = {**OPTIONS, "auto_commit_interval_ms": 3_600_000}

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap_servers, group_id="g", topics=["t"], **options) as consumer:
            await consumer.poll(LIMIT_S)
            await consumer.consume(1, LIMIT_S)
            broker.stop()

    with pytest.raises(CommitError, match="partition t-0"):
        asyncio.run(main())


def test_streams_say_it_too(broker: Broker) -> None:
    options = {"group_id": "g", "bootstrap_servers": broker.bootstrap_servers, **OPTIONS, "auto_commit_interval_ms": 3_600_000}
    streams = create_message_streams("t", 1, **options)  # type: ignore[arg-type]
    for _ in range(10):
        assert streams[0].poll(LIMIT_S) is not None
    broker.stop()
    begun = time.monotonic()
    with pytest.raises(CommitError, match=r"^group g, partition t-0 at offset 9"):
        streams.close()
    assert time.monotonic() - begun < WAITS_LONG_S


def test_automatic_commits_that_fail_are_logged_once_and_raised_by_the_next_commit(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    # librdkafka gives a commit up when the session's timeout is over
    consumer = reading(broker, session_timeout_ms=1_000, settings={"heartbeat.interval.ms": 300})
    broker.stop()

    def lines() -> list[str]:
        return [record.message for record in caplog.records if record.message.startswith("consumer: offset not committed: ")]

    deadline = time.monotonic() + LIMIT_S
    while not lines():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    with pytest.raises(CommitError, match=r"^group g, partition t-0 at offset \d+: "):
        consumer.commit()
    assert len(lines()) == 1
    assert lines()[0].startswith("consumer: offset not committed: group g, partition t-0 at offset ")
    with contextlib.suppress(CommitError):
        consumer.close()


def test_an_outage_is_one_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Librdkafka has twenty a second for it."""
    with caplog.at_level(logging.INFO, "moldau.client"), Producer(broker.bootstrap_servers, acks=1) as producer:
        consumer = Consumer(broker.bootstrap_servers, group_id="g", topics=["t"])
        assert len(consumer.consume(30, LIMIT_S)) == 30
        producer.send("t", b"", partition=0).result(LIMIT_S)
        assert consumer.poll(LIMIT_S) is not None
        broker.stop()
        delivery = producer.send("t", b"", partition=0)
        away = f"broker {broker.bootstrap_servers} is away: "
        wait_for = [f"consumer of group g: {away}", f"producer moldau: {away}"]
        deadline = time.monotonic() + LIMIT_S
        while not all(any(text in record.message for record in caplog.records) for text in wait_for):
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            consumer.poll(0.1)
        broker.start()
        delivery.result(LIMIT_S)
        while "consumer of group g: answered again after" not in caplog.text or "producer moldau: answered again after" not in caplog.text:
            producer.send("t", b"", partition=0).result(LIMIT_S)
            consumer.poll(0.1)
            assert time.monotonic() < deadline + LIMIT_S
        told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        told = [message for message in told if broker.bootstrap_servers in message]
        assert sorted(message[: len(text)] for message, text in zip(sorted(told), wait_for, strict=True)) == wait_for
        consumer.close(LIMIT_S)


@pytest.mark.parametrize("refusals", [2, 3])
def test_offsets_are_committed_in_a_transaction_although_librdkafka_has_given_up_looking_for_the_coordinator(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """After three refusals it waits for a connection that is made or ends."""
    monkeypatch.setattr("moldau.client.settings.IDLE_MS_MAX", 1_000)
    find, asked = coordinators._answer, []

    def refusing(services: Any, topic: Any, nodes: Any, key: str) -> Coordinator:
        if key == "g":
            asked.append(key)
            nodes = nodes if len(asked) > refusals else {}
        return find(services, topic, nodes, key)

    def copy() -> None:
        with producer.transaction() as transaction:
            transaction.commit_offsets(consumer, {T0: 9})

    producer = Producer(broker.bootstrap_servers, transactional_id="x")
    with reading(broker, auto_commit=False) as consumer:
        monkeypatch.setattr(coordinators, "_answer", refusing)
        copying = threading.Thread(target=copy, daemon=True)
        copying.start()
        copying.join(LIMIT_S)
        assert not copying.is_alive()
        assert consumer.committed([T0]) == {T0: 9}
    producer.close()
    assert len(asked) > refusals


def test_a_transactional_producer_gives_up_without_a_broker() -> None:
    """It waits for twice the transaction's timeout, as for everything that may be tried again."""
    begun = time.monotonic()
    with (
        pytest.raises(TransactionError, match=f"^transactional id x: TIMED_OUT: .* within 2 s; the brokers that were asked: {NOBODY}$"),
        Producer(NOBODY, transactional_id="x", transaction_timeout_ms=1_000),
    ):
        pass
    assert 2.0 <= time.monotonic() - begun < WAITS_LONG_S


def test_a_commit_that_was_interrupted_is_brought_to_its_end(broker: Broker) -> None:
    """Ctrl-C while the coordinator is asked to commit: the transaction is committed, and the producer continues with the next one."""

    class Interrupting:
        """Librdkafka's producer, with a Ctrl-C in the first commit, as soon as the coordinator was asked."""

        def __init__(self, inner: object) -> None:
            self.inner = inner
            self.left = 1

        def __len__(self) -> int:
            return len(self.inner)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def commit_transaction(self, limit_s: float) -> None:
            self.inner.commit_transaction(limit_s)  # type: ignore[attr-defined]
            if self.left:
                self.left -= 1
                raise KeyboardInterrupt

    with Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        transaction = producer.transaction()
        transaction._inner = Interrupting(transaction._inner)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt), transaction:
            producer.send("t", b"once", partition=0)
        with producer.transaction():
            producer.send("t", b"twice", partition=0)
    with Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign({T0: 30})
        assert [message.value for message in (consumer.poll(LIMIT_S), consumer.poll(LIMIT_S)) if message] == [b"once", b"twice"]


def test_a_listener_of_rebalances_is_called_where_the_consumer_is_closed(broker: Broker) -> None:
    """Though close waits in a thread of its own."""
    threads: list[threading.Thread] = []
    with Consumer(broker.bootstrap_servers, group_id="g") as consumer:
        consumer.subscribe(["t"], on_revoke=lambda _: threads.append(threading.current_thread()))
        assert consumer.poll(LIMIT_S) is not None
    assert threads == [threading.current_thread()]
