"""`moldau serve` says when it listens, stops cleanly when asked, and refuses in one line what cannot work."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.cluster import Cluster
from moldau.model.config import ConfigSource
from support.console import MOLDAU, Console, end
from support.server import ServerProcess

pytestmark = pytest.mark.system

LISTENING = "listening on "


def start(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
    """A server that listens, and where."""
    process = Console().start("serve", *arguments)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(LISTENING):
        process.kill()
        raise AssertionError((line, process.communicate()))
    return process, line.removeprefix(LISTENING).strip()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    process, where = start("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    Console(where).ok("produce", "t", text="kept\n")
    code, out, err = end(process, how)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert list((tmp_path / "data").rglob(".kafka_cleanshutdown"))
    process, where = start("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert Console(where).ok("consume", "t", "--until-end").lines == ["kept"]
    assert end(process, how)[0] == 0


def test_port_0_is_advertised_as_the_port_it_became(tmp_path: Path) -> None:
    process, where = start("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    with Cluster(where) as cluster:
        addresses = [str(address) for address in cluster.metadata().brokers.values()]
    assert addresses == [where]
    assert not where.endswith(":0")
    assert end(process, signal.SIGTERM)[0] == 0


def test_localhost_listens_on_both_loopback_addresses(tmp_path: Path) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    process, where = start("--listen", "localhost:0", "--data", str(tmp_path / "data"))
    port = where.removeprefix("localhost:")
    for address in (f"127.0.0.1:{port}", f"[::1]:{port}"):
        with Cluster(address) as cluster:
            assert [str(advertised) for advertised in cluster.metadata().brokers.values()] == [address]
    assert end(process, signal.SIGTERM)[0] == 0


def test_on_every_interface_each_client_is_told_the_address_that_it_connected_to_and_the_log_says_so(tmp_path: Path) -> None:
    process, where = start("--listen", "0.0.0.0:0", "--data", str(tmp_path / "data"))
    port = where.removeprefix("0.0.0.0:")
    for address in (f"127.0.0.1:{port}", f"127.0.0.2:{port}"):
        with Cluster(address) as cluster:
            assert [str(advertised) for advertised in cluster.metadata().brokers.values()] == [address]
    code, _, err = end(process, signal.SIGTERM)
    assert (code, "advertised address: " in err) == (0, True)
    (line,) = [line for line in err.splitlines() if "WITHOUT AUTHENTICATION" in line]
    assert f"addresses=0.0.0.0:{port}; anyone who reaches it may read, write and delete" in line
    assert "set listeners=" in line


def test_another_address_may_be_advertised(tmp_path: Path) -> None:
    process, where = start("--listen", "127.0.0.1:0", "--advertise", "broker.example:19092", "--data", str(tmp_path / "data"))
    with Cluster(where) as cluster:
        addresses = [str(address) for address in cluster.metadata().brokers.values()]
    assert addresses == ["broker.example:19092"]
    code, _, err = end(process, signal.SIGTERM)
    assert (code, "AUTHENTICATION" in err) == (0, False), "it listens on loopback"


NAMED = ("--set", "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT")


def listeners(*addresses: str) -> tuple[str, ...]:
    """Settings of the listeners INTERNAL and EXTERNAL."""
    return ("--set", f"listeners=INTERNAL://{addresses[0]},EXTERNAL://{addresses[1]}", *NAMED)


def test_two_listeners_are_printed_in_their_order_and_each_advertises_its_own_address(tmp_path: Path) -> None:
    advertised = ("--set", "advertised.listeners=EXTERNAL://broker.example:0")
    process, internal = start(*listeners("127.0.0.1:0", "127.0.0.2:0"), *advertised, "--data", str(tmp_path / "data"))
    assert process.stdout is not None
    external = process.stdout.readline().removeprefix(LISTENING).strip()
    assert (internal.partition(":")[0], external.partition(":")[0]) == ("127.0.0.1", "127.0.0.2")
    for where, expected in ((internal, internal), (external, f"broker.example:{external.partition(':')[2]}")):
        with Cluster(where) as cluster:
            assert [str(address) for address in cluster.metadata().brokers.values()] == [expected]
    assert end(process, signal.SIGTERM)[:2] == (0, "")


def test_settings_come_from_file_environment_and_options_the_later_winning(tmp_path: Path) -> None:
    file = tmp_path / "moldau.toml"
    file.write_text('num.partitions = 3\nlog.retention.ms = 5000\n"log.segment.bytes" = 1048576\n')
    os.environ["MOLDAU_LOG_RETENTION_MS"] = "6000"
    try:
        arguments = ["--config", str(file), "--set", "log.segment.bytes=2097152", "--data", str(tmp_path / "data")]
        process, where = start("--listen", "127.0.0.1:0", *arguments)
    finally:
        del os.environ["MOLDAU_LOG_RETENTION_MS"]
    shown = {entry["name"]: entry["value"] for entry in Console(where).ok("config", "describe", "--broker", "0", "--json").json}
    assert (shown["num.partitions"], shown["log.retention.ms"], shown["log.segment.bytes"]) == ("3", "6000", "2097152")
    assert end(process, signal.SIGTERM)[0] == 0


def refused(*arguments: str) -> tuple[int, str]:
    """Exit code and the one line of a server that does not start."""
    done = Console()("serve", *arguments)
    assert done.out == ""
    assert done.err.splitlines(), done
    return done.code, done.err.splitlines()[-1]


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, line = refused("--listen", where, "--data", str(tmp_path / "data"))
    assert code == 1
    assert where in line
    assert line.endswith("address already in use; stop the process that listens there, or choose another address with --listen (listeners)")


def test_a_port_in_use_of_one_of_two_listeners(tmp_path: Path) -> None:
    """Claim: the line names the listener, and the other one is given up."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, line = refused(*listeners("127.0.0.1:0", where), "--data", str(tmp_path / "data"))
    assert (code, f"cannot listen on EXTERNAL://{where}: address already in use" in line, "INTERNAL" in line) == (1, True, False)
    assert not list(tmp_path.rglob("*.sqlite"))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("listener.security.protocol.map=INTERNAL:PLAINTEXT", "does not have EXTERNAL; add EXTERNAL:PLAINTEXT"),
        ("advertised.listeners=OTHER://broker.example:9092", "there is no listener OTHER, listeners has INTERNAL, EXTERNAL"),
        ("advertised.listeners=EXTERNAL://0.0.0.0:9092", "clients cannot connect to '0.0.0.0'"),
    ],
)
def test_listeners_that_contradict_each_other(tmp_path: Path, setting: str, said: str) -> None:
    code, line = refused(*listeners("127.0.0.1:0", "127.0.0.2:0"), "--set", setting, "--data", str(tmp_path / "data"))
    assert code == 2
    assert said in line
    assert not (tmp_path / "data").exists(), "nothing was begun"


@pytest.mark.parametrize("taken_by", ["another process", "its own broker"])
def test_a_port_in_use_of_the_registry_beside(taken_by: str, tmp_path: Path) -> None:
    """Claim: as for the broker's port, one line, and nothing is left in the data directory."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        if taken_by == "its own broker":
            taken.close()
        listen = where if taken_by == "its own broker" else "127.0.0.1:0"
        done = Console()("serve", "--listen", listen, "--data", str(tmp_path / "data"), "--registry", where)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"Error: the schema registry cannot listen on {where}: address already in use; stop the process that listens there, "
        "or choose another address with --registry\n"
    )
    assert not (tmp_path / "data").exists()


def test_a_directory_in_use(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data"):
        code, line = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert code == 1
    assert str(tmp_path / "data") in line


def test_a_directory_of_another_system(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "events-0").mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=bW9sZGF1LWZvcmVpZ24tMQ\n")
    code, line = refused("--listen", "127.0.0.1:0", "--data", str(data))
    assert code == 1
    assert str(data) in line
    assert "--adopt" in line


def test_a_directory_of_other_files(tmp_path: Path) -> None:
    """Claim: `--data .` in a source tree leaves it as it was, also as the second directory; `--adopt` insists, once for all."""
    code = tmp_path / "code"
    (code / "src").mkdir(parents=True)
    (code / "README.md").write_text("")
    for more in ([], ["--data", str(tmp_path / "first")]):
        done = Console()("serve", "--listen", "127.0.0.1:0", *more, "--data", str(code))
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            f"Error: {code}: is no data directory and not empty (README.md, src); choose another one with --data (log.dirs), "
            "or start with --adopt to keep data among these files\n"
        )
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["README.md", "code", "src"]
    for insisting in (["--adopt"], []):
        process, _ = start("--listen", "127.0.0.1:0", "--data", str(code), *insisting)
        assert end(process, signal.SIGTERM)[0] == 0
    assert "moldau=made" in (code / "meta.properties").read_text()
    assert (code / "README.md").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "num.partitons=3"], "num.partitons"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "num.partitions"], "NAME=VALUE"),
        (["--listen", "nowhere"], "nowhere"),
        (["--advertise", "host:99999"], "99999"),
        (["--config", "/no/such/file.toml"], "/no/such/file.toml"),
        (["--log-level", "loud"], "loud"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], said: str) -> None:
    code, _ = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), *arguments)
    assert code == 2
    assert said in Console()("serve", "--data", str(tmp_path / "data"), *arguments).err
    assert not (tmp_path / "data").exists(), "nothing was begun"


def test_a_configuration_file_with_a_mistake_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "moldau.toml"
    file.write_text("num.partitions = 3\nlog.retention.msec = 5\n")
    code, line = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--config", str(file))
    assert code == 2
    assert f"{file}:2" in line


def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "file" / "data"))
    assert code == 1
    assert str(tmp_path / "file") in line


def test_the_log_may_be_json(tmp_path: Path) -> None:
    arguments = ["--log-format", "json", "--log-level", "debug"]
    process, where = start("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), *arguments)
    host, port = where.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    code, _, err = end(process, signal.SIGTERM)
    assert code == 0
    events = [json.loads(line) for line in err.splitlines()]
    (cut,) = [event for event in events if event["event"] == "connection cut"]
    assert cut["level"] == "warning"
    assert "HTTP" in cut["reason"]


def test_a_consumer_that_waits_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    process, where = start("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    console = Console(where)
    console.ok("produce", "t", text="one\n")
    consumer = console.start("consume", "t", "--timeout", "10")
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "one\n"
    code, _, err = end(process, signal.SIGTERM)
    assert code == 0
    assert "connections cut" not in err
    assert end(consumer, signal.SIGINT)[0] in (0, 1)


def test_without_a_directory_it_uses_one_beside_you(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process, _ = start("--listen", "127.0.0.1:0")
    assert (tmp_path / "moldau-data").is_dir()
    assert end(process, signal.SIGTERM)[0] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_whoever_cannot_be_told_the_address_is_not_served(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [MOLDAU, "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: cannot write the output: no space left on device"


def test_a_server_properties_of_kafka_is_a_configuration(tmp_path: Path) -> None:
    """What it gives is shown as given at the start, advertised.listeners included (kafka-python's own test of its admin client)."""
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=0\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path / 'data'}\nnum.partitions=3\n"
    )
    process, where = start("--config", str(file))
    with Cluster(where) as cluster:
        entries = {entry.name: entry for entry in Admin(cluster).describe_configs(AdminResource(AdminResourceType.BROKER, "0"))}
    code, _, err = end(process, signal.SIGTERM)
    shown = {name: (entries[name].value, entries[name].source) for name in ("advertised.listeners", "num.partitions")}
    assert shown == {
        "advertised.listeners": (f"PLAINTEXT://{where}", ConfigSource.STATIC_BROKER),
        "num.partitions": ("3", ConfigSource.STATIC_BROKER),
    }
    assert code == 0
    assert f"setting of Apache Kafka ignored: {file}:1: process.roles: there is no KRaft quorum" in err


def test_a_server_properties_that_asks_for_encryption_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=x\nssl.keystore.location=/etc/keys\n")
    done = Console()("serve", "--config", str(file))
    assert done.code == 2
    assert f"{file}:2: configuration 'ssl.keystore.location' of Apache Kafka does not exist in this version" in done.err
