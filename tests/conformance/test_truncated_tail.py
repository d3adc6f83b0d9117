"""A tail that a crash took is seen as such by consumers that had read it (KIP-320).

A Java consumer reads twenty records. The server is killed and half of the bytes, which had reached no disk, are gone. After the restart a
producer fills the same offsets, and more, with other records. The consumer must not go on at offset 20 as if nothing had happened: the
leader epoch has been raised by the start, it asks where its own epoch ended, and learns from where its records are no longer those of
the log.
"""

import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from support.java import java_command
from support.maven import kafka_libraries
from support.server import ServerProcess

pytestmark = pytest.mark.system

TOPIC = "truncated"
READ = 20
PROGRAM = Path(__file__).parent / "java" / "Truncation.java"


def produce_one_by_one(bootstrap: str, values: list[str]) -> None:
    """Each value in a batch of its own, acknowledged before the next is sent."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value.encode(), partition=0)
        assert producer.flush(20) == 0


def test_a_java_consumer_sees_the_cut(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        produce_one_by_one(server.bootstrap, [f"lost or kept {number}" for number in range(READ)])
        command = java_command(kafka_libraries("4.3.0"), str(PROGRAM), server.bootstrap, TOPIC, str(READ))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdin is not None
            assert consumer.stdout.readline() == f"position {READ}\n"

            server.kill()
            log = tmp_path / "data" / f"{TOPIC}-0" / f"{0:020d}.log"
            batch_bytes = log.stat().st_size // READ
            with log.open("r+b") as file:
                file.truncate(READ // 2 * batch_bytes + batch_bytes // 2)
            server.start()
            produce_one_by_one(server.bootstrap, [f"written later {number}" for number in range(2 * READ)])

            consumer.stdin.write("go on\n")
            consumer.stdin.flush()
            answer = consumer.stdout.readline()
    kept = int(answer.removeprefix("truncated at "))
    assert 0 < kept < READ, answer
