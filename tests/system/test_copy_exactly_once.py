"""A program that consumes, transforms and produces in transactions leaves each record exactly once, in order (T1-T3).

200,000 records (a tenth unless MOLDAU_TORTURE=1) are copied by confluent-kafka, which speaks the transactions of before KIP-890, and by the
Java client, which speaks the newer ones, while the broker is killed 30 times and the program 10 times (a tenth). A program that was stopped
in the middle and whose successor has gone on is fenced when it continues: a zombie.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.committed import committed_values
from support.copy_program import FENCED, IMPATIENT
from support.java import compile_java, java_command
from support.maven import kafka_libraries
from support.server import ServerProcess
from support.sizes import sized
from support.supervised import Supervised

pytestmark = [pytest.mark.system, pytest.mark.torture]

SCALE = sized(1, 10)
RECORDS = 20_000 * SCALE
BROKER_KILLS = 3 * SCALE
PROGRAM_KILLS = 1 * SCALE
PARTITIONS = 3
FIRST_PART = RECORDS * 9 // 10 // PARTITIONS
"""Records of each partition that are written before the zombie."""
BYTES_LEAST = 25
"""Less than a copy takes in the log."""
FROM, TO, GROUP = "originals", "copies", "copiers"
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000", "group.min.session.timeout.ms": "1000"}
"""Members that were killed or stopped are missed after three seconds, not six."""
PROGRESS_LIMIT_S = 60.0
JAVA_SOURCE = Path(__file__).parent.parent / "conformance" / "java" / "Copy.java"


def python_program(directory: Path) -> list[str]:
    return [sys.executable, str(Path(__file__).parent.parent / "support" / "copy_program.py")]


def java_program(directory: Path) -> list[str]:
    """Compiled once: it is started many times."""
    libraries = kafka_libraries("4.3.0")
    compile_java(libraries, directory, JAVA_SOURCE)
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Dlog4j2.level=ERROR"]
    return java_command(libraries, *quiet, "Copy", classes=directory, memory="128m")


PROGRAMS = {"confluent-kafka": python_program, "java": java_program}


def originals(partition: int) -> list[bytes]:
    return [b"%d of partition %d" % (number, partition) for number in range(partition, RECORDS, PARTITIONS)]


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (FROM, TO)]).values():
        future.result(30)


def fill(bootstrap: str, part: slice) -> None:
    """Write this part of the originals of each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": RECORDS + 1})
    for partition in range(PARTITIONS):
        for value in originals(partition)[part]:
            producer.produce(FROM, value, partition=partition)
    assert producer.flush(60) == 0


class Progress:
    """How far the group has come."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed", **IMPATIENT}
        self._consumer = confluent_kafka.Consumer(settings)
        self._partitions = [TopicPartition(FROM, partition) for partition in range(PARTITIONS)]
        self.copied = 0

    def look(self) -> int:
        """Records that the group's offsets are past."""
        try:
            found = self._consumer.committed(self._partitions, 5)
        except confluent_kafka.KafkaException:  # the broker is away, or a transaction is being decided
            return self.copied
        if all(entry.error is None for entry in found):
            now = sum(max(entry.offset, 0) for entry in found)
            assert now >= self.copied, f"the group went back from {self.copied} to {now}"
            self.copied = now
        return self.copied

    def wait_for(self, count: int, supervised: Supervised) -> None:
        """Until so many are copied."""
        deadline = time.monotonic() + PROGRESS_LIMIT_S
        at = self.copied
        while self.look() < count:
            if self.copied > at:
                at, deadline = self.copied, time.monotonic() + PROGRESS_LIMIT_S
            assert time.monotonic() < deadline, f"stuck at {self.copied} of {RECORDS}: {supervised.ends} {supervised.program.lines}"
            time.sleep(0.01)

    def close(self) -> None:
        self._consumer.close()


def written(data: Path) -> int:
    """Bytes in the logs of the copies."""
    return sum(path.stat().st_size for path in data.glob(f"{TO}-*/*.log"))


def wait_until_written(data: Path, size: int, supervised: Supervised) -> None:
    """Until there are so many: the quickest way to see it at work, without asking the broker."""
    deadline = time.monotonic() + PROGRESS_LIMIT_S
    while written(data) < size:
        assert time.monotonic() < deadline, f"stuck: {supervised.ends} {supervised.program.lines}"
        time.sleep(0.002)


@pytest.mark.parametrize("name", ["confluent-kafka", pytest.param("java", marks=pytest.mark.long)])
def test_each_record_is_copied_once_and_in_order(name: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("MOLDAU_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}: MOLDAU_SEED={seed} repeats the moments")
    chance = random.Random(seed)
    classes = tmp_path / "classes"
    classes.mkdir()
    program = PROGRAMS[name](classes)
    with ServerProcess(tmp_path / "data", settings=SETTINGS) as server:
        create_topics(server.bootstrap)
        progress = Progress(server.bootstrap)
        begun = time.monotonic()
        with Supervised([*program, server.bootstrap, FROM, TO, GROUP, "copier"]) as supervised:
            events = ["broker"] * BROKER_KILLS + ["program"] * PROGRAM_KILLS
            chance.shuffle(events)
            for number, event in enumerate(events):
                begin, end = (FIRST_PART * place // len(events) for place in (number, number + 1))
                size = written(server.data)
                fill(server.bootstrap, slice(begin, end))
                wait_until_written(server.data, size + chance.randrange(PARTITIONS * (end - begin)) * BYTES_LEAST, supervised)
                if event == "broker":
                    server.kill()
                    server.start()
                else:
                    supervised.kill()
            progress.wait_for(PARTITIONS * FIRST_PART // 2, supervised)
            raise_the_dead(supervised, progress, server.bootstrap)
            progress.wait_for(RECORDS, supervised)
            assert supervised.kills == PROGRAM_KILLS
            print(
                f"{BROKER_KILLS} kills of the broker, {PROGRAM_KILLS} of the program, {time.monotonic() - begun:.1f} s; {supervised.ends}"
            )
        progress.close()
        found = committed_values(server.bootstrap, TO, PARTITIONS)
        assert "Traceback" not in "".join(server.output)
    for partition in range(PARTITIONS):
        assert found[partition] == [b"copy of " + value for value in originals(partition)]


def raise_the_dead(supervised: Supervised, progress: Progress, bootstrap: str) -> None:
    """The program is stopped as by a long pause; its successor goes on to the end of what is there; when the first continues, it is fenced.

    The second part of the records comes only when both are members of the group again, so that there is something for it to try.
    """
    zombie = supervised.replace_by_another("ready", PROGRESS_LIMIT_S)
    supervised.wait_for("ready", PROGRESS_LIMIT_S)
    progress.wait_for(PARTITIONS * FIRST_PART, supervised)
    zombie.send(signal.SIGCONT)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 60
    while zombie.poll() is None and len(members_at_work(admin)) < 2:
        assert time.monotonic() < deadline, members_at_work(admin)
        time.sleep(0.05)
    fill(bootstrap, slice(FIRST_PART, None))
    assert zombie.wait(60) == FENCED, zombie.lines


def members_at_work(admin: Any) -> list[Any]:
    """Members that have partitions."""
    found = admin.describe_consumer_groups([GROUP])[GROUP].result(10)
    return [member for member in found.members if member.assignment and member.assignment.topic_partitions]
