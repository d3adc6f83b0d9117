"""Which brokers a cluster on this host has, on which ports, with which settings."""

import os
import random
import socket
from collections.abc import Collection, Mapping, Sequence

from moldau.adapters.process_identity import identity_of
from moldau.assembly.local_cluster.state import METADATA_FILE, START_ZOOKEEPER, BrokerProcess, ClusterState, LocalClusterError
from moldau.model.config.definition import InvalidConfigError
from moldau.model.config.static import environment_name, read_static

HOST = "127.0.0.1"
BROKERS = 3
PORT = 9092
REPLICAS_MAX = 3
FREE_PORTS = range(20_000, 32_000)
"""Where ports are picked: below those that systems give to outgoing connections (from 32768 on, or 49152). A client that tries to reach a
broker which is down may get the broker's port for its own end, and is connected with itself."""
FREE_PORTS_MAX = 100
SESSION_TIMEOUT_MS = 6000
_IDS, _DATA, _ADDRESSES, _METADATA = "ids are 1 to --brokers", "data is in --data", "--port chooses addresses", "--zookeeper chooses where"
_OF_EACH = {
    "broker.id": _IDS,
    "node.id": _IDS,
    "log.dirs": _DATA,
    "log.dir": _DATA,
    "listeners": _ADDRESSES,
    "advertised.listeners": _ADDRESSES,
    "metadata.store.file": _METADATA,
    "zookeeper.connect": _METADATA,
}
"""Settings that each broker gets its own value of, or that options have, with what decides."""


def plan(
    directory: str, before: ClusterState | None, count: int | None, port: int | None, zookeeper: str | None, settings: Sequence[str] = ()
) -> ClusterState:
    """Brokers at the addresses that they had `before`, if the rest does not say otherwise; `port` 0 picks free ones. LocalClusterError.

    Brokers that were added and have never served may be left out again.
    """
    served = 0 if before is None else sum(each.has_served for each in before.brokers)
    old = {} if before is None else {each.broker_id: each for each in before.brokers}
    count = count or len(old) or BROKERS
    if count < served:
        raise LocalClusterError(f"{directory}: the cluster has {served} brokers, and partitions on each; give --brokers {served} or more")
    if before is not None and zookeeper not in (None, before.zookeeper):
        raise LocalClusterError(
            f"{directory}: the metadata of the cluster is in {metadata_place(before.zookeeper)}, and is not moved (--zookeeper)"
        )
    zookeeper = before.zookeeper if before is not None else zookeeper
    zookeeper_port = before.zookeeper_port if before is not None else None
    kept = {number: each.port for number, each in old.items() if port is None}
    free = free_ports([*kept.values()])
    if zookeeper == START_ZOOKEEPER and zookeeper_port is None:
        zookeeper_port = free.pop()
    brokers: list[BrokerProcess] = []
    for number in range(1, count + 1):
        following = brokers[-1].port + 1 if brokers else port or PORT
        chosen = kept.get(number) or (free.pop() if port == 0 else following)
        brokers.append(BrokerProcess(number, HOST, chosen, has_served=number in old and old[number].has_served))
    return ClusterState(brokers, identity_of(os.getpid()), zookeeper, zookeeper_port, settings)


def check_settings(settings: Sequence[str], environment: Mapping[str, str]) -> None:
    """InvalidConfigError for a setting, given as NAME=VALUE, that no broker takes, or that is not one for all of them."""
    for setting in settings:
        reason = _OF_EACH.get(setting.partition("=")[0].strip())
        if reason is not None:
            raise InvalidConfigError(f"--set {setting}: not for all brokers; {reason}")
    read_static(environment=environment, settings=settings)


def kept_settings(before: ClusterState | None, changes: Sequence[str], deleted: Sequence[str]) -> list[str]:
    """The settings from now on, as NAME=VALUE: those of before, changed. LocalClusterError for one to delete that is not there."""
    kept = {} if before is None else dict(map(_split, before.settings))
    for name in deleted:
        if kept.pop(name, None) is None:
            raise LocalClusterError(f"--delete {name}: not set here" + (f"; set are {', '.join(kept)}" if kept else ""))
    kept.update(map(_split, changes))
    return [f"{name}={text}" for name, text in kept.items()]


def _split(setting: str) -> tuple[str, str]:
    name, _, text = setting.partition("=")
    return name.strip(), text.strip()


def check_ports(state: ClusterState) -> None:
    """LocalClusterError where another process listens at a broker's address."""
    for each in state.brokers:
        reason = why_taken(each.host, each.port)
        if reason:
            raise LocalClusterError(
                f"broker {each.broker_id} cannot listen on {each.address}: {reason}; "
                "stop the process that listens there, or choose other ports with --port (0 picks free ones)"
            )


def why_taken(host: str, port: int) -> str:
    """Why a process cannot listen there; empty if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as brokers do: connections that ended are not in the way
        try:
            probe.bind((host, port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


def free_ports(taken: Collection[int] = ()) -> list[int]:
    """Enough for all brokers that there may be, without listeners now."""
    found = []
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in taken:
            found.append(port)
        if len(found) == FREE_PORTS_MAX:
            break
    return found


def default_settings(brokers: int) -> list[str]:
    """Settings that the environment does not have."""
    replicas = min(brokers, REPLICAS_MAX)
    in_sync = max(1, replicas - 1)
    values = {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    }
    return [f"{name}={value}" for name, value in values.items() if environment_name(name) not in os.environ]


def metadata_place(zookeeper: str | None) -> str:
    """Where metadata is, in words."""
    if zookeeper is None:
        return METADATA_FILE
    return "a ZooKeeper server of its own" if zookeeper == START_ZOOKEEPER else f"ZooKeeper at {zookeeper}"
