"""A record never returns to a cluster that it came from, whatever ring the mirrors make and whatever is killed (missions F3, G1)."""

import os
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom

import pytest
from confluent_kafka import Producer

from support.mirror_load import Writers
from support.mirror_ring import TOPIC, Ring
from support.mirror_thread import wait_for
from support.mirror_world import PARTITIONS

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS = 40 if os.environ.get("MOLDAU_TORTURE") else 3


@pytest.mark.parametrize(
    ("names", "partitioning"),
    [
        pytest.param(["east", "west"], "same", id="two that mirror each other", marks=pytest.mark.long),
        pytest.param(["east", "west", "north"], "key", id="a ring of three"),
    ],
)
def test_each_cluster_has_each_record_once(tmp_path: Path, names: list[str], partitioning: str) -> None:
    seed = SystemRandom().randrange(1 << 32)
    drawn = Random(seed)
    with Ring(tmp_path, names, partitioning) as ring:
        # each cluster has producers of its own, before the mirrors run, while they do and while mirrors and brokers are killed
        writers = [Writers(cluster.bootstrap_servers, TOPIC, drawn.randrange(1 << 32), name) for name, cluster in ring.clusters.items()]
        with ExitStack() as writing:
            for each in writers:
                writing.enter_context(each)
            time.sleep(0.5)
            ring.start_mirrors()
            for _ in range(KILLS):
                time.sleep(drawn.uniform(0.3, 1.5))
                ring.kill_one(drawn)

        # what was acknowledged arrives everywhere, and what comes after it in each partition, too
        acknowledged = {value for each in writers for value in each.values}
        assert len(acknowledged) > 300 * len(names), "writers that write nothing prove nothing"
        last = set()
        for name, cluster in ring.clusters.items():
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
            for number in range(PARTITIONS):
                last.add(value := f"last {number} of {name}".encode())
                producer.produce(TOPIC, value, key="last", partition=number)
            assert producer.flush(30) == 0

        def missing() -> dict[str, int]:
            return {name: len((acknowledged | last) - ring.found(name).keys()) for name in names}

        try:
            wait_for(lambda: not any(missing().values()), f"records are missing, seed {seed}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {missing()} of {len(acknowledged | last)}") from None

        # and each cluster has the same records, each once
        found = [ring.found(name) for name in names]
        for name, values in zip(names, found, strict=True):
            assert set(values.values()) == {1}, f"{name} has records twice, seed {seed}: {values.most_common(5)}"
            assert values.keys() == found[0].keys(), f"{name} and {names[0]} differ, seed {seed}"
        print(f"{len(names)} clusters, {KILLS} kills, {len(found[0])} records in each, none twice")
