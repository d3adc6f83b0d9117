"""Changelogs: a store publishes its changes to topics, and replicas apply them (docs/changelog-replicas.md).

``from moldau.changelog import Replica, SqliteStore``. Nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

from moldau.model.extras import load

if TYPE_CHECKING:
    from moldau.changelog.checksums import Difference, compare
    from moldau.changelog.replica import Lag, Replica
    from moldau.changelog.store import Phase, Position, ReplicaStore, StoreError
    from moldau.changelog.stores.delta import DeltaStore
    from moldau.changelog.stores.dictionary import DictionaryStore
    from moldau.changelog.stores.duckdb import DuckdbStore
    from moldau.changelog.stores.sqlite import SqliteStore

_HOMES = {
    "DeltaStore": "moldau.changelog.stores.delta",
    "DictionaryStore": "moldau.changelog.stores.dictionary",
    "Difference": "moldau.changelog.checksums",
    "DuckdbStore": "moldau.changelog.stores.duckdb",
    "Lag": "moldau.changelog.replica",
    "Phase": "moldau.changelog.store",
    "Position": "moldau.changelog.store",
    "Replica": "moldau.changelog.replica",
    "ReplicaStore": "moldau.changelog.store",
    "SqliteStore": "moldau.changelog.stores.sqlite",
    "StoreError": "moldau.changelog.store",
    "compare": "moldau.changelog.checksums",
}

__all__ = [
    "DeltaStore",
    "DictionaryStore",
    "Difference",
    "DuckdbStore",
    "Lag",
    "Phase",
    "Position",
    "Replica",
    "ReplicaStore",
    "SqliteStore",
    "StoreError",
    "compare",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(__name__, name, _HOMES[name], "lake" if name == "DeltaStore" else "changelog")
