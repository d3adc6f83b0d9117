"""Records that break a rule of their topic fail alone as far as they can, with a real client (KIP-467; librdkafka's own test 0011).

Of a hundred messages for a compacted topic every tenth has no key. In one batch those ten fail with INVALID_RECORD and the others are told
that they were beside them; in batches of their own the others are stored.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.server import ServerProcess

pytestmark = pytest.mark.system

TOGETHER = {"INVALID_RECORD": 10, "_INVALID_DIFFERENT_RECORD": 90}
WAITS = {"linger.ms": 30_000}
"""Until it is flushed: all that is produced before is one batch."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("record-errors")) as server:
        topic = NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"})
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for future in admin.create_topics([topic]).values():
            future.result(20)
        yield server


def producer_that_knows_the_topic(server: ServerProcess, options: dict[str, Any]) -> confluent_kafka.Producer:
    """Knowing it, librdkafka puts each message into the partition's queue at once.

    What is produced before is moved there one by one when the topic becomes known, and a flush sends at the same time what has been moved.
    """
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, **options})
    assert "compacted" in producer.list_topics("compacted").topics
    return producer


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (WAITS, TOGETHER),
        ({**WAITS, "compression.type": "zstd"}, TOGETHER),
        ({**WAITS, "enable.idempotence": True}, TOGETHER),
        ({"batch.size": 1}, {"INVALID_RECORD": 10, "stored": 90}),
    ],
)
def test_each_message_without_a_key_fails_as_such(server: ServerProcess, options: dict[str, Any], expected: dict[str, int]) -> None:
    outcomes: Counter[str] = Counter()
    producer = producer_that_knows_the_topic(server, options)

    def told(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
        outcomes["stored" if error is None else error.name()] += 1

    for number in range(100):
        producer.produce("compacted", b"value %d" % number, None if number % 10 == 0 else b"key %d" % number, on_delivery=told)
    assert producer.flush(20) == 0
    assert outcomes == expected


def test_large_batches_fail_the_same_way(server: ServerProcess) -> None:
    """Those that are looked into on another thread."""
    outcomes: Counter[str] = Counter()
    producer = producer_that_knows_the_topic(server, WAITS)
    for number in range(100):
        key = None if number % 10 == 0 else b"key"
        producer.produce(
            "compacted", bytes(5000), key, on_delivery=lambda error, _: outcomes.update(["stored" if error is None else error.name()])
        )
    assert producer.flush(20) == 0
    assert outcomes == TOGETHER
