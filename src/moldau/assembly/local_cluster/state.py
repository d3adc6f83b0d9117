"""The directory of a cluster on this host, and the file in it that names its processes. The supervisor writes the file, others read it.

```
DIR/cluster.json       the brokers: id, address, process; the supervisor's process
DIR/cluster.control    requests to the supervisor, a named pipe
DIR/cluster.lock       held by the supervisor
DIR/cluster.sqlite     metadata, where that is not in ZooKeeper
DIR/zookeeper          data of the ZooKeeper server that belongs to the cluster, if any
DIR/brokers/ID         data directory of a broker
DIR/logs/broker-ID.log what it prints
```
"""

import errno
import json
import os
from collections.abc import Sequence
from typing import Any

from moldau.adapters.process_identity import ProcessState, has_ended, pid_of, state_of
from moldau.adapters.whole_file import write_whole
from moldau.model.errors import MoldauError
from moldau.model.value import Value

STATE_FILE = "cluster.json"
CONTROL_FILE = "cluster.control"
LOCK_FILE = "cluster.lock"
METADATA_FILE = "cluster.sqlite"
ZOOKEEPER_FOLDER = "zookeeper"
BROKER_FOLDER = "brokers"
LOG_FOLDER = "logs"
START_ZOOKEEPER = "start"
"""In place of addresses: the cluster has a ZooKeeper server of its own."""
_FORMAT = 1


class LocalClusterError(MoldauError):
    """The cluster, or a broker of it, is not in a state for this."""


class BrokerProcess(Value):
    """A broker of the cluster, and its latest process."""

    broker_id: int
    host: str
    port: int
    process: str = ""
    """Identity of its process; empty before the first."""
    has_served: bool = False
    """Whether it has ever been up together with all others: only then has it data of theirs."""

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Id of its process; None if that has ended."""
        return None if self.state is ProcessState.DEAD else pid_of(self.process)

    @property
    def state(self) -> ProcessState:
        """What has become of it, found out now."""
        return state_of(self.process)


class ClusterState(Value):
    """What the file says."""

    brokers: Sequence[BrokerProcess]
    supervisor: str
    """Identity of the process that started the brokers."""
    zookeeper: str | None = None
    """None for metadata in a file, `START_ZOOKEEPER`, or addresses as `moldau serve --zookeeper` takes them."""
    zookeeper_port: int | None = None
    """Where the cluster's own ZooKeeper server listens."""
    settings: Sequence[str] = ()
    """What was set for all brokers, as NAME=VALUE."""

    @property
    def is_supervised(self) -> bool:
        """Whether `moldau cluster up` runs."""
        return not has_ended(self.supervisor)

    def broker(self, broker_id: int) -> BrokerProcess:
        """The broker of this id. LocalClusterError."""
        for each in self.brokers:
            if each.broker_id == broker_id:
                return each
        ids = ", ".join(str(each.broker_id) for each in self.brokers)
        raise LocalClusterError(f"there is no broker {broker_id} in this cluster, there are {ids}")


def read_state(directory: str) -> ClusterState | None:
    """What the file says; None without one. LocalClusterError for one that cannot be read."""
    path = os.path.join(directory, STATE_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return _decode(document)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LocalClusterError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LocalClusterError(f"{path}: not the state of a cluster; if no broker of it runs, remove the file") from error


def existing_state(directory: str) -> ClusterState:
    """What the file says. LocalClusterError without one."""
    state = read_state(directory)
    if state is None:
        raise LocalClusterError(f"{directory}: there is no cluster here; `moldau cluster up --data {directory}` starts one")
    return state


def write_state(directory: str, state: ClusterState) -> None:
    """Replace the file."""
    document = {
        "format": _FORMAT,
        "supervisor": state.supervisor,
        "zookeeper": state.zookeeper,
        "zookeeper_port": state.zookeeper_port,
        "settings": list(state.settings),
        "brokers": [
            {"id": each.broker_id, "host": each.host, "port": each.port, "process": each.process, "has_served": each.has_served}
            for each in state.brokers
        ],
    }
    write_whole(os.path.join(directory, STATE_FILE), json.dumps(document, indent=1))


def strangers_in(directory: str) -> list[str]:
    """What lies in a directory that has no cluster yet, sorted: none of the files above. Hidden files do not count."""
    own = (STATE_FILE, CONTROL_FILE, LOCK_FILE, METADATA_FILE)
    folders = (ZOOKEEPER_FOLDER, BROKER_FOLDER, LOG_FOLDER, "lost+found")
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    if STATE_FILE in names:
        return []
    return sorted(name for name in names if not name.startswith((".", *own)) and name not in folders)


def not_permitted(directory: str, action: str) -> LocalClusterError:
    """The error for a user who is not the one that the processes belong to."""
    import pwd

    try:
        owner = os.stat(os.path.join(directory, STATE_FILE)).st_uid
        user = pwd.getpwuid(owner).pw_name
    except (OSError, KeyError):
        user = "that started the cluster"
    return LocalClusterError(f"{directory}: no permission to {action}; run this command as the user {user}")


def log_of(directory: str, broker_id: int) -> str:
    """The file with what a broker prints."""
    return os.path.join(directory, LOG_FOLDER, f"broker-{broker_id}.log")


def request_restart(directory: str, broker_id: int) -> None:
    """Have the supervisor start a broker again. LocalClusterError if none runs."""
    try:
        control = os.open(os.path.join(directory, CONTROL_FILE), os.O_WRONLY | os.O_NONBLOCK)
    except PermissionError as error:
        raise not_permitted(directory, f"restart broker {broker_id}") from error
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENOENT):
            raise
        reason = "`moldau cluster up` does not run here, and only it starts brokers"
        raise LocalClusterError(f"{directory}: {reason}") from error
    try:
        os.write(control, f"{broker_id}\n".encode())
    finally:
        os.close(control)


def _decode(document: Any) -> ClusterState:
    if document["format"] != _FORMAT:
        raise ValueError("another format")
    brokers = [
        BrokerProcess(each["id"], each["host"], each["port"], each["process"], each.get("has_served", True)) for each in document["brokers"]
    ]
    return ClusterState(brokers, document["supervisor"], document["zookeeper"], document["zookeeper_port"], document.get("settings", []))
