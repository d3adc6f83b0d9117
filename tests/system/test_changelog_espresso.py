"""Espresso's case (seed R 3): three shards, a master each, replicas on the other nodes. Masters are killed under load, the replica that has
most is promoted, the former master is fenced by the epoch and becomes a replica, and no acknowledged commit is lost: 2 kills, 30 in torture
size.
"""

import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Self

import pytest

from moldau.changelog import SqliteStore, compare
from moldau.changelog.masters import Master, masters
from moldau.changelog.places import StorePlace
from moldau.changelog.replica_errors import MissingTopicError
from moldau.changelog.status import StoreFailure, replica_statuses
from moldau.changelog.store import WHOLE, Phase, Position
from moldau.client.cluster import Cluster
from moldau.testing.broker import Broker
from support import espresso_node
from support.changelog_log import read_log
from support.espresso_node import CHANGELOG, SHARDS, TABLES, database_of
from support.sizes import sized

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS = sized(2, 30)
SEED = 15
LIMIT_S = 90.0
POLL_S = 0.02
NODES = range(SHARDS)
RESTARTED_FIRST = 2
"""Every second master is started again before its replica is promoted: the promotion has to fence one that works."""


class Node:
    """A process."""

    def __init__(self, directory: Path, number: int, bootstrap: str, seed: int) -> None:
        self.number = number
        words = [str(directory), str(number), bootstrap, str(seed)]
        self._errors = (directory / f"errors{number}").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, espresso_node.__file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._lines: list[list[str]] = []
        assert self._process.stdout is not None
        self.wait_said("runs", number)

    def kill(self) -> None:
        assert self._process.poll() is None, f"node {self.number} has ended: see its file of errors"
        self._process.kill()
        self._close()

    def order(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def wait_said(self, what: str, about: int) -> int:
        """The number of the line."""
        assert self._process.stdout is not None
        while True:
            found = next((line for line in self._lines if line[:2] == [what, str(about)]), None)
            if found is not None:
                self._lines.remove(found)
                return int(found[2])
            line = self._process.stdout.readline()
            assert line, f"node {self.number} has ended: {Path(self._errors.name).read_text()}"
            self._lines.append(line.split())

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._close()

    def _close(self) -> None:
        self._process.wait()
        pipes: list[IO[str] | None] = [self._process.stdin, self._process.stdout]
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        self._errors.close()


class Nodes:
    """All of them, and what a manager of failures does."""

    def __init__(self, directory: Path, broker: Broker) -> None:
        self._directory = directory
        self._bootstrap = broker.bootstrap_servers
        self.random = random.Random(SEED)
        self._live = {number: self._started(number) for number in NODES}
        self.promoted = 0

    def _started(self, number: int) -> Node:
        return Node(self._directory, number, self._bootstrap, self.random.getrandbits(32))

    def masters(self) -> list[Master]:
        with Cluster(self._bootstrap, client_id="manager") as cluster:
            return masters(cluster, CHANGELOG)

    def wait_masters(self) -> None:
        """Each shard has one, which has published something."""
        self._until(lambda: all(master.address for master in self._masters_or_none()), "a shard has no master")

    def _masters_or_none(self) -> list[Master]:
        try:
            return self.masters()
        except MissingTopicError:
            return [Master(0, 0, 0, 0, "")]

    def acknowledged(self) -> dict[tuple[int, int], int]:
        """By shard and token the number of the commit."""
        found = {}
        for number in NODES:
            path = self._directory / f"node{number}" / "acknowledged"
            for line in path.read_text().splitlines() if path.exists() else ():
                shard, token, commit = map(int, line.split())
                found[shard, token] = commit
        return found

    def wait_written(self, commits: int) -> None:
        """So many more of each shard are acknowledged."""
        before = self._counts()
        self._until(lambda: all(self._counts()[shard] >= before[shard] + commits for shard in range(SHARDS)), "a shard is not written")

    def _counts(self) -> dict[int, int]:
        counts: dict[int, int] = defaultdict(int)
        for shard, _ in self.acknowledged():
            counts[shard] += 1
        return counts

    def kill_a_master(self, turn: int) -> None:
        """And promote, for each of its shards, the replica that has most."""
        every = self.masters()
        victim = int(self.random.choice(every).address)
        self._live.pop(victim).kill()
        if turn % RESTARTED_FIRST == RESTARTED_FIRST - 1:
            self._live[victim] = self._started(victim)
        for master in every:
            if master.address == str(victim):
                heir = self._most(master.shard, victim)
                self._live[heir].order("promote", master.shard)
                commit = self._live[heir].wait_said("promoted", master.shard)
                assert commit > master.commit
                self.promoted += 1
                now = self.masters()[master.shard]
                assert (now.address, now.epoch) == (str(heir), master.epoch + 1)
        if victim not in self._live:
            self._live[victim] = self._started(victim)

    def _most(self, shard: int, victim: int) -> int:
        """As `moldau changelog status` shows it."""
        found: dict[int, tuple[bool, int]] = {}
        for number in NODES:
            if number != victim:
                path = database_of(self._directory, number, shard)
                status = replica_statuses(CHANGELOG, [], StorePlace(f"sqlite:///{path}", "sqlite", str(path)))
                if not isinstance(status, StoreFailure):
                    (each,) = status
                    found[number] = (each.position.phase is Phase.FOLLOWING, each.position.commit)
        assert found, f"no replica of shard {shard}"
        return max(found, key=found.__getitem__)

    def settle(self) -> list[Master]:
        """Nothing is written any more, and all replicas have all; the masters."""
        for node in self._live.values():
            node.order("quiet")
        last: list[Master] = []
        self._until(lambda: self._is_settled(last), "a replica lags")
        return last

    def _is_settled(self, last: list[Master]) -> bool:
        before = list(last)
        last[:] = self.masters()
        return last == before and all(self._has_all(master) for master in last)

    def _has_all(self, master: Master) -> bool:
        for number in NODES:
            if str(number) != master.address:
                position = self._position(number, master.shard)
                if position is None or (position.phase, position.commit) != (Phase.FOLLOWING, master.commit):
                    return False
        return True

    def _position(self, number: int, shard: int) -> Position | None:
        store = SqliteStore(database_of(self._directory, number, shard))
        try:
            return store.look(CHANGELOG).get(shard)
        finally:
            store.close()

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, f"{what}: {self.masters()}"
            time.sleep(POLL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._live.values():
            node.stop()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Nodes, Broker]]:
    with Broker() as broker, Nodes(tmp_path, broker) as nodes:
        yield nodes, broker


def test_no_acknowledged_commit_is_lost_when_masters_are_killed(nodes: tuple[Nodes, Broker], tmp_path: Path) -> None:
    every, broker = nodes
    every.wait_masters()
    for turn in range(KILLS):
        every.wait_written(every.random.randrange(1, 40))
        every.kill_a_master(turn)
    every.wait_written(10)
    last = every.settle()
    assert every.promoted >= KILLS
    acknowledged = every.acknowledged()
    for master in last:
        log = read_log(broker.bootstrap_servers, CHANGELOG, *TABLES, shard=master.shard)
        log.check()
        numbers = {each.change.key[0]: each.commit for each in log.changes["tokens"]}
        mine = {token: commit for (shard, token), commit in acknowledged.items() if shard == master.shard}
        assert {token: numbers.get(token) for token in mine} == mine, "each acknowledged commit is in the log, under its number"
        check_stores(tmp_path, master, set(mine))


def check_stores(directory: Path, master: Master, tokens: set[int]) -> None:
    """That of the master and its replicas are equal, and have what was acknowledged."""
    stores = {number: SqliteStore(database_of(directory, number, master.shard)) for number in NODES}
    tables = next(tables for store in stores.values() if (tables := [*store.look(CHANGELOG).values()]))[0].tables.values()
    for store in stores.values():
        store.look(CHANGELOG, list(tables))
    first = stores[int(master.address)]
    for number, store in stores.items():
        assert tokens <= {int(str(key[0])) for key, _ in store.rows(master.shard, "tokens", WHOLE)}, f"node {number}, shard {master.shard}"
        for table in TABLES:
            assert [str(each) for each in compare(first, store, master.shard, table)] == []
    for store in stores.values():
        store.close()
