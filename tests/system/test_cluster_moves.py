"""Leaders and replicas move in a cluster of three real brokers while a producer writes: nothing acknowledged is lost or doubled."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.cli.application import application
from support.local_cluster import LocalCluster, wait_for
from support.steady_producer import SteadyProducer

pytestmark = pytest.mark.system


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "c", "--port", "0").up() as cluster:
        yield cluster


def run(cluster: LocalCluster, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(application, [*arguments, "--bootstrap", cluster.bootstrap])
    assert result.exit_code == code, result.output
    return result


def create(cluster: LocalCluster, topic: str, partitions: int, replicas: int) -> None:
    run(cluster, "topic", "create", topic, "--partitions", str(partitions), "--replication-factor", str(replicas))


def wait_leaders(cluster: LocalCluster, are_right: Callable[[list[int]], bool]) -> None:
    """Until the leaders of all partitions are so: a broker learns of a change after the controller has made it."""
    wait_for(lambda: (found := cluster.status()["partitions"]) is not None and are_right([each["leader"] for each in found]))


def are_even(leaders: list[int]) -> bool:
    counts = [leaders.count(broker_id) for broker_id in (1, 2, 3)]
    return max(counts) - min(counts) <= 1


def test_leaders_and_replicas_move_while_a_producer_writes(cluster: LocalCluster) -> None:
    create(cluster, "moved", 1, 2)
    create(cluster, "even", 6, 3)
    with SteadyProducer(cluster.bootstrap, "moved") as producer:
        producer.wait_further()
        first, second = cluster.wait_in_sync("moved", 2)["replicas"]
        (third,) = {1, 2, 3} - {first, second}

        run(cluster, "broker", "drain", str(first), "--wait", "120")
        wait_leaders(cluster, lambda leaders: first not in leaders)
        cluster.wait_replicas("moved", [second, first])  # it remains a follower
        producer.wait_further()

        file = json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [third, second]}]})
        path = cluster.directory / "moves.json"
        path.write_text(file)
        moved = run(cluster, "partition", "reassign", str(path), "--wait", "120", "--throttle", "100000000")
        assert "throttle removed" in moved.stderr
        cluster.wait_replicas("moved", [third, second])
        assert run(cluster, "partition", "reassign", str(path), "--verify").stdout == "1 of 1 reassignment completed\n"
        producer.wait_further()

        run(cluster, "partition", "balance", "--wait", "120")
        wait_leaders(cluster, are_even)
        producer.wait_further()
    producer.assert_nothing_lost_or_doubled()


def test_replicas_of_a_dead_broker_move_to_one_that_lives_and_what_was_only_there_is_named(cluster: LocalCluster) -> None:
    create(cluster, "kept", 1, 2)
    create(cluster, "alone", 3, 1)
    dead, other = cluster.wait_in_sync("kept", 2)["replicas"]
    cluster.kill(dead)
    wait_for(lambda: (found := cluster.partition("kept")) is not None and found["leader"] == other)
    (third,) = {1, 2, 3} - {dead, other}
    run(cluster, "broker", "drain", str(dead), "--replicas", "--wait", "1", code=1)
    cluster.wait_replicas("kept", [other, third])
    refused = run(cluster, "broker", "drain", str(dead), "--replicas", "--wait", "1", code=1)
    (lost,) = (each for each in cluster.status()["partitions"] if each["topic"] == "alone" and each["leader"] is None)
    assert refused.stderr.endswith(f"Error: partition alone-{lost['partition']} still moves\n"), "it is copied when the broker comes back"
    missing = run(cluster, "partition", "reassign", "--topic", "kept", "--brokers", f"{dead},{other}", code=1)
    assert f"broker {dead} is not live" in missing.stderr
