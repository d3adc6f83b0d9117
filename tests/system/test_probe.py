"""A probe finds brokers and mirrors available, and notices when they are not (missions J1, G2)."""

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from support.console import Console
from support.local_cluster import LocalCluster
from support.mirror_world import LIMIT_S, MirrorWorld

pytestmark = pytest.mark.system


def test_brokers_and_mirrors_are_measured_and_their_absence_too(tmp_path: Path) -> None:
    with MirrorWorld(tmp_path) as world:
        source, target = Console(world.source.bootstrap_servers), Console(world.target.bootstrap_servers)
        # of the broker alone
        done = source.ok("probe", "--once", "--interval", "1", "--rate", "20", "--json")
        (broker,) = done.json["brokers"]
        assert broker["availability"] == 1.0
        assert broker["probes"] >= 10
        assert 0 < broker["p50_ms"] <= broker["p99_ms"]
        assert broker["end_to_end"]["p50_ms"] > 0

        # and over a mirror, once it has found the topic
        mirror = world.mirror(world.file("merge", topics=["_probe"], naming="topic"))
        end = time.monotonic() + LIMIT_S
        while "_probe" not in target("topic", "list", "--internal").out:
            assert time.monotonic() < end
            time.sleep(0.2)
        edge = ("--mirror", world.target.bootstrap_servers)
        done = source.ok("probe", "--once", "--interval", "3", "--rate", "10", *edge)
        assert f"mirror to {world.target.bootstrap_servers}: 100.0% of " in done.out

        # without the mirror the broker is available, and the way over the mirror is not
        mirror.kill()
        done = source("probe", "--once", "--interval", "3", "--mirror-limit", "1", *edge, "--json")
        assert done.code == 1
        assert done.json["brokers"][0]["availability"] == 1.0
        assert done.json["mirrors"][0]["availability"] == 0.0

        # where the interval is shorter than a probe may take, the end waits until one has arrived or is lost
        done = source("probe", "--once", "--interval", "1", "--mirror-limit", "3", *edge)
        assert done.code == 1
        assert "no probe has ended" in done.out.splitlines()[1]
        assert "0.0% of " in done.out.splitlines()[-1]


def test_a_broker_that_is_away_is_not_available_and_the_others_are(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", "--brokers", "2", "--port", "0").up()
    try:
        probe = ("probe", "--bootstrap", cluster.bootstrap, "--once", "--json", "--interval")

        def shares(interval: str) -> tuple[int, dict[int, float]]:
            done = Console()(*probe, interval)
            return done.code, {each["broker"]: each["availability"] for each in done.json["brokers"]}

        # each broker gets a partition of its own
        assert shares("2") == (0, {1: 1.0, 2: 1.0})
        # one is killed
        assert CliRunner().invoke(application, ["cluster", "kill", "2", "--data", str(cluster.directory)]).exit_code == 0
        assert shares("2") == (1, {1: 1.0, 2: 0.0})
        # and is back
        assert CliRunner().invoke(application, ["cluster", "restart", "2", "--data", str(cluster.directory)]).exit_code == 0
        end = time.monotonic() + LIMIT_S
        while shares("2") != (0, {1: 1.0, 2: 1.0}):
            assert time.monotonic() < end
    finally:
        cluster.down()
