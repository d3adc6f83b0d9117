"""A ZooKeeper server that cannot be started says why, and what to do; its files are those of a zoo.cfg."""

import socket
from pathlib import Path

import pytest

from moldau.adapters import zookeeper_server
from moldau.adapters.zookeeper_server import CONFIG_FILE, Peer, ZookeeperError, ZookeeperServer, find_jars, find_java, read_config
from moldau.model.extras import MissingExtraError


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Java that ends at once."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_without_java_the_error_says_what_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ZookeeperError, match="no Java found: ZooKeeper needs Java 17"):
        find_java()


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("zookeeper-3" in jar for jar in find_jars())
    monkeypatch.setattr(zookeeper_server, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"needs pyspark, .*moldau\[lake\]"):
        find_jars()


@pytest.mark.usefixtures("java")
def test_a_port_in_use_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ZookeeperError, match=f"cannot listen on 127.0.0.1:{port}: address already in use"):
            ZookeeperServer(str(tmp_path / "data"), "127.0.0.1", port).start()
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("java")
def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZookeeperError, match=r"file: .*--data"):
        ZookeeperServer(str(tmp_path / "file"), "127.0.0.1", zookeeper_server.free_ports("127.0.0.1", 1)[0]).start()


@pytest.mark.usefixtures("java")
def test_the_servers_file_has_the_settings_given_over_the_defaults_and_the_peers(tmp_path: Path) -> None:
    (port,) = zookeeper_server.free_ports("127.0.0.1", 1)
    given = {"tickTime": "2000", "dataDir": "/elsewhere", "snapCount": "7"}
    server = ZookeeperServer(str(tmp_path / "2"), "127.0.0.1", port, settings=given, server_id=2, peers=[Peer("a", 1, 2), Peer("b", 3, 4)])
    server.start()
    assert server._process is not None
    server._process.wait(60)
    server.stop()
    assert server.exit_code == 3
    found = read_config(str(tmp_path / "2" / CONFIG_FILE))
    assert (
        found.items()
        >= {
            "tickTime": "2000",
            "snapCount": "7",
            "admin.enableServer": "false",
            "dataDir": str(tmp_path / "2"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "server.1": "a:1:2",
            "server.2": "b:3:4",
        }.items()
    )
    assert (tmp_path / "2" / "myid").read_text() == "2\n"


def test_a_file_of_settings_is_read_and_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text("# a comment\n tickTime = 2000\n\nserver.1=h:2888:3888\n")
    assert read_config(str(file)) == {"tickTime": "2000", "server.1": "h:2888:3888"}
    file.write_text("tickTime=2000\nwhat\n")
    with pytest.raises(ZookeeperError, match=r"zoo.cfg:2: not NAME=VALUE: what"):
        read_config(str(file))
    with pytest.raises(ZookeeperError, match=r"[Nn]o such file"):
        read_config(str(tmp_path / "none"))
