"""A broker whose metadata is in a real ZooKeeper."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from moldau.adapters.zookeeper_coordination import ZookeeperCoordination
from moldau.adapters.zookeeper_server import ZookeeperServer
from moldau.assembly.thread import BrokerThread
from moldau.broker.metadata import registration
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import MoldauError
from support import zookeeper
from support.ports import free_ports
from support.server import ServerProcess
from support.supervised import Program

pytestmark = [pytest.mark.system, pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")]

LIMIT_S = 120.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZookeeperServer]:
    server = ZookeeperServer(str(tmp_path / "zookeeper"), zookeeper.HOST, free_ports(1)[0])
    server.start()
    try:
        zookeeper.wait_serving(server)
        yield server
    finally:
        server.kill()


RUNNING: list[BrokerThread] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """No broker outlives its test."""
    yield
    while RUNNING:
        RUNNING.pop().stop()


def broker(server: ZookeeperServer, directory: Path, *settings: str) -> BrokerThread:
    """Has started."""
    given = [
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}",
        f"zookeeper.connect={zookeeper.HOST}:{server.port}/clusters/one",
        "zookeeper.session.timeout.ms=30000",
        *settings,
    ]
    running = BrokerThread(BrokerConfig(read_static(settings=given)))
    running.start()
    RUNNING.append(running)
    return running


def bootstrap(running: BrokerThread) -> str:
    host, port = running.address
    return f"{host}:{port}"


def create(at: str, topic: str) -> None:
    """Again, when the session with ZooKeeper expires meanwhile."""
    admin = AdminClient({"bootstrap.servers": at})
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            admin.create_topics([NewTopic(topic, 2, 1)], operation_timeout=LIMIT_S)[topic].result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_CONTROLLER or time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def produce(at: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": at, "acks": "all"})
    for number in range(first, first + count):
        producer.produce(topic, str(number))
    assert producer.flush(LIMIT_S) == 0


def consume(at: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": at, "group.id": f"g{time.monotonic()}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[int] = []
    end = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < end:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            value = message.value()
            assert value is not None
            found.append(int(value))
    consumer.close()
    return sorted(found)


def topics(at: str) -> set[str]:
    return {name for name in AdminClient({"bootstrap.servers": at}).list_topics(timeout=LIMIT_S).topics if not name.startswith("_")}


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_broker_serves_while_zookeeper_is_away_and_registers_again_when_its_session_has_expired(
    server: ZookeeperServer, tmp_path: Path
) -> None:
    first = broker(server, tmp_path / "data")
    at = bootstrap(first)
    create(at, "a")
    produce(at, "a", 0, 100)
    assert consume(at, "a", 100) == list(range(100))

    server.kill()
    produce(at, "a", 100, 100)
    assert consume(at, "a", 200) == list(range(200)), "what a broker leads it still serves"
    server.start()
    zookeeper.wait_serving(server)
    create(at, "b")

    tree = first._running._tree.coordination
    assert isinstance(tree, ZookeeperCoordination)
    before, session = tree.session_id, tree._client.client_id
    assert session is not None
    zookeeper.end_session(server, session)
    wait_until(lambda: tree.session_id not in (0, before))
    create(at, "c")
    look = KazooClient(f"{zookeeper.HOST}:{server.port}/clusters/one")
    look.start()
    assert look.get("/brokers/ids/0")[1].ephemeralOwner == tree.session_id
    first.stop()
    assert look.get_children("/brokers/ids") == [], "a stop ends the session"
    look.stop()
    look.close()

    again = broker(server, tmp_path / "data")
    at = bootstrap(again)
    assert topics(at) == {"a", "b", "c"}
    assert consume(at, "a", 200) == list(range(200))


def test_directories_of_another_cluster_and_an_id_that_is_taken_stop_the_start(
    server: ZookeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = broker(server, tmp_path / "data")
    monkeypatch.setattr(registration, "TAKEN_MAX_S", 1.0)
    with pytest.raises(MoldauError, match="/brokers/ids/0: a live broker has registered there"):
        broker(server, tmp_path / "other")
    create(bootstrap(first), "a")
    first.stop()
    with pytest.raises(MoldauError, match="cluster"):
        broker(server, tmp_path / "data", f"zookeeper.connect={zookeeper.HOST}:{server.port}/clusters/two")
    again = broker(server, tmp_path / "data")
    assert topics(bootstrap(again)) == {"a"}


def test_a_start_without_zookeeper_says_what_it_waits_for_and_gives_up(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    away = ServerProcess(
        tmp_path / "data",
        arguments=["--zookeeper", f"{zookeeper.HOST}:{port}"],
        settings={"zookeeper.connection.timeout.ms": "500"},
    )
    with pytest.raises(AssertionError, match="the server ended at its start"):
        away.start()
    output = "".join(away.output)
    assert f"waiting for ZooKeeper: servers={zookeeper.HOST}:{port} reason=Connection refused" in output
    assert "no connection to ZooKeeper within 500 ms" in output
    assert away.stop() == 1


def test_a_killed_broker_registers_again_at_once(server: ZookeeperServer, tmp_path: Path) -> None:
    """Its session would live for longer than a start waits."""
    settings = {"zookeeper.session.timeout.ms": "40000"}
    process = ServerProcess(tmp_path / "data", settings=settings, arguments=["--zookeeper", f"{zookeeper.HOST}:{server.port}"])
    process.start()
    for _ in range(2):
        process.kill()
        process.start()
    look = KazooClient(f"{zookeeper.HOST}:{server.port}")
    look.start()
    assert len(look.get_children("/brokers/ids")) == 1
    look.stop()
    look.close()
    assert process.stop() == 0
    assert sum("ending the session that a process before has left" in line for line in process.output) == 2


def test_a_signal_ends_a_start_that_waits(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "moldau.cli.main", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    program = Program([*command, "--zookeeper", f"{zookeeper.HOST}:{port}", "--log-format", "json"])
    program.wait_for('{"time"', LIMIT_S)
    program.terminate()
    assert program.wait() == 0
    assert "waiting for ZooKeeper" in program.lines[0]
    assert "stopped while starting" in program.lines[-1]


def test_only_the_brokers_of_a_cluster_change_its_nodes_where_they_have_access_lists(server: ZookeeperServer, tmp_path: Path) -> None:
    digest = tmp_path / "digest"
    digest.write_text("kafka:secret\n")
    first = broker(server, tmp_path / "data", "zookeeper.set.acl=true", f"zookeeper.digest.file={digest}")
    create(bootstrap(first), "a")
    look = KazooClient(f"{zookeeper.HOST}:{server.port}/clusters/one")
    look.start()
    acls, _ = look.get_acls("/brokers/topics/a")
    assert {(each.id.scheme, each.perms) for each in acls} == {("digest", 31), ("world", 1)}
    assert look.get("/brokers/topics/a")[0].startswith(b"{"), "everyone may read"
    with pytest.raises(NoAuthError):
        look.get("/config/users")
    assert {each.id.scheme for each in look.get_acls("/consumers")[0]} == {"world"}
    look.stop()
    look.close()
    first.stop()
    digest.write_text("kafka:other\n")
    with pytest.raises(MoldauError, match=r"zookeeper.digest.file"):
        broker(server, tmp_path / "data", "zookeeper.set.acl=true", f"zookeeper.digest.file={digest}")
