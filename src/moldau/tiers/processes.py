"""The processes of tiers on this machine: each with its command, and with what it prints when it runs.

Names are unique: ``broker.ewr`` for a cluster of one broker, ``cluster.aggregate`` for the process that has several and
``broker.aggregate.2`` for one of those, ``registry.main``, ``mirror.aggregate`` (``mirror.aggregate.2`` where several share its work),
``auditor.ewr``, ``load.lake``.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from moldau.assembly.local_cluster.state import read_state
from moldau.tiers.values import PlannedAuditor, PlannedLoad, TierMirror, Tiers
from moldau.topology.values import PlannedCluster

CLUSTERS_FOLDER = "clusters"
MIRRORS_FOLDER = "mirrors"


class ProcessKind(Enum):
    """What a process is, in the order of the start. Those of one kind start and stop together."""

    BROKER = "broker"
    """The only one of its cluster."""
    CLUSTER = "cluster"
    """`moldau cluster up`, which has the brokers of a cluster."""
    REGISTRY = "registry"
    LOAD = "load"
    AUDITOR = "auditor"
    MIRROR = "mirror"


STOP_ORDER = (
    (ProcessKind.MIRROR,),
    (ProcessKind.AUDITOR, ProcessKind.LOAD),
    (ProcessKind.REGISTRY,),
    (ProcessKind.BROKER, ProcessKind.CLUSTER),
)
"""Who writes stops first, and clusters last: so each has the brokers that it needs for its last commit."""
CLUSTER_KINDS = (ProcessKind.BROKER, ProcessKind.CLUSTER)


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """A process, and how it is started."""

    kind: ProcessKind
    name: str
    words: tuple[str, ...]
    """After ``moldau``."""
    says: str
    """How the line begins that it prints when it takes requests or has begun; empty: it prints none."""
    address: str
    """Where it listens, or the cluster that it is at."""


def processes(tiers: Tiers, directory: str, *, loads: bool) -> list[PlannedProcess]:
    """All processes that run on this machine; their data is below `directory`."""
    clusters = tiers.topology.clusters
    found = [_cluster(cluster, directory) for cluster in clusters.values() if cluster.is_started]
    for registry in tiers.topology.registries.values():
        if registry.cluster is not None:
            words = ("registry", "--bootstrap", clusters[registry.cluster].bootstrap, "--listen", str(registry.address))
            found.append(
                PlannedProcess(ProcessKind.REGISTRY, f"registry.{registry.name}", (*words, *_QUIET), "listening on ", registry.url)
            )
    if loads:
        found += [_load(tiers, load, directory) for load in tiers.loads]
    found += [_auditor(clusters[auditor.cluster], auditor) for auditor in tiers.auditors]
    for mirror in tiers.mirrors:
        found += _mirrors(mirror, directory, clusters[mirror.target])
    return found


_QUIET = ("--log-level", "warning")


def cluster_directory(directory: str, cluster: str) -> str:
    """Where the data of a cluster is."""
    return os.path.join(directory, CLUSTERS_FOLDER, cluster)


def mirror_file(directory: str, mirror: str) -> str:
    """The file of a mirror, which `moldau mirror run` takes."""
    return os.path.join(directory, MIRRORS_FOLDER, f"{mirror}.toml")


def _cluster(cluster: PlannedCluster, directory: str) -> PlannedProcess:
    data = cluster_directory(directory, cluster.name)
    settings = [word for name, text in cluster.settings.items() for word in ("--set", f"{name}={text}")]
    if len(cluster.addresses) == 1:
        words = ("serve", "--listen", cluster.bootstrap, "--data", data, *_QUIET, *settings)
        return PlannedProcess(ProcessKind.BROKER, f"broker.{cluster.name}", words, "listening on ", cluster.bootstrap)
    count, port = len(cluster.addresses), cluster.addresses[0].port
    before = read_state(data)
    kept = () if before is None else [setting.partition("=")[0] for setting in before.settings]
    dropped = [word for name in kept if name not in cluster.settings for word in ("--delete", name)]
    words = ("cluster", "up", "--data", data, "--brokers", str(count), "--port", str(port), *settings, *dropped)
    return PlannedProcess(ProcessKind.CLUSTER, f"cluster.{cluster.name}", words, "listening on ", cluster.bootstrap)


def _auditor(cluster: PlannedCluster, auditor: PlannedAuditor) -> PlannedProcess:
    words = ["audit", "run", "--bootstrap", cluster.bootstrap, "--tier", auditor.tier, "--interval", str(auditor.interval_s)]
    if auditor.topics is not None:
        words += ["--topics", auditor.topics.pattern]
    return PlannedProcess(ProcessKind.AUDITOR, f"auditor.{auditor.name}", tuple(words), "auditing ", cluster.bootstrap)


def _mirrors(mirror: TierMirror, directory: str, target: PlannedCluster) -> Iterator[PlannedProcess]:
    for number in range(1, mirror.instances + 1):
        words = ("mirror", "run", mirror_file(directory, mirror.name), "--instance", str(number))
        name = f"mirror.{mirror.name}" + (f".{number}" if mirror.instances > 1 else "")
        yield PlannedProcess(ProcessKind.MIRROR, name, words, "mirror ", target.bootstrap)


def _load(tiers: Tiers, load: PlannedLoad, directory: str) -> PlannedProcess:
    cluster = tiers.topology.clusters[load.cluster]
    names = "|".join(map(re.escape, load.topics))  # as a pattern: topics that a mirror has not made yet are waited for
    words = ["load", "--bootstrap", cluster.bootstrap, "--pattern", names, "--to", os.path.join(directory, load.to)]
    words += ["--name", load.name, "--tier", load.tier, "--every", str(load.interval_s)]
    registry = tiers.topology.registry_of(cluster.datacenter)
    if registry is not None:
        words += ["--registry", registry.url]
    return PlannedProcess(ProcessKind.LOAD, f"load.{load.name}", tuple(words), "", cluster.bootstrap)
