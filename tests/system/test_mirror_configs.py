"""Configurations and partitions of topics come along with a mirror after the topics were made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.console import ConsoleInside
from support.mirror_groups import COPY, MERGE, PARTITIONS, GroupsWorld, eventually

pytestmark = pytest.mark.system

SYNC = "\nsync.interval.ms = 200\n"


@pytest.fixture(params=[pytest.param(COPY + SYNC, id="copy", marks=pytest.mark.long), pytest.param(MERGE + SYNC, id="merge")])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GroupsWorld]:
    with GroupsWorld(tmp_path, request.param) as found:
        yield found


def configs(world: GroupsWorld) -> dict[str, str]:
    """Those that are set for the topic in the target, without the one of a copy."""
    console = ConsoleInside(world.target.bootstrap_servers)
    found = console.ok("config", "describe", "--topic", world.topic, "--json").json
    return {each["name"]: each["value"] for each in found if each["name"] != "mirror.source"}


def test_configurations_follow_the_source(world: GroupsWorld) -> None:
    source = ConsoleInside(world.source.bootstrap_servers)
    source.ok("topic", "alter", "orders", "-c", "retention.ms=1000000")
    world.produce(range(30))
    world.mirrors[0].start()
    eventually(lambda: world.is_mirrored, "everything is mirrored")
    assert configs(world) == {"retention.ms": "1000000"}

    # what is changed later is set, and what the file excludes is not
    source.ok("topic", "alter", "orders", "-c", "retention.ms=2000000", "-c", "segment.ms=3000000", "-c", "min.insync.replicas=2")
    eventually(lambda: configs(world) == {"retention.ms": "2000000", "segment.ms": "3000000"}, "they are set in the target")

    # a configuration of the target's own stays in a merge
    ConsoleInside(world.target.bootstrap_servers).ok("topic", "alter", world.topic, "-c", "max.message.bytes=2000000")
    source.ok("topic", "alter", "orders", "--delete-config", "segment.ms")
    source.ok("topic", "alter", "orders", "-c", "retention.ms=4000000")
    expected = {"retention.ms": "4000000"}
    if "merge" in world.file.read_text():
        expected |= {"segment.ms": "3000000", "max.message.bytes": "2000000"}
    eventually(lambda: configs(world) == expected, "a copy is as its source")
    assert world.status()["configs"]["refused"] == 0


def test_partitions_that_are_added_are_mirrored(world: GroupsWorld) -> None:
    world.produce(range(30))
    world.mirrors[0].start()
    eventually(lambda: world.is_mirrored, "everything is mirrored")
    ConsoleInside(world.source.bootstrap_servers).ok("topic", "alter", "orders", "--partitions", str(PARTITIONS + 1))
    producer = Producer({"bootstrap.servers": world.source.bootstrap_servers})
    producer.produce("orders", b"new", partition=PARTITIONS)
    assert producer.flush(10) == 0
    eventually(lambda: world.status()["totals"]["partitions"] == PARTITIONS + 1 and world.end(PARTITIONS) > 0, "the new one is mirrored")
    world.commit(world.source, "orders", "billing", 1, PARTITIONS)
    eventually(lambda: world.committed("billing", PARTITIONS) > 0, "and its offsets")
