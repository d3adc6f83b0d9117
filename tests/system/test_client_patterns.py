"""A consumer that subscribes to a pattern leaves out internal topics; one that names them reads them."""

import time
from collections.abc import Iterator

import pytest

from moldau.client import Consumer, Producer
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system

QUICK = {"fetch.wait.max.ms": 20, "topic.metadata.refresh.interval.ms": 200}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            for name in ("_audit", "_schemas", "orders", "returns"):
                Admin(cluster).create_topic(name, 1, 1, {})
        with Producer(broker.bootstrap_servers) as producer:
            for name in ("_audit", "_schemas", "orders", "returns"):
                producer.send(name, name.encode()).result()
        yield broker.bootstrap_servers


def read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is not None:
            found.append(message.topic)
    return sorted(found)


@pytest.mark.parametrize(
    ("topics", "found"),
    [(["^.*"], ["orders", "returns"]), (["^_sch.*"], ["_schemas"]), (["_schemas", "orders"], ["_schemas", "orders"])],
)
@pytest.mark.parametrize("later", [False, True])
def test_a_pattern(bootstrap: str, topics: list[str], found: list[str], later: bool) -> None:
    group = f"{topics}-{later}"
    with Consumer(bootstrap, group_id=group, topics=() if later else topics, settings=QUICK) as consumer:
        if later:
            consumer.subscribe(topics)
        assert read(consumer, len(found)) == found
        assert sorted(where.topic for where in consumer.assignment()) == found


def test_patterns_and_internal_topics_take_a_consumer_each(bootstrap: str) -> None:
    with Consumer(bootstrap, group_id="both", topics=["_schemas"], settings=QUICK) as consumer:
        with pytest.raises(ValueError, match="use another consumer"):
            consumer.subscribe(["^.*"])
        consumer.subscribe(["orders"])
        assert read(consumer, 1) in (["orders"], ["_schemas"])
