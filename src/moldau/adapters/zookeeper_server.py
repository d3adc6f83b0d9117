"""A real ZooKeeper server as a child process: Java from the PATH, the classes from the jars of the `pyspark` wheel.

The child ends with the process that started it, also when that is killed: see `guarded_child`.
"""

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from moldau.adapters import guarded_child
from moldau.model.errors import MoldauError
from moldau.model.extras import MissingExtraError

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JARS = ("zookeeper-", "slf4j-api-", "log4j-", "metrics-core-", "netty-", "snappy-java-", "jackson-")
"""Those of pyspark's that the server may load, by how their names begin."""
JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-Dzookeeper.jmx.log4j.disable=true")
CONFIG_FILE = "moldau-zoo.cfg"
LOG_FILE = "moldau-log4j2.properties"
LOG_CONFIG = """\
status = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = error
rootLogger.appenderRef.err.ref = err
logger.probes.name = org.apache.zookeeper.server.ServerCnxn
logger.probes.level = off
"""
"""Errors only, without those of connections that come before the server is ready, as `is_serving` makes them."""
DEFAULTS: Mapping[str, str] = {
    "tickTime": "500",
    "initLimit": "20",
    "syncLimit": "10",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "1",
    "4lw.commands.whitelist": "srvr,ruok,mntr,conf",
}
PROBE_TIMEOUT_S = 0.5
STOP_LIMIT_S = 5.0


class ZookeeperError(MoldauError):
    """The server cannot be started, with the reason."""


class Peer(NamedTuple):
    """A server of an ensemble, as the others reach it."""

    host: str
    quorum_port: int
    election_port: int


def find_java() -> str:
    """The program. ZookeeperError without one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise ZookeeperError("no Java found: ZooKeeper needs Java 17 or newer; install a JRE, or set JAVA_HOME")
    return java


def find_jars() -> list[str]:
    """Jars with ZooKeeper in them. MissingExtraError without pyspark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtraError("a ZooKeeper server", "pyspark", "lake")
    directory = os.path.join(os.path.dirname(spec.origin), "jars")
    jars = [path for prefix in JARS for path in sorted(glob.glob(os.path.join(glob.escape(directory), f"{prefix}*.jar")))]
    if not any(os.path.basename(path).startswith("zookeeper-3") for path in jars):
        raise ZookeeperError(f"{directory}: no jar of ZooKeeper in this version of pyspark")
    return jars


def read_config(path: str) -> dict[str, str]:
    """The settings of a ``zoo.cfg``. ZookeeperError names the line that is none."""
    found: dict[str, str] = {}
    try:
        with open(path) as file:
            for number, line in enumerate(file, 1):
                text = line.strip()
                name, equals, value = text.partition("=")
                if text and not text.startswith(("#", "!")):
                    if not equals:
                        raise ZookeeperError(f"{path}:{number}: not NAME=VALUE: {text}")
                    found[name.strip()] = value.strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ZookeeperError(f"{path}: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}") from error
    return found


class ZookeeperServer:
    """One server over one directory; may be stopped, killed and started again."""

    def __init__(
        self,
        directory: str,
        host: str,
        port: int,
        *,
        settings: Mapping[str, str] | None = None,
        server_id: int | None = None,
        peers: Sequence[Peer] = (),
    ) -> None:
        """`settings` are those of a ``zoo.cfg``, over `DEFAULTS`. `server_id` is its number in an ensemble; `peers` are those with the
        numbers from 1, where `settings` do not name them.
        """
        self.directory = directory
        self.host = host
        self.port = port
        self._settings = {
            **DEFAULTS,
            **{f"server.{number}": f"{each.host}:{each.quorum_port}:{each.election_port}" for number, each in enumerate(peers, 1)},
            **(settings or {}),
            "dataDir": os.path.abspath(directory),
            "clientPort": str(port),
            "clientPortAddress": host,
        }
        self._server_id = server_id
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """That of a server that has ended."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it; it serves when `is_serving`. ZookeeperError, MissingExtraError."""
        java, jars = find_java(), find_jars()
        try:
            with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self.host, self.port))
        except OSError as error:
            raise ZookeeperError(f"cannot listen on {self.host}:{self.port}: {(error.strerror or str(error)).lower()} (--port)") from error
        try:
            config = self._write_files()
        except OSError as error:
            raise ZookeeperError(f"{error.filename or self.directory}: {(error.strerror or str(error)).lower()} (--data)") from error
        logging = f"-Dlog4j2.configurationFile={os.path.join(os.path.abspath(self.directory), LOG_FILE)}"
        command = [java, *JAVA_OPTIONS, logging, "-cp", os.pathsep.join(jars), MAIN, config]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guarded_child.__file__, *command], stdin=subprocess.PIPE, stdout=2, process_group=0
        )

    def is_serving(self) -> bool:
        """Whether it answers clients: alone when it has read its data, in an ensemble when there is a leader."""
        return b"Zookeeper version" in _ask((self.host, self.port), b"srvr")

    def suspend(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it in order; killed when it takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def _write_files(self) -> str:
        os.makedirs(self.directory, exist_ok=True)
        if self._server_id is not None:
            with open(os.path.join(self.directory, "myid"), "w") as file:
                file.write(f"{self._server_id}\n")
        with open(os.path.join(self.directory, LOG_FILE), "w") as file:
            file.write(LOG_CONFIG)
        path = os.path.join(self.directory, CONFIG_FILE)
        with open(path, "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in self._settings.items())
        return path


def free_ports(host: str, count: int) -> list[int]:
    """Ports without a listener."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


def _ask(address: tuple[str, int], word: bytes) -> bytes:
    """The answer to a command of four letters; empty if there is none."""
    answer = b""
    try:
        with socket.create_connection(address, timeout=PROBE_TIMEOUT_S) as connection:
            connection.sendall(word)
            while received := connection.recv(4096):
                answer += received
    except OSError:
        return b""
    return answer
