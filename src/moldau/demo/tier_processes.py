"""The topology of the demonstration, run by `moldau tiers up`: local clusters, mirrors, an aggregate, its copy, and an auditor of each."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from moldau.adapters.process_identity import send_signal
from moldau.adapters.whole_file import write_whole
from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.client.partition_requests import LATEST
from moldau.demo.brokers import Servers
from moldau.demo.children import ChildError, started
from moldau.demo.topology import AGGREGATE, BROKERS, CATEGORY, DATACENTERS, NAME, OFFLINE, REGISTRY, TopologyPorts, topology_text
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.tiers.audit_trees import audit_trees
from moldau.tiers.file import read_tiers
from moldau.tiers.state import TierProcess, existing_tiers_state, restarted
from moldau.tracking.audit_record import AUDIT_TOPIC, ensure_audit_topic

if TYPE_CHECKING:
    from moldau.audit.tree import TierTree
    from moldau.demo.crash import KillableMirror
    from moldau.demo.report import DemoReport
    from moldau.demo.tiers import TierWatch, Timeline

MIRROR = f"mirror.{AGGREGATE}"
LIMIT_S = 120.0
_POLL_S = 0.05


class TierProcesses(Servers):
    """`moldau tiers up` over `file`, which is made here; its data is in `data`, what it prints goes to `log`."""

    audit_limit_s = 90.0
    """For all auditors to have counted everything, on a machine that is busy."""

    def __init__(self, file: Path, data: Path, log: Path, topic: str, partitions: int) -> None:
        super().__init__(data, BROKERS)
        self.file = file
        self._data = str(data)
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self.mirror = MIRROR
        self._killed: dict[str, tuple[TierProcess, float]] = {}
        """By name: the process that was killed last, and when, by the monotonic clock."""

    def start(self) -> Self:
        """Wait until all take requests. ChildError."""
        write_whole(self.file, topology_text(self._topic, self._partitions, TopologyPorts.free()))
        self._tiers = read_tiers(self.file)
        child, _ = started(["tiers", "up", str(self.file), "--data", self._data], self._log, f"{NAME} is up: ")
        self._children.append(child)
        self.bootstrap = self._bootstrap(OFFLINE)
        self.registry = self._tiers.topology.registries[REGISTRY].url
        return self

    def prepare(self, topic: str, partitions: int) -> None:
        """The file has the topic, in local clusters; mirrors make it in the others, which is waited for. ChildError if they do not."""
        for bootstrap in self.audited.values():
            ensure_audit_topic(bootstrap)
            with Cluster(bootstrap, client_id="moldau-demo") as cluster:
                Admin(cluster).alter_configs(AdminResource(AdminResourceType.TOPIC, AUDIT_TOPIC), ConfigUpdate({"retention.ms": "-1"}))
        for name in (AGGREGATE, OFFLINE):
            with Cluster(self._bootstrap(name), client_id="moldau-demo") as cluster:
                self._wait_for_topic(cluster, name, topic, partitions)

    @property
    def tree(self) -> "TierTree":
        """Of the file, with the load."""
        from moldau.audit.tree import read_tree

        return read_tree(audit_trees(self._tiers, loads=True)[CATEGORY])

    @property
    def cluster_tier(self) -> str:
        """That of the offline cluster."""
        return OFFLINE

    @property
    def audited(self) -> Mapping[str, str]:
        """All clusters."""
        return {name: cluster.bootstrap for name, cluster in self._tiers.topology.clusters.items()}

    def published_to(self, hosts: int) -> Sequence[tuple[str, str | None]]:
        """Each host to the local cluster of its data centre."""
        if hosts != len(DATACENTERS):
            raise ValueError(f"there are {len(DATACENTERS)} data centres, and {hosts} hosts")
        return [(self._tiers.topology.place(CATEGORY, name).bootstrap, name) for name in DATACENTERS]

    def start_audit(self, logs: Path) -> None:
        """The auditors are among the tiers."""

    def end_audit(self) -> None:
        """The auditors publish every two seconds; `TierWatch.finish` waits for that."""

    def published(self) -> int:
        """How many records the topic has in all local clusters. The client's errors."""
        found = 0
        for bootstrap, _ in self.published_to(len(DATACENTERS)):
            with Cluster(bootstrap, client_id="moldau-demo") as cluster:
                partitions = [TopicPartition(self._topic, each.partition) for each in cluster.topic(self._topic).partitions]
                found += sum(end.offset for end in cluster.list_offsets(dict.fromkeys(partitions, LATEST)).values())
        return found

    def arrival(self, watch: "TierWatch") -> Callable[[], bool]:
        """In the offline cluster, by the counts of its auditor."""
        from moldau.demo.arrival import Arrival

        return Arrival(self.published, lambda: watch.arrived(OFFLINE)).complete

    def picture(self, timeline: "Timeline", report: "DemoReport", tree: "TierTree") -> str:
        """The tree of the tiers, with its counts."""
        from moldau.audit.picture import tree_picture

        return tree_picture(report.audit, tree)

    # What is killed

    @property
    def crashes_in(self) -> str:
        """The aggregate."""
        return self._bootstrap(AGGREGATE)

    @property
    def killed_mirror(self) -> "KillableMirror":
        """That of the aggregate."""
        return self

    def kill(self, broker_id: int) -> None:
        """SIGKILL for a broker of the aggregate."""
        self._kill(_broker(broker_id))

    def restart(self, broker_id: int) -> None:
        """`moldau tiers up` starts it again; wait for that. ChildError."""
        self._wait_restarted(_broker(broker_id))

    def kill_mirror(self) -> None:
        """SIGKILL for the mirror that merges the local clusters."""
        self._kill(MIRROR)

    def wait_for_mirror(self) -> float:
        """Until `moldau tiers up` has started it again, and it mirrors: so many seconds after the kill. ChildError."""
        return self._wait_restarted(MIRROR)

    def _kill(self, name: str) -> None:
        process = existing_tiers_state(self._data).process(self._data, name)
        self._killed[name] = (process, time.monotonic())
        send_signal(process.process, signal.SIGKILL)

    def _wait_restarted(self, name: str) -> float:
        before, killed = self._killed[name]
        end = killed + LIMIT_S
        while restarted(self._data, before) is None:
            if time.monotonic() > end:
                raise ChildError(f"{name} was killed, and does not run again after {LIMIT_S:.0f} s; {self._log} has more")
            time.sleep(_POLL_S)
        return time.monotonic() - killed

    def _bootstrap(self, cluster: str) -> str:
        return self._tiers.topology.clusters[cluster].bootstrap

    def _wait_for_topic(self, cluster: Cluster, name: str, topic: str, partitions: int) -> None:
        end = time.monotonic() + LIMIT_S
        while _partitions(cluster, topic) != partitions:
            if time.monotonic() > end:
                raise ChildError(
                    f"topic {topic} is not in cluster {name} after {LIMIT_S:.0f} s: its mirror does not run; {self._log} has more"
                )
            time.sleep(_POLL_S)


def _broker(broker_id: int) -> str:
    return f"broker.{AGGREGATE}.{broker_id}"


def _partitions(cluster: Cluster, topic: str) -> int:
    """0 if the topic does not exist, and while partitions have no leader."""
    try:
        found = cluster.topic(topic).partitions
    except PeerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return 0
    return len(found) if all(each.leader >= 0 for each in found) else 0
