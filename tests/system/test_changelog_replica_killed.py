"""A replica that is killed at random points is in the end what its source is (mission I5): 6 kills of each store, 30 in
torture size; fewer of Delta, whose commits take longer."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from moldau.changelog import Replica, compare
from moldau.testing import Broker
from support import changelog_replica_process
from support.changelog_source import COMPACTING, TABLES, RandomSource
from support.sizes import sized

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS = {"sqlite": sized(6, 30), "duckdb": sized(6, 30), "delta": sized(1, 10)}
PROGRAM = Path(changelog_replica_process.__file__)


@pytest.mark.parametrize("kind", KILLS)
def test_a_killed_replica_misses_nothing_and_applies_nothing_twice(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "replica.db"
    with Broker(settings=COMPACTING) as broker, RandomSource(broker.bootstrap_servers, "killed", seed=7) as source:
        source.commit()
        for _ in range(KILLS[kind]):
            command = [sys.executable, str(PROGRAM), broker.bootstrap_servers, "killed", kind, str(path)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline(), "the replica has a position"
                end = time.monotonic() + source.random.random() * 1.5
                while time.monotonic() < end:
                    source.commit()
                    if source.random.random() < 0.02:
                        source.large_commit(source.random.randrange(2), 1000)
                assert process.poll() is None, "it runs until it is killed"
                process.kill()
        store = changelog_replica_process.store_of(kind, str(path))
        with Replica(broker.bootstrap_servers, "killed", store) as replica:
            for shard, number in source.numbers.items():
                assert replica.wait_for(shard, number, 120.0).commit == number
                for table in TABLES:
                    differences = [str(each) for each in compare(source.model, store, shard, table.name)]
                    assert differences == []
