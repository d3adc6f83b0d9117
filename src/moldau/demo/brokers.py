"""The brokers of the demonstration and its schema registry, as children on free ports of the loopback interface."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from moldau.adapters.process_identity import send_signal
from moldau.assembly.local_cluster.state import existing_state, request_restart
from moldau.demo.children import Child, command, started

if TYPE_CHECKING:
    from moldau.audit.tree import TierTree
    from moldau.demo.crash import KillableMirror
    from moldau.demo.report import DemoReport
    from moldau.demo.tiers import TierWatch, Timeline

_LISTEN = "127.0.0.1:0"
_KEEP_OFFSETS = ("--set", "offsets.retention.minutes=52560000")
"""A demonstration that is run again after a month still knows what its load has read."""


class Servers(ABC):
    """Brokers and a registry, with what audits them. They stop in the reverse order of their start."""

    audit_limit_s: float
    """How long the last counts may take."""

    def __init__(self, data: Path, brokers: int) -> None:
        self.data = data
        """The directory of the logs of all brokers."""
        self.brokers = brokers
        """Of the cluster in which one is killed."""
        self.bootstrap = ""
        """Of the cluster that the load reads."""
        self.registry = ""
        self._children: list[Child] = []

    @abstractmethod
    def start(self) -> Self:
        """Wait until all take requests. ChildError."""

    @abstractmethod
    def prepare(self, topic: str, partitions: int) -> None:
        """Have the topic of the events and that of the audit, kept for ever. The client's errors; PublishError."""

    @property
    @abstractmethod
    def tree(self) -> "TierTree":
        """The tiers of the audit."""

    @property
    @abstractmethod
    def cluster_tier(self) -> str:
        """The tier of the cluster that load and stream job read."""

    @property
    @abstractmethod
    def audited(self) -> Mapping[str, str]:
        """The clusters whose audit topics are read, by the names that they have there."""

    @abstractmethod
    def published_to(self, hosts: int) -> Sequence[tuple[str, str | None]]:
        """The cluster that each host publishes to, and its data centre; None: that of the input."""

    @abstractmethod
    def start_audit(self, logs: Path) -> None:
        """Count what reaches the topic from now on, if that is not done yet."""

    @abstractmethod
    def end_audit(self) -> None:
        """Return when everything in the logs is counted, if that can be had at once."""

    @property
    @abstractmethod
    def crashes_in(self) -> str:
        """Brokers of the cluster in which one is killed; empty where it would be the only one."""

    @property
    @abstractmethod
    def killed_mirror(self) -> "KillableMirror | None":
        """The mirror that is killed with it."""

    @abstractmethod
    def arrival(self, watch: "TierWatch") -> Callable[[], bool]:
        """Whether all that was published is where the load reads."""

    @abstractmethod
    def picture(self, timeline: "Timeline", report: "DemoReport", tree: "TierTree") -> str:
        """The tiers of the tree, as SVG."""

    def stop(self) -> None:
        """Stop them by SIGTERM."""
        while self._children:
            self._children.pop().stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class _OneCluster(Servers):
    """Publishers, auditor and load are at the same cluster."""

    audit_limit_s = 0.0

    def __init__(self, data: Path, brokers: int) -> None:
        super().__init__(data, brokers)
        self._auditor: Child | None = None

    def prepare(self, topic: str, partitions: int) -> None:
        """Create them unless they exist. The client's errors; PublishError."""
        from moldau.demo.publish import ensure_topics

        ensure_topics(self.bootstrap, topic, partitions)

    @property
    def tree(self) -> "TierTree":
        """Producers, the cluster, the table."""
        from moldau.audit.tree import TierTree
        from moldau.demo.tiers import TIERS

        return TierTree.chain(TIERS)

    @property
    def cluster_tier(self) -> str:
        """That of the only one."""
        from moldau.demo.tiers import LOCAL_TIER

        return LOCAL_TIER

    @property
    def audited(self) -> Mapping[str, str]:
        """The only one."""
        from moldau.audit.tiers import OWN_SOURCE

        return {OWN_SOURCE: self.bootstrap}

    def published_to(self, hosts: int) -> Sequence[tuple[str, str | None]]:
        """All of them to the same."""
        return [(self.bootstrap, None)] * hosts

    def start_audit(self, logs: Path) -> None:
        """Start an auditor as a process."""
        from moldau.demo.tiers import LOCAL_TIER

        words = ["audit", "run", "--tier", LOCAL_TIER, "--interval", "2", "--bootstrap", self.bootstrap]
        self._auditor = command(words, logs / "auditor.log")

    def end_audit(self) -> None:
        """The auditor publishes what it has counted, and ends; what it had not come to is counted now."""
        from moldau.audit.auditor import Auditor, AuditorOptions
        from moldau.demo.tiers import LOCAL_TIER

        if self._auditor is not None:
            self._auditor.stop()
            self._auditor = None
        Auditor(self.bootstrap, AuditorOptions(tier=LOCAL_TIER)).run(once=True)

    @property
    def crashes_in(self) -> str:
        """The only cluster, if it has several brokers."""
        return self.bootstrap if self.brokers > 1 else ""

    @property
    def killed_mirror(self) -> None:
        """There is none."""
        return None

    def arrival(self, watch: "TierWatch") -> Callable[[], bool]:
        """What is published is there."""
        return lambda: True

    def picture(self, timeline: "Timeline", report: "DemoReport", tree: "TierTree") -> str:
        """Counts over time, of the three tiers."""
        from moldau.demo.tiers import draw

        return draw(timeline, report.topic, report.verdict.value)

    def stop(self) -> None:
        """Stop them by SIGTERM; the auditor counts later what it has not published."""
        if self._auditor is not None:
            self._auditor.kill()
            self._auditor = None
        super().stop()


class BrokerProcess(_OneCluster):
    """`moldau serve --registry` with its data in `data`; what it prints goes to `log`."""

    def __init__(self, data: Path, log: Path) -> None:
        super().__init__(data, 1)
        self._log = log

    def start(self) -> Self:
        """Wait until all take requests. ChildError."""
        words = ["serve", "--listen", _LISTEN, "--registry", _LISTEN, "--data", str(self.data), *_KEEP_OFFSETS]
        child, addresses = started(words, self._log, "registry listening on ")
        self._children.append(child)
        self.bootstrap, self.registry = addresses[0], addresses[-1]
        return self


class ClusterProcesses(_OneCluster):
    """`moldau cluster up` over `directory`, and `moldau registry`; what they print goes to `log`."""

    def __init__(self, directory: Path, log: Path, count: int) -> None:
        super().__init__(directory, count)
        self._directory = str(directory)
        self._log = log

    def start(self) -> Self:
        """Wait until all take requests. ChildError."""
        try:
            words = ["cluster", "up", "--data", self._directory, "--brokers", str(self.brokers), "--port", "0", *_KEEP_OFFSETS]
            self.bootstrap = self._start(words)
            self.registry = self._start(["registry", "--listen", _LISTEN, "--bootstrap", self.bootstrap])
        except BaseException:
            self.stop()
            raise
        return self

    def kill(self, broker_id: int) -> None:
        """SIGKILL for one broker. LocalClusterError for one that is dead."""
        send_signal(existing_state(self._directory).broker(broker_id).process, signal.SIGKILL)

    def restart(self, broker_id: int) -> None:
        """Have it started again; it is not waited for. LocalClusterError if the cluster has ended."""
        request_restart(self._directory, broker_id)

    def _start(self, words: list[str]) -> str:
        child, addresses = started(words, self._log, "listening on ")
        self._children.append(child)
        return addresses[0]
