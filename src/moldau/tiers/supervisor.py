"""The process that starts tiers on this machine, starts again what ends, and stops them: first those who write, clusters last."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping

from moldau.adapters.process_identity import ProcessState, has_ended, identity_of
from moldau.adapters.whole_file import write_whole
from moldau.assembly.local_cluster.plan import why_taken
from moldau.assembly.local_cluster.state import LocalClusterError, read_state, request_restart
from moldau.assembly.local_cluster.state import log_of as broker_log
from moldau.client.admin import BROKER_DEFAULT, Admin
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.model.backoff import Backoff
from moldau.model.errors import ErrorCode
from moldau.model.host_port import Address
from moldau.tiers.audit_trees import audit_trees
from moldau.tiers.child import Child
from moldau.tiers.processes import CLUSTER_KINDS, CLUSTERS_FOLDER, MIRRORS_FOLDER, STOP_ORDER, ProcessKind, cluster_directory, mirror_file
from moldau.tiers.processes import processes as processes_of
from moldau.tiers.state import AUDIT_FOLDER, LOCK_FILE, LOG_FOLDER, STATE_FILE, TiersError, TiersState, read_tiers_state, write_tiers_state
from moldau.tiers.values import Tiers

POLL_S = 0.02
WATCH_S = 0.1
BROKERS_WATCH_S = 0.5
START_LIMIT_S = 120.0
WAITING_LINE_S = 10.0
LEFTOVERS_END_S = 10.0
STOP_LIMIT_S = 60.0
TOPIC_LIMIT_S = 30.0


class TiersSupervisor:
    """See the module. `hold` first; `stop` or `kill` last."""

    def __init__(self, tiers: Tiers, directory: str, report: Callable[[str], object], *, loads: bool) -> None:
        """`report` receives lines for a person; `loads`: whether loads are started too."""
        self.directory = os.path.abspath(directory)
        self._tiers = tiers
        self._loads = loads
        self._report = report
        self.children = [Child(each, self.directory) for each in processes_of(tiers, self.directory, loads=loads)]
        self._backoffs = {child.planned.name: Backoff() for child in self.children}
        self._brokers: dict[str, Backoff] = {}
        """Of the brokers of clusters with several, by the name of the process."""
        self._brokers_at = 0.0
        self._lock = -1

    def hold(self) -> None:
        """Make the directory, and have it for this process alone. TiersError."""
        if os.path.isdir(self.directory) and read_tiers_state(self.directory) is None:
            self._refuse_strangers()
        try:
            os.makedirs(self.directory, exist_ok=True)
            self._lock = os.open(os.path.join(self.directory, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TiersError(f"{self.directory}: `moldau tiers up` runs here already") from error
        except OSError as error:
            raise TiersError(f"{self.directory}: {(error.strerror or str(error)).lower()}") from error
        before = read_tiers_state(self.directory)
        if before is not None:
            self._wait_for_leftovers(before)
        self._refuse_taken_addresses()

    def start(self) -> None:
        """Start everything, in the order of what needs what, and wait until all of it runs. TiersError if a process ends."""
        for folder in (CLUSTERS_FOLDER, MIRRORS_FOLDER, AUDIT_FOLDER, LOG_FOLDER):
            os.makedirs(os.path.join(self.directory, folder), exist_ok=True)
        self._write_files()
        self._start_all(child for child in self.children if child.planned.kind in CLUSTER_KINDS)
        self._make_topics()
        self._start_all(child for child in self.children if child.planned.kind not in CLUSTER_KINDS)

    def watch(self) -> None:
        """Start again what ends, and report it; does not return."""
        while True:
            now = time.monotonic()
            changed = False
            for child in self.children:
                changed |= self._watch(child, now)
            if changed:
                self._write_state()
            if now >= self._brokers_at:
                self._brokers_at = now + BROKERS_WATCH_S
                self._watch_brokers(now)
            time.sleep(WATCH_S)

    def stop(self) -> None:
        """Stop all of it in order: each kind when the one before has ended."""
        for kinds in STOP_ORDER:
            stopping = [child for child in self.children if child.planned.kind in kinds]
            for child in stopping:
                child.signal(signal.SIGTERM)
            end = time.monotonic() + STOP_LIMIT_S
            while not all(child.ended for child in stopping) and time.monotonic() < end:
                time.sleep(POLL_S)

    def kill(self) -> None:
        """End what still runs, at once."""
        for child in self.children:
            child.signal(signal.SIGKILL)
            child.close()
        if self._lock >= 0:
            os.close(self._lock)

    # Start

    def _refuse_strangers(self) -> None:
        """TiersError for a directory of something else: most often the name is a slip."""
        found = sorted(name for name in os.listdir(self.directory) if not name.startswith((".", LOCK_FILE, STATE_FILE)))
        if found:
            names = ", ".join([*found[:3], *(["..."] if len(found) > 3 else [])])
            raise TiersError(f"{self.directory}: is no directory of tiers and not empty ({names}); choose another one with --data")

    def _refuse_taken_addresses(self) -> None:
        """TiersError: the address of a cluster or a registry that is to be started is taken."""
        topology = self._tiers.topology
        for cluster in topology.clusters.values():
            for address in cluster.addresses if cluster.is_started else ():
                _refuse_taken(f"cluster {cluster.name}", address, topology.file)
        for registry in topology.registries.values():
            if registry.cluster is not None and registry.address is not None:
                _refuse_taken(f"registry {registry.name}", registry.address, topology.file)

    def _wait_for_leftovers(self, before: TiersState) -> None:
        """Processes of a supervisor that was killed end by themselves; the next ones need their ports and directories."""
        end = time.monotonic() + LEFTOVERS_END_S
        for each in before.processes(self.directory):
            while each.process and not has_ended(each.process):
                if time.monotonic() > end:
                    raise TiersError(f"{each.name} of an earlier `moldau tiers up` does not end: process {each.pid}")
                time.sleep(POLL_S)

    def _write_files(self) -> None:
        for mirror in self._tiers.mirrors:
            write_whole(mirror_file(self.directory, mirror.name), mirror.text)
        for category, text in audit_trees(self._tiers, loads=self._loads).items():
            write_whole(os.path.join(self.directory, AUDIT_FOLDER, f"{category}.toml"), text)

    def _start_all(self, children: Iterable[Child]) -> None:
        """Start these at the same time, and wait until all run."""
        starting = list(children)
        for child in starting:
            self._start(child)
        self._write_state()
        begin = time.monotonic()
        line_at = begin + WAITING_LINE_S
        missing = starting
        while missing := [child for child in missing if not self._has_begun(child)]:
            for child in starting:
                if child.ended:
                    raise TiersError(f"{child.planned.name} ended at its start, {child.how}; its log is {child.log}")
            now = time.monotonic()
            names = ", ".join(child.planned.name for child in missing)
            if now > begin + START_LIMIT_S:
                raise TiersError(
                    f"{names}: not running after {START_LIMIT_S:.0f} s; logs are in {os.path.join(self.directory, LOG_FOLDER)}"
                )
            if now >= line_at:
                line_at += WAITING_LINE_S
                self._report(f"waiting for {names}")
            time.sleep(POLL_S)
        self._write_state()

    def _has_begun(self, child: Child) -> bool:
        if child.serves or not child.look():
            return child.serves
        self._report(f"{child.planned.name} runs")
        return True

    def _make_topics(self) -> None:
        """The topics of the file in the local clusters of their categories; one that exists is left as it is."""
        for category in self._tiers.topology.categories.values():
            topics = self._tiers.topics_of(category.name)
            for name in category.clusters.values() if topics else ():
                cluster = self._tiers.topology.clusters[name]
                if not cluster.is_started:
                    continue
                with Cluster(cluster.bootstrap, timeout_s=TOPIC_LIMIT_S) as connected:
                    for topic in topics:
                        _make_topic(Admin(connected), topic.name, topic.partitions or BROKER_DEFAULT, topic.configs)

    # While they run

    def _watch(self, child: Child, now: float) -> bool:
        """Whether something has changed."""
        name, backoff = child.planned.name, self._backoffs[child.planned.name]
        if backoff.due_at is not None:
            if now < backoff.due_at:
                return False
            self._start(child)
            return True
        if child.ended:
            pause_s = backoff.ended(now)
            what = f"stopped; it is started again in {pause_s:g} s"
            if child.has_failed:
                what = f"ended, {child.how}; it is started again in {pause_s:g} s; its log is {child.log}"
            self._report(f"{name} {what}")
            return True
        if child.look():
            self._report(f"{name} runs again")
            return True
        return False

    def _start(self, child: Child) -> None:
        child.start()
        self._backoffs[child.planned.name].started(time.monotonic())

    def _watch_brokers(self, now: float) -> None:
        """Brokers of a cluster with several are started by `moldau cluster up`, and started again by it on request only."""
        for child in self.children:
            if child.planned.kind is ProcessKind.CLUSTER and child.serves and not child.ended:
                cluster = child.planned.name.partition(".")[2]
                self._watch_cluster(cluster, cluster_directory(self.directory, cluster), now)

    def _watch_cluster(self, cluster: str, directory: str, now: float) -> None:
        state = read_state(directory)
        for broker in () if state is None else state.brokers:
            name = f"broker.{cluster}.{broker.broker_id}"
            backoff = self._brokers.setdefault(name, Backoff())
            if broker.state is not ProcessState.DEAD:
                if backoff.due_at is not None:
                    backoff.started(now)
                    self._report(f"{name} runs again")
            elif backoff.due_at is None:
                pause_s = backoff.ended(now)
                self._report(f"{name} ended; it is started again in {pause_s:g} s; its log is {broker_log(directory, broker.broker_id)}")
            elif now >= backoff.due_at:
                backoff.ended(now)
                with contextlib.suppress(LocalClusterError):  # `moldau cluster up` has just ended, and is started again with its brokers
                    request_restart(directory, broker.broker_id)

    def _write_state(self) -> None:
        topology = self._tiers.topology
        children = [child.state for child in self.children]
        file = os.path.abspath(topology.file)
        write_tiers_state(self.directory, TiersState(topology.name, file, identity_of(os.getpid()), children))


def _refuse_taken(what: str, address: Address, file: str) -> None:
    reason = why_taken(address.host, address.port)
    if reason:
        advice = f"stop the process that listens there, or give it another port in {file}"
        raise TiersError(f"{what} cannot listen on {address}: {reason}; {advice}")


def _make_topic(admin: Admin, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    try:
        admin.create_topic(name, partitions, BROKER_DEFAULT, configs)
    except RequestFailedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
