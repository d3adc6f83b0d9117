"""The process that compacts: there while there is something to do, of the lowest priority, never in its server's way (mission E2)."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from support.server import ServerProcess

pytestmark = pytest.mark.system

LIMIT_S = 90.0
TOPIC = "compacted"
SLOW = {"log.cleaner.backoff.ms": "20", "log.cleaner.io.max.bytes.per.second": "3000000"}
"""A pass over what is filled in takes two seconds for the map and four for the rest."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with in_a_pass(tmp_path / "data", SLOW) as running:
        yield running


@contextlib.contextmanager
def in_a_pass(data: Path, settings: dict[str, str]) -> Iterator[ServerProcess]:
    """A server whose worker has written a part of what is going to be new segments, in a pass over all that there is."""
    with ServerProcess(data, settings=settings) as running:
        with Cluster(running.bootstrap) as cluster:
            admin, config = Admin(cluster), {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
            admin.create_topic(TOPIC, 1, configs=config)
            fill(running, 6)
            admin.alter_configs(AdminResource(AdminResourceType.TOPIC, TOPIC), ConfigUpdate({"cleanup.policy": "compact"}))
        wait_until(lambda: bool(children(running.pid)) and cleaned_files(running) != [], "a pass has begun")
        yield running


def fill(server: ServerProcess, megabytes: int) -> None:
    host, _, port = server.bootstrap.rpartition(":")
    with BrokerConnection(host, int(port)) as connection:
        for number in range(megabytes * 50):
            builder = RecordBatchBuilder()
            for each in range(20):
                builder.append(1_700_000_000_000, b"%d" % (number * 20 + each), b"v" * 1000)
            data = [PartitionProduceData(0, builder.build())]
            answer = connection.request(
                ApiKey.PRODUCE, ProduceRequest(None, 1, 30_000, [TopicProduceData(TOPIC, partition_data=data)]), version=9
            )
            assert answer.responses[0].partition_responses[0].error_code == 0


def children(pid: int) -> list[int]:
    """Of all its threads; one that ends meanwhile has none."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (task / "children").read_text().split())
    return found


def cleaned_files(server: ServerProcess) -> list[Path]:
    return list((server.data / f"{TOPIC}-0").glob("*.cleaned"))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"still waiting: {what}"
        time.sleep(0.01)


def without_a_bound(server: ServerProcess) -> None:
    """From the next pass on."""
    with Cluster(server.bootstrap) as cluster:
        Admin(cluster).alter_configs(
            AdminResource(AdminResourceType.BROKER, ""), ConfigUpdate({"log.cleaner.io.max.bytes.per.second": "1e12"})
        )


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_server_that_is_stopped_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    """It does not wait for the pass, which has seconds to go: the segment stays the file that it was, and nothing else is left."""
    with in_a_pass(tmp_path / "data", {**SLOW, "log.cleaner.io.max.bytes.per.second": "1500000"}) as server:
        (worker,) = children(server.pid)
        assert os.getpriority(os.PRIO_PROCESS, worker) == 19
        segment = server.data / f"{TOPIC}-0" / "00000000000000000000.log"
        assert segment.with_name(segment.name + ".cleaned") in cleaned_files(server)
        before = segment.stat().st_ino
        assert server.stop() == 0
        assert segment.stat().st_ino == before
        assert is_gone(worker)
        assert cleaned_files(server) == []
        assert "Traceback" not in "".join(server.output)


def test_a_worker_that_is_killed(server: ServerProcess) -> None:
    """The server goes on, and another worker does the work."""
    (worker,) = children(server.pid)
    without_a_bound(server)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: any("compaction given up for now" in line and "signal 9" in line for line in server.output), "that is told")
    checkpoint = server.data / "cleaner-offset-checkpoint"
    wait_until(lambda: int(checkpoint.read_text().split()[-1]) > 0, "the next pass comes to its end")
    fill(server, 1)
    wait_until(lambda: not children(server.pid), "it ends when there is nothing to do")
    assert cleaned_files(server) == []


def test_a_server_that_is_killed_takes_its_worker_along(server: ServerProcess) -> None:
    """It must not go on writing what the next server takes for its own."""
    (worker,) = children(server.pid)
    server.kill()
    wait_until(lambda: is_gone(worker), "the worker is gone too")
    assert cleaned_files(server) != []
    server.start()
    without_a_bound(server)
    wait_until(lambda: bool(children(server.pid)), "compaction begins anew")
