"""`moldau zookeeper`: real servers as children of a command."""

import signal
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.assembly.thread import BrokerThread
from moldau.cli.zookeeper import _servers
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from support import zookeeper
from support.ports import free_ports
from support.supervised import Program

pytestmark = [pytest.mark.system, pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")]

LIMIT_S = 60.0


def command(directory: Path, *options: str) -> Program:
    program = Program([sys.executable, "-m", "moldau.cli.main", "zookeeper", "--data", str(directory), *options])
    program.wait_for("listening on ", LIMIT_S)
    return program


def addresses(program: Program) -> list[str]:
    (line,) = (line for line in program.lines if line.startswith("listening on "))
    return line.split()[2].split(",")


def wait_free(port: int) -> None:
    end = time.monotonic() + LIMIT_S
    while zookeeper.answers(port):
        assert time.monotonic() < end, "it still answers"
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_when_it_says_so_and_a_signal_ends_it(tmp_path: Path, how: signal.Signals) -> None:
    program = command(tmp_path / "data", "--port", "0")
    (address,) = addresses(program)
    host, port = address.split(":")
    assert host == "127.0.0.1"
    assert zookeeper.answers(int(port))
    program.send(how)
    assert program.wait() == 0
    assert not zookeeper.answers(int(port))


def test_the_server_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    program = command(tmp_path / "data", "--port", str(free_ports(1)[0]))
    port = int(addresses(program)[0].split(":")[1])
    program.kill()
    wait_free(port)


def test_an_ensemble_of_three_has_all_addresses_in_its_line(tmp_path: Path) -> None:
    program = command(tmp_path / "data", "--port", "0", "--servers", "3")
    assert len(addresses(program)) == 3
    program.terminate()
    assert program.wait() == 0
    assert sorted(each.name for each in (tmp_path / "data").iterdir()) == ["1", "2", "3"]


def test_a_broker_over_three_servers_does_without_any_one_of_them(tmp_path: Path) -> None:
    servers = _servers(str(tmp_path / "zookeeper"), zookeeper.HOST, 0, {}, None, 3)
    for each in servers:
        each.start()
    try:
        for each in servers:
            zookeeper.wait_serving(each)
        connect = ",".join(f"{each.host}:{each.port}" for each in servers)
        settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'data'}", f"zookeeper.connect={connect}/one"]
        broker = BrokerThread(BrokerConfig(read_static(settings=settings)))
        broker.start()
        host, port = broker.address
        admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
        for number, each in enumerate(servers):
            each.kill()
            topic = NewTopic(f"without-{number}", 1, 1)
            admin.create_topics([topic], operation_timeout=LIMIT_S)[topic.topic].result(LIMIT_S)
            each.start()
            zookeeper.wait_serving(each)
        assert set(admin.list_topics(timeout=LIMIT_S).topics) == {"without-0", "without-1", "without-2"}
        broker.stop()
    finally:
        for each in servers:
            each.kill()
