"""Every mainstream client uses Moldau as it uses Apache Kafka (mission A1, A12, B1), one broker and a cluster of three.

Each client in turn creates a topic, produces with each codec and each acknowledgement mode, and reads by assignment: from the beginning,
from the middle, and from a moment.
"""

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.brokers import bootstrap_of, wait_until_led
from support.clients import (
    AiokafkaClient,
    Client,
    ConfluentClient,
    JavaClient,
    KafkaPythonClient,
    KcatClient,
    Read,
    Write,
)
from support.maven import kafka_libraries

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of the clients, not ours
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
CASES = list(itertools.product(CODECS, ACKS))  # each case has a partition of its own
HALF = 40


@pytest.fixture(scope="module", params=[1, 3], ids=["one broker", "three brokers"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"num.partitions": str(len(CASES)), "auto.create.topics.enable": "true"}
    with bootstrap_of(request.param, tmp_path_factory.mktemp("conformance"), settings) as bootstrap:
        yield bootstrap


def java_client(bootstrap: str) -> Client:
    """The Java client, from Maven Central."""
    return JavaClient(bootstrap, kafka_libraries("4.3.0"), Path(__file__).parent / "java" / "Dialogue.java")


def kcat_client(bootstrap: str) -> Client:
    """Kcat, from the system's packages."""
    assert shutil.which("kcat"), "kcat is missing: make setup"
    return KcatClient(bootstrap)


CLIENTS: dict[str, Callable[[str], Client]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
    "kcat": kcat_client,
    "java": java_client,
}


def values(partition: int, first: int, count: int) -> tuple[str, ...]:
    """Texts that say where they belong; long enough that compression does something."""
    return tuple(f"p{partition}-n{number}-" + "moldau" * 10 for number in range(first, first + count))


def wait_for_next_millisecond() -> None:
    """Return once the wall clock shows another millisecond, so that later records are younger than earlier ones."""
    begun = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= begun + 1:
        pass


@pytest.mark.parametrize("name", CLIENTS)
def test_create_produce_and_consume_by_assignment(name: str, bootstrap: str) -> None:
    with contextlib.closing(CLIENTS[name](bootstrap)) as client:
        hold_dialogue(client, f"conformance-{name}", bootstrap)


def hold_dialogue(client: Client, topic: str, bootstrap: str) -> None:
    """See the module."""
    client.create_topic(topic, len(CASES))
    wait_until_led(bootstrap, topic, len(CASES))

    for first in (0, HALF):
        client.write(topic, [Write(p, codec, acks, values(p, first, HALF)) for p, (codec, acks) in enumerate(CASES)])
        wait_for_next_millisecond()

    partitions = range(len(CASES))
    everything = client.read(topic, [Read(p, 2 * HALF) for p in partitions])
    for partition, seen in zip(partitions, everything, strict=True):
        assert [record.offset for record in seen] == list(range(2 * HALF)), CASES[partition]
        assert tuple(record.value for record in seen) == values(partition, 0, 2 * HALF), CASES[partition]

    middle = client.read(topic, [Read(p, HALF + 5, offset=HALF - 5) for p in partitions])
    assert middle == [seen[HALF - 5 :] for seen in everything]

    moments = [Read(p, HALF, timestamp_ms=everything[p][HALF].timestamp_ms) for p in partitions]
    assert client.read(topic, moments) == [seen[HALF:] for seen in everything]
