"""The clusters under test: three brokers of Moldau by `moldau cluster up`, and three nodes of Apache Kafka, each broker and controller.

New topics have what is asked for; of three replicas one may fail. Neither moves leaders back by itself: the measurements do that.
"""

import argparse
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import cpu_seconds, resident_mb
from moldau.adapters.process_identity import ProcessState
from moldau.assembly.local_cluster.state import BrokerProcess, existing_state, request_restart
from moldau.client.cluster import Cluster
from support.ports import free_ports
from support.supervised import Program
from systems import KAFKA_VERSION, kafka_command

BROKERS = (1, 2, 3)
HOST = "127.0.0.1"
START_LIMIT_S = 120.0
STOP_LIMIT_S = 120.0
POLL_S = 0.02
MOLDAU, MOLDAU_ZOOKEEPER, KAFKA = "moldau", "moldau, ZooKeeper", f"kafka {KAFKA_VERSION}"
NAMES = {"moldau": MOLDAU, "zookeeper": MOLDAU_ZOOKEEPER, "kafka": KAFKA}
"""Names of the systems in lines and tables, by those on the command line."""
SHORT_SESSION_MS = 2000
KAFKA_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
}
KAFKA_HEAP = "512M"
METADATA_TOPIC = b"__cluster_metadata"
DESCRIBE_QUORUM = (
    struct.pack(">hhih", 55, 0, 1, -1)  # key, version, correlation id, no client id
    + bytes([0, 2, len(METADATA_TOPIC) + 1])  # no tags; one topic, its name
    + METADATA_TOPIC
    + struct.pack(">bixxx", 2, 0)  # one partition, the first; no tags
)
QUORUM_ERROR_AT = 5
QUORUM_LEADER_AT = QUORUM_ERROR_AT + struct.calcsize(">hbb") + len(METADATA_TOPIC) + struct.calcsize(">bi")


class ClusterSystem(ABC):
    """Three brokers with the ids of `BROKERS`. As a context manager: serving, and ended in the end."""

    def __init__(self, name: str, addresses: Mapping[int, str]) -> None:
        self.name = name
        self.addresses = addresses
        """HOST:PORT of each broker."""

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(self.addresses.values())

    @abstractmethod
    def launch(self) -> None:
        """Start all processes; they serve later."""

    @abstractmethod
    def wait_serving(self) -> None:
        """Until all brokers take requests and know each other."""

    @abstractmethod
    def start_broker(self, broker_id: int) -> None:
        """Start a broker again whose process has ended; it serves later."""

    @abstractmethod
    def pid(self, broker_id: int) -> int:
        """Id of the broker's process."""

    @abstractmethod
    def wait_ended(self, broker_id: int) -> None:
        """Until the broker's process has ended."""

    @abstractmethod
    def controller(self) -> int:
        """The broker that is the controller, or the active one."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all processes that run."""

    def send_signal(self, broker_id: int, number: signal.Signals) -> None:
        """Send one broker a signal."""
        os.kill(self.pid(broker_id), number)

    def cpu_seconds(self) -> float:
        """Processor time of all brokers."""
        return sum(cpu_seconds(self.pid(each)) for each in BROKERS)

    def resident_mb(self, field: str = "VmRSS") -> float:
        """Resident memory of all brokers. Pages that they share count for each of them."""
        return round(sum(resident_mb(self.pid(each), field) for each in BROKERS), 1)

    def __enter__(self) -> "ClusterSystem":
        try:
            self.launch()
            self.wait_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in BROKERS:  # one that is paused does not end
            with contextlib.suppress(ProcessLookupError):
                self.send_signal(each, signal.SIGCONT)
        self.stop()


class MoldauCluster(ClusterSystem):
    """`moldau cluster up` with its defaults; metadata in a file, or in ZooKeeper. The command's own process is not counted."""

    def __init__(self, folder: Path, settings: Sequence[str] = (), *, zookeeper: bool = False) -> None:
        first = _free_range()
        super().__init__(MOLDAU_ZOOKEEPER if zookeeper else MOLDAU, {each: f"{HOST}:{first + each - 1}" for each in BROKERS})
        self._directory = str(folder)
        self._command = [sys.executable, "-m", "moldau.cli.main", "cluster", "up", "--data", self._directory, "--port", str(first)]
        self._command += ["--brokers", str(len(BROKERS)), *(["--zookeeper", "start"] if zookeeper else [])]
        for setting in ("auto.leader.rebalance.enable=false", *settings):
            self._command += ["--set", setting]
        self._program: Program | None = None

    def launch(self) -> None:
        """Start the command."""
        self._program = Program(self._command)

    def wait_serving(self) -> None:
        """Until the command says so."""
        assert self._program is not None
        self._program.wait_for("listening on ", START_LIMIT_S)

    def start_broker(self, broker_id: int) -> None:
        """Have the command start it."""
        request_restart(self._directory, broker_id)

    def pid(self, broker_id: int) -> int:
        """As the command has noted it. ProcessLookupError."""
        pid = self._broker(broker_id).pid
        if pid is None:
            raise ProcessLookupError(f"broker {broker_id} does not run")
        return pid

    def wait_ended(self, broker_id: int) -> None:
        """Until it is dead."""
        limit = time.monotonic() + STOP_LIMIT_S
        while self._broker(broker_id).state is not ProcessState.DEAD:
            if time.monotonic() > limit:
                raise SystemExit(f"{self.name}: broker {broker_id} does not end")
            time.sleep(POLL_S)

    def controller(self) -> int:
        """As any broker knows it."""
        with Cluster(self.bootstrap) as asked:
            return asked.metadata([]).controller

    def stop(self) -> None:
        """Stop the command, which stops the brokers."""
        program, self._program = self._program, None
        if program is not None:
            program.terminate()
            program.wait(STOP_LIMIT_S)

    def _broker(self, broker_id: int) -> BrokerProcess:
        return existing_state(self._directory).broker(broker_id)


class KafkaCluster(ClusterSystem):
    """Three nodes in KRaft mode. Their folders are formatted before they are launched."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        ports = free_ports(2 * len(BROKERS))
        super().__init__(KAFKA, {each: f"{HOST}:{ports.pop()}" for each in BROKERS})
        quorum = {each: f"{HOST}:{ports.pop()}" for each in BROKERS}
        shared = {**KAFKA_SETTINGS, "controller.quorum.voters": ",".join(f"{each}@{quorum[each]}" for each in BROKERS)}
        self._logs = {each: folder / str(each) / "server.log" for each in BROKERS}
        self._commands: dict[int, list[str]] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for each, address in self.addresses.items():
            own = {"node.id": str(each), "listeners": f"PLAINTEXT://{address},CONTROLLER://{quorum[each]}"}
            own["advertised.listeners"] = f"PLAINTEXT://{address}"
            port = int(address.rpartition(":")[2])
            self._commands[each] = kafka_command(folder / str(each), port, {**shared, **own, **(settings or {})}, heap=KAFKA_HEAP)

    def launch(self) -> None:
        """Start all nodes."""
        for each in BROKERS:
            self.start_broker(each)

    def wait_serving(self) -> None:
        """Until each has logged it."""
        limit = time.monotonic() + START_LIMIT_S
        while not all("Kafka Server started" in log.read_text() for log in self._logs.values()):
            if time.monotonic() > limit or any(each.poll() is not None for each in self._processes.values()):
                raise SystemExit("\n".join(f"{log}:\n{log.read_text()[-2000:]}" for log in self._logs.values()))
            time.sleep(POLL_S)

    def start_broker(self, broker_id: int) -> None:
        """Start the node with a new log."""
        with self._logs[broker_id].open("wb") as log:
            self._processes[broker_id] = subprocess.Popen(self._commands[broker_id], stdout=log, stderr=subprocess.STDOUT)

    def pid(self, broker_id: int) -> int:
        """Id of its latest process."""
        return self._processes[broker_id].pid

    def send_signal(self, broker_id: int, number: signal.Signals) -> None:
        """Send it, if the process has not ended."""
        self._processes[broker_id].send_signal(number)

    def wait_ended(self, broker_id: int) -> None:
        """Until it has ended, and is reaped."""
        self._processes[broker_id].wait(STOP_LIMIT_S)

    def controller(self) -> int:
        """The leader of the metadata's quorum."""
        for address in self.addresses.values():
            with contextlib.suppress(OSError):
                leader = quorum_leader(_answer(address, DESCRIBE_QUORUM))
                if leader is not None:
                    return leader
        raise SystemExit(f"{self.name}: no broker knows an active controller")

    def stop(self) -> None:
        """End all nodes at once: their folders are not used again, and nodes without a quorum wait for it before they end."""
        for each in self._processes.values():
            each.kill()
        for each in self._processes.values():
            each.wait()


def quorum_leader(answer: bytes) -> int | None:
    """The leader of the metadata's quorum, out of an answer to `DESCRIBE_QUORUM`; None for one without."""
    (failed,) = struct.unpack_from(">h", answer, QUORUM_ERROR_AT)
    if failed:
        return None
    error, leader = struct.unpack_from(">hi", answer, QUORUM_LEADER_AT)
    return None if error or leader < 0 else int(leader)


@contextlib.contextmanager
def running_clusters(names: Sequence[str], *, short_session: bool = False) -> Iterator[list[ClusterSystem]]:
    """The systems of these `NAMES`, all serving. `short_session`: a broker that is not heard of for two seconds has failed."""
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder, contextlib.ExitStack() as stack:
        yield [stack.enter_context(cluster_system(name, Path(folder) / name, short_session=short_session)) for name in names]


def cluster_system(name: str, folder: Path, *, short_session: bool = False) -> ClusterSystem:
    """A system of these `NAMES`, not launched yet."""
    if name == "kafka":
        settings = {"broker.session.timeout.ms": str(SHORT_SESSION_MS), "broker.heartbeat.interval.ms": str(SHORT_SESSION_MS // 4)}
        return KafkaCluster(folder, settings if short_session else None)
    session = [f"zookeeper.session.timeout.ms={SHORT_SESSION_MS}"] if short_session else []
    return MoldauCluster(folder, session, zookeeper=name == "zookeeper")


def names_of(text: str) -> list[str]:
    """Names of systems, parted by commas."""
    names = text.split(",")
    if wrong := [each for each in names if each not in NAMES]:
        raise argparse.ArgumentTypeError(f"no such system: {', '.join(wrong)}; there are {', '.join(NAMES)}")
    return names


def _free_range() -> int:
    """The first of so many ports without listeners that follow each other."""
    while True:
        [first] = free_ports(1)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for port in range(first, first + len(BROKERS)):
                probes.enter_context(socket.create_server((HOST, port)))
            return first


def _answer(address: str, request: bytes) -> bytes:
    """What a broker answers."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 2.0) as connected, connected.makefile("rb") as stream:
        connected.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(stream.read(4), 4))
        return _exactly(stream.read(size), size)


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise ConnectionError("the broker has closed the connection")
    return data
