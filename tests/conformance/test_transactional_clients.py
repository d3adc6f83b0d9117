"""Other people's clients make transactions: the older protocol, the oldest, and that of ``transaction.version`` 2 (KIP-98, KIP-890).

Each in turn commits and aborts over several partitions, commits offsets, is fenced by another producer of the same id, and goes on
through a broker that is killed.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.messages.transaction_admin import DescribeTransactionsRequest
from support.maven import kafka_libraries
from support.server import ServerProcess
from support.transactional_clients import AiokafkaTransactions, ConfluentTransactions, JavaTransactions, TransactionalClient
from support.wire import Wire

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of the clients, not ours
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LIMIT_S = 60.0
PARTITIONS = 2


def java_client(bootstrap: str, transactional_id: str) -> TransactionalClient:
    """The Java client, from Maven Central."""
    source = Path(__file__).parent / "java" / "Transactions.java"
    return JavaTransactions(bootstrap, transactional_id, kafka_libraries("4.3.0"), source)


CLIENTS: dict[str, Callable[[str, str], TransactionalClient]] = {
    "confluent-kafka": ConfluentTransactions,
    "aiokafka": AiokafkaTransactions,
    "java": java_client,
}
WITH_AN_EPOCH_PER_TRANSACTION = {"java"}
FENCED = {
    "confluent-kafka": {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"},
    "aiokafka": {"ProducerFenced"},
    "java": {"ProducerFencedException", "InvalidProducerEpochException"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("transactions"), settings={"num.partitions": str(PARTITIONS)}) as server:
        yield server


def committed(server: ServerProcess, topic: str) -> list[list[str]]:
    """What a reader of committed records gets of each partition."""
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "readers", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0})
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        ends = 0
        while ends < PARTITIONS:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"{topic}: the end does not come after {found}"
            if message.error() is None:
                found[message.partition() or 0].append((message.value() or b"").decode())
            else:
                ends += 1
    finally:
        consumer.close()
    return found


def committed_offset(server: ServerProcess, group: str, topic: str) -> int:
    """The offset of partition 0 that a group has committed."""
    host, _, port = server.bootstrap.rpartition(":")
    with contextlib.closing(Wire((host, int(port)))) as wire:
        topics = [OffsetFetchRequestTopics(topic, partition_indexes=[0])]
        answer = wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)]), 8)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def epoch_of(server: ServerProcess, transactional_id: str) -> int:
    """The epoch that the producer of an id has."""
    host, _, port = server.bootstrap.rpartition(":")
    with contextlib.closing(Wire((host, int(port)))) as wire:
        return int(wire.ask(DescribeTransactionsRequest([transactional_id]), 0).transaction_states[0].producer_epoch)


def all_ok(answers: Sequence[str]) -> None:
    assert set(answers) == {"ok"}, answers


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_makes_transactions(name: str, server: ServerProcess) -> None:
    topic, group = f"committed-by-{name}", f"group-of-{name}"
    client = CLIENTS[name](server.bootstrap, f"producer-{name}")
    other: TransactionalClient | None = None
    try:
        all_ok([client.init()])
        expected: list[list[str]] = [[] for _ in range(PARTITIONS)]
        for number in range(6):
            commits = number % 3 > 0
            all_ok([client.begin()])
            for index in range(20):
                value = f"{number}-{index}"
                all_ok([client.send(topic, index % PARTITIONS, value)])
                if commits:
                    expected[index % PARTITIONS].append(value)
            all_ok([client.offset(group, topic, number)])
            all_ok([client.commit() if commits else client.abort()])
        assert committed(server, topic) == expected
        assert committed_offset(server, group, topic) == 5
        assert epoch_of(server, f"producer-{name}") == (6 if name in WITH_AN_EPOCH_PER_TRANSACTION else 0)
        # Another producer takes over while a transaction is open.
        all_ok([client.begin(), client.send(topic, 0, "never"), client.flush()])
        other = CLIENTS[name](server.bootstrap, f"producer-{name}")
        all_ok([other.init()])
        client.send(topic, 1, "never")
        assert client.commit() in FENCED[name]
        all_ok([other.begin(), other.send(topic, 0, "after"), other.commit()])
        expected[0].append("after")
        assert committed(server, topic) == expected
    finally:
        client.close()
        if other is not None:
            other.close()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_goes_on_when_the_broker_is_killed_in_its_transaction(name: str, server: ServerProcess) -> None:
    topic = f"killed-under-{name}"
    client = CLIENTS[name](server.bootstrap, f"survivor-{name}")
    try:
        all_ok([client.init(), client.begin(), client.send(topic, 0, "a"), client.flush()])
        server.kill()
        server.start()
        all_ok([client.send(topic, 1, "b"), client.flush(), client.commit()])
        server.kill()
        server.start()
        all_ok([client.begin(), client.send(topic, 0, "c"), client.flush(), client.abort()])
        all_ok([client.begin(), client.send(topic, 0, "d"), client.commit()])
        assert committed(server, topic) == [["a", "d"], ["b"]]
    finally:
        client.close()
