"""Tracked events over a real broker: what the audit topic says of a producer is what the log has, whatever happens to either."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moldau.client import ConsumedMessage, SendError
from moldau.client.settings import ConsumerOptions
from moldau.model.identity import TopicPartition
from moldau.testing.broker import Broker
from moldau.tracking import AsyncTrackerProducer, Event, EventDecodeError, EventError, TrackedConsumer, TrackerProducer
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord
from moldau.tracking.checksum import guid_hash
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import Count, CountKey, window_start
from moldau.tracking.header import read_header
from support.server import ServerProcess
from support.tracked_events import LIMIT_S, TEN_FIELDS, MemoryRegistry, audit_records, page_view, totals, whole_topic

pytestmark = pytest.mark.system

QUICK = ConsumerOptions(settings={"fetch.wait.max.ms": 20})

SOON = {"reconnect.backoff.max.ms": 100}
"""A broker that is back is noticed at once."""


@dataclass
class OrderPlaced:
    order: int
    note: str | None = None


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(broker.unique_topic("views"), partitions=2)


def tracker(bootstrap: str, topic: str, registry: MemoryRegistry | None = None, **options: Any) -> TrackerProducer:
    return TrackerProducer(
        service="shop",
        host="web-1",
        datacenter="east",
        bootstrap_servers=bootstrap,
        registry=registry or MemoryRegistry(),
        schemas={topic: TEN_FIELDS},
        **options,
    )


def counted_in_the_log(messages: list[ConsumedMessage]) -> dict[CountKey, Count]:
    """What an auditor counts, by the headers alone."""
    found: dict[CountKey, Count] = {}
    for message in messages:
        header = read_header(message.value)
        assert header is not None
        key = CountKey(message.topic, window_start(header.time_ms), header.datacenter, header.service, header.host, header.instance)
        size = len(message.value or b"")
        found[key] = found.get(key, Count()).with_event(header.time_ms, size, guid_hash(header.guid))
    return found


def published(bootstrap: str, topic: str) -> dict[CountKey, Count]:
    return {key: count for key, count in totals(audit_records(bootstrap)).items() if key.topic == topic}


def kinds(records: list[AuditRecord], instance: str) -> list[str]:
    """Of the distinct records of an instance: one whose acknowledgement was lost may be there twice."""
    return sorted({record.guid: record.kind for record in records if record.key.instance == instance}.values())


def test_the_audit_topic_says_what_the_log_has(broker: Broker, topic: str) -> None:
    """Events of several windows, an old one, a bad one: count, bytes, checksum and times by window, and a close with the sum of all."""
    registry = MemoryRegistry()
    with tracker(broker.bootstrap_servers, topic, registry, audit_publish_interval_ms=10) as producer:
        for number in range(2_000):
            producer.track(page_view(number), 1_372_636_800_000 + number * 1_000, topic)
        producer.track(page_view(), datetime(1999, 12, 31, tzinfo=UTC), topic, key="late")
        with pytest.raises(EventError, match=r"^PageView\.page: needs text"):
            producer.track({**page_view(), "page": 5}, topic=topic)
        with pytest.raises(EventError, match=r"^PageView\.header\.time: .* has no time zone"):
            producer.track(page_view(), datetime(1999, 12, 31), topic)  # noqa: DTZ001
        instance = producer.instance
    messages = whole_topic(broker.bootstrap_servers, topic)
    assert len(messages) == 2_001
    in_the_log = counted_in_the_log(messages)
    assert published(broker.bootstrap_servers, topic) == in_the_log
    assert len(in_the_log) == 5
    assert registry.asked == [f"register {topic}-value"]
    records = audit_records(broker.bootstrap_servers)
    (close,) = (record for record in records if record.kind == "close" and record.key.instance == instance)
    assert close.count == sum(in_the_log.values(), Count())
    assert "open" in kinds(records, instance)


def test_a_record_has_the_time_of_track(broker: Broker, topic: str) -> None:
    """Claim: whatever the event's own time is; one without is of that time too, also where `track` waits for room in the queue after it."""
    with tracker(broker.bootstrap_servers, topic, settings={"queue.buffering.max.messages": 5}) as producer:
        before_ms = now_ms()
        for number in range(50):
            producer.track(page_view(number), None if number % 2 else 1_372_636_800_000, topic)
        after_ms = now_ms()
    messages = whole_topic(broker.bootstrap_servers, topic)
    assert len(messages) == 50
    for message in messages:
        header = read_header(message.value)
        assert header is not None
        assert message.timestamp is not None
        assert before_ms <= message.timestamp <= after_ms
        assert header.time_ms in (message.timestamp, 1_372_636_800_000)


def test_counts_are_published_while_they_change(broker: Broker, topic: str) -> None:
    """Nobody has to close or to ask for it: a consumer of the audit topic sees the counts of a producer that lives."""
    with tracker(broker.bootstrap_servers, topic, audit_publish_interval_ms=10) as producer:
        producer.track(page_view(), topic=topic)
        with_counts = TrackedAudit(broker.bootstrap_servers)
        assert with_counts.wait_for(lambda record: record.kind == "counts" and record.key.instance == producer.instance).count.count == 1


class TrackedAudit:
    """Reads the audit topic as it grows."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def wait_for(self, wanted: Any) -> AuditRecord:
        from moldau.client import Consumer

        with Consumer(self._bootstrap, settings={"fetch.wait.max.ms": 20}) as consumer:
            consumer.assign(dict.fromkeys((TopicPartition(AUDIT_TOPIC, n) for n in range(consumer.partitions_for(AUDIT_TOPIC))), 0))
            while True:
                message = consumer.poll(LIMIT_S)
                assert message is not None, f"no such record within {LIMIT_S} s"
                record = AuditRecord.from_bytes(message.value)
                if wanted(record):
                    return record


def test_events_are_read_as_their_reader_wants_them(broker: Broker, topic: str) -> None:
    registry = MemoryRegistry()
    with tracker(broker.bootstrap_servers, "elsewhere", registry) as producer:
        producer.track(OrderPlaced(17, "quick"), 1_372_636_800_000, topic, key=b"17").result(LIMIT_S)
    with TrackedConsumer(broker.bootstrap_servers, registry, group_id=topic, topics=[topic], reader=OrderPlaced, **QUICK) as consumer:
        event = consumer.poll(LIMIT_S)
        assert isinstance(event, Event)
        assert event.value == OrderPlaced(17, "quick")
        assert (event.topic, event.key, event.header.time_ms, event.header.service) == (topic, b"17", 1_372_636_800_000, "shop")
        consumer.commit(event)
        assert consumer.messages.committed() == {TopicPartition(topic, event.partition): 1}


def test_what_cannot_be_decoded_is_named_and_skipped(broker: Broker, topic: str) -> None:
    registry = MemoryRegistry()
    with tracker(broker.bootstrap_servers, topic, registry) as producer:
        good = producer.track(page_view(1), topic=topic)
        good.result(LIMIT_S)
        producer.inner.send(topic, b"no event", partition=0).result(LIMIT_S)
        producer.inner.send(topic, b"\0\0\0\0\x4d12345", partition=0).result(LIMIT_S)
    handed: list[str] = []
    with TrackedConsumer(broker.bootstrap_servers, registry, on_error=lambda error, _: handed.append(str(error)), **QUICK) as consumer:
        consumer.messages.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert next(consumer).value == page_view(1)
        while len(handed) < 2:
            consumer.poll(0.1)
    where = good.result().partition
    first = 1 if where == 0 else 0
    assert handed[0].startswith(f"partition {topic}-0 at offset {first}: the first byte is 0x6e")
    assert handed[1] == f"partition {topic}-0 at offset {first + 1}, schema id 77: the registry does not know this schema id"
    with TrackedConsumer(broker.bootstrap_servers, registry, **QUICK) as consumer:
        consumer.messages.assign({TopicPartition(topic, 0): first})
        for offset in (first, first + 1):
            with pytest.raises(EventDecodeError) as caught:
                consumer.poll(LIMIT_S)
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, offset)


def test_an_event_that_is_refused_is_reported_and_not_counted(broker: Broker, topic: str) -> None:
    """Too large for the broker: certainly not in the log, so the instance stays certain of its counts, and closes."""
    producer = tracker(broker.bootstrap_servers, topic)
    producer.track(page_view(), topic=topic)
    producer.track({**page_view(), "agent": "x" * 2_000_000}, topic=topic)
    with pytest.raises(SendError, match="MSG_SIZE_TOO_LARGE"):
        producer.close()
    assert published(broker.bootstrap_servers, topic) == counted_in_the_log(whole_topic(broker.bootstrap_servers, topic))
    assert kinds(audit_records(broker.bootstrap_servers), producer.instance) == ["close", "counts", "open"]


def test_after_an_uncertain_end_another_instance_takes_over(tmp_path: Path) -> None:
    """The broker is away for longer than the events' time: whether they are in the log is unknown. Their instance is never closed.

    The counts of both instances never say more than the log has.
    """
    with ServerProcess(tmp_path / "data", settings={"num.partitions": "2"}) as server:
        producer = tracker(server.bootstrap, "views", delivery_timeout_ms=5_000, linger_ms=0, settings=SOON)
        producer.track(page_view(), topic="views").result(LIMIT_S)
        first = producer.instance
        server.kill()
        lost = producer.track(page_view(1), topic="views")
        assert lost.exception(LIMIT_S) is not None
        server.start()
        producer.track(page_view(2), topic="views").result(LIMIT_S)
        second = producer.instance
        producer.close()
        assert first != second
        records = audit_records(server.bootstrap)
        assert kinds(records, first) == ["counts", "open"]
        assert kinds(records, second) == ["close", "counts", "open"]
        in_the_log = counted_in_the_log(whole_topic(server.bootstrap, "views"))
        for key, count in totals(records).items():
            assert count.count <= in_the_log[key].count


def test_a_broker_that_restarts_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed and started again twice while events are tracked: all are in the log once, and counted."""
    with ServerProcess(tmp_path / "data", settings={"num.partitions": "2"}) as server:
        with tracker(server.bootstrap, "views", audit_publish_interval_ms=50, settings=SOON) as producer:
            for round_ in range(3):
                for number in range(3_000):
                    producer.track(page_view(number), topic="views")
                if round_ < 2:
                    server.kill()
                    server.start()
        messages = whole_topic(server.bootstrap, "views")
        assert len(messages) == len({message.value for message in messages}) == 9_000
        assert totals(audit_records(server.bootstrap)) == counted_in_the_log(messages)
        assert kinds(audit_records(server.bootstrap), producer.instance)[0] == "close"


KILLED = """
import sys
sys.path.insert(0, sys.argv[3])
from support.tracked_events import TEN_FIELDS, MemoryRegistry, page_view
from moldau.tracking import TrackerProducer
options = {"registry": MemoryRegistry(), "schemas": {sys.argv[2]: TEN_FIELDS}, "audit_publish_interval_ms": 3_600_000}
tracker = TrackerProducer(service="shop", bootstrap_servers=sys.argv[1], **options)
tracker.track(page_view(), topic=sys.argv[2]).result()
print(tracker.instance, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "forgotten"])
def test_a_process_that_is_killed_leaves_its_counts_open(broker: Broker, topic: str, how: str) -> None:
    """Open without close, and without the counts of its last seconds. One that only forgets to close is closed at its end."""
    command = [sys.executable, "-c", KILLED, broker.bootstrap_servers, topic, str(Path(__file__).parent.parent)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    with process.stdin, process.stdout:
        instance = process.stdout.readline().strip()
        if how == "killed":
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.close()
        process.wait(LIMIT_S)
    assert kinds(audit_records(broker.bootstrap_servers), instance) == (["open"] if how == "killed" else ["close", "counts", "open"])
    assert len(whole_topic(broker.bootstrap_servers, topic)) == 1


def test_a_producer_without_references_is_ended(broker: Broker, topic: str) -> None:
    """Found by the garbage collection, in whatever thread: its events are sent, counted, and its counts closed."""
    producer = tracker(broker.bootstrap_servers, topic)
    producer.track(page_view(), topic=topic)
    instance = producer.instance
    del producer
    for thread in threading.enumerate():
        if thread.name == "moldau tracking farewell":
            thread.join(LIMIT_S)
    assert kinds(audit_records(broker.bootstrap_servers), instance) == ["close", "counts", "open"]
    assert published(broker.bootstrap_servers, topic) == counted_in_the_log(whole_topic(broker.bootstrap_servers, topic))


def test_a_fork_makes_its_own(broker: Broker, topic: str) -> None:
    """The child has neither the connections nor the guids of its parent, and says so instead of doubling events. It ends without a wait."""
    script = Path(__file__).parent.parent / "support" / "fork_with_tracker.py"
    done = subprocess.run([sys.executable, script, broker.bootstrap_servers, topic], capture_output=True, text=True, check=False)
    assert (
        done.stdout.split("\n", 1)[0] == "a producer of tracked events belongs to the process that made it: after a fork, make another one"
    )
    assert done.stdout.endswith("the child ended with 3\n"), done.stderr
    messages = whole_topic(broker.bootstrap_servers, topic)
    assert len(messages) == 2
    assert published(broker.bootstrap_servers, topic) == counted_in_the_log(messages)


def test_asyncio_with_the_same_names(broker: Broker, topic: str) -> None:
    async def publish() -> str:
        async with AsyncTrackerProducer(
            service="shop",
            bootstrap_servers=broker.bootstrap_servers,
            registry=MemoryRegistry(),
            settings={"queue.buffering.max.messages": 100},
        ) as producer:
            producer.declare(TEN_FIELDS, topic=topic)
            deliveries = [await producer.track(page_view(number), topic=topic) for number in range(500)]
            assert {(await each).topic for each in deliveries} == {topic}
            with pytest.raises(EventError):
                await producer.track({}, topic=topic)
            return producer.instance

    instance = asyncio.run(publish())
    assert published(broker.bootstrap_servers, topic) == counted_in_the_log(whole_topic(broker.bootstrap_servers, topic))
    assert kinds(audit_records(broker.bootstrap_servers), instance)[0] == "close"


def test_threads_track_together(broker: Broker, topic: str) -> None:
    """Through a queue of 200 messages, so that they wait for room: every event once, every guid once."""
    with tracker(broker.bootstrap_servers, topic, settings={"queue.buffering.max.messages": 200}) as producer:

        def publish() -> None:
            for number in range(1_000):
                producer.track(page_view(number), topic=topic)

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    messages = whole_topic(broker.bootstrap_servers, topic)
    assert len({read_header(message.value) for message in messages}) == len(messages) == 4_000
    assert published(broker.bootstrap_servers, topic) == counted_in_the_log(messages)


def test_without_a_broker_track_is_an_error_and_nothing_is_counted(tmp_path: Path) -> None:
    """The first event waits for the brokers; without any it fails, and the producer can be closed."""
    producer = tracker("127.0.0.1:1", "views", delivery_timeout_ms=1_000)
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        producer.track(page_view(), topic="views")
    producer.close(5.0)
    with pytest.raises(RuntimeError, match="the producer of tracked events is closed"):
        producer.track(page_view(), topic="views")
