"""A log moves between the directories of a real broker while a producer writes: nothing acknowledged is lost or doubled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.client.connection import BrokerConnection
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.cluster import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic, DescribeLogDirsRequest
from support.console import Console
from support.local_cluster import wait_for
from support.server import ServerProcess
from support.steady_producer import SteadyProducer

pytestmark = pytest.mark.system

TOPIC = "moved"
MOVES = 6


class World:
    """A broker with two directories, and a topic with one partition."""

    def __init__(self, directory: Path, server: ServerProcess) -> None:
        self.server = server
        self.paths = [str(directory / name) for name in ("first", "second")]
        Console(server.bootstrap).ok("topic", "create", TOPIC, "--partitions", "1")

    def _ask(self, api_key: ApiKey, message: Any) -> Any:
        host, _, port = self.server.bootstrap.rpartition(":")
        with BrokerConnection(host, int(port), timeout_s=30) as connection:
            return connection.request(api_key, message)

    def found(self) -> dict[str, bool]:
        """Directories that have it; whether that is a copy."""
        described = self._ask(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None))
        return {
            result.log_dir: each.is_future_key
            for result in described.results
            for topic in result.topics
            if topic.name == TOPIC
            for each in topic.partitions
        }

    def move(self) -> str:
        """Have it moved to the other directory; which that is."""
        (here,) = (path for path, is_future in self.found().items() if not is_future)
        (there,) = {*self.paths} - {here}
        wanted = [AlterReplicaLogDir(there, [AlterReplicaLogDirTopic(TOPIC, [0])])]
        self._ask(ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequest(wanted))
        return there


@pytest.fixture(params=[{}, {"log.flush.interval.messages": "1"}], ids=["written", "flushed"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ServerProcess(tmp_path / "first", settings=request.param, arguments=["--data", str(tmp_path / "second")]) as server:
        yield World(tmp_path, server)


def test_a_log_moves_to_and_fro_while_a_producer_writes(world: World) -> None:
    with SteadyProducer(world.server.bootstrap, TOPIC) as producer:
        for _ in range(MOVES):
            producer.wait_further()
            there = world.move()
            wait_for(lambda there=there: world.found() == {there: False})  # type: ignore[misc]
        producer.wait_further()
    producer.assert_nothing_lost_or_doubled()


def test_a_broker_that_is_killed_while_a_log_moves_has_all_of_it_after_a_start(world: World) -> None:
    with SteadyProducer(world.server.bootstrap, TOPIC) as producer:
        for _ in range(MOVES):
            producer.wait_further()
            world.move()
            world.server.kill()
            world.server.start()
            assert list(world.found().values()) == [False]
        producer.wait_further()
    producer.assert_nothing_lost_or_doubled()
