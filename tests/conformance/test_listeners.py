"""Clients of two networks use one broker, each by the address of its own listener: bootstrap, leader and coordinator."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.assembly.thread import BrokerThread
from moldau.model.config import BrokerConfig, read_static
from support.clients import READ_LIMIT_S, Client, ConfluentClient, KafkaPythonClient, Write

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of the clients, not ours
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ADVERTISED = {"INTERNAL": "127.0.0.8", "EXTERNAL": "127.0.0.9"}
"""Addresses of this machine that nothing but the advertised listeners names."""
VALUES = 20

Sides = dict[str, tuple[str, int]]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """By listener where a client bootstraps; what is advertised has another host."""
    settings = [
        "listeners=INTERNAL://0.0.0.0:0,EXTERNAL://0.0.0.0:0",
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        f"advertised.listeners={','.join(f'{name}://{host}:0' for name, host in ADVERTISED.items())}",
        "group.initial.rebalance.delay.ms=0",
        f"log.dirs={tmp_path_factory.mktemp('listeners')}",
    ]
    thread = BrokerThread(BrokerConfig(read_static(settings=settings)))
    thread.start()
    yield dict(zip(ADVERTISED, thread.addresses, strict=True))
    thread.stop()


def confluent_brokers(bootstrap: str) -> list[tuple[str, int]]:
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3}).list_topics(timeout=READ_LIMIT_S).brokers
    return [(str(each.host), each.port) for each in found.values()]


def confluent_group(bootstrap: str, group: str, topic: str, count: int) -> list[str]:
    import confluent_kafka

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 3}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found: list[str] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), READ_LIMIT_S)
            assert messages, f"nothing more after {len(found)} of {count}"
            assert not any(message.error() for message in messages)
            found += [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()
    return found


def kafka_python_brokers(bootstrap: str) -> list[tuple[str, int]]:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return [(each["host"], each["port"]) for each in admin.describe_cluster()["brokers"]]
    finally:
        admin.close()


def kafka_python_group(bootstrap: str, group: str, topic: str, count: int) -> list[str]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    found: list[str] = []
    end = time.monotonic() + READ_LIMIT_S
    try:
        while len(found) < count:
            assert time.monotonic() < end, f"nothing more after {len(found)} of {count}"
            for records in consumer.poll(500).values():
                found += [record.value.decode() for record in records]
    finally:
        consumer.close()
    return found


Brokers = Callable[[str], list[tuple[str, int]]]
Group = Callable[[str, str, str, int], list[str]]
CLIENTS: dict[str, tuple[Callable[[str], Client], Brokers, Group]] = {
    "confluent-kafka": (ConfluentClient, confluent_brokers, confluent_group),
    "kafka-python": (KafkaPythonClient, kafka_python_brokers, kafka_python_group),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_each_side_receives_its_own_address_and_produces_and_consumes_by_it(name: str, sides: Sides) -> None:
    make, brokers, group = CLIENTS[name]
    topic = f"listeners-{name}"
    bootstraps = {listener: f"{host}:{port}" for listener, (host, port) in sides.items()}
    for listener, bootstrap in bootstraps.items():
        assert brokers(bootstrap) == [(ADVERTISED[listener], sides[listener][1])]
    make(bootstraps["INTERNAL"]).create_topic(topic, 1)
    written: list[str] = []
    for listener, bootstrap in bootstraps.items():
        values = tuple(f"{listener}-{number}" for number in range(VALUES))
        make(bootstrap).write(topic, [Write(0, "none", "all", values)])
        written += values
    for listener, bootstrap in bootstraps.items():
        assert group(bootstrap, f"{name}-{listener}", topic, len(written)) == written
