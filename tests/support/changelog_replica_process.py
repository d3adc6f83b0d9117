"""A replica in a process of its own: ``python changelog_replica_process.py BOOTSTRAP CHANGELOG KIND PATH``.

It runs until it is killed; each line that it prints is a shard, its phase and its commit.
"""

import sys
import threading

from moldau.changelog.machine import Limits
from moldau.changelog.replica import Replica
from moldau.changelog.store import ReplicaStore
from moldau.changelog.stores.delta import DeltaStore
from moldau.changelog.stores.duckdb import DuckdbStore
from moldau.changelog.stores.sqlite import SqliteStore

LIMITS = Limits(memory_changes_max=200, apply_changes_max=50)
"""Small, so that commits are spilled, and many transactions of the store can be hit."""


def store_of(kind: str, path: str) -> ReplicaStore:
    match kind:
        case "delta":
            return DeltaStore(path, sharded=True)
        case "duckdb":
            return DuckdbStore(path, sharded=True)
        case _:
            return SqliteStore(path, sharded=True)


def main(bootstrap: str, changelog: str, kind: str, path: str) -> None:
    """Until it is killed."""
    replica = Replica(bootstrap, changelog, store_of(kind, path), limits=LIMITS)
    runner = threading.Thread(target=replica.run, daemon=True)
    runner.start()
    seen: dict[int, tuple[str, int]] = {}
    while runner.is_alive():
        for shard in range(2):
            position = replica.position(shard)
            if position is not None and seen.get(shard) != (position.phase.value, position.commit):
                seen[shard] = (position.phase.value, position.commit)
                print(shard, *seen[shard], flush=True)
        runner.join(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])
