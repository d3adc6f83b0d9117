"""What a mirror's file has in `[limits]` is what its process does."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from moldau.testing import Broker
from support.mirror_thread import MirrorThread, wait_for
from support.mirror_world import committed_end

pytestmark = pytest.mark.system

RECORDS, RECORD_BYTES = 200, 1_000
SETTINGS = {"group.initial.rebalance.delay.ms": 0}
FILE = """
name = "m"
mode = "merge"
sources.east.bootstrap.servers = "{source}"
target.bootstrap.servers = "{target}"
topics.include = ["orders"]
{limits}
"""


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    """With records in small batches."""
    with Broker(settings=SETTINGS) as broker:
        broker.create_topic("orders", 2)
        produce(broker, RECORDS)
        yield broker


def produce(broker: Broker, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 2, "linger.ms": 0})
    for number in range(records):
        producer.produce("orders", b"." * RECORD_BYTES, partition=number % 2)
    assert producer.flush(30) == 0


def count(broker: Broker) -> int:
    if "orders" not in broker.topics():
        return 0
    return sum(map(len, committed_end(broker.bootstrap_servers, "orders", range(2)).values()))


def transactions(source: Broker, limits: str) -> int:
    """How many the merge of what is in the source needs."""
    with Broker(settings=SETTINGS) as target:
        text = FILE.format(source=source.bootstrap_servers, target=target.bootstrap_servers, limits=limits)
        with MirrorThread([text]) as mirror:
            wait_for(lambda: count(target) == RECORDS, "all is merged")
            return mirror.processes[0].transactions()


def test_a_transaction_has_no_more_bytes_than_it_may(source: Broker) -> None:
    size = RECORDS * RECORD_BYTES
    assert transactions(source, "") <= 4
    assert transactions(source, "limits.transaction.bytes = 20000") >= size / 20_000
    # a batch that is larger goes alone
    assert transactions(source, "limits.transaction.bytes = 500") >= size / (2 * (RECORD_BYTES + 100)) / 2


def test_a_transaction_waits_for_more_records() -> None:
    with Broker(settings=SETTINGS) as source, Broker(settings=SETTINGS) as target:
        source.create_topic("orders", 2)
        text = FILE.format(source=source.bootstrap_servers, target=target.bootstrap_servers, limits="limits.linger.ms = 1000")
        produce(source, 2)
        with MirrorThread([text]) as mirror:
            wait_for(lambda: count(target) == 2 and mirror.processes[0].transactions() > 0, "it runs")
            before = mirror.processes[0].transactions()
            begin = time.monotonic()
            for _ in range(20):
                produce(source, 2)
            wait_for(lambda: count(target) == 42, "all is merged")
            elapsed_s = time.monotonic() - begin  # each has waited for a second of it; one before may not have been counted yet
            assert mirror.processes[0].transactions() - before <= elapsed_s / 1.0 + 1


def test_a_full_transaction_does_not_wait() -> None:
    with Broker(settings=SETTINGS) as source, Broker(settings=SETTINGS) as target:
        source.create_topic("orders", 2)
        limits = "limits = {linger.ms = 3600000, transaction.bytes = 50000}"
        text = FILE.format(source=source.bootstrap_servers, target=target.bootstrap_servers, limits=limits)
        produce(source, RECORDS)
        with MirrorThread([text]):
            wait_for(lambda: count(target) >= RECORDS - 100, "what fills a transaction is merged")
