"""A mirror has each record once, in its order, whatever is killed at whatever moment (missions F3, G1)."""

import os
import random
import time
from pathlib import Path

import pytest

from support.console import Console
from support.mirror_world import LIMIT_S, PARTITIONS, MirrorProgram, MirrorWorld, Seen, Writers, committed_end

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS = 60 if os.environ.get("MOLDAU_TORTURE") else 6
MERGE = """
name = "aggregate"
mode = "merge"
naming = "source.topic"

[sources.east]
bootstrap.servers = "{source}"

[target]
bootstrap.servers = "{target}"

[topics]
include = ["orders"]
"""
COPY = """
name = "standby"
mode = "copy"

[source]
bootstrap.servers = "{source}"

[target]
bootstrap.servers = "{target}"

[topics]
include = ["orders"]
"""


def without_offsets(seen: dict[int, Seen]) -> dict[int, Seen]:
    return {number: [each[1:] for each in records] for number, records in seen.items()}


@pytest.mark.parametrize(
    ("file", "topic", "keeps_offsets"),
    [pytest.param(MERGE, "east.orders", False, id="merge"), pytest.param(COPY, "orders", True, id="copy")],
)
def test_nothing_is_lost_or_doubled_by_kills_of_mirror_source_and_target(
    tmp_path: Path, file: str, topic: str, keeps_offsets: bool
) -> None:
    seed = random.randrange(1 << 32)
    drawn = random.Random(seed)
    with MirrorWorld(tmp_path) as world:
        # a topic of the source is written all the time: plain records, transactions, some of them aborted
        Console(world.source.bootstrap).ok("topic", "create", "orders", "--partitions", str(PARTITIONS))
        mirror = MirrorProgram(world.file(file))
        mirror.start()
        with Writers(world.source.bootstrap, "orders", seed) as writers:
            # meanwhile the mirror, its source and its target are killed in turn, and started again
            for number in range(KILLS):
                time.sleep(drawn.uniform(0.3, 1.5))
                victim = (mirror, world.source, world.target)[number % 3]
                victim.kill()
                victim.start()
            time.sleep(1)
        acknowledged = writers.acknowledged
        assert acknowledged > 1_000, "writers that write nothing prove nothing"

        # then the target has what committed readers of the source see, in each partition in its order, and nothing else; a copy at the
        # same offsets
        expected = committed_end(world.source.bootstrap, "orders")
        if not keeps_offsets:
            expected = without_offsets(expected)
        limit = time.monotonic() + LIMIT_S
        while True:
            found = committed_end(world.target.bootstrap, topic)
            if not keeps_offsets:
                found = without_offsets(found)
            if found == expected or time.monotonic() > limit:
                break
            counts = [(len(found[number]), len(expected[number])) for number in expected]
            assert all(mine <= theirs for mine, theirs in counts), f"seed {seed}: more in the target than in the source: {counts}"
            time.sleep(0.2)
        assert found == expected, f"seed {seed}, see {mirror.log}"
        assert mirror.stop() == 0
        print(f"{KILLS} kills, {sum(map(len, expected.values()))} records, 0 lost, 0 doubled")
