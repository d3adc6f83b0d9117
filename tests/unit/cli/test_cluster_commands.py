"""`moldau cluster` where it can do nothing: one line that names what this command can change, and nothing written or started."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.adapters.process_identity import identity_of
from moldau.assembly.local_cluster.state import BrokerProcess, ClusterState, read_state, write_state
from moldau.cli import cluster_control
from moldau.cli.application import application
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import cluster as messages
from moldau.protocol.messages import configs, metadata
from support.scripted_broker import Request, ScriptedBroker


def run(command: str, directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(application, ["cluster", command, "--data", str(directory), *arguments])


def refused(command: str, directory: Path, *arguments: str) -> str:
    """The line of a command that has to fail."""
    result = run(command, directory, *arguments)
    assert result.exit_code == 1, result.output
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    return result.output.removeprefix("Error: ").rstrip("\n")


def put_cluster(directory: Path, *, process: str, supervisor: str, port: int = 1, has_served: bool = True) -> None:
    directory.mkdir(exist_ok=True)
    write_state(str(directory), ClusterState([BrokerProcess(1, "127.0.0.1", port, process, has_served)], supervisor))


@pytest.fixture
def ended() -> str:
    """The identity of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(child.pid)
    child.communicate()
    return identity


HERE = identity_of(os.getpid())

# The user


def test_processes_of_another_user_are_left_to_that_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_cluster(tmp_path, process=HERE, supervisor=HERE)

    def deny(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(cluster_control, "send_signal", deny)
    for command, name in (("kill", "SIGKILL"), ("pause", "SIGSTOP"), ("resume", "SIGCONT")):
        line = refused(command, tmp_path, "1")
        assert line.startswith(f"{tmp_path}: no permission to send {name} to broker 1, pid {os.getpid()}; run this command as the user ")
    monkeypatch.setattr(os, "open", deny)
    assert refused("restart", tmp_path, "1").startswith(f"{tmp_path}: no permission to restart broker 1; run this command as the user ")


def test_a_dead_broker_is_started_by_what_runs_or_could_run(tmp_path: Path, ended: str) -> None:
    put_cluster(tmp_path, process=ended, supervisor=HERE)
    assert refused("kill", tmp_path, "1") == f"broker 1 is dead; `moldau cluster restart 1 --data {tmp_path}` starts it again"
    put_cluster(tmp_path, process=ended, supervisor=ended)
    assert refused("kill", tmp_path, "1") == f"broker 1 is dead; `moldau cluster up --data {tmp_path}` starts the cluster again"


# Up


def files(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def test_the_directory_of_something_else_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    for name in ("meta.properties", "moldau-metadata.sqlite"):
        (tmp_path / name).touch()
    line = f"{tmp_path}: is the data directory of a broker (meta.properties, moldau-metadata.sqlite); choose another one with --data"
    assert refused("up", tmp_path) == line
    assert files(tmp_path) == ["meta.properties", "moldau-metadata.sqlite"]
    other = tmp_path / "other"
    other.mkdir()
    for name in ("a.py", "b.py", "c.py", "d.py", ".git"):
        (other / name).touch()
    line = f"{other}: is no directory of a cluster and not empty (a.py, b.py, c.py, ...); choose another one with --data"
    assert refused("up", other) == line
    assert files(other) == [".git", "a.py", "b.py", "c.py", "d.py"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("broker.id=5", "--set broker.id=5: not for all brokers; ids are 1 to --brokers"),
        ("node.id=5", "--set node.id=5: not for all brokers; ids are 1 to --brokers"),
        ("log.dirs=/x", "--set log.dirs=/x: not for all brokers; data is in --data"),
        (" log.dir =/x", "--set  log.dir =/x: not for all brokers; data is in --data"),
        ("listeners=PLAINTEXT://:1", "--set listeners=PLAINTEXT://:1: not for all brokers; --port chooses addresses"),
        ("advertised.listeners=PLAINTEXT://h:1", "advertised.listeners=PLAINTEXT://h:1: not for all brokers; --port chooses addresses"),
        ("metadata.store.file=/x", "--set metadata.store.file=/x: not for all brokers; --zookeeper chooses where"),
        ("zookeeper.connect=h:1", "--set zookeeper.connect=h:1: not for all brokers; --zookeeper chooses where"),
        ("retention.ms=3", "--set retention.ms=3: unknown configuration"),
        ("num.partitions=x", "--set num.partitions=x: "),
        ("num.partitions", "--set num.partitions: needs NAME=VALUE"),
    ],
)
def test_a_setting_that_is_not_one_for_all_brokers_is_refused(setting: str, reason: str, tmp_path: Path) -> None:
    result = run("up", tmp_path / "c", "--set", setting)
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split(" "))
    assert files(tmp_path) == []


def test_a_port_that_is_taken_is_named_with_the_option_for_others_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("up", tmp_path, "--brokers", "1", "--port", str(port))
    assert line.startswith(f"broker 1 cannot listen on 127.0.0.1:{port}: address already in use; ")
    assert line.endswith("or choose other ports with --port (0 picks free ones)")
    assert files(tmp_path) == ["cluster.lock"]
    assert read_state(str(tmp_path)) is None, "nothing is kept"


def test_a_cluster_whose_metadata_is_missing_does_not_start_over_without(tmp_path: Path, ended: str) -> None:
    put_cluster(tmp_path, process=ended, supervisor=ended)
    line = refused("up", tmp_path, "--port", "0")
    assert line == f"{tmp_path}/cluster.sqlite: is missing, with the metadata of this cluster's topics; restore it from a backup"


# Status


class StandIn:
    """A broker that is the cluster, with partitions as lists of leader, replicas and those in sync, by topic."""

    def __init__(self, broker: ScriptedBroker) -> None:
        broker.script = self.answer
        self.port = broker.port
        self.topics: Mapping[str, list[tuple[int, list[int], list[int]]]] = {}
        self.minimums: dict[str, int] = {}
        self.asked: list[str] = []

    def answer(self, request: Request) -> object:
        match request.api_key:
            case ApiKey.METADATA:
                here = metadata.MetadataResponseBroker(1, "127.0.0.1", self.port)
                return metadata.MetadataResponse(brokers=[here], cluster_id="c", controller_id=1)
            case ApiKey.DESCRIBE_CONFIGS:
                return configs.DescribeConfigsResponse(results=[self._configs(each) for each in request.message.resources])
            case _:
                return messages.DescribeTopicPartitionsResponse(
                    topics=[
                        messages.DescribeTopicPartitionsResponseTopic(
                            name=topic,
                            partitions=[
                                messages.DescribeTopicPartitionsResponsePartition(0, index, leader, 0, replicas, isr, [], [], [])
                                for index, (leader, replicas, isr) in enumerate(partitions)
                            ],
                        )
                        for topic, partitions in self.topics.items()
                    ]
                )

    def _configs(self, wanted: configs.DescribeConfigsResource) -> configs.DescribeConfigsResult:
        assert wanted.configuration_keys == ["min.insync.replicas"]
        self.asked.append(wanted.resource_name)
        entry = configs.DescribeConfigsResourceResult("min.insync.replicas", str(self.minimums[wanted.resource_name]))
        return configs.DescribeConfigsResult(0, None, wanted.resource_type, wanted.resource_name, [entry])


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandIn]:
    with ScriptedBroker() as broker:
        put_cluster(tmp_path, process=HERE, supervisor=HERE, port=broker.port)
        yield StandIn(broker)


def test_the_status_counts_partitions_under_the_minimum_which_counts_up_to_the_number_of_replicas(
    stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in.topics = {
        "whole": [(1, [1, 2, 3], [1, 2, 3])],
        "two": [(1, [1, 2, 3], [1, 2]), (1, [2, 1, 3], [1])],
        "strict": [(1, [1, 2], [1])],
        "lax": [(1, [1, 2], [1])],
    }
    stand_in.minimums = {"two": 2, "strict": 5, "lax": 1}
    result = run("status", tmp_path, "--json")
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert document["under_replicated"] == ["two-0", "two-1", "strict-0", "lax-0"]
    assert document["under_min_isr"] == ["two-1", "strict-0"]
    assert stand_in.asked == ["two", "strict", "lax"], "no other topic can be under it"
    assert "5 partitions, 4 under-replicated, 2 under min.insync.replicas, 0 offline\n" in run("status", tmp_path).output


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_status_fails_without_a_leader_or_a_broker_that_answers(
    options: list[str], stand_in: StandIn, tmp_path: Path, ended: str
) -> None:
    stand_in.topics = {"t": [(1, [1], [1])]}
    assert run("status", tmp_path, *options).exit_code == 0
    stand_in.topics = {"t": [(1, [1], [1]), (-1, [1], [1])]}
    assert run("status", tmp_path, *options).exit_code == 1
    put_cluster(tmp_path, process=ended, supervisor=ended)
    result = run("status", tmp_path, *options)
    assert result.exit_code == 1
    assert ('"partitions": null' if options else "no broker answers") in result.output
