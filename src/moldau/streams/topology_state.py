"""Where the process that runs a topology notes itself: a directory of its own, for `moldau stream stop` on the same host.

```
DIR/stream.json      the topology's name and file, and its process
DIR/stream.lock      held by that process
DIR/logs/JOB.log     what a job prints
```
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass

from moldau.adapters.process_identity import has_ended, identity_of, pid_of
from moldau.adapters.whole_file import write_whole
from moldau.streams.errors import StreamError
from moldau.streams.topology_file import StreamTopology

FOLDER = "moldau-stream"
STATE_FILE, LOCK_FILE, LOG_FOLDER = "stream.json", "stream.lock", "logs"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class TopologyProcess:
    """The process that runs a topology, or has run it."""

    name: str
    file: str
    process: str
    """Identity."""

    @property
    def runs(self) -> bool:
        """Whether it lives."""
        return not has_ended(self.process)

    @property
    def pid(self) -> int:
        """Its id."""
        return pid_of(self.process)


def default_directory(topology: StreamTopology) -> str:
    """Of a topology for which none is given."""
    return os.path.join(FOLDER, topology.name)


def log_of(directory: str, job: str) -> str:
    """The file with what a job prints."""
    return os.path.join(directory, LOG_FOLDER, f"{job}.log")


def hold(topology: StreamTopology, directory: str) -> int:
    """Make the directory, and have it for this process, as long as the descriptor is open. StreamError."""
    try:
        os.makedirs(os.path.join(directory, LOG_FOLDER), exist_ok=True)
        lock = os.open(os.path.join(directory, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StreamError(f"{directory}: {(error.strerror or str(error)).lower()}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        other = read_process(directory)
        who = "another process" if other is None else f"process {other.pid}, of {other.file},"
        raise StreamError(f"{directory}: {who} runs a topology here; --data names another directory") from error
    before = read_process(directory)
    if before is not None and before.name != topology.name:
        os.close(lock)
        raise StreamError(f"{directory}: is of topology {before.name}; --data names another directory")
    process = TopologyProcess(topology.name, os.path.abspath(topology.file), identity_of(os.getpid()))
    write_whole(os.path.join(directory, STATE_FILE), json.dumps({"format": _FORMAT, **asdict(process)}))
    return lock


def read_process(directory: str) -> TopologyProcess | None:
    """What the file says; None without one. StreamError for one that cannot be read."""
    path = os.path.join(directory, STATE_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document.pop("format") != _FORMAT:
            raise ValueError("another format")
        return TopologyProcess(**document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StreamError(f"{path}: is not the state of a topology; if none runs here, remove it: {error}") from error
