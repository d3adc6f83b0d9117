"""Logs, metrics and a work queue over a real broker (mission F3)."""

import logging
import signal
import threading
from collections.abc import Iterator

import pytest

from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.cluster import Cluster
from moldau.client.settings import ConsumerOptions
from moldau.model.identity import TopicPartition
from moldau.testing.broker import Broker
from moldau.tracking import TrackedConsumer, TrackerProducer, logs
from moldau.tracking.logs import TrackedLogHandler
from moldau.tracking.metrics import MetricsEmitter
from moldau.tracking.queue import Task, WorkQueue
from moldau.tracking.topics import QUEUING, category
from support.tracked_events import LIMIT_S, TEN_FIELDS, MemoryRegistry, page_view, whole_topic

pytestmark = pytest.mark.system

QUICK = ConsumerOptions(settings={"fetch.wait.max.ms": 20, "heartbeat.interval.ms": 200})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that is closed waits for its lines, however loaded the machine."""
    monkeypatch.setattr(logs, "CLOSE_TIMEOUT_S", LIMIT_S)


@pytest.mark.usefixtures("patient")
def test_lines_and_metrics_are_events(broker: Broker) -> None:
    """One tracker for both; the root logger, so that what the sending itself logs would come back as lines."""
    registry = MemoryRegistry()
    for topic in ("logs", "metrics"):
        broker.create_topic(topic)
    root = logging.getLogger()
    with TrackerProducer(service="shop", bootstrap_servers=broker.bootstrap_servers, registry=registry) as tracker:
        handler, metrics = TrackedLogHandler(tracker, level="INFO"), MetricsEmitter(tracker)
        metrics.counter("orders", country="CZ").add(3)
        metrics.emit()  # it waits for the brokers as long as they take; a handler that is closed does not
        root.addHandler(handler)
        logging.getLogger("shop").warning("stock of %s is low", "apples")
        root.removeHandler(handler)
        handler.close()
        metrics.close()
        assert handler.dropped == 0
    with TrackedConsumer(broker.bootstrap_servers, registry, **QUICK) as consumer:
        consumer.messages.assign([TopicPartition("logs", 0)])
        assert next(consumer).value["message"] == "stock of apples is low"
        consumer.messages.assign([TopicPartition("metrics", 0)])
        found = next(consumer)
        assert (found.value["name"], found.value["value"], found.value["labels"]) == ("orders", 3.0, {"country": "CZ"})
    assert len(whole_topic(broker.bootstrap_servers, "logs")) == 1


def partitions_of(broker: Broker, topic: str) -> int:
    with Cluster(broker.bootstrap_servers) as cluster:
        return len(cluster.topic(topic).partitions)


@pytest.mark.usefixtures("patient")
def test_topics_that_are_missing_are_made_as_their_kind_wants_them(broker: Broker) -> None:
    """By the first event, and not by the broker with one partition; the option leaves that to the broker."""
    views, lines, metrics, left = (broker.unique_topic(kind) for kind in ("views", "logs", "metrics", "left"))
    registry = MemoryRegistry()
    with TrackerProducer(
        service="shop", bootstrap_servers=broker.bootstrap_servers, registry=registry, schemas={views: TEN_FIELDS}
    ) as tracker:
        tracker.track(page_view(), topic=views)
        emitter = MetricsEmitter(tracker, metrics)
        emitter.counter("orders").add()
        emitter.close()
        handler = TrackedLogHandler(tracker, lines)
        handler.emit(logging.LogRecord("shop", logging.INFO, __file__, 1, "apples", None, None))
        handler.close()
        assert handler.dropped == 0
    assert [partitions_of(broker, topic) for topic in (views, lines, metrics)] == [8, 4, 2]
    with TrackerProducer(service="shop", bootstrap_servers=broker.bootstrap_servers, registry=registry, create_topics=False) as tracker:
        tracker.declare(TEN_FIELDS, topic=left)
        tracker.track(page_view(), topic=left)
    assert partitions_of(broker, left) == 1


def test_a_topic_of_a_category(broker: Broker) -> None:
    assert category("tracking").ensure(broker.bootstrap_servers, "orders")
    assert not category("tracking").ensure(broker.bootstrap_servers, "orders"), "it is there, and stays as it is"
    with Cluster(broker.bootstrap_servers) as cluster:
        assert len(cluster.topic("orders").partitions) == 8
        configs = {each.name: each.value for each in Admin(cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, "orders"))}
    assert (configs["retention.ms"], configs["cleanup.policy"]) == ("604800000", "delete")
    assert QUEUING.topics.partitions == 12


def test_what_fails_comes_again_and_ends_as_a_dead_letter(broker: Broker) -> None:
    """Three tries with a delay before the second and the third; others do not wait for it; the error stands in the headers."""
    tries: list[tuple[bytes | None, int]] = []
    stop = threading.Event()
    with WorkQueue(broker.bootstrap_servers, "images", retry_delays_s=(0.2, 0.1), partitions=1) as queue:
        for value in (b"broken", b"good", b"shy"):
            queue.put(value, headers={"trace": value}).result(LIMIT_S)

        def work(task: Task) -> None:
            tries.append((task.value, task.attempt))
            if len(tries) == 6:
                stop.set()
            if task.value == b"broken" or (task.value == b"shy" and task.attempt == 1):
                raise ValueError(f"cannot do {task.value!r}")

        with queue.worker(**QUICK) as worker:
            worker.run(work, stop)
            assert (worker.done, worker.retried, worker.dead) == (2, 3, 1)
        assert tries[:3] == [(b"broken", 1), (b"good", 1), (b"shy", 1)]
        assert sorted(tries[3:]) == [(b"broken", 2), (b"broken", 3), (b"shy", 2)]
        (dead,) = whole_topic(broker.bootstrap_servers, queue.dead_letter_topic)
        headers = dict(dead.headers)
        assert (dead.value, headers["trace"], headers["moldau.attempt"]) == (b"broken", b"broken", b"3")
        assert headers["moldau.error"] == b"ValueError: cannot do b'broken'"
        assert headers["moldau.origin"] == b"images-0@0"


def test_each_message_goes_to_one_worker_and_what_was_in_hand_to_the_next(broker: Broker) -> None:
    """Two workers share forty messages; a third one, which leaves in the middle of a message, leaves it to them."""
    done: list[bytes | None] = []
    stop = threading.Event()
    with WorkQueue(broker.bootstrap_servers, "mails", partitions=4) as queue:
        for number in range(40):
            queue.put(b"%d" % number, key=b"%d" % number)
        queue.flush(LIMIT_S)
        with queue.worker(**QUICK) as leaving:
            in_hand = leaving.take(LIMIT_S)
            assert in_hand is not None

        def work(task: Task) -> None:
            done.append(task.value)
            if len(done) == 40:
                stop.set()

        def run() -> None:
            with queue.worker(**QUICK) as worker:
                worker.run(work, stop)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert stop.is_set()
    assert in_hand.value in done
    assert len(set(done)) == 40


def test_a_worker_that_is_asked_to_stop_finishes_the_message_at_hand(broker: Broker) -> None:
    """SIGTERM in the middle of the first of two messages: the first one is done and committed, the second one is for the next worker."""
    done: list[bytes | None] = []
    with WorkQueue(broker.bootstrap_servers, "letters", partitions=1) as queue:
        for value in (b"one", b"two"):
            queue.put(value).result(LIMIT_S)

        def work(task: Task) -> None:
            signal.raise_signal(signal.SIGTERM)
            done.append(task.value)

        with queue.worker(**QUICK) as worker:
            before = signal.signal(signal.SIGTERM, lambda *_: worker.stop())
            try:
                worker.run(work)
            finally:
                signal.signal(signal.SIGTERM, before)
            assert (worker.done, done) == (1, [b"one"])
        with queue.worker(**QUICK) as following:
            task = following.take(LIMIT_S)
            assert task is not None
            assert task.value == b"two"
