"""`moldau cluster up` runs brokers that are one cluster, and leaves no process behind; the commands beside it let brokers fail."""

import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.adapters.process_identity import has_ended
from moldau.assembly.local_cluster.state import existing_state
from moldau.cli.application import application
from moldau.client.cluster import Cluster
from support.local_cluster import LocalCluster, wait_for
from support.supervised import Program

pytestmark = pytest.mark.system


def processes(cluster: LocalCluster) -> list[str]:
    return [each.process for each in existing_state(str(cluster.directory)).brokers]


def wait_ended(identities: list[str]) -> None:
    wait_for(lambda: all(map(has_ended, identities)))


def test_all_brokers_know_each_other_when_it_says_that_they_listen_and_a_signal_ends_all(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", "--port", "0").up() as cluster:
        addresses = cluster.bootstrap.split(",")
        for address in addresses:
            with Cluster(address) as one:
                known = one.metadata([]).brokers
                assert [f"{host}:{port}" for _, (host, port) in sorted(known.items())] == addresses
        status = cluster.status()
        assert [(each["id"], each["address"], each["state"]) for each in status["brokers"]] == [
            (number, address, "up") for number, address in enumerate(addresses, 1)
        ]
        assert status["controller"] in (1, 2, 3)
        begun = processes(cluster)
        assert cluster.down() == 0
        assert all(map(has_ended, begun))
        assert cluster.states() == {1: "dead", 2: "dead", 3: "dead"}
        logs = cluster.logs()
        assert logs.count("moldau.assembly.process stopped") == 3, "each has stopped in order"


def test_the_next_one_finds_topics_records_and_ports_also_after_it_was_killed_with_all_its_brokers(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", "--brokers", "2").up("--port", "0", "--set", "num.partitions=2") as cluster:
        addresses = cluster.bootstrap
        run("topic", "create", "kept", "--partitions", "1", "--bootstrap", addresses)
        run("produce", "kept", "--bootstrap", addresses, given="one\ntwo\n")
        assert sorted(cluster.wait_in_sync("kept", 2)["replicas"]) == [1, 2], "as many replicas as there are brokers, up to 3"
        begun = processes(cluster)
        cluster.pause(1)
        cluster.kill_supervisor()
        wait_ended(begun)
        cluster.up()
        assert cluster.bootstrap == addresses
        assert run("consume", "kept", "--until-end", "--bootstrap", addresses) == "one\ntwo\n"
        run("topic", "create", "later", "--bootstrap", addresses)
        assert wait_for(lambda: cluster.partition("later", 1)), "settings are kept, too"


def test_a_broker_that_ends_is_reported_and_stays_down_until_it_is_started_again(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", "--brokers", "2", "--port", "0").up() as cluster:
        cluster.kill(2)
        assert cluster.states() == {1: "up", 2: "dead"}
        wait_for(lambda: any(line.startswith("broker 2 ended, by SIGKILL; 1 of 2 brokers run;") for line in cluster.lines))
        refused = CliRunner().invoke(application, ["cluster", "pause", "2", "--data", str(cluster.directory)])
        assert (refused.exit_code, refused.output) == (
            1,
            f"Error: broker 2 is dead; `moldau cluster restart 2 --data {cluster.directory}` starts it again\n",
        )
        before = processes(cluster)
        cluster.restart(2)
        assert cluster.states() == {1: "up", 2: "up"}
        cluster.pause(1)
        assert cluster.states() == {1: "paused", 2: "up"}
        cluster.resume(1)
        cluster.restart(1)
        assert cluster.states() == {1: "up", 2: "up"}
        assert not {*processes(cluster)} & {*before}
        assert cluster.logs().count("moldau.assembly.process stopped") == 1, "one that runs is stopped in order"
        assert cluster.down() == 0


def test_a_broker_that_cannot_start_ends_all(tmp_path: Path) -> None:
    """And what was chosen then does not count."""
    directory = tmp_path / "c"
    (directory / "brokers").mkdir(parents=True)
    (directory / "brokers" / "2").touch()
    command = ["-m", "moldau.cli.main", "cluster", "up", "--data", str(directory), "--port", "0", "--brokers", "2"]
    program = Program([sys.executable, *command])
    assert program.wait() == 1
    (line,) = program.lines
    assert line == f"Error: broker 2 ended at its start, with exit code 1: {directory}/brokers/2: is a file, not a directory\n"
    wait_for(lambda: all(map(has_ended, [each.process for each in existing_state(str(directory)).brokers])))
    with LocalCluster(directory).up("--port", "0", "--brokers", "1") as cluster:
        assert cluster.states() == {1: "up"}


def test_one_directory_has_one_cluster(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", "--brokers", "1", "--port", "0").up() as cluster:
        second = CliRunner().invoke(application, ["cluster", "up", "--data", str(cluster.directory)])
        assert (second.exit_code, second.output) == (1, f"Error: {cluster.directory}: `moldau cluster up` runs here already\n")
        begun = processes(cluster)
        cluster._program.send(signal.SIGINT)
        assert cluster._program.wait() == 0
        assert all(map(has_ended, begun))


def run(*arguments: str, given: str | None = None) -> str:
    """The standard output of a command that has to succeed."""
    result = CliRunner().invoke(application, list(arguments), input=given)
    assert result.exit_code == 0, result.output
    return result.stdout
