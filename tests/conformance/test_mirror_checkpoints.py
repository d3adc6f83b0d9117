"""Kafka's `RemoteClusterUtils` read where a group continues from our checkpoints, as from those of MirrorMaker 2."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Where

from support.java import compile_java, java_command
from support.java_programs import SOURCES
from support.maven import connect_libraries
from support.mirror_groups import COPY, LIMIT_S, MERGE, PARTITIONS, RECORDS, GroupsWorld, eventually

pytestmark = pytest.mark.system

KAFKA = "4.3.0"


@pytest.mark.parametrize(
    ("text", "source"), [pytest.param(COPY, "source", id="copy", marks=pytest.mark.long), pytest.param(MERGE, "east", id="merge")]
)
def test_java_reads_where_a_group_continues(tmp_path: Path, text: str, source: str) -> None:
    libraries = connect_libraries(KAFKA)
    classes = compile_java(libraries, tmp_path, SOURCES / "RemoteOffsets.java")

    def read_by_java(world: GroupsWorld, group: str) -> list[str]:
        command = java_command(libraries, "-Dlog4j2.level=ERROR", "RemoteOffsets", classes=classes)
        done = subprocess.run(
            [*command, world.target.bootstrap_servers, source, group], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.replace("\0", "").splitlines()  # confluent-kafka commits texts with the NUL that ends them in C

    with GroupsWorld(tmp_path, text) as world:
        world.produce(range(RECORDS))
        world.mirrors[0].start()
        eventually(lambda: world.is_mirrored, "everything is mirrored")
        # one that has only committed, and one that has a member in the target, which no checkpoint minds
        for number in range(PARTITIONS):
            world.commit(world.source, "orders", "billing", 20 + number, number, metadata="größe")
        world.commit(world.source, "orders", "working", 50)
        eventually(lambda: world.committed("billing", PARTITIONS - 1) > 0 < world.committed("working"), "the groups are mirrored")
        places = [world.committed("billing", number) for number in range(PARTITIONS)]
        assert read_by_java(world, "billing") == [
            *(f"{world.topic}-{number} {place} größe" for number, place in enumerate(places)),
            f"[{source}.checkpoints.internal]",
        ]
        consumer: Consumer = world.consumer(world.target, "working")
        consumer.subscribe([world.topic])
        eventually(lambda: bool(consumer.poll(0.1)) and bool(consumer.assignment()), "it has a partition")
        world.commit(world.source, "orders", "working", 100)
        world.commit(world.source, "orders", "billing", 100)
        eventually(lambda: world.committed("billing") > places[0], "the groups are mirrored")
        assert read_by_java(world, "working")[0] == f"{world.topic}-0 {world.committed('billing')} "
        assert [each.offset for each in consumer.committed([Where(world.topic, 0)], LIMIT_S)] != [world.committed("billing")]
        consumer.close()
        assert read_by_java(world, "unknown") == [f"[{source}.checkpoints.internal]"]
