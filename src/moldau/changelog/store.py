"""The port of replicas: a store that takes commits and keeps its position with them in one transaction."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from moldau.changelog.values import Change, Key, Row, Table
from moldau.model.errors import WorldError

SHARD_COLUMN = "_shard"
"""In the tables of a store of several shards, first in the primary key."""


class StoreError(WorldError):
    """A store refused or failed; the message names store, table and key. Nothing of the transaction is kept."""


class Phase(Enum):
    """How far a shard of a replica can be believed."""

    LOADING = "loading"
    """It has rows of different commits."""
    FOLLOWING = "following"
    """It is what the source was at a commit."""


class Position(NamedTuple):
    """How far a replica has one shard."""

    phase: Phase
    epoch: int
    commit: int
    """Applied as a whole; while loading, the one up to which it loads."""
    commit_ms: int
    """When the source committed it, since 1970; 0 if not known. While loading: since when deletions have to be in the log still."""
    offsets: Mapping[str, int]
    """By topic: the next one to read of the partition with the shard's number."""
    ids: Mapping[str, str] = {}
    """By topic: its id, in hexadecimal digits; offsets mean nothing in a topic with another one."""
    tables: Mapping[str, Table] = {}
    """By topic: what its table is at this commit. The topic of commits has none."""
    partial: bool = False
    """Whether only some tables of the changelog are taken."""


class KeyRange(NamedTuple):
    """Rows of a table from one key on, up to another one."""

    low: Key | None
    """Included; None: from the first."""
    high: Key | None
    """Excluded; None: to the last."""


WHOLE = KeyRange(None, None)
"""All rows."""


class Checksum(NamedTuple):
    """Of the rows of a range, without their order."""

    rows: int
    value: int
    """Sum of the rows' hashes modulo 2^64: see `moldau.changelog.checksums`."""


class ReplicaStore(Protocol):
    """Where a replica keeps its rows. Used by one thread. Each of its methods is one transaction; StoreError names store, table and key.

    Keys are ordered as Python orders them: text by code points, bytes by their values.
    """

    @property
    def sharded(self) -> bool:
        """Whether tables have the column `_shard`, and so rows of several shards."""
        ...

    def look(self, changelog: str, tables: Sequence[Table] = ()) -> Mapping[int, Position]:
        """Instead of `prepare`: for reading only, nothing is made. Positions by shard, none where the store is no replica. `sharded`
        becomes what these tables are.
        """
        ...

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Make what is missing of tables and of the table of positions; columns that a table has got since are added.

        The first call of all; later ones have other tables, or more columns of the same. StoreError for a table with another primary key.
        """
        ...

    def positions(self) -> Mapping[int, Position]:
        """By shard, as they were stored last."""
        ...

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        """Bring rows to what the changes say, and store the position. A row that is there already is replaced, and the deletion of one
        that is not there is no error: a replica that is loading may get a change twice. The changes may be more than fit into memory:
        they are read once, in their order, and not copied into a list.
        """
        ...

    def clear(self, shard: int, position: Position) -> None:
        """Remove the rows of a shard, and store the position: its replica begins again."""
        ...

    def checksum(self, shard: int, table: str, rows: KeyRange) -> Checksum:
        """Over a range of a shard."""
        ...

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """A key that divides a range into halves of about the same number of rows; None if it has fewer than two."""
        ...

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """Of a range, by key."""
        ...

    def close(self) -> None:
        """Nothing is used after that."""
        ...
