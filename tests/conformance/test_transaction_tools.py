"""Kafka's own tools read our transactions: TransactionsCommand asks the broker, DumpLogSegments reads its files (mission A10)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.broker.transactions.transaction import TransactionState
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from support.kafka_tools import DUMP, TRANSACTIONS, KafkaTools
from support.server import ServerProcess
from support.transactional_producer import NEWEST, OLDER, RawProducer
from support.wire import Wire

pytestmark = pytest.mark.system

NOISE = ("SLF4J", "WARNING", "ERROR")
"""What logging libraries say."""


class Known(NamedTuple):
    tools: KafkaTools
    server: ServerProcess
    producers: dict[str, RawProducer]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, kafka_tools: KafkaTools) -> Iterator[Known]:
    """Ids in the states that last: one begun, one open, one committed, one aborted; new and older producers."""
    settings = {"transaction.state.log.num.partitions": "1"}
    with ServerProcess(tmp_path_factory.mktemp("tools"), settings=settings) as server:
        host, _, port = server.bootstrap.rpartition(":")
        wire = Wire((host, int(port)))
        wire.ask(CreateTopicsRequest([CreatableTopic("t", 2, 1), CreatableTopic("u", 1, 1)]), 5)
        producers = {}
        for name, versions in (("begun", NEWEST), ("open", NEWEST), ("committed", OLDER), ("aborted", NEWEST)):
            producer = producers[name] = RawProducer(wire.ask, f"app-{name}", versions)
            assert producer.find() == 0
            assert producer.init() == 0
        for name in ("open", "committed", "aborted"):
            for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
                assert producers[name].send(topic, b"x", partition=partition) == 0
        assert producers["committed"].end(committed=True) == 0
        assert producers["aborted"].end(committed=False) == 0
        yield Known(kafka_tools, server, producers)
        wire.close()


def tool(known: Known, *arguments: str) -> list[list[str]]:
    """What TransactionsCommand prints: the words of each line."""
    done = known.tools(TRANSACTIONS, "--bootstrap-server", known.server.bootstrap, *arguments)
    assert done.code == 0, done.text
    return [row for row in done.rows if not row[0].startswith(NOISE)]


def test_transactions_are_listed(known: Known) -> None:
    header, *rows = tool(known, "list")
    assert header == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    states = {row[0]: (int(row[2]), row[3]) for row in rows}
    assert states == {
        "app-begun": (known.producers["begun"].producer_id, "Empty"),
        "app-open": (known.producers["open"].producer_id, "Ongoing"),
        "app-committed": (known.producers["committed"].producer_id, "CompleteCommit"),
        "app-aborted": (known.producers["aborted"].producer_id, "CompleteAbort"),
    }
    _, *rows = tool(known, "list", "--transactional-id-pattern", "app-(open|begun)")
    assert {row[0] for row in rows} == {"app-open", "app-begun"}


def test_a_transaction_is_described(known: Known) -> None:
    header, row = tool(known, "describe", "--transactional-id", "app-open")
    told = dict(zip(header, row, strict=False))
    assert told["ProducerId"] == str(known.producers["open"].producer_id)
    assert (told["ProducerEpoch"], told["TransactionState"], told["TransactionTimeoutMs"]) == ("0", "Ongoing", "60000")
    assert set(row[-1].split(",")) == {"t-0", "t-1", "u-0"}


def test_the_producers_of_a_partition_are_described(known: Known) -> None:
    header, *rows = tool(known, "describe-producers", "--topic", "t", "--partition", "0")
    assert header[0] == "ProducerId"
    offsets = {int(row[0]): row[-1] for row in rows}
    assert offsets[known.producers["open"].producer_id] == "0"
    assert offsets[known.producers["committed"].producer_id] == "None"


def test_no_transaction_hangs(known: Known) -> None:
    assert tool(known, "find-hanging", "--broker-id", "0", "--max-transaction-timeout", "15")[1:] == []


def test_the_internal_topic_is_read_by_kafkas_decoder(known: Known) -> None:
    (segment,) = Path(known.server.data).glob("__transaction_state-0/*.log")
    done = known.tools(DUMP, "--transaction-log-decoder", "--files", str(segment))
    assert done.code == 0, done.text
    states: dict[str, list[Any]] = {}
    for key, payload in re.findall(r"key: (\{.*\}) payload: (\{.*\})$", done.text, re.MULTILINE):
        states.setdefault(json.loads(key)["data"]["transactionalId"], []).append(json.loads(payload)["data"])
    assert {name: [each["transactionStatus"] for each in values] for name, values in states.items()} == {
        "app-begun": [TransactionState.EMPTY],
        "app-open": [TransactionState.EMPTY, *[TransactionState.ONGOING] * 3],
        "app-committed": [
            TransactionState.EMPTY,
            *[TransactionState.ONGOING] * 3,
            TransactionState.PREPARE_COMMIT,
            TransactionState.COMPLETE_COMMIT,
        ],
        "app-aborted": [
            TransactionState.EMPTY,
            *[TransactionState.ONGOING] * 3,
            TransactionState.PREPARE_ABORT,
            TransactionState.COMPLETE_ABORT,
        ],
    }
    last = states["app-open"][-1]
    assert (last["producerId"], last["producerEpoch"]) == (known.producers["open"].producer_id, 0)
    assert (last["transactionTimeoutMs"], last["clientTransactionVersion"]) == (60_000, 2)
    assert last["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 1]}, {"topic": "u", "partitionIds": [0]}]
    assert [each["producerEpoch"] for each in states["app-aborted"]] == [0, 0, 0, 0, 1, 1]
