"""SIGTERM ends the process within its limit, whatever hangs or takes long; what was acknowledged is there at the next start."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moldau.assembly.termination import FORCED_EXIT_CODE
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.testing.broker import Broker
from support.server import ServerProcess
from support.wire import Wire, batch, fetch, produce

pytestmark = pytest.mark.system

SCRIPT = """
import asyncio, json, logging, sys, time
from moldau.assembly.process import serve
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig

logging.basicConfig()
data, how = sys.argv[1:]
settings = [f"log.dirs={data}", "listeners=PLAINTEXT://127.0.0.1:0", "shutdown.timeout.ms=300", "shutdown.forced.after.ms=300"]

def spin():
    while True:
        pass

def ready(addresses):
    print(json.dumps(addresses[0]), flush=True)
    loop = asyncio.get_running_loop()
    stuck = {"a loop in Python": spin, "a call that waits": lambda: time.sleep(600), "nothing": lambda: None}[how]
    loop.add_reader(0, lambda: (loop.remove_reader(0), print("stuck", flush=True), stuck()))

serve(BrokerConfig(read_static(settings=settings)), on_listening=ready)
"""


def start(data: Path, how: str) -> tuple["subprocess.Popen[str]", tuple[str, int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(data), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    host, port = json.loads(process.stdout.readline())
    return process, (host, port)


def hang(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("now\n")
    process.stdin.flush()
    assert process.stdout.readline() == "stuck\n"


@pytest.mark.parametrize("how", ["a loop in Python", "a call that waits"])
def test_a_process_whose_loop_hangs_ends_in_its_time_and_loses_nothing(tmp_path: Path, how: str) -> None:
    process, address = start(tmp_path, how)
    wire = Wire(address)
    wire.create("t")
    assert wire.ask(produce("t", batch(b"kept", 10)), 9).responses[0].partition_responses[0].error_code == 0
    hang(process)
    asked = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == FORCED_EXIT_CODE
    assert time.monotonic() - asked < 20
    (line,) = [line for line in errors.splitlines() if "process ended by force" in line]
    assert "main thread at" in line
    wire.close()
    with ServerProcess(tmp_path) as server:
        host, port = server.bootstrap.rsplit(":", 1)
        wire = Wire((host, int(port)))
        assert len(wire.ask(fetch("t", 0), 12).responses[0].partitions[0].records) > 0
        wire.close()


def test_a_process_that_stops_in_time_has_no_limit_to_meet(tmp_path: Path) -> None:
    process, _ = start(tmp_path, "nothing")
    hang(process)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "by force" not in errors


MANY = 2000
CLEAN = ".kafka_cleanshutdown"


def connect(address: str) -> Wire:
    host, port = address.rsplit(":", 1)
    return Wire((host, int(port)))


def fill(wire: Wire, partitions: int) -> None:
    """A topic with a batch in each partition, that no sync has brought to disk."""
    wire.socket.settimeout(60)
    assert not wire.ask(CreateTopicsRequest([CreatableTopic("many", partitions, 1)]), 5).topics[0].error_code
    data = [PartitionProduceData(partition, batch(b"kept")) for partition in range(partitions)]
    answer = wire.ask(ProduceRequest(None, 1, 30_000, [TopicProduceData("many", partition_data=data)]), 9)
    assert not any(partition.error_code for partition in answer.responses[0].partition_responses)
    wire.close()


def ends(wire: Wire, partitions: int) -> set[int]:
    """The end offsets of the topic's partitions."""
    wanted = [ListOffsetsPartition(partition, timestamp=-1) for partition in range(partitions)]
    found = wire.ask(ListOffsetsRequest(-1, topics=[ListOffsetsTopic("many", wanted)]), 7)
    wire.close()
    return {partition.offset for partition in found.topics[0].partitions}


def test_a_stop_with_thousands_of_unsynced_partitions_ends_in_order_within_its_limit(tmp_path: Path) -> None:
    """One by one, their syncs took longer than both limits together; a disk that is too slow for all of them in time ends in order too."""
    server = ServerProcess(tmp_path)
    server.start()
    fill(connect(server.bootstrap), MANY)
    assert server.stop() == 0
    late = any("no time to flush all logs to disk" in line for line in server.output)
    assert (tmp_path / CLEAN).exists() is not late
    with server:
        assert ends(connect(server.bootstrap), MANY) == {1}


def test_a_stop_that_has_no_time_for_syncs_ends_in_order_and_leaves_the_logs_to_the_next_start(tmp_path: Path) -> None:
    with Broker(directory=tmp_path, settings={"shutdown.timeout.ms": 0, "shutdown.forced.after.ms": 0}) as broker:
        fill(connect(broker.bootstrap_servers), 3)
        broker.stop()
        assert not (tmp_path / CLEAN).exists()
        broker.start()
        assert ends(connect(broker.bootstrap_servers), 3) == {1}
