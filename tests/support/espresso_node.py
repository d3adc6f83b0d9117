"""A node that hosts a store for each shard, as master or as replica: ``python espresso_node.py DIRECTORY NUMBER BOOTSTRAP SEED``.

Whether it is the master of a shard is asked of the log, after a fence once more: then a promotion has ended, or it was a former master that
found only after it had begun that it is none. As master it writes transactions and publishes each, and appends what is acknowledged to a
file, as "shard token commit". Orders come on standard input: "promote SHARD", "quiet" (write nothing more), and what is done is said on
standard output.
"""

import os
import random
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from moldau.changelog import Replica, SqliteStore
from moldau.changelog.errors import PublisherFencedError, SequenceError
from moldau.changelog.masters import masters
from moldau.changelog.replica_errors import MissingTopicError
from moldau.changelog.sqlite import Store, promote
from moldau.changelog.sqlite.connecting import connect
from moldau.changelog.sqlite.layout import is_source
from moldau.client.cluster import Cluster
from moldau.client.errors import may_pass
from moldau.client.failures import ClientError
from moldau.model.errors import MoldauError

CHANGELOG: Final = "espresso"
SHARDS: Final = 3
TABLES: Final = ["items", "tokens"]
SCHEMA: Final = """
CREATE TABLE items (id INTEGER PRIMARY KEY, value INTEGER);
CREATE TABLE tokens (token INTEGER PRIMARY KEY, node INTEGER);
"""
KEYS: Final = 60
PAUSE_S: Final = 0.02
FENCED_S: Final = 2.0
"""After a fence: longer than the last step of a promotion takes."""


def database_of(directory: Path, node: int, shard: int) -> Path:
    """Where the store is."""
    return directory / f"node{node}" / f"shard{shard}.db"


class ShardHost:
    """One shard of a node, in a thread of its own."""

    def __init__(self, directory: Path, node: int, shard: int, bootstrap: str, seed: int) -> None:
        self._path = database_of(directory, node, shard)
        self._acknowledged = os.open(self._path.parent / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._node, self._shard, self._bootstrap = node, shard, bootstrap
        self._random = random.Random(f"{seed} {shard}")
        self._replica: Replica | None = None
        self._promotion = threading.Event()
        self.is_quiet = threading.Event()

    def run(self) -> None:
        """As long as the process lives."""
        try:
            while True:
                self._serve()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def promote(self) -> None:
        """Become the master; it is said on standard output."""
        self._promotion.set()
        replica = self._replica
        if replica is not None:
            replica.stop()

    def _serve(self) -> None:
        if self._promotion.is_set():
            self._promotion.clear()
            commit = promote(self._path, self._bootstrap, CHANGELOG, self._shard, shards=SHARDS, tables=TABLES, address=str(self._node))
            print("promoted", self._shard, commit, flush=True)
        with Cluster(self._bootstrap, client_id="espresso") as cluster:
            try:
                address = masters(cluster, CHANGELOG)[self._shard].address
            except MissingTopicError:
                address = ""
        if address == str(self._node) or (not address and self._shard == self._node):
            self._be_master()
        else:
            self._be_replica()

    def _be_master(self) -> None:
        if not self._path.exists():
            with sqlite3.connect(self._path) as database:
                database.executescript(SCHEMA)
            database.close()
        try:
            with Store(self._path, self._bootstrap, CHANGELOG, self._shard, shards=SHARDS, tables=TABLES, address=str(self._node)) as store:
                while True:
                    self._write(store)
        except (PublisherFencedError, SequenceError):
            time.sleep(FENCED_S)

    def _write(self, store: Store) -> None:
        if self.is_quiet.is_set():
            retrying(store.publish)
            time.sleep(PAUSE_S)
            return
        token = self._random.getrandbits(62)
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO tokens VALUES (?, ?)", (token, self._node))
            for _ in range(self._random.choice((1, 2, 10))):
                key = self._random.randrange(KEYS)
                if self._random.randrange(4):
                    transaction.execute("INSERT OR REPLACE INTO items VALUES (?, ?)", (key, self._random.randrange(1000)))
                else:
                    transaction.execute("DELETE FROM items WHERE id = ?", (key,))
        number = transaction.commit
        assert number is not None
        retrying(lambda: store.publish(number))
        os.write(self._acknowledged, f"{self._shard} {token} {number}\n".encode())

    def _be_replica(self) -> None:
        begin_again = self._path.exists() and self._was_source()
        try:
            with Replica(self._bootstrap, CHANGELOG, SqliteStore(self._path), shards=[self._shard], begin_again=begin_again) as replica:
                self._replica = replica
                if not self._promotion.is_set():
                    replica.run()
                self._replica = None
        except MissingTopicError:  # before the first commit
            time.sleep(PAUSE_S)

    def _was_source(self) -> bool:
        database = connect(self._path, 30.0)
        try:
            return is_source(database)
        finally:
            database.close()


def retrying(publish: Callable[[], object]) -> None:
    """As long as brokers say that it may pass."""
    while True:
        try:
            publish()
            return
        except PublisherFencedError:
            raise
        except ClientError:
            time.sleep(PAUSE_S)
        except MoldauError as error:
            if not may_pass(error):
                raise
            time.sleep(PAUSE_S)


def main(directory: str, node: int, bootstrap: str, seed: int) -> None:
    """Until it is killed, or standard input ends."""
    (Path(directory) / f"node{node}").mkdir(parents=True, exist_ok=True)
    hosts = [ShardHost(Path(directory), node, shard, bootstrap, seed) for shard in range(SHARDS)]
    for host in hosts:
        threading.Thread(target=host.run, daemon=True).start()
    print("runs", node, 0, flush=True)
    for line in sys.stdin:
        order, *rest = line.split()
        if order == "promote":
            hosts[int(rest[0])].promote()
        else:
            for host in hosts:
                host.is_quiet.set()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
