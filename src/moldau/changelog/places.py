"""Stores of replicas by their addresses, as people name them: `sqlite:///copy.db`, `duckdb:///copy.db`, `postgresql://host/database`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.changelog.errors import ChangelogError
from moldau.model.extras import require

if TYPE_CHECKING:
    from moldau.changelog.store import ReplicaStore

FORMS: Final = "sqlite:///PATH, duckdb:///PATH, postgresql://..., or a directory of Delta tables"
"""For help texts and messages."""
_OF_FILES: Final = (".db", ".duckdb", ".sqlite", ".sqlite3")
"""Endings of databases that are one file, which are no names of directories."""
_PASSWORDS: Final = ((re.compile(r"(://[^:/@]*):[^/]*@"), r"\1@"), (re.compile(r"([?&]password=)[^&]*"), r"\1***"))


class PlaceError(ChangelogError):
    """No store has this address, or there is none."""


class StorePlace(NamedTuple):
    """An address, parsed."""

    text: str
    """As it was given, for messages: without a password."""
    kind: str
    """`sqlite`, `duckdb`, `postgresql`, `delta`."""
    path: str
    """Of a file or a directory; for PostgreSQL the whole address."""

    @property
    def is_file(self) -> bool:
        """Whether the store is one file."""
        return self.kind in ("sqlite", "duckdb")


def parse_place(text: str) -> StorePlace:
    """PlaceError."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        path = Path(text)
        if path.is_file() or (path.suffix in _OF_FILES and not path.is_dir()):
            raise PlaceError(f"{text!r} is no directory of Delta tables: a file is sqlite:///{text} or duckdb:///{text}")
        if text.strip():
            return StorePlace(text, "delta", text)
    elif scheme in ("postgresql", "postgres"):
        return StorePlace(_without_password(text), "postgresql", text)
    elif scheme in ("sqlite", "duckdb") and rest.startswith("/") and len(rest) > 1:
        return StorePlace(text, scheme, rest[1:])
    raise PlaceError(f"{_without_password(text)!r} is not the address of a store: {FORMS}; a path that begins at the root has four slashes")


def _without_password(text: str) -> str:
    for pattern, instead in _PASSWORDS:
        text = pattern.sub(instead, text)
    return text


def open_store(place: StorePlace, *, sharded: bool = False, must_exist: bool = False) -> "ReplicaStore":
    """A store that is there, or is made unless it `must_exist`. PlaceError, MissingExtraError, StoreError, RefusedError."""
    if must_exist and place.kind != "postgresql" and not Path(place.path).exists():
        raise PlaceError(f"{place.text}: there is no such {'file' if place.is_file else 'directory'}")
    match place.kind:
        case "sqlite":
            from moldau.changelog.stores.sqlite import SqliteStore

            return SqliteStore(place.path, sharded=sharded)
        case "duckdb":
            require("changelog", "a replica in DuckDB")
            from moldau.changelog.stores.duckdb import DuckdbStore

            return DuckdbStore(place.path, sharded=sharded)
        case "postgresql":
            from moldau.changelog.postgres.store import PostgresStore

            return PostgresStore(place.path, sharded=sharded)
        case _:
            require("lake", "a replica in Delta tables")
            from moldau.changelog.stores.delta import DeltaStore

            return DeltaStore(place.path, sharded=sharded)
