"""A cluster that everything may happen to: its brokers' processes, links, clocks and disks, and its ZooKeeper server."""

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from moldau.adapters.process_identity import ProcessState
from moldau.adapters.zookeeper_server import ZookeeperServer, free_ports
from moldau.client.cluster import Cluster as Client
from moldau.client.cluster import CoordinatorClient
from moldau.client.errors import RequestFailedError
from moldau.model.errors import ErrorCode, MoldauError
from moldau.testing import Cluster
from support.fault_table.process_faults import ProcessFaults
from support.zookeeper import HOST, wait_serving

FILE, ZOOKEEPER = "file", "zookeeper"
STORES = (FILE, ZOOKEEPER)
PARTITIONS = 3
LIMIT_S = 180.0
"""For a busy machine; nothing takes that long."""
SETTINGS = {
    "auto.create.topics.enable": False,
    "zookeeper.session.timeout.ms": 3000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
    "leader.imbalance.check.interval.seconds": 5,
    # many segments, and those of the coordinators' own topics are compacted again and again
    "log.roll.ms": 1500,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.segment.delete.delay.ms": 100,
}


class Stage:
    """Use as a context manager."""

    def __init__(self, directory: Path, store: str, chance: random.Random) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.store = store
        self.chance = chance
        self.topic = ""
        """Of which the workload uses most; `leader` and `follower` are those of one of its partitions."""
        self.coordinated: list[tuple[int, str]] = []
        """Kind and name of what the workload has coordinators for."""
        self._directory = directory
        self._faults = ProcessFaults(directory)
        self.zookeeper = ZookeeperServer(str(directory / "zookeeper"), HOST, free_ports(HOST, 1)[0], settings={"forceSync": "no"})
        address = f"{HOST}:{self.zookeeper.port}" if store == ZOOKEEPER else None
        self.cluster = Cluster(directory=directory / "cluster", settings=SETTINGS, zookeeper=address, timeout_s=LIMIT_S)

    def __enter__(self) -> Self:
        if self.store == ZOOKEEPER:
            self.start_zookeeper()
        with self._preloading():
            self.cluster.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cluster.close()
        if self.store == ZOOKEEPER:
            self.zookeeper.kill()
        self._faults.close()

    @contextmanager
    def _preloading(self) -> Iterator[None]:
        """Processes that are started now can be made to believe things."""
        os.environ.update(self._faults.environment)
        try:
            yield
        finally:
            for name in self._faults.environment:
                del os.environ[name]

    def create_topic(self, name: str, settings: Mapping[str, object]) -> None:
        try:
            self.cluster.create_topic(name, PARTITIONS, settings)
        except RequestFailedError as error:  # by the first of two requests, whose controller was replaced before it answered
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    # Who is who, at this moment

    def partition(self) -> int:
        """One of those of the workload's topic."""
        return self.chance.randrange(PARTITIONS)

    def leader(self) -> int:
        return self.cluster.leader_of(self.topic, self.partition())

    def follower(self) -> int:
        partition = self.partition()
        leader = self.cluster.leader_of(self.topic, partition)
        return self.chance.choice([each for each in self.cluster.replicas_of(self.topic, partition) if each != leader])

    def coordinator(self) -> int:
        """Of one of the workload's groups or transactional ids; it has some, or it is a leader."""
        if self.coordinated:
            kind, name = self.chance.choice(self.coordinated)
            with Client(self.cluster.bootstrap_servers) as asked:
                try:
                    return CoordinatorClient(asked, kind).find(name)
                except MoldauError:
                    pass
        return self.leader()

    def others(self, broker_id: int) -> list[int]:
        return [each for each in self.cluster.broker_ids if each != broker_id]

    # What happens to it

    def restart(self, *broker_ids: int) -> None:
        with self._preloading():
            self.cluster.restart(*broker_ids)

    def reassign(self, partition: int, replicas: Sequence[int], *, wait: bool = True) -> None:
        """Have the replicas of a partition of the topic there; again while a controller does not know a broker yet, or dies over it."""
        limit = time.monotonic() + LIMIT_S
        while True:
            try:
                self.cluster.reassign(self.topic, partition, replicas, wait=wait)
                return
            except MoldauError:
                if time.monotonic() > limit:
                    raise
            time.sleep(0.1)

    def believe(self, broker_id: int, *, clock_step_s: int = 0, no_space: int = 0) -> None:
        """What a broker's process takes for true of its clock and its disk. Nothing, if it has ended."""
        pid = self.cluster.pid(broker_id)
        if pid is not None:
            self._faults.set(pid, clock_step_s=clock_step_s, no_space=no_space)

    def start_zookeeper(self) -> None:
        self.zookeeper.start()
        wait_serving(self.zookeeper)

    def recover(self) -> None:
        """Nothing is wrong any more, and all replicas are in sync."""
        for each in self.cluster.broker_ids:
            self.believe(each)
        if self.store == ZOOKEEPER and self.zookeeper.exit_code is not None:
            self.start_zookeeper()
        with self._preloading():
            self.cluster.recover()

    def up(self) -> list[int]:
        return [each for each in self.cluster.broker_ids if self.cluster.state(each) is ProcessState.UP]

    def complaints(self) -> list[str]:
        """Lines by which a broker says that it has a bug."""
        return [f"broker {each}: {line}" for each in self.cluster.broker_ids for line in bugs_in(self.cluster.log(each))]


def bugs_in(log: str) -> list[str]:
    """The last lines of tracebacks, and what says that it comes of a bug."""
    found: list[str] = []
    is_inside = False
    for line in log.splitlines():
        if line.startswith("Traceback "):
            is_inside = True
        elif is_inside and not line.startswith((" ", "\t")):
            found.append(line)
            is_inside = False
        elif "because of a bug" in line:
            found.append(line)
    return found
