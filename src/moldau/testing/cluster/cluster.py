"""A cluster of brokers for tests and scripts, on free ports, with a directory of its own that goes with it.

    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.kill(cluster.leader_of("orders"))
        cluster.leader_of("orders")  # another one

Each broker is a process of its own, as those of ``moldau cluster up``: so it can be killed and stopped as a crash and a long pause would do
it. What brokers send each other is forwarded by one more process, which cuts and slows connections; clients connect to brokers directly.
All end with the process that started them, also when that is killed. In a process that was forked while they run, `stop` and the end of
the ``with`` do nothing.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from moldau.adapters.process_identity import ProcessState, send_signal
from moldau.adapters.temporary_directory import make_temporary
from moldau.assembly.local_cluster.plan import BROKERS, HOST, default_settings, free_ports, plan
from moldau.assembly.local_cluster.state import LOG_FOLDER, BrokerProcess, log_of
from moldau.assembly.local_cluster.supervisor import Supervisor
from moldau.client import cluster as client
from moldau.client.metadata import ClusterMetadata, PartitionMetadata
from moldau.client.reassignments import Reassignments
from moldau.model.errors import ErrorCode, MoldauError
from moldau.model.identity import TopicPartition
from moldau.testing.cluster.links import Links, Target
from moldau.testing.cluster.places import TREE, Place, check_pace, known_brokers, pairs
from moldau.testing.topics import Topics, setting_text

T = TypeVar("T")
PREFIX = "moldau-cluster-"
"""Of the directories that are removed with the cluster."""
BROKER_LISTENER = "BROKERS"
POLL_S = 0.02
ASK_S = 2.0
"""How long a broker may take for an answer while it is asked again and again."""
LIMIT_S = 60.0
"""How long a wait may take, unless another limit is given; what takes longer hangs, or the machine has far too much to do."""
NAMES_MAX = 10
"""So many topics are listed where one does not exist."""


class Cluster(Topics):
    """Brokers with the ids from 1 on; they start at ``with``, or by `start`.

    `settings` are Kafka's, for every broker; new topics have three replicas, or as many as there are brokers, of which one may fail.
    `directory` keeps the data in a directory of the caller's, which is not removed. Metadata is in a file there, or in ZooKeeper, at the
    `zookeeper` (HOST:PORT, perhaps with /CHROOT) that the caller runs. Every wait ends with TimeoutError after `timeout_s`. A call that
    could do nothing is refused with ValueError: for an id of no broker, a broker that is dead already or not paused, a cut to itself.
    """

    def __init__(
        self,
        brokers: int = BROKERS,
        *,
        settings: Mapping[str, object] | None = None,
        directory: str | Path | None = None,
        zookeeper: str | None = None,
        timeout_s: float = LIMIT_S,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has 1 broker or more, not {brokers}")
        super().__init__()
        self.directory = Path(make_temporary(PREFIX) if directory is None else directory)
        self.broker_ids = range(1, brokers + 1)
        self._owns_directory = directory is None
        self._settings = [f"{name}={setting_text(value)}" for name, value in (settings or {}).items()]
        self._zookeeper = zookeeper
        self._timeout_s = timeout_s
        self._supervisor: Supervisor | None = None
        self._links = Links()
        self._pid = os.getpid()

    # All of them

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT,...`` of all brokers, for a client's ``bootstrap.servers``. The same when brokers are started again."""
        return ",".join(each.address for each in self._running.state.brokers)

    def start(self) -> None:
        """Start all, and wait until they take requests and know each other. MoldauError says why they cannot."""
        if self._supervisor is not None:
            return
        supervisor = Supervisor(str(self.directory), lambda _: None)
        try:
            before = supervisor.hold()
            state = plan(str(self.directory), before, len(self.broker_ids), None if before else 0, self._zookeeper)
            self._links = Links()
            own = self._link(state.brokers)
            supervisor.start(state, [*default_settings(len(state.brokers)), *self._settings], own)
            supervisor.wait_serving()
        except BaseException:
            supervisor.kill()
            self._links.close()
            raise
        self._supervisor = supervisor

    def stop(self) -> None:
        """Stop all in order; the data stays until `close`."""
        if self._supervisor is not None and os.getpid() == self._pid:
            self._links.heal()
            self._supervisor.stop()
            self._supervisor.kill()
            self._links.close()
            self._supervisor = None

    def close(self) -> None:
        """End all at once, and remove the data, unless the directory is the caller's."""
        if os.getpid() != self._pid:
            return
        if self._supervisor is not None:
            self._supervisor.kill()
            self._links.close()
            self._supervisor = None
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def recover(self) -> None:
        """Undo every fault: heal connections, continue and start brokers, and wait until all replicas are in sync."""
        self.heal()
        states = {each: self.state(each) for each in self.broker_ids}
        for state, undo in ((ProcessState.PAUSED, self.resume), (ProcessState.DEAD, self.restart)):
            if found := [each for each in self.broker_ids if states[each] is state]:
                undo(*found)
        self.wait_until_in_sync()

    # Processes

    def state(self, broker_id: int) -> ProcessState:
        """Whether its process is `up`, `paused` or `dead`."""
        return self._broker(broker_id).state

    def pid(self, broker_id: int) -> int | None:
        """Id of its process, None if that has ended."""
        return self._broker(broker_id).pid

    def kill(self, *broker_ids: int) -> None:
        """End brokers at once, as a crash does (SIGKILL)."""
        self._refuse(broker_ids, ProcessState.DEAD)
        self._signal(broker_ids, signal.SIGKILL)
        self._wait_ended(broker_ids)

    def pause(self, *broker_ids: int) -> None:
        """Have brokers stand still (SIGSTOP)."""
        self._refuse(broker_ids, ProcessState.DEAD, ProcessState.PAUSED)
        self._signal(broker_ids, signal.SIGSTOP)
        self._wait_all(broker_ids, lambda each: self.state(each) is not ProcessState.UP, "stand still")

    def resume(self, *broker_ids: int) -> None:
        """Continue brokers that are paused."""
        self._refuse(broker_ids, ProcessState.DEAD, ProcessState.UP)
        self._signal(broker_ids, signal.SIGCONT)

    def restart(self, *broker_ids: int) -> None:
        """Stop brokers in order if they run, one after the other, and start each again: it takes requests then."""
        self._refuse(broker_ids)
        for each in broker_ids:
            self._signal([each], signal.SIGTERM, signal.SIGCONT)
            self._wait_ended([each])
        for each in broker_ids:
            self._running.start_broker(each)
        self._wait_all(broker_ids, self._takes_requests, "take requests")

    # Connections

    def partition(self, first: Place | Sequence[Place], second: Place | Sequence[Place], *, one_way: bool = False) -> None:
        """Cut brokers off from each other, each of the first from each of the second, until `heal`; "zookeeper" is ZooKeeper.

        `one_way`: only what the first send to the second does not arrive. What is sent meanwhile arrives after `heal`.
        """
        found = self._pairs(first, second, both=not one_way)
        self._running_links.cut(found)

    def isolate(self, broker_id: int) -> None:
        """Cut a broker off from all others, and from ZooKeeper. Clients reach it."""
        known_brokers([broker_id], self.broker_ids)
        self.partition(
            broker_id, [*(each for each in self.broker_ids if each != broker_id), *([TREE] if self._zookeeper is not None else [])]
        )

    def slow(
        self, first: Place | Sequence[Place], second: Place | Sequence[Place], *, delay_s: float = 0.1, bytes_per_s: float = 0.0
    ) -> None:
        """Delay what they send each other until `heal`, and let through no more than so much; 0 is no limit."""
        check_pace(delay_s, bytes_per_s)
        found = self._pairs(first, second, both=True)
        self._running_links.slow(found, delay_s, bytes_per_s)

    def heal(self) -> None:
        """Connections are whole and fast again."""
        self._running_links.heal()

    # Leaders

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads the partition; waits until one does that is up."""

        def find() -> int | None:
            found = self._partition(topic, partition)
            return found.leader if found is not None and self._is_up(found.leader) else None

        return self._wait(find, f"a broker that is up leads {topic}-{partition}", of=TopicPartition(topic, partition))

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The brokers whose replicas are in sync, as the leader knows."""
        return sorted(self._known_partition(topic, partition).isr)

    def replicas_of(self, topic: str, partition: int = 0) -> list[int]:
        """The brokers with replicas, the preferred leader first."""
        return list(self._known_partition(topic, partition).replicas)

    def controller(self) -> int:
        """The broker that is the controller; waits until one is that is up."""

        def find() -> int | None:
            named = [view.controller for view in self._views(()).values() if self._is_up(view.controller)]
            return max(named, key=named.count, default=None)

        return self._wait(find, "a broker that is up is the controller")

    def wait_until_in_sync(self, topic: str | None = None, *, replicas: int | None = None, timeout_s: float | None = None) -> None:
        """Until all replicas of a topic, or of all topics, are in sync on brokers that are up, or so many `replicas` of each partition."""
        if replicas is not None and not 1 <= replicas <= len(self.broker_ids):
            raise ValueError(f"replicas={replicas}: a partition has 1 to {len(self.broker_ids)} in this cluster")
        what = f"{replicas or 'all'} replicas of {topic or 'all topics'} are in sync"
        self._wait(lambda: self._is_in_sync(topic, replicas), what, timeout_s, of=None if topic is None else TopicPartition(topic, 0))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Have a broker lead the partition. If it has no replica it gets one, in place of another broker's."""
        place = TopicPartition(topic, partition)
        known_brokers([to], self.broker_ids)
        self._refuse([to], ProcessState.DEAD, ProcessState.PAUSED)
        old = self.replicas_of(topic, partition)
        others = [each for each in old if each != to]
        self.reassign(topic, partition, [to, *others][: len(old)])

        def elect() -> bool:
            with self._cluster() as asked:
                error = Reassignments(asked).elect([place])[place]
            if error is not None and error.code not in (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
                raise error
            return self.leader_of(topic, partition) == to

        self._wait(elect, f"broker {to} leads {topic}-{partition}")

    def reassign(self, topic: str, partition: int, replicas: Sequence[int], *, wait: bool = True) -> None:
        """Have the replicas of the partition on these brokers, the preferred leader first, and `wait` until all are in sync."""
        place = TopicPartition(topic, partition)
        known_brokers(replicas, self.broker_ids)
        with self._cluster() as asked:
            refused = Reassignments(asked).alter({place: replicas})
        if place in refused:
            raise refused[place]

        def is_done() -> bool:
            found = self._partition(topic, partition)
            return found is not None and list(found.replicas) == list(replicas) and len(found.isr) == len(replicas)

        if wait:
            self._wait(is_done, f"the replicas of {topic}-{partition} are on {', '.join(map(str, replicas))}, in sync")

    # For tests that fail

    def log(self, broker_id: int) -> str:
        """What a broker has printed, its earlier processes too."""
        known_brokers([broker_id], self.broker_ids)
        return Path(log_of(str(self.directory), broker_id)).read_text(encoding="utf-8", errors="replace")

    # The rest

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise RuntimeError("the cluster has not been started")
        return self._supervisor

    @property
    def _running_links(self) -> Links:
        assert self._running
        return self._links

    def _broker(self, broker_id: int) -> BrokerProcess:
        known_brokers([broker_id], self.broker_ids)
        return self._running.state.broker(broker_id)

    def _refuse(self, broker_ids: Sequence[int], *states: ProcessState) -> None:
        """ValueError for brokers that are in one of these states: what is wanted of them would not happen."""
        known_brokers(broker_ids, self.broker_ids)
        for each in broker_ids:
            if (state := self.state(each)) in states:
                raise ValueError(f"broker {each} is {state}; brokers: {self._states()}")

    def _pairs(self, first: Place | Sequence[Place], second: Place | Sequence[Place], *, both: bool) -> list[tuple[str, str]]:
        return pairs(first, second, self.broker_ids, has_tree=self._zookeeper is not None, both=both)

    def _states(self) -> str:
        return ", ".join(f"{each.broker_id} {each.state}" for each in self._running.state.brokers)

    def _cluster(self) -> client.Cluster:
        """A client of the brokers that are up: one that stands still would keep it waiting."""
        up = self._up()
        if not up:
            raise RuntimeError(f"no broker is up that could be asked; brokers: {self._states()}")
        return client.Cluster(",".join(each.address for each in up))

    def _up(self) -> list[BrokerProcess]:
        return [each for each in self._running.state.brokers if each.state is ProcessState.UP]

    def _is_up(self, broker_id: int) -> bool:
        return broker_id in self.broker_ids and self.state(broker_id) is ProcessState.UP

    def _link(self, brokers: Iterable[BrokerProcess]) -> dict[int, list[str]]:
        """Have connections between brokers forwarded: the settings of each that it takes."""
        ports = dict(zip(self.broker_ids, free_ports([each.port for each in brokers]), strict=False))
        targets = {f"{each}": Target(f"{each}", HOST, port) for each, port in ports.items()}
        chroot = ""
        if self._zookeeper is not None:
            address, slash, path = self._zookeeper.partition("/")
            chroot = slash + path
            host, _, port = address.rpartition(":")
            targets |= {f"{each}/{TREE}": Target(TREE, host, int(port), f"{each}") for each in ports}
        outside = self._links.start(targets)
        own: dict[int, list[str]] = {}
        for each in brokers:
            number = each.broker_id
            own[number] = [
                f"listeners=PLAINTEXT://{each.address},{BROKER_LISTENER}://{HOST}:{ports[number]}",
                f"advertised.listeners={BROKER_LISTENER}://{HOST}:{outside[f'{number}']}",
                f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,{BROKER_LISTENER}:PLAINTEXT",
                f"inter.broker.listener.name={BROKER_LISTENER}",
            ]
            if self._zookeeper is not None:
                own[number].append(f"zookeeper.connect={HOST}:{outside[f'{number}/{TREE}']}{chroot}")
        return own

    def _signal(self, broker_ids: Iterable[int], *numbers: signal.Signals) -> None:
        for each in map(self._broker, broker_ids):
            for number in numbers:
                send_signal(each.process, number)

    def _wait_ended(self, broker_ids: Iterable[int]) -> None:
        self._wait_all(broker_ids, lambda each: self.state(each) is ProcessState.DEAD, "have ended")

    def _wait_all(self, broker_ids: Iterable[int], is_so: Callable[[int], bool], what: str) -> None:
        ids = list(broker_ids)
        self._wait(lambda: all(map(is_so, ids)), f"brokers {', '.join(map(str, ids))} {what}")

    def _takes_requests(self, broker_id: int) -> bool:
        if self.state(broker_id) is ProcessState.DEAD:
            last = self.log(broker_id).splitlines()[-1:]
            raise RuntimeError(f"broker {broker_id} ended at its start: {''.join(last)}")
        return self._running.takes_requests(broker_id)

    def _views(self, topics: Iterable[str] | None) -> dict[int, ClusterMetadata]:
        """What each broker that is up knows."""
        views = {}
        for each in self._up():
            with client.Cluster(each.address, timeout_s=ASK_S) as asked:
                try:
                    views[each.broker_id] = asked.metadata(topics)
                except MoldauError:
                    continue
        return views

    def _partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """What is known of it by the broker that knows the latest leader, or by that leader."""
        found = _latest(self._views([topic]))
        return found.get(TopicPartition(topic, partition))

    def _known_partition(self, topic: str, partition: int) -> PartitionMetadata:
        of = TopicPartition(topic, partition)
        return self._wait(lambda: self._partition(topic, partition), f"{topic}-{partition} is known", of=of)

    def _what_is_missing(self, of: TopicPartition) -> str:
        """That there is no such topic or partition, as brokers that are up know. Empty if there is, or none of them answers."""
        views = self._views(None)
        found = {topic.name: len(topic.partitions) for view in views.values() for topic in view.topics.values()}
        if of.topic in found:
            count = found[of.topic]
            return "" if of.partition in range(count) else f"; topic {of.topic} has the partitions 0 to {count - 1}"
        others = ", ".join(sorted(found)[:NAMES_MAX] + ["..."] * (len(found) > NAMES_MAX))
        return f"; topic {of.topic} does not exist, there are: {others or 'none'}" if views else ""

    def _is_in_sync(self, topic: str | None, replicas: int | None) -> bool:
        views = self._views(None if topic is None else [topic])
        found = _latest(views)
        if not views or (topic is not None and not found):
            return False
        live = {each.broker_id: None for each in self._up()}
        return all(
            each.leader in live and sum(replica in live for replica in each.isr) >= (replicas or len(each.replicas))
            for each in found.values()
        )

    def _wait(self, find: Callable[[], T | None], what: str, timeout_s: float | None = None, *, of: TopicPartition | None = None) -> T:
        """Until it finds something: that. TimeoutError, which says if there is no such partition as `of`: it may be created meanwhile."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        end = time.monotonic() + timeout_s
        while not (found := find()):
            if time.monotonic() > end:
                missing = "" if of is None else self._what_is_missing(of)
                logs = self.directory / LOG_FOLDER
                raise TimeoutError(f"not within {timeout_s:.0f} s: {what}{missing}; brokers: {self._states()}; their logs: {logs}")
            time.sleep(POLL_S)
        return found


def _latest(views: Mapping[int, ClusterMetadata]) -> dict[TopicPartition, PartitionMetadata]:
    """Each partition as known by the broker with the latest leader epoch, of these by the leader."""
    found: dict[TopicPartition, tuple[tuple[int, bool], PartitionMetadata]] = {}
    for broker_id, view in views.items():
        for topic in view.topics.values():
            for each in topic.partitions:
                place, rank = TopicPartition(topic.name, each.partition), (each.leader_epoch, each.leader == broker_id)
                if place not in found or rank > found[place][0]:
                    found[place] = rank, each
    return {place: each for place, (_, each) in found.items()}
