"""The client library's promises, held against Moldau and Apache Kafka: order, at least once, all or nothing, errors that say where."""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from moldau.client import (
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    CommitError,
    ConsumedMessage,
    ConsumeError,
    Consumer,
    FencedError,
    Message,
    MessageSet,
    MessageStream,
    Producer,
    SendError,
    TopicPartition,
    TransactionAbortedError,
    create_message_streams,
)
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.testing.broker import Broker
from support.kafka import KafkaProcess
from support.paper import wait_until

pytestmark = pytest.mark.system

LIMIT_S = 30.0
QUICK = {"fetch.wait.max.ms": 20, "heartbeat.interval.ms": 200}
"""So that a rebalance is served soon, and a query to a broker does not wait for a fetch."""
GROUP_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}


@pytest.fixture(scope="module", params=["moldau", pytest.param("kafka 4.3.0", marks=pytest.mark.long)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "moldau":
        with Broker(settings=GROUP_SETTINGS) as broker:
            yield broker.bootstrap_servers
    else:
        directory: Path = tmp_path_factory.mktemp("kafka")
        with KafkaProcess(request.param.split()[1], directory, GROUP_SETTINGS) as kafka:
            yield kafka.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic with three partitions."""
    return new_topic(bootstrap)


def new_topic(bootstrap: str, partitions: int = 3) -> str:
    with Cluster(bootstrap) as cluster:
        return Admin(cluster).create_topic(f"t-{uuid4().hex[:12]}", partitions).name


def fill(bootstrap: str, topic: str, count: int, partitions: int = 3) -> None:
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def partitions_of(topic: str) -> list[TopicPartition]:
    """The three of a topic that was made here."""
    return [TopicPartition(topic, number) for number in range(3)]


def numbers(messages: "list[ConsumedMessage]") -> list[int]:
    return [int(message.payload) for message in messages]


def take(consumer: Consumer, count: int) -> list[ConsumedMessage]:
    found: list[ConsumedMessage] = []
    while len(found) < count:
        message = consumer.poll(LIMIT_S)
        assert message is not None, f"{len(found)} of {count} messages: {found}"
        found.append(message)
    return found


def has_nothing_left(bootstrap: str, consumer: Consumer, *partitions: TopicPartition) -> bool:
    """Whether the next message of each of these partitions is one that is sent now: no wait is long enough to see that there is none."""
    with Producer(bootstrap) as producer:
        sent = [producer.send(where.topic, b"", partition=where.partition).result(LIMIT_S) for where in partitions]
    found = take(consumer, len(sent))
    return {(each.topic, each.partition, each.offset) for each in found} == {place[:3] for place in sent}


# Producing


def test_a_message_arrives_with_everything_it_had(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        place = producer.send(topic, b"v", key="k", headers={"h": b"1"}, partition=2, timestamp=1_300_000_000_000).result(LIMIT_S)
        assert place == (topic, 2, 0, 1_300_000_000_000)
        several = producer.send(topic, MessageSet(Message(None, key=b"gone"), b"two"), headers=[("a", None), ("a", b"2")], partition=0)
        assert [each.offset for each in several.result(LIMIT_S)] == [0, 1]
    with Consumer(bootstrap, settings=QUICK) as consumer:
        consumer.assign([TopicPartition(topic, 2), TopicPartition(topic, 0)])
        found = sorted(take(consumer, 3), key=lambda message: (message.partition, message.offset))
    assert [(m.topic, m.partition, m.offset, m.key, m.value) for m in found] == [
        (topic, 0, 0, b"gone", None),
        (topic, 0, 1, None, b"two"),
        (topic, 2, 0, b"k", b"v"),
    ]
    assert (found[2].headers, found[2].timestamp) == ([("h", b"1")], 1_300_000_000_000)
    assert found[0].headers == [("a", None), ("a", b"2")]


def test_a_failed_message_is_reported_by_its_delivery_or_else_by_the_next_flush(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        assert isinstance(producer.send(topic, bytes(2_000_000)).exception(LIMIT_S), SendError)
        producer.flush()
        producer.send(topic, bytes(2_000_000))
        with pytest.raises(SendError, match=f"^topic {topic}: MSG_SIZE_TOO_LARGE: "):
            producer.flush()
        with pytest.raises(SendError, match=f"^partition {topic}-7: UNKNOWN_PARTITION: "):
            producer.send(topic, b"", partition=7).result(LIMIT_S)
        producer.flush()
        assert producer.statistics() == {"sent": 3, "waiting": 0, "failed": 3}
    with pytest.raises(SendError, match=f"{topic}-7"), Producer(bootstrap) as producer:
        producer.send(topic, b"", partition=7)


def test_a_full_queue_is_waited_for(bootstrap: str, topic: str) -> None:
    """No error for the application, and no message lost or out of order."""
    with Producer(bootstrap, settings={"queue.buffering.max.messages": 50}) as producer:
        deliveries = [producer.send(topic, b"%d" % number, partition=0) for number in range(2_000)]
        assert [each.result(LIMIT_S).offset for each in deliveries] == list(range(2_000))


def test_a_partitioning_function(bootstrap: str, topic: str) -> None:
    def by_length(topic: str, key: bytes | None, partitions: int) -> int | None:
        return None if key is None else len(key) % partitions

    with Producer(bootstrap, partitioner=by_length) as producer:
        assert [producer.send(topic, b"", key="x" * size).result(LIMIT_S).partition for size in range(6)] == [0, 1, 2, 0, 1, 2]
        assert producer.send(topic, b"").result(LIMIT_S).partition in range(3)
        assert producer.send(topic, b"", key="x", partition=2).result(LIMIT_S).partition == 2
    with Producer(bootstrap, partitioner=lambda *_: 3) as producer:
        with pytest.raises(ValueError, match=f"topic {topic} has partitions 0 to 2; the partitioner chose 3"):
            producer.send(topic, b"", key=b"k")
        with pytest.raises(SendError, match=r"^topic no-such-topic: UNKNOWN_TOPIC_OR_PART"):
            producer.send("no-such-topic", b"", key=b"k")


def test_a_producer_that_is_not_closed_still_sends(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, linger_ms=200)
    producer.send(topic, b"last words", partition=0)
    del producer
    with Consumer(bootstrap, settings=QUICK) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert take(consumer, 1)[0].value == b"last words"


# Consuming


def test_only_what_is_finished_is_committed(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 30)
    with Consumer(bootstrap, settings=QUICK, group_id=topic, topics=[topic]) as consumer:
        first = take(consumer, 10)
    with Consumer(bootstrap, settings=QUICK, group_id=topic, topics=[topic]) as consumer:
        rest = take(consumer, 21)
        consumer.commit()
        assert sum(consumer.committed().values()) == 30
    assert first[-1] == next(message for message in rest if message.partition == first[-1].partition), "the one that was worked on"
    assert sorted(numbers([*first[:-1], *rest])) == list(range(30))
    with Consumer(bootstrap, settings=QUICK, group_id=topic, topics=[topic]) as consumer:
        assert has_nothing_left(bootstrap, consumer, *partitions_of(topic))


def test_what_was_committed_does_not_go_back_at_the_end(bootstrap: str, topic: str) -> None:
    """What the consumer had stored to be committed later is older than what it was asked to commit (fault A11)."""
    fill(bootstrap, topic, 600, partitions=1)
    where = TopicPartition(topic, 0)
    with Consumer(bootstrap, settings=QUICK, group_id=topic, topics=[topic]) as consumer:
        take(consumer, 520)
        consumer.commit()
    with Consumer(bootstrap, settings=QUICK, group_id=topic) as consumer:
        assert consumer.committed([where]) == {where: 520}


def test_after_seeking_back_commits_follow(bootstrap: str, topic: str) -> None:
    """Kafka's clients commit where a seek went; librdkafka alone commits nothing more until the old place is passed."""
    fill(bootstrap, topic, 30, partitions=1)
    where = TopicPartition(topic, 0)
    options = {"group_id": topic, "topics": [topic], "auto_commit_interval_ms": 100}
    with Consumer(bootstrap, settings=QUICK, **options) as consumer, Consumer(bootstrap, group_id=topic) as looking:  # type: ignore[arg-type]

        def read_on_until_committed(offset: int) -> None:
            deadline = time.monotonic() + LIMIT_S
            while looking.committed([where]) != {where: offset}:
                assert consumer.poll(0.1) is None
                assert time.monotonic() < deadline, looking.committed([where])

        take(consumer, 30)
        read_on_until_committed(30)
        consumer.seek(where, 10)
        assert numbers(take(consumer, 3)) == [10, 11, 12]
        deadline = time.monotonic() + LIMIT_S
        while looking.committed([where])[where] >= 13:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with Consumer(bootstrap, group_id=topic) as looking:
        assert looking.committed([where]) == {where: 12}, "12 is in work"
    with Consumer(bootstrap, settings=QUICK, **options) as consumer:  # type: ignore[arg-type]
        take(consumer, 18)
        consumer.commit()
        consumer.seek(where, 5)
    with Consumer(bootstrap, group_id=topic) as looking:
        assert looking.committed([where]) == {where: 5}, "where a seek went, though nothing was read there"


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_share_a_topic_and_each_message_is_finished_once(bootstrap: str, topic: str, assignor: str) -> None:
    """Three members, one of which leaves: every message once, in the order of its partition.

    A partition that goes to another member is committed as far as it is finished, without a call.
    """
    fill(bootstrap, topic, 3_000)
    finished: list[tuple[int, int]] = []
    leaving, stop = threading.Event(), threading.Event()

    def member(*ends: threading.Event) -> None:
        with Consumer(bootstrap, settings=QUICK, group_id=topic, topics=[topic], assignor=assignor) as consumer:  # type: ignore[arg-type]
            is_committed = False
            while not is_committed:
                message = consumer.poll(0.1)
                if message is not None:
                    finished.append((message.partition, message.offset))
                if any(end.is_set() for end in ends):
                    try:
                        consumer.commit()
                        is_committed = True
                    except CommitError as error:  # the group is in a rebalance: the next poll takes part in it
                        if error.name not in ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
                            raise

    threads = [threading.Thread(target=member, args=ends) for ends in [(stop,), (stop, leaving)]]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(finished) > 500, "members at work")
    leaving.set()
    threads.append(threading.Thread(target=member, args=(stop,)))
    threads[-1].start()
    wait_until_within(LIMIT_S, lambda: len(set(finished)) == 3_000)
    stop.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert max(Counter(finished).values()) == 1
    for partition in range(3):
        assert [offset for number, offset in finished if number == partition] == list(range(1_000))


def wait_until_within(limit_s: float, condition: object) -> None:
    deadline = time.monotonic() + limit_s
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_places_in_the_log(bootstrap: str, topic: str) -> None:
    """Smallest, largest, by time, and back (mission A12, C3)."""
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0, timestamp=1_000 * (number + 1))
    where, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap, settings=QUICK) as consumer:
        consumer.assign({where: "smallest"})
        assert numbers(take(consumer, 3)) == [0, 1, 2]
        assert consumer.position(where) == 3
        assert consumer.lag() == {where: 7}
        consumer.seek(where, 8)
        assert numbers(take(consumer, 1)) == [8]
        consumer.seek_to_beginning()
        assert numbers(take(consumer, 1)) == [0]
        found = consumer.offsets_for_times({where: 4_500, empty: 0})
        assert found == {where: 4, empty: None}
        assert consumer.offsets_for_times({where: 11_000}) == {where: None}
        assert (consumer.beginning_offsets([where]), consumer.end_offsets([where, empty])) == ({where: 0}, {where: 10, empty: 0})
        consumer.seek_to_end(where)
        assert has_nothing_left(bootstrap, consumer, where)
        consumer.assign({where: 5, empty: 0})
        consumer.pause(where)
        assert has_nothing_left(bootstrap, consumer, empty)
        assert has_nothing_left(bootstrap, consumer, empty), "a second fetch comes after all that the first has brought"
        consumer.resume(where)
        assert numbers(take(consumer, 2)) == [5, 6]
        assert consumer.partitions_for(topic) == 3
        with pytest.raises(ConsumeError, match=r"^topic no-such-topic: UNKNOWN_TOPIC_OR_PART"):
            consumer.partitions_for("no-such-topic")
        with pytest.raises(ConsumeError, match=f"^partition {topic}-2 at offset 1: "):
            consumer.seek(TopicPartition(topic, 2), 1)


def test_an_offset_that_is_gone_is_an_error_where_that_is_asked(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3)
    with Consumer(bootstrap, settings=QUICK, auto_offset_reset="error") as consumer:
        consumer.assign({TopicPartition(topic, 1): 77})
        with pytest.raises(ConsumeError, match=f"^partition {topic}-1 at offset 77: AUTO_OFFSET_RESET: ") as caught:
            consumer.poll(LIMIT_S)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 1, 77)


def test_a_commit_that_is_refused_says_where(bootstrap: str, topic: str) -> None:
    with Consumer(bootstrap, settings=QUICK, group_id=topic, auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(CommitError, match=f"^group {topic}, partition {topic}-9 at offset 5: UNKNOWN_TOPIC_OR_PART"):
            consumer.commit({TopicPartition(topic, 9): 5})
        consumer.commit({TopicPartition(topic, 1): 5})
        assert consumer.committed(partitions_of(topic)) == {TopicPartition(topic, 1): 5}


def test_a_static_member_that_comes_back_keeps_its_partitions(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 30)
    options = {"group_id": topic, "topics": [topic], "group_instance_id": "the one", "session_timeout_ms": 10_000}
    first = Consumer(bootstrap, settings=QUICK, **options)  # type: ignore[arg-type]
    take(first, 5)
    with Consumer(bootstrap, settings=QUICK, **options) as second:  # type: ignore[arg-type]
        assert second.poll(LIMIT_S) is not None
        with pytest.raises(ClientError, match=r"FENCED_INSTANCE_ID|FATAL"):
            commit_until_it_fails(first)
    with contextlib.suppress(CommitError):  # where it was not a commit that has raised it
        first.close()


def commit_until_it_fails(consumer: Consumer) -> None:
    for _ in range(100):
        consumer.poll(0.5)
        consumer.commit()


# Transactions


def test_all_of_it_or_nothing(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, transactional_id=topic)
    with pytest.raises(ZeroDivisionError), producer.transaction():
        1 // producer.send(topic, b"0", partition=0).result(LIMIT_S).partition
    with pytest.raises(TransactionAbortedError) as caught, producer.transaction():
        producer.send(topic, [Message(b"1"), Message(bytes(2_000_000))], partition=0)
    assert isinstance(caught.value.__cause__, SendError)
    with producer.transaction():
        producer.send(topic, b"2", partition=0)
    with pytest.raises(RuntimeError, match=r"send within `with producer\.transaction"):
        producer.send(topic, b"")
    with producer.transaction(), pytest.raises(RuntimeError, match="one transaction at a time"), producer.transaction():
        pass
    producer.close()
    with Consumer(bootstrap, settings=QUICK) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert numbers(take(consumer, 1)) == [2]
    with Consumer(bootstrap, settings=QUICK, isolation_level="read_uncommitted") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert 0 in numbers(take(consumer, 2))


def test_an_older_producer_is_fenced(bootstrap: str, topic: str) -> None:
    zombie = Producer(bootstrap, transactional_id=topic)
    zombie.init_transactions(LIMIT_S)
    with Producer(bootstrap, transactional_id=topic) as successor, successor.transaction():
        successor.send(topic, b"1", partition=0)
    for _ in range(2):
        with pytest.raises(FencedError, match=f"^transactional id {topic}: FENCED"), zombie.transaction():
            zombie.send(topic, b"zombie", partition=0)
    with pytest.raises(FencedError):
        zombie.send(topic, b"zombie", partition=0)
    zombie.close()
    with Consumer(bootstrap, settings=QUICK) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert numbers(take(consumer, 1)) == [1]
        assert has_nothing_left(bootstrap, consumer, TopicPartition(topic, 0))


def test_a_copy_is_exact_though_every_third_transaction_fails(bootstrap: str, topic: str) -> None:
    """Consume, transform, produce: offsets go with the transaction, and an abort puts the consumer back (fault T7)."""
    copy = new_topic(bootstrap)
    fill(bootstrap, topic, 3_000)
    failures = 0
    with (
        Producer(bootstrap, transactional_id=copy) as producer,
        Consumer(bootstrap, settings=QUICK, group_id=copy, topics=[topic], auto_commit=False) as consumer,
    ):
        copied = 0
        for number in range(1_000):
            batch = consumer.consume(250, LIMIT_S)
            try:
                with producer.transaction(consumer):
                    for message in batch:
                        producer.send(copy, message, partition=message.partition)
                    if number % 3 == 2:
                        failures += 1
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            copied += len(batch)
            if copied >= 3_000:
                break
        assert sum(consumer.committed().values()) == 3_000
    assert failures > 2
    with Consumer(bootstrap, settings=QUICK, group_id=f"{copy}-check", topics=[copy]) as consumer:
        found = take(consumer, 3_000)
        assert has_nothing_left(bootstrap, consumer, *partitions_of(copy))
    for partition in range(3):
        assert [int(m.payload) for m in found if m.partition == partition] == list(range(partition, 3_000, 3))


# Streams


def test_streams_share_a_topic_with_other_members(bootstrap: str, topic: str) -> None:
    """Two streams here, one there that comes and goes: every message is finished, those of a partition in order."""
    fill(bootstrap, topic, 3_000)
    finished: list[tuple[int, int]] = []
    options = {"group_id": topic, "bootstrap_servers": bootstrap, "settings": QUICK}

    def work(stream: MessageStream) -> None:
        finished.extend((message.partition, message.offset) for message in stream)

    with create_message_streams({topic: 2}, **options) as here:  # type: ignore[arg-type]
        threads = [threading.Thread(target=work, args=(stream,)) for stream in here]
        for thread in threads:
            thread.start()
        wait_until_within(LIMIT_S, lambda: len(finished) > 100)
        with create_message_streams(topic, 1, **options) as there:  # type: ignore[arg-type]
            threads.append(threading.Thread(target=work, args=(there[0],)))
            threads[-1].start()
            wait_until_within(LIMIT_S, lambda: bool(there.assignment()) and len(here.assignment() | there.assignment()) == 3)
            fill(bootstrap, topic, 3_000)
            wait_until_within(LIMIT_S, lambda: len(set(finished)) == 6_000)
        wait_until_within(LIMIT_S, lambda: len(here.assignment()) == 3)
        fill(bootstrap, topic, 300)
        wait_until_within(LIMIT_S, lambda: len(set(finished)) == 6_300)
    for thread in threads:
        thread.join(LIMIT_S)
    for partition in range(3):
        offsets = [offset for number, offset in finished if number == partition]
        assert sorted(set(offsets)) == list(range(2_100))
    with Consumer(bootstrap, settings=QUICK, group_id=topic, auto_commit=False) as consumer:
        committed = consumer.committed(partitions_of(topic))
    assert set(committed.values()) == {2_100}


# asyncio


def test_producers_and_consumers_of_asyncio(bootstrap: str, topic: str) -> None:
    copy = new_topic(bootstrap)

    async def main() -> list[int]:
        async with AsyncProducer(bootstrap) as producer:
            assert (await producer.send_and_wait(topic, b"0", partition=0)).offset == 0
            deliveries = [await producer.send(topic, b"%d" % number, partition=number % 3) for number in range(1, 300)]
            assert all([(await each).offset is not None for each in deliveries])
            with pytest.raises(SendError):
                await producer.send_and_wait(topic, bytes(2_000_000))
        async with (
            AsyncProducer(bootstrap, transactional_id=copy) as producer,
            AsyncConsumer(bootstrap, settings=QUICK, group_id=copy, topics=[topic], auto_commit=False) as consumer,
        ):
            copied = 0
            while copied < 300:
                batch = await consumer.consume(100, LIMIT_S)
                async with producer.transaction(consumer):
                    await producer.send(copy, batch, partition=0)
                copied += len(batch)
            waiting = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert sum((await consumer.committed()).values()) == 300
        async with AsyncConsumer(bootstrap, settings=QUICK, group_id=f"{copy}-check", topics=[copy]) as consumer:
            found = []
            async for message in consumer:
                found.append(int(message.payload))
                if len(found) == 300:
                    await consumer.commit()
                    return sorted(found)
        return []

    assert asyncio.run(main()) == list(range(300))
