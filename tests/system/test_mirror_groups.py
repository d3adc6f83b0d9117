"""Committed offsets come along with a mirror: a group continues in the target where it was, and no group that works there is disturbed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Where

from support.console import ConsoleInside
from support.mirror_groups import COPY, LIMIT_S, MERGE, PARTITIONS, RECORDS, GroupsWorld, eventually, read

pytestmark = pytest.mark.system


@pytest.fixture(params=[pytest.param(COPY, id="copy", marks=pytest.mark.long), pytest.param(MERGE, id="merge")])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GroupsWorld]:
    with GroupsWorld(tmp_path, request.param) as found:
        yield found


def test_a_group_that_has_read_half_of_it_reads_the_other_half_in_the_target(world: GroupsWorld) -> None:
    world.produce(range(RECORDS))
    world.mirrors[0].start()
    eventually(lambda: world.is_mirrored, "everything is mirrored")
    consumer = world.consumer(world.source, "billing")
    beginning = [Where("orders", number, 0) for number in range(PARTITIONS)]
    consumer.commit(offsets=beginning, asynchronous=False)
    consumer.assign(beginning)
    first = read(consumer, RECORDS // 2)
    at = {each.partition: each.offset for each in consumer.committed([Where("orders", number) for number in range(PARTITIONS)], LIMIT_S)}
    consumer.close()
    world.a_round_begins_and_ends()
    assert world.mirrors[0].stop() == 0

    consumer = world.consumer(world.target, "billing")
    consumer.subscribe([world.topic])
    second = read(consumer, RECORDS - len(first))
    assert consumer.consume(1, 1.0) == [], "none comes again"
    consumer.close()
    assert sorted(map(int, first + second)) == list(range(RECORDS))
    if world.topic == "orders":
        assert all(offset <= world.committed("billing", number) for number, offset in at.items())


def test_nothing_is_committed_beyond_what_is_mirrored(world: GroupsWorld) -> None:
    world.produce(range(RECORDS))
    world.mirrors[0].start()
    eventually(lambda: world.is_mirrored, "everything is mirrored")
    world.commit(world.source, "orders", "eager", 10_000)
    world.a_round_begins_and_ends()
    committed = world.committed("eager")
    assert 0 < committed <= world.end()
    # what is mirrored later is read by the group: its place is not after that
    world.produce(range(RECORDS, RECORDS + 30))
    eventually(lambda: world.end() > committed, "more is mirrored")
    consumer = world.consumer(world.target, "judge")
    consumer.assign([Where(world.topic, 0, committed)])
    assert int(read(consumer, 1)[0]) >= RECORDS
    consumer.close()


def test_a_group_that_works_in_the_target_is_left_alone(world: GroupsWorld) -> None:
    world.produce(range(RECORDS))
    world.mirrors[0].start()
    eventually(lambda: world.is_mirrored, "everything is mirrored")
    world.commit(world.source, "orders", "billing", 50)
    for number in range(1, PARTITIONS):
        world.commit(world.source, "orders", "billing", 0, number)
    eventually(lambda: world.committed("billing") > 0 <= world.committed("billing", PARTITIONS - 1), "it is mirrored")
    before = world.committed("billing")

    # it has a member in the target, which is slower than the one in the source
    consumer = world.consumer(world.target, "billing")
    consumer.subscribe([world.topic])
    read(consumer, 1)
    world.commit(world.source, "orders", "billing", 100)
    world.commit(world.source, "orders", "another", 100)
    eventually(lambda: world.committed("another") > 0, "other groups are mirrored")
    world.a_round_begins_and_ends()
    assert world.groups()["with_members_in_target"] == 1
    assert before <= world.committed("billing") <= before + 1, "only its own commit has changed that"
    consumer.close()
    eventually(lambda: world.committed("billing") == world.committed("another"), "without members it follows again")

    # and what it has done there itself is never taken back
    world.commit(world.target, world.topic, "billing", world.end())
    world.commit(world.source, "orders", "billing", 120)
    world.commit(world.source, "orders", "another", 120)
    before = world.committed("another")
    eventually(lambda: world.committed("another") > before, "other groups are mirrored")
    world.a_round_begins_and_ends()
    assert world.committed("billing") == world.end()


def test_a_group_that_fails_fails_alone(world: GroupsWorld) -> None:
    world.produce(range(RECORDS))
    world.mirrors[0].start()
    eventually(lambda: world.is_mirrored, "everything is mirrored")
    # the target takes 4096 bytes of metadata, the source more
    world.commit(world.source, "orders", "broken", 50, metadata="x" * 5000)
    for group in ("before", "zebra"):
        world.commit(world.source, "orders", group, 50, metadata="kept")
    eventually(lambda: world.committed("before") > 0 < world.committed("zebra"), "the others are mirrored")
    eventually(lambda: bool(world.groups()["failures"]), "its failure is in the status")
    (failure,) = world.groups()["failures"]
    assert failure["group"] == "broken"
    assert "offset metadata too large" in failure["reason"]
    assert world.committed("broken") < 0
    consumer = world.consumer(world.target, "before")
    assert consumer.committed([Where(world.topic, 0)], LIMIT_S)[0].metadata == "kept"
    consumer.close()
    world.commit(world.source, "orders", "broken", 50)
    eventually(lambda: world.committed("broken") == world.committed("zebra"), "it is mirrored when it can be")
    eventually(lambda: not world.groups()["failures"], "and the failure is over")


def test_another_process_takes_over(world: GroupsWorld) -> None:
    world.produce(range(RECORDS))
    for each in world.mirrors:
        each.start()
    eventually(lambda: world.is_mirrored and world.status()["groups"] is not None, "everything is mirrored")
    world.commit(world.source, "orders", "billing", 50)
    eventually(lambda: world.committed("billing") > 0, "the group is mirrored")
    eventually(lambda: world.groups().get("process") == "a", "the first one by name does it, once both are there")
    before = world.committed("billing")
    world.mirrors[0].kill()
    world.commit(world.source, "orders", "billing", 100)
    eventually(lambda: world.committed("billing") > before, "the other one has taken over")
    eventually(lambda: world.groups()["process"] == "b", "and reports it")


def test_nothing_is_committed_in_a_topic_that_was_promoted(tmp_path: Path) -> None:
    """Claim: what clients write after a promotion has offsets that name other records in the source."""
    with GroupsWorld(tmp_path, COPY) as world:
        world.produce(range(RECORDS))
        world.mirrors[0].start()
        eventually(lambda: world.is_mirrored, "everything is mirrored")
        world.commit(world.source, "orders", "billing", 50)
        eventually(lambda: world.committed("billing") == 50, "the group is mirrored")
        assert ConsoleInside()("mirror", "promote", str(world.file), "--now").code == 0
        world.commit(world.source, "orders", "billing", 100)
        world.a_round_begins_and_ends()
        assert world.committed("billing") == 50
        assert world.groups()["failures"] == []
