"""The process that starts the brokers of a cluster on this host, and stops them. A broker that ends is reported, and not started again
unless that is asked for.

Brokers end with the supervisor, also when that is killed: see `guarded_child`. They are in process groups of their own, so that a Ctrl-C at
the terminal is the supervisor's alone, which stops them all at once.
"""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from moldau.adapters import guarded_child
from moldau.adapters.process_identity import has_ended, identity_of, send_signal
from moldau.adapters.zookeeper_server import ZookeeperServer
from moldau.assembly.local_cluster.plan import HOST
from moldau.assembly.local_cluster.state import (
    BROKER_FOLDER,
    CONTROL_FILE,
    LOCK_FILE,
    LOG_FOLDER,
    METADATA_FILE,
    START_ZOOKEEPER,
    ZOOKEEPER_FOLDER,
    ClusterState,
    LocalClusterError,
    log_of,
    read_state,
    strangers_in,
    write_state,
)
from moldau.client.connection import BrokerConnection
from moldau.client.metadata import from_response
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.model.errors import MoldauError
from moldau.model.identity import BrokerId
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest

POLL_S = 0.02
WATCH_S = 0.1
WAITING_LINE_S = 5.0
ASK_S = 2.0
"""How long a broker may take for an answer while it is waited for."""
LEFTOVERS_END_S = 10.0
"""How long processes of a supervisor that was killed are waited for: they are killed already, or are now."""
STOP_LIMIT_S = 120.0
"""Brokers end by themselves within their `shutdown.timeout.ms` and `shutdown.forced.after.ms`."""
LAST_LINE_BYTES = 4096
_BROKER = "moldau.assembly.local_cluster.broker_process"


class Supervisor:
    """See the module. `hold` first, `stop` or `kill` last."""

    def __init__(self, directory: str, report: Callable[[str], object]) -> None:
        """`report` receives lines for a person."""
        self.directory = os.path.abspath(directory)
        self.state: ClusterState
        self._report = report
        self._settings: Sequence[str] = ()
        self._own_settings: Mapping[int, Sequence[str]] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._restarts: dict[int, None] = {}
        """Brokers to start again when their process has ended."""
        self._starting: dict[int, BrokerConnection] = {}
        """Connections to brokers that have not been found to serve yet."""
        self._zookeeper: ZookeeperServer | None = None
        self._lock = -1
        self._control = -1

    def refuse_strangers(self) -> None:
        """LocalClusterError for a directory of something else, as that of a broker alone: most often the name is a slip."""
        found = strangers_in(self.directory)
        if found:
            names = ", ".join([*found[:3], *(["..."] if len(found) > 3 else [])])
            what = "the data directory of a broker" if META_PROPERTIES in found else "no directory of a cluster and not empty"
            raise LocalClusterError(f"{self.directory}: is {what} ({names}); choose another one with --data")

    def hold(self) -> ClusterState | None:
        """Make the directory, and have it for this process alone: the state that the last supervisor has left. LocalClusterError.

        Processes that it has left are ended. None where no broker has ever served: what was chosen then does not count.
        """
        if "," in self.directory:
            raise LocalClusterError(f"{self.directory}: a comma separates directories in log.dirs, so none can have one in its name")
        try:
            os.makedirs(self.directory, exist_ok=True)
            self._lock = os.open(os.path.join(self.directory, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LocalClusterError(f"{self.directory}: `moldau cluster up` runs here already") from error
        except OSError as error:
            raise LocalClusterError(f"{self.directory}: {(error.strerror or str(error)).lower()}") from error
        before = read_state(self.directory)
        if before is None:
            return None
        self._end_leftovers(before)
        if not any(each.has_served for each in before.brokers):
            return None
        self._check_metadata(before)
        return before

    def start(self, state: ClusterState, settings: Sequence[str], own_settings: Mapping[int, Sequence[str]] | None = None) -> None:
        """Start all processes. `settings` are those of every broker, as NAME=VALUE, `own_settings` those of one, by its id.

        LocalClusterError, ZookeeperError.
        """
        self._settings = settings
        self._own_settings = own_settings or {}
        self.state = state
        self._open_control()
        for folder in (BROKER_FOLDER, LOG_FOLDER):
            os.makedirs(os.path.join(self.directory, folder), exist_ok=True)
        if state.zookeeper == START_ZOOKEEPER:
            self._start_zookeeper()
        for each in state.brokers:
            self.start_broker(each.broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that has no process, or whose process has ended."""
        broker = self.state.broker(broker_id)
        before = self._children.get(broker_id)
        if before is not None:
            before.wait()
            _close_guard(before)
        command = [sys.executable, "-I", "-S", guarded_child.__file__, sys.executable, "-P", "-m", _BROKER]
        address = f"PLAINTEXT://{broker.address}"
        directory = os.path.join(self.directory, BROKER_FOLDER, str(broker_id))
        given = (f"broker.id={broker_id}", f"listeners={address}", f"advertised.listeners={address}", self._metadata())
        command += [*self._settings, *given, *self._own_settings.get(broker_id, ()), f"log.dirs={directory}"]
        with open(log_of(self.directory, broker_id), "ab") as log:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0)
        self._children[broker_id] = child
        if broker_id in self._starting:
            self._starting.pop(broker_id).close()
        self._starting[broker_id] = BrokerConnection(broker.host, broker.port, timeout_s=ASK_S)
        brokers = [each._replace(process=identity_of(child.pid)) if each == broker else each for each in self.state.brokers]
        self.state = self.state._replace(brokers=brokers, supervisor=identity_of(os.getpid()))
        write_state(self.directory, self.state)

    def wait_serving(self) -> None:
        """Until every broker takes requests and knows all the others. LocalClusterError if one ends."""
        line_at = time.monotonic() + WAITING_LINE_S
        while not self._all_serve():
            if time.monotonic() >= line_at:
                line_at += WAITING_LINE_S
                self._report(f"waiting until all brokers know each other; their logs are in {os.path.join(self.directory, LOG_FOLDER)}")
            for broker_id, child in self._children.items():
                if child.poll() is not None:
                    raise LocalClusterError(f"broker {broker_id} ended at its start, {_how(child)}: {self._last_line(broker_id)}")
            time.sleep(POLL_S)
        self.state = self.state._replace(brokers=[each._replace(has_served=True) for each in self.state.brokers])
        write_state(self.directory, self.state)

    def takes_requests(self, broker_id: int) -> bool:
        """Whether a broker that was started is registered, and takes requests."""
        if not self._serves(broker_id, {broker_id: None}):
            return False
        if broker_id in self._starting:
            self._starting.pop(broker_id).close()
        return True

    def watch(self) -> None:
        """Report what happens, and start brokers on request; does not return."""
        running = dict.fromkeys(self._children)
        zookeeper = self._zookeeper
        while True:
            ready, _, _ = select.select([self._control], [], [], WATCH_S)
            if ready:
                self._read_requests()
            for broker_id in [each for each in running if self._children[each].poll() is not None]:
                del running[broker_id]
                self._ended(broker_id)
            for broker_id in self._restarts.copy():
                if broker_id not in running:
                    del self._restarts[broker_id]
                    self.start_broker(broker_id)
                    running[broker_id] = None
            for broker_id in [each for each in [*self._starting] if each in running and self.takes_requests(each)]:
                self._report(f"broker {broker_id} takes requests; {self._count()}")
            if zookeeper is not None and zookeeper.exit_code is not None:
                self._report(f"the ZooKeeper server ended, with code {zookeeper.exit_code}; brokers keep on serving without it")
                zookeeper = None

    def stop(self) -> None:
        """Stop all brokers at the same time, in order, then the ZooKeeper server."""
        self._signal_all(signal.SIGTERM)
        end = time.monotonic() + STOP_LIMIT_S
        while any(each.poll() is None for each in self._children.values()) and time.monotonic() < end:
            time.sleep(POLL_S)
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def kill(self) -> None:
        """End what still runs, at once."""
        self._signal_all(signal.SIGKILL)
        for child in self._children.values():
            child.wait()
            _close_guard(child)
        if self._zookeeper is not None and self._zookeeper.exit_code is None:
            self._zookeeper.kill()
        for each in self._starting.values():
            each.close()
        for descriptor in (self._control, self._lock):
            if descriptor >= 0:
                os.close(descriptor)

    # Start

    def _check_metadata(self, before: ClusterState) -> None:
        """Brokers that have served would find no topic in a new file, and refuse their directories."""
        path = os.path.join(self.directory, METADATA_FILE)
        if before.zookeeper is None and not os.path.exists(path):
            raise LocalClusterError(f"{path}: is missing, with the metadata of this cluster's topics; restore it from a backup")

    def _end_leftovers(self, before: ClusterState) -> None:
        """Processes of a supervisor that was killed are killed too; the next ones need their ports."""
        end = time.monotonic() + LEFTOVERS_END_S
        for each in before.brokers:
            while each.process and not has_ended(each.process):
                send_signal(each.process, signal.SIGKILL)
                if time.monotonic() > end:
                    raise LocalClusterError(f"broker {each.broker_id} of an earlier `moldau cluster up` does not end: process {each.pid}")
                time.sleep(POLL_S)

    def _open_control(self) -> None:
        path = os.path.join(self.directory, CONTROL_FILE)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.mkfifo(path, 0o600)
        self._control = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def _start_zookeeper(self) -> None:
        port = self.state.zookeeper_port
        assert port is not None, "the cluster's own server has a port"
        self._zookeeper = server = ZookeeperServer(os.path.join(self.directory, ZOOKEEPER_FOLDER), HOST, port)
        server.start()
        while not server.is_serving():
            if server.exit_code is not None:
                raise LocalClusterError(f"the ZooKeeper server ended at its start, with code {server.exit_code}")
            time.sleep(POLL_S)

    def _metadata(self) -> str:
        """The setting that says where it is."""
        if self.state.zookeeper is None:
            return f"metadata.store.file={os.path.join(self.directory, METADATA_FILE)}"
        servers = f"{HOST}:{self.state.zookeeper_port}" if self.state.zookeeper == START_ZOOKEEPER else self.state.zookeeper
        return f"zookeeper.connect={servers}"

    # While brokers run

    def _all_serve(self) -> bool:
        """Whether every broker knows all brokers, at the addresses that they have."""
        every = dict.fromkeys(each.broker_id for each in self.state.brokers)
        if not all(self._serves(broker_id, every) for broker_id in every):
            return False
        for each in self._starting.values():
            each.close()
        self._starting.clear()
        return True

    def _serves(self, broker_id: int, others: Mapping[int, None]) -> bool:
        """Whether a broker takes requests and knows these brokers."""
        connection = self._starting.get(broker_id)
        if connection is None:
            return True
        try:
            known = from_response(connection.request(ApiKey.METADATA, MetadataRequest([]))).brokers
        except MoldauError:
            return False
        return all(known.get(BrokerId(each.broker_id)) == (each.host, each.port) for each in self.state.brokers if each.broker_id in others)

    def _read_requests(self) -> None:
        for line in os.read(self._control, 4096).split():
            broker_id = int(line)
            if broker_id in self._children:
                self._restarts[broker_id] = None
                self._signal(broker_id, signal.SIGTERM)

    def _ended(self, broker_id: int) -> None:
        if broker_id in self._restarts:
            return
        advice = f"`moldau cluster restart {broker_id} --data {self.directory}` starts it again"
        how = _how(self._children[broker_id])
        self._report(f"broker {broker_id} ended, {how}; {self._count()}; its log is {log_of(self.directory, broker_id)}; {advice}")

    def _count(self) -> str:
        live = sum(each.poll() is None for each in self._children.values())
        return f"{live} of {len(self._children)} brokers run"

    def _signal_all(self, number: signal.Signals) -> None:
        for broker_id in self._children:
            self._signal(broker_id, number)

    def _signal(self, broker_id: int, number: signal.Signals) -> None:
        """One that is paused is continued, or it would not receive it."""
        child = self._children[broker_id]
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)

    def _last_line(self, broker_id: int) -> str:
        with open(log_of(self.directory, broker_id), "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LAST_LINE_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return lines[-1].removeprefix("Error: ") if lines else f"its log {log_of(self.directory, broker_id)} is empty"


def _close_guard(child: "subprocess.Popen[bytes]") -> None:
    """The process has ended: nothing needs to be killed with this one any more."""
    assert child.stdin is not None
    child.stdin.close()


def _how(child: "subprocess.Popen[bytes]") -> str:
    """How it ended."""
    code = child.returncode
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
