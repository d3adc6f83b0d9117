"""The directory of tiers on this machine, and the file in it that names their processes. `moldau tiers up` writes the file, others read it.

```
DIR/tiers.json            the processes, and the one that started them
DIR/tiers.lock            held by `moldau tiers up`
DIR/clusters/NAME         data of a cluster
DIR/mirrors/NAME.toml     the file of a mirror
DIR/audit/CATEGORY.toml   the tiers of the audit
DIR/logs/PROCESS.log      what a process prints
```
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.adapters.process_identity import ProcessState, has_ended, pid_of, state_of
from moldau.adapters.whole_file import write_whole
from moldau.assembly.local_cluster.state import read_state
from moldau.model.errors import MoldauError
from moldau.model.near_names import did_you_mean
from moldau.tiers.processes import ProcessKind, cluster_directory

STATE_FILE = "tiers.json"
LOCK_FILE = "tiers.lock"
AUDIT_FOLDER = "audit"
LOG_FOLDER = "logs"
_FORMAT = 1


class TiersError(MoldauError):
    """The tiers, or a process of them, are not in a state for this."""


@dataclass(frozen=True, slots=True)
class TierProcess:
    """A process of the tiers: its latest one."""

    kind: str
    name: str
    address: str
    process: str
    """Identity; empty before the first."""
    restarts: int | None = 0
    """How often it was started again; None for a broker of several, whose cluster does not count that."""
    serves: bool = True
    """Whether its latest process has begun its work."""

    @property
    def pid(self) -> int | None:
        """None if it has ended."""
        return None if self.state is ProcessState.DEAD else pid_of(self.process)

    @property
    def state(self) -> ProcessState:
        """Found out now."""
        return state_of(self.process)


@dataclass(frozen=True, slots=True)
class TiersState:
    """What the file says."""

    name: str
    file: str
    supervisor: str
    """Identity of `moldau tiers up`."""
    children: Sequence[TierProcess]
    """Those that it has started itself."""

    @property
    def is_supervised(self) -> bool:
        """Whether `moldau tiers up` runs."""
        return not has_ended(self.supervisor)

    def processes(self, directory: str) -> list[TierProcess]:
        """All processes; the brokers of a cluster after the process that has started them."""
        return [each for child in self.children for each in (child, *_brokers(directory, child))]

    def process(self, directory: str, name: str) -> TierProcess:
        """The process of this name. TiersError."""
        found = {each.name: each for each in self.processes(directory)}
        if name not in found:
            raise TiersError(f"there is no process {name!r} of these tiers{did_you_mean(name, found)}; there are {', '.join(found)}")
        return found[name]


def restarted(directory: str, before: TierProcess) -> TierProcess | None:
    """The process that was started after this one, once it has begun its work; None until then. TiersError."""
    now = existing_tiers_state(directory).process(directory, before.name)
    return now if now.process != before.process and now.serves and now.state is not ProcessState.DEAD else None


def _brokers(directory: str, child: TierProcess) -> Iterator[TierProcess]:
    if child.kind != ProcessKind.CLUSTER.value:
        return
    cluster = child.name.partition(".")[2]
    state = read_state(cluster_directory(directory, cluster))
    for each in () if state is None else state.brokers:
        yield TierProcess(ProcessKind.BROKER.value, f"broker.{cluster}.{each.broker_id}", each.address, each.process, restarts=None)


def read_tiers_state(directory: str) -> TiersState | None:
    """What the file says; None without one. TiersError for one that cannot be read."""
    path = os.path.join(directory, STATE_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return _decode(json.load(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TiersError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TiersError(f"{path}: not the state of tiers; if no process of them runs, remove the file") from error


def existing_tiers_state(directory: str) -> TiersState:
    """What the file says. TiersError without one."""
    state = read_tiers_state(directory)
    if state is None:
        raise TiersError(f"{directory}: there are no tiers here; `moldau tiers up FILE --data {directory}` starts them")
    return state


def write_tiers_state(directory: str, state: TiersState) -> None:
    """Replace the file."""
    document = {
        "format": _FORMAT,
        "name": state.name,
        "file": state.file,
        "supervisor": state.supervisor,
        "processes": [
            {
                "kind": each.kind,
                "name": each.name,
                "address": each.address,
                "process": each.process,
                "restarts": each.restarts,
                "serves": each.serves,
            }
            for each in state.children
        ],
    }
    write_whole(os.path.join(directory, STATE_FILE), json.dumps(document, indent=1))


def log_of(directory: str, process: str) -> str:
    """The file with what a process prints."""
    return os.path.join(directory, LOG_FOLDER, f"{process}.log")


def _decode(document: Any) -> TiersState:
    if document["format"] != _FORMAT:
        raise ValueError("another format")
    return TiersState(document["name"], document["file"], document["supervisor"], [TierProcess(**each) for each in document["processes"]])
