"""``moldau cluster up``: start the brokers of a cluster on this host, and stop them."""

import os
import random
import socket
from collections.abc import Sequence

import click

from moldau.adapters.process_identity import identity_of
from moldau.assembly.local_cluster.state import (
    METADATA_FILE,
    START_ZOOKEEPER,
    BrokerProcess,
    ClusterState,
    LocalClusterError,
)
from moldau.assembly.local_cluster.supervisor import HOST, Supervisor
from moldau.cli.interruptions import Interruptions
from moldau.cli.output import say
from moldau.model.config.static import environment_name

BROKERS = 3
PORT = 9092
REPLICAS_MAX = 3
FREE_PORTS = range(20_000, 32_000)
"""Where ports are picked: below those that systems give to outgoing connections (from 32768 on, or 49152). A client that tries to reach a
broker which is down may get the broker's port for its own end, and is connected with itself."""
SESSION_TIMEOUT_MS = 6000


@click.command("up")
@click.option("--data", "directory", metavar="DIR", default="moldau-cluster", show_default=True, help="Directory of the cluster.")
@click.option("--brokers", metavar="N", type=click.IntRange(1, 99), help=f"How many brokers.  [default: as before, or {BROKERS}]")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65_000),
    help=f"Port of the first broker, the others follow; 0 picks free ones.  [default: as before, or {PORT}]",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,...|start",
    help="Keep the metadata in ZooKeeper, or `start` a server for it, instead of in a file.  [default: as before]",
)
@click.option("-s", "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of all brokers; may be repeated.")
def up(directory: str, brokers: int | None, port: int | None, zookeeper: str | None, settings: tuple[str, ...]) -> None:
    """Run brokers on this host as one cluster until SIGTERM or Ctrl-C.

    It prints "listening on HOST:PORT,HOST:PORT,..." when all brokers take requests and know each other. Brokers have the ids from 1 on;
    each has its directory and its log in DIR, and keeps its port. A broker that ends is reported and stays down until `moldau cluster
    restart`. All end with this command, also when it is killed.

    New topics have 3 replicas, or as many as there are brokers, of which one may fail (min.insync.replicas).

    Exit code 1 when a broker cannot start.
    """
    supervisor = Supervisor(directory, lambda line: say(line, err=True))
    with Interruptions():
        try:
            try:
                state = _planned(directory, supervisor.hold(), brokers, port, zookeeper)
                supervisor.start(state, [*_defaults(len(state.brokers)), *settings])
                supervisor.wait_serving()
                print("listening on " + ",".join(each.address for each in state.brokers), flush=True)
                print(_status_line(supervisor), flush=True)
                supervisor.watch()
            except KeyboardInterrupt:
                pass
            supervisor.stop()
        finally:  # a second signal does not wait
            supervisor.kill()


def _planned(directory: str, before: ClusterState | None, count: int | None, port: int | None, zookeeper: str | None) -> ClusterState:
    """Brokers at the addresses that they had, where the options do not say otherwise."""
    old = {} if before is None else {each.broker_id: each for each in before.brokers}
    count = count or len(old) or BROKERS
    if count < len(old):
        raise LocalClusterError(
            f"{directory}: the cluster has {len(old)} brokers, and partitions on each; give --brokers {len(old)} or more"
        )
    if before is not None and zookeeper not in (None, before.zookeeper):
        raise LocalClusterError(
            f"{directory}: the metadata of the cluster is in {_place(before.zookeeper)}, and is not moved (--zookeeper)"
        )
    zookeeper = before.zookeeper if before is not None else zookeeper
    zookeeper_port = before.zookeeper_port if before is not None else None
    kept = {number: each.port for number, each in old.items() if port is None}
    free = _free_ports([*kept.values()])
    if zookeeper == START_ZOOKEEPER and zookeeper_port is None:
        zookeeper_port = free.pop()
    brokers: list[BrokerProcess] = []
    for number in range(1, count + 1):
        following = brokers[-1].port + 1 if brokers else port or PORT
        brokers.append(BrokerProcess(number, HOST, kept.get(number) or (free.pop() if port == 0 else following)))
    return ClusterState(brokers, identity_of(os.getpid()), zookeeper, zookeeper_port)


def _free_ports(taken: Sequence[int]) -> list[int]:
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
        if len(found) == 100:
            break
    return found


def _defaults(brokers: int) -> list[str]:
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


def _status_line(supervisor: Supervisor) -> str:
    state = supervisor.state
    where = f"data in {supervisor.directory}, metadata in {_place(state.zookeeper)}"
    return f"{len(state.brokers)} brokers run; {where}; Ctrl-C stops them"


def _place(zookeeper: str | None) -> str:
    """Where metadata is."""
    if zookeeper is None:
        return METADATA_FILE
    return "a ZooKeeper server of its own" if zookeeper == START_ZOOKEEPER else f"ZooKeeper at {zookeeper}"
