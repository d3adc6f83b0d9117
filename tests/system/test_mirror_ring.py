"""A record never returns to a cluster that it came from, whatever ring the mirrors make (missions F3, G1)."""

from collections import Counter
from random import Random

import pytest
from confluent_kafka import Producer

from support.mirror_ring import MirrorThread, Ring, wait_for
from support.mirror_world import committed_end

pytestmark = pytest.mark.system

PARTITIONS = 2
PLAIN, TRANSACTIONAL = 100, 40


def write(name: str, bootstrap: str, random: Random) -> list[bytes]:
    """Plain records, and transactions of which some are aborted: the values that count."""
    written = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(PLAIN):
        value = f"{name} plain {number}".encode()
        producer.produce("orders", value, key=str(random.randrange(20)), partition=number % PARTITIONS)
        written.append(value)
        if number % 10 == 0:
            producer.flush()
    producer.flush()
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer of {name}"})
    writer.init_transactions()
    for number in range(0, TRANSACTIONAL, 4):
        writer.begin_transaction()
        values = [f"{name} transaction {number + each}".encode() for each in range(4)]
        for value in values:
            writer.produce("orders", value, key=str(random.randrange(20)), partition=random.randrange(PARTITIONS))
        if random.random() < 0.3:
            writer.flush()
            writer.abort_transaction()
        else:
            writer.commit_transaction()
            written += values
    return written


@pytest.mark.parametrize(
    ("names", "partitioning"),
    [
        pytest.param(["east", "west"], "same", id="two that mirror each other"),
        pytest.param(["east", "west", "north"], "key", id="a ring of three"),
    ],
)
def test_each_cluster_has_each_record_once(names: list[str], partitioning: str) -> None:
    random = Random(11)
    with Ring(names, partitioning=partitioning, partitions=PARTITIONS) as ring:

        def found(name: str) -> Counter[bytes]:
            seen = committed_end(ring.brokers[name].bootstrap_servers, "orders", range(PARTITIONS))
            return Counter(each[2] for records in seen.values() for each in records)

        def all_have(expected: list[bytes]) -> bool:
            return all(found(name).total() >= len(expected) for name in names)

        # each cluster has producers of its own, before the mirrors run and while they do
        written: list[bytes] = []
        for name, broker in ring.brokers.items():
            written += write(name, broker.bootstrap_servers, random)
        with MirrorThread(ring.files):
            for name, broker in ring.brokers.items():
                written += write(f"{name} later", broker.bootstrap_servers, random)
            wait_for(lambda: all_have(written), "records are missing")

        # mirrors that are started again know what came from where
        with MirrorThread(ring.files):
            written += write("last", ring.brokers[names[0]].bootstrap_servers, random)
            wait_for(lambda: all_have(written), "records are missing after the second start")
        for name in names:
            assert found(name) == Counter(written), name
